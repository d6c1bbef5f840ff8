"""Values as they come back from their JSON text, without the text.

Of these nothing comes back otherwise: text that is valid Unicode, integers of 64 bits, finite
floats, None, booleans, and lists and dictionaries of them, all of exactly these types, with names
of text; and tuples come back as lists. Subclasses, NaN, surrogates and all else are left to JSON,
which changes some of them, and refuses others.
"""

from collections.abc import Callable
from math import isfinite
from types import NoneType
from typing import Any

#: What :data:`PLAIN` may raise for what is left to JSON.
NOT_PLAIN = (KeyError, ValueError, RecursionError)

#: Python refuses to write integers that are much larger.
HUGE = 1 << 64

#: A list or dictionary of so many is looked at as a whole.
_LONG = 32


def _int(value: int) -> int:
    if -HUGE < value < HUGE:
        return value
    raise ValueError


def _float(value: float) -> float:
    if isfinite(value):
        return value
    raise ValueError


def _str(value: str) -> str:
    if not value.isascii():
        value.encode()
    return value


def _list(value: Any) -> list[Any]:
    if len(value) > _LONG and _are_plain(value):
        return list(value)
    for item in value:
        kind = type(item)
        if kind is str:
            if not item.isascii():
                item.encode()
        elif kind is int:
            if not -HUGE < item < HUGE:
                raise ValueError
        elif kind is float:
            if item - item:  # NaN for NaN and the infinite
                raise ValueError
        elif kind is not bool and item is not None:
            return [PLAIN[type(item)](item) for item in value]
    return value if type(value) is list else list(value)


def _are_plain(values: Any) -> bool:
    """Whether values are plain, and of one kind; False if that is not as easily told."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return isfinite(sum(values))
    if kinds == {str}:
        return bool(_str("".join(values)))
    return kinds == {int} and min(values) > -HUGE and max(values) < HUGE


def _dict(value: dict[Any, Any]) -> dict[str, Any]:
    if len(value) > _LONG:
        if set(map(type, value)) != {str}:
            raise ValueError
        _str("".join(value))
        return dict(zip(value, _list(value.values()), strict=True))
    for name, item in value.items():
        if type(name) is not str:
            raise ValueError
        if not name.isascii():
            name.encode()
        kind = type(item)
        if kind is float:
            if item - item:
                raise ValueError
        elif kind is int:
            if not -HUGE < item < HUGE:
                raise ValueError
        elif kind is str:
            if not item.isascii():
                item.encode()
        elif kind is not bool and item is not None:
            return {_name(name): PLAIN[type(item)](item) for name, item in value.items()}
    return value


def _name(name: Any) -> str:
    if type(name) is str:
        return _str(name)
    raise ValueError


def _same(value: Any) -> Any:
    return value


#: By exact type: the value as it comes back, perhaps the same object, or one of :data:`NOT_PLAIN`.
PLAIN: dict[type, Callable[[Any], Any]] = {
    int: _int,
    float: _float,
    str: _str,
    bool: _same,
    NoneType: _same,
    list: _list,
    tuple: _list,
    dict: _dict,
}
