"""Parts of one's own in the form of the version before, which run with a warning.

Then a program was the task, too: :func:`begin` gave it ``self.state`` and ``self.layout``, ``map``
took a :class:`LeafRange`, and all other methods took the number of completed rounds. What a program
could do it said by class attributes, and by the methods of :class:`Earlier` that it overrode.
"""

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any

from mapreduce.engine.leaf_ranges import LeafRange

#: Methods that take the number of completed rounds in both forms.
_OF_NUMBERS = (
    "units", "phases", "is_over", "next_due", "beside", "is_concluded", "conclude", "is_out",
)  # fmt: skip


class Earlier:
    """What a program of the earlier form inherits, unless it has methods of its own."""

    has_state = ends_early = False

    @property
    def starts_small(self) -> bool:
        return self.ends_early

    def most_rounds(self) -> int:
        return 1

    def first(self, blocks: int) -> Any:
        return ()

    def is_over(self, completed: int, arrays: Any) -> bool:
        return completed >= self.most_rounds()

    def blocks_for(self, wanted: int) -> int:
        return 1

    def next_due(self, completed: int) -> int:
        return self.most_rounds()

    def beside(self, completed: int, arrays: Any) -> Any:
        return None

    def conclude(self, completed: int, block: Any) -> None:
        return


def is_earlier(kind: type) -> bool:
    """Whether a class of programs has the earlier form."""
    if issubclass(kind, Earlier):
        return True
    own = vars(kind)
    takes_part = "map" in own and len(inspect.signature(own["map"]).parameters) == 2
    takes_number = "lift" in own and "completed" in inspect.signature(own["lift"]).parameters
    is_flagged = not own.keys().isdisjoint(("has_state", "ends_early"))
    return is_flagged or takes_part or takes_number


def adapt(kind: Any, capabilities: Iterable[Any]) -> None:
    """Give a class of the earlier form the new one: base classes, and methods that take a round."""
    bases = []
    if not issubclass(kind, Earlier):
        _warn(
            f"the program {kind.__qualname__}: expected methods that take a Round, and a base "
            f"class of mapreduce.parts for all that it can do",
            5,
        )
        bases = [Earlier]
    for capability in capabilities:
        names = {name for name, value in vars(capability).items() if inspect.isfunction(value)}
        if vars(kind).keys() & names and capability not in kind.__mro__:
            bases.append(capability)
    kind.__bases__ = (*kind.__bases__, *bases)
    for name, method in [*vars(kind).items()]:
        if not inspect.isfunction(method) or name in _OF_NUMBERS:
            continue
        parameters = [*inspect.signature(method).parameters]
        if name == "map" and len(parameters) == 2:
            setattr(kind, name, _with_state(method, _part_of))
        elif parameters[1:2] == ["completed"]:
            setattr(kind, name, _with_state(method, _number_of))


def _part_of(now: Any, units: range) -> tuple[Any, ...]:
    return (LeafRange(now.completed, units.start, units.stop),)


def _number_of(now: Any, *more: Any) -> tuple[Any, ...]:
    return now.completed, *more


def _with_state(method: Callable[..., Any], arguments: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the earlier form, called with a round; or with its own arguments, by itself."""

    @wraps(method)
    def called(self: Any, now: Any, *more: Any) -> Any:
        if not hasattr(now, "state"):
            return method(self, now, *more)
        vars(self).update(state=now.state, layout=now.layout)
        return method(self, *arguments(now, *more))

    return called


# Programs, as executors of the earlier form use them


def attribute(program: Any, name: str, functions: Mapping[str, Callable[..., Any]]) -> Any:
    """What the earlier form has of any program: ``functions`` of it, and ``begin``.

    Raises AttributeError (it had no such name either).
    """
    if (own := getattr(type(program), name, None)) is not None:
        # Its property raised AttributeError, which Python took for a missing attribute.
        return own.__get__(program)
    if name == "begin":
        return partial(begin, program)
    if name in functions and hasattr(type(program), "most_rounds"):
        return partial(functions[name], program)
    if name in (*functions, "most_rounds"):
        # A program without a state has one round, and is over after it.
        return lambda *_: 1
    raise AttributeError(f"{type(program).__name__!r} object has no attribute {name!r}")


def begin(program: Any, state: Any, layout: Any) -> None:
    """Have a program itself map and reduce from now on, by this state."""
    _warn("an executor that calls begin: call task(state, layout), which maps and reduces, instead")
    task = program.task(state, layout)

    def either(now: Any, *units: range) -> Any:
        return type(program).map(program, now, *units) if units else task.map(now)

    vars(program).update(state=state, layout=layout, map=either, reduce=task.reduce)


# Keys, which strategies of the earlier form had as texts


def block_key(block: int) -> tuple[int]:
    """The key of a block."""
    _warn("block_key: a key is a tuple of numbers now, and begins with its block: (block,)")
    return (block,)


def block_of(key: tuple[int, ...]) -> int:
    """The block of a key."""
    _warn("block_of: a key is a tuple of numbers now, and begins with its block: key[0]")
    return key[0]


def _warn(what: str, level: int = 3) -> None:
    # Python shows a DeprecationWarning only of the script that it runs, and not of its modules.
    text = f"{what}. See docs/extending.md; the next version does not know the old form"
    warnings.warn(text, FutureWarning, stacklevel=level)
