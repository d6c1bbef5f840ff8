"""Options, each declared once: the fields of a frozen dataclass, made by :func:`option`.

Commands derive their flags and help from it by :func:`table`, and Python its keywords. Options of a
member of a family, such as an optimizer, may follow its name: ``adam:beta1=0.8,beta2=0.99``.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
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


def is_count(number: int) -> bool:
    """Whether a number may count things."""
    return number >= 0


def up_to(most: int, text: str = "a positive number up to {:,}") -> Bound:
    """Whole numbers from 1 to ``most``."""
    return Bound(text.format(most), lambda number: 1 <= number <= most)


def expect(condition: bool, option: str, expected: str, found: object) -> None:
    """Raise a UsageError unless a condition holds."""
    if not condition:
        raise UsageError(f"{option}: expected {expected}, found {found}")


def option(default: Any, text: str, bound: Bound | None = None, **more: Any) -> Any:
    """A field of a dataclass of options, with a line of help; by default any value is valid.

    ``more``: Attributes of :class:`Option`, where they are not the usual ones.
    """
    return field(default=default, metadata={"help": text, "bound": bound, **more})


@dataclass(frozen=True)
class Option:
    """One option, as a flag and as a keyword.

    ``default``: None if it depends on other things, which ``help`` explains.
    ``choices``: The values that are valid, if these are few texts.
    ``family``: The :class:`mapreduce.support.registry.Registry` of which the value names a member.
    ``is_auto``: Whether the option takes "auto" for its default, too.
    ``group``: The heading of the option in the help.
    ``joint``: What joins several values of an option of many in one text, "" if each comes alone;
      None for an option of one value.
    ``metavar``: The form of a value in the help, if the name of its type does not say it.
    ``needs_owner``: Whether a value other than the default asks for the member that declares it.
    ``owner``, ``field``: The declaration: a dataclass, and the name of its field.
    """

    flag: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    family: Any = None
    bound: Bound | None = None
    is_auto: bool = False
    group: str = ""
    joint: str | None = None
    metavar: str = ""
    needs_owner: bool = False
    owner: Any = None
    field: str = ""

    def parse(self, text: str) -> Any:
        """The value of a text; a ValueError if it is none."""
        return text if self.is_auto and text == "auto" else self.type(text)

    @property
    def name(self) -> str:
        """The keyword."""
        return self.flag.partition("/")[0].lstrip("-").replace("-", "_")

    def check(self, value: Any) -> None:
        """Refuse a value with a UsageError: not a choice, out of bounds, or an unknown member."""
        if (value is None and self.default is None) or (self.is_auto and value == "auto"):
            return
        if self.choices:
            known = f"one of {', '.join(self.choices)}"
            expect(value in self.choices, self.flag, known, repr(value))
        if self.bound is not None:
            expect(self.bound.holds(value), self.flag, self.bound.text, value)
        self.members(value)

    def members(self, value: str) -> list[str]:
        """The code that a value names in the family; a schedule may be several members."""
        if self.family is None or (self.is_auto and value == "auto"):
            return []
        return [self.family.code(part) for part in self.family.parts(value)]


def table(kind: type[Any], group: str = "") -> tuple[Option, ...]:
    """The options that a dataclass declares, under a heading unless they name another."""
    rows = []
    for one in fields(kind):
        if not one.metadata:
            continue
        value: Any = next(iter(get_args(one.type)), one.type)
        more = {"group": group, "flag": f"--{one.name.replace('_', '-')}", **one.metadata}
        if family := more.get("family"):
            text, _, default = more["help"].partition(" (default")
            more["help"] = f"{text}: {family.known}" + f" (default{default}" * bool(default)
        rows.append(Option(type=value, default=one.default, owner=kind, field=one.name, **more))
    return tuple(rows)


def names(kind: type[Any]) -> tuple[str, ...]:
    """The names of the options that a dataclass declares."""
    return tuple(one.name for one in fields(kind) if one.metadata)


def once(rows: Iterable[Option]) -> tuple[Option, ...]:
    """Options, of which several classes inherit some, each once."""
    return tuple({row.name: row for row in rows}.values())


def pick(rows: tuple[Option, ...], *names: str, group: str = "") -> tuple[Option, ...]:
    """Some options of a table, under another heading if one is named."""
    known = {row.name: row for row in rows}
    return tuple(replace(known[n], group=group or known[n].group) for n in names)


def checked(given: Mapping[str, Any], *tables: tuple[Option, ...]) -> dict[str, Any]:
    """Values from Python or from a file, if they are right for the options of some tables."""
    known = {option.name: option for table in tables for option in table}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"there is no keyword {name!r}.{did_you_mean(name, known)} Keywords are the "
                f"command's options, with underscores"
            )
        option = known[name]
        # NumPy's numbers are accepted too.
        value = value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value
        if option.type is float and type(value) is int:
            value = float(value)
        is_default = (value is None and option.default is None) or (
            option.is_auto and value == "auto"
        )
        if not is_default and type(value) is not option.type:
            expected = " or ".join(option.choices) or option.type.__name__
            expected += " or auto" if option.is_auto else ""
            raise UsageError(f"{option.flag}: expected {expected}, found {value!r:.60}")
        option.check(value)
        values[name] = value
    return values


def parse(kind: type[Any] | None, text: str | None, member: str) -> Any:
    """The options of a text ``NAME=VALUE,NAME=VALUE``; None if a member declares none.

    ``kind`` is their dataclass, ``member`` whose they are, for an error: ``--optimizer adam``.
    """
    found = values(kind, text, member)
    if kind is None:
        return None
    if missing := [o.name for o in fields(kind) if o.name not in found and o.default is MISSING]:
        raise UsageError(f"{member}: expected the option {missing[0]}=VALUE, which has no default")
    return kind(**found)


def values(kind: type[Any] | None, text: str | None, member: str) -> dict[str, Any]:
    """The values that a text of :func:`parse` gives."""
    if kind is None:
        if text is not None:
            raise UsageError(f"{member}: expected no arguments, found {text!r:.80}")
        return {}
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
        bound = _bound(known[name].metadata)
        expected = bound.text if bound else _TYPES[types[name]]
        try:
            found[name] = _value(types[name], value)
            is_right = bound is None or bool(bound.holds(found[name]))
        except ValueError:
            is_right = False
        if not is_right:
            raise UsageError(f"{member}, option {name}: expected {expected}, found {value!r:.40}")
    return found


def _bound(metadata: Mapping[str, Any]) -> Bound | None:
    choices = metadata.get("choices")
    if not choices:
        return metadata.get("bound")
    return Bound(f"one of {', '.join(choices)}", lambda value: value in choices)


def spelled(kind: type[Any], text: str, member: str) -> str:
    """The one text of the options that are given by this one, in the order of their declaration.

    Errors are those of :func:`parse`.
    """
    parse(kind, text, member)
    found = values(kind, text, member)
    named = [one.name for one in fields(kind) if one.name in found]
    return ",".join(f"{name}={_value_text(found[name])}" for name in named)


def _value_text(value: object) -> str:
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
        found[one.name], bound = kinds[0], _bound(one.metadata)
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


def describe(kind: type[Any] | None) -> list[tuple[str, str]]:
    """Each option with its default, and what it does; errors are those of a wrong declaration."""
    if kind is None:
        return []
    _checked(kind)
    found = []
    for one in fields(kind):
        default = "VALUE" if one.default is MISSING else one.default
        bound = _bound(one.metadata)
        limits = f" ({bound.text})" if bound else ""
        found.append((f"{one.name}={default}", f"{one.metadata.get('help', '')}{limits}"))
    return found
