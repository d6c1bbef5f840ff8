"""Options that a member of a family declares: a model, an optimizer, a strategy of one's own too.

They are the fields of a frozen dataclass, each made by :func:`option`. A specification gives them
after the member's name, as in ``adam:beta1=0.8,beta2=0.99``.
"""

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, field, fields, is_dataclass
from typing import Any, NamedTuple, get_args, get_type_hints

from mapreduce.errors import UsageError
from mapreduce.support.suggest import did_you_mean

_TYPES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


class Bound(NamedTuple):
    """The condition for the values of an option, in words and as a test."""

    text: str
    holds: Callable[[Any], bool]


def between(least: float, below: float) -> Bound:
    """Numbers from ``least`` on, and below ``below``."""
    return Bound(f"a number in [{least:g}, {below:g})", lambda number: least <= number < below)


#: Finite numbers above 0.
POSITIVE = Bound("a finite, positive number", lambda number: 0 < number < math.inf)


def option(default: Any, text: str, bound: Bound | None = None) -> Any:
    """A field of a dataclass of options, with a line of help; by default any value is valid."""
    return field(default=default, metadata={"help": text, "bound": bound})


def parse(kind: type[Any] | None, text: str | None, member: str) -> Any:
    """The options of a text ``NAME=VALUE,NAME=VALUE``; None if a member declares none.

    ``kind`` is their dataclass, ``member`` whose they are, for an error: ``--optimizer adam``.
    """
    if kind is None:
        if text is not None:
            raise UsageError(f"{member}: expected no arguments, found {text!r:.80}")
        return None
    types, found = _checked(kind), dict[str, Any]()
    known = {one.name: one for one in fields(kind)}
    for part in text.split(",") if text is not None else ():
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals:
            form = f"{next(iter(known), 'NAME')}=VALUE"
            raise UsageError(f"{member}: expected options such as {form}, found {part!r:.80}")
        if name not in known:
            raise UsageError(
                f"{member}: it has no option {name!r:.40}: expected one of "
                f"{', '.join(known)}.{did_you_mean(name, known)}"
            )
        if name in found:
            raise UsageError(f"{member}: the option {name} is given twice")
        bound = known[name].metadata.get("bound")
        expected = bound.text if bound else _TYPES[types[name]]
        try:
            found[name] = _value(types[name], value)
            is_right = bound is None or bool(bound.holds(found[name]))
        except ValueError:
            is_right = False
        if not is_right:
            raise UsageError(f"{member}, option {name}: expected {expected}, found {value!r:.40}")
    if missing := [n for n, one in known.items() if n not in found and one.default is MISSING]:
        raise UsageError(f"{member}: expected the option {missing[0]}=VALUE, which has no default")
    return kind(**found)


def spelled(kind: type[Any], text: str, member: str) -> str:
    """The one text of the options that are given by this one, in the order of their declaration.

    Errors are those of :func:`parse`.
    """
    found = parse(kind, text, member)
    given = {part.partition("=")[0].strip() for part in text.split(",")}
    named = [one.name for one in fields(kind) if one.name in given]
    return ",".join(f"{name}={_shown(getattr(found, name))}" for name in named)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # 1000.0 is written as 1000, and 1e-08 as 1e-8.
    return re.sub(r"\.0$|(?<=e[+-])0", "", repr(value)) if type(value) is float else str(value)


def _checked(kind: Any) -> dict[str, type]:
    """The types of the options, of which None is a default alone."""
    what = f"the options {getattr(kind, '__qualname__', kind)!s:.60}"
    if not isinstance(kind, type) or not is_dataclass(kind):
        raise UsageError(f"{what}: expected a dataclass")
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        raise UsageError(f"{what}: {error}") from error
    found = {}
    for one in fields(kind):
        hint = hints[one.name]
        kinds = [each for each in get_args(hint) or (hint,) if each is not type(None)]
        if len(kinds) != 1 or kinds[0] not in _TYPES or not one.init:
            raise UsageError(
                f"{what}, {one.name}: expected int, float, str or bool, or one of them and None, "
                f"found {one.type}"
            )
        found[one.name], bound = kinds[0], one.metadata.get("bound")
        if one.default not in (MISSING, None):
            is_kind = type(one.default) is kinds[0] or (kinds[0] is float and one.default == 0)
            if not is_kind or not (bound is None or bound.holds(one.default)):
                expected = bound.text if bound else _TYPES[kinds[0]]
                raise UsageError(
                    f"{what}, {one.name}: expected {expected} as its default, found "
                    f"{one.default!r:.40}"
                )
    return found


def _value(kind: type, text: str) -> Any:
    if kind is not bool:
        return kind(text)
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def described(kind: type[Any] | None) -> list[tuple[str, str]]:
    """Each option with its default, and what it does; errors are those of a wrong declaration."""
    if kind is None:
        return []
    _checked(kind)
    found = []
    for one in fields(kind):
        default = "VALUE" if one.default is MISSING else one.default
        bound = one.metadata.get("bound")
        limits = f" ({bound.text})" if bound else ""
        found.append((f"{one.name}={default}", f"{one.metadata.get('help', '')}{limits}"))
    return found
