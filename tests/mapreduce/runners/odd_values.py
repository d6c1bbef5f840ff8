"""Values that come back from JSON as something else, or hardly."""

from hypothesis import strategies as st


class Number(int):
    """JSON does not keep the type."""


class Text(str):
    """As above."""


class Names(dict):
    """As above."""


class Items(list):
    """As above."""


scalars = [-0.0, 1 << 64, -(1 << 64), 10**700, float("nan"), float("inf"), Number(3), Text("a")]
surrogates = ["\ud83d", "\ud83d\ude00", "😀", {"\ud83d": 1}, {"é": "\udc00"}]
long = [[one] * 40 for one in ("x" * 300, 0.5, float("nan"), 1e308, True)]
long += [
    list(range(40)),
    [None, 1] * 20,
    {f"k{i}": i for i in range(40)},
    {i: i for i in range(40)},
]
containers = [Names(a=1), Items([1]), {3: 1, "3": 2}, {None: 1, True: 2, 0.5: 3}, {Text("b"): 1}]
containers += [{"b": 1, "a": [(1, (2.0,)), {}]}, [[[]]]]

odd = st.sampled_from([*scalars, *surrogates, *long, *containers])
