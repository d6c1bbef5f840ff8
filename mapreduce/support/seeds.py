"""Random generators without a seed: every fork draws other numbers from them, as a new Python does.

A generator may be anywhere: in a module, a class or a list. Python's generators are noted when they
are seeded. NumPy's are known by the type of their entropy if nobody has chosen it.
"""

import contextlib
import gc
import random
import sys
from functools import wraps
from typing import Any
from weakref import WeakSet

_random: Any = random
#: Python's generators without a seed, that of the module's functions among them.
_unseeded: WeakSet[Any] = WeakSet([_random._inst])
#: The state of that one, if somebody has seeded it; and NumPy's generators without a seed.
_state: Any = None
_numpys: list[Any] = []
#: How often NumPy has drawn entropy since these were looked for; its import draws some.
_draws = 0 if "numpy.random" in sys.modules else -1


class _Entropy(int):
    """Entropy of 128 bits in the place of a seed; a copy is a number like any other."""

    def __reduce__(self) -> Any:
        return int, (int(self),)


def watch() -> None:
    """Note from now on which generators have a seed."""
    seed, setstate = _random.Random.seed, _random.Random.setstate
    getrandbits = _random.SystemRandom.getrandbits
    modules: Any = sys.modules

    @wraps(seed)
    def note_seed(self: Any, a: Any = None, *arguments: Any, **options: Any) -> None:
        (_unseeded.add if a is None else _unseeded.discard)(self)
        seed(self, a, *arguments, **options)

    @wraps(setstate)
    def note_state(self: Any, state: Any) -> None:
        _unseeded.discard(self)
        setstate(self, state)

    @wraps(getrandbits)
    def mark_entropy(self: Any, k: int) -> Any:
        global _draws
        _draws += k == 128
        return (_Entropy if k == 128 else int)(getrandbits(self, k))

    _random.Random.seed, _random.Random.setstate = note_seed, note_state
    _random.SystemRandom.getrandbits = mark_entropy
    # These are methods that were bound before.
    _random.seed, _random.setstate = _random._inst.seed, _random._inst.setstate
    for name in {"secrets", "numpy.random.bit_generator"} & modules.keys():
        modules[name].randbits = _random.SystemRandom().getrandbits


def prepare() -> None:
    """In the parent of forks: look for the generators without a seed."""
    global _state, _draws
    _state = None if _random._inst in _unseeded else random.getstate()
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is None or _draws <= 0:
        return
    _draws = 0
    is_frozen = gc.get_freeze_count()
    gc.unfreeze()
    objects = gc.get_objects()
    if is_frozen:
        gc.freeze()
    # There are many, of few types.
    meant = numpy.SeedSequence, numpy.BitGenerator, numpy.RandomState
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, meant)}
    _numpys[:] = [one for one in objects if type(one) in kinds and _is_unseeded(one)]


def _is_unseeded(one: Any) -> bool:
    source = getattr(one, "_bit_generator", one)
    return type(getattr(getattr(source, "seed_seq", source), "entropy", None)) is _Entropy


def renew() -> None:
    """In a fork: draw other numbers from the generators without a seed."""
    if _state is not None:
        # Python itself gives each fork other ones.
        random.setstate(_state)
    for one in [*_unseeded]:
        _random.Random.seed(one)
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None and numpy.mtrand._rand._bit_generator.seed_seq is not None:
        numpy.seed()
    for one in _numpys:
        # A RandomState, which holds the last draw back, begins anew with its generator.
        parts = [one._bit_generator] if hasattr(one, "_bit_generator") else []
        with contextlib.suppress(TypeError):  # a class of somebody's that takes more
            type(one).__init__(one, *parts)
