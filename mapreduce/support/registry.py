"""Open families: a member has a name of the toolkit's or of an installed package, or MODULE:NAME.

To import a member is to run its module, so one that is written as ``MODULE:NAME`` is only imported
if the user has named it: see :mod:`mapreduce.support.trust`.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

from mapreduce.errors import MemberError, UntrustedError, UsageError
from mapreduce.support import options, trust
from mapreduce.support.suggest import did_you_mean, names_in


@dataclass(frozen=True, eq=False)
class Registry:
    """The members of a family, by name; iterating gives the names of the toolkit's own.

    ``kind``: The kind of member, which is also the name of the option.
    ``group``: Entry points by which installed packages add members.
    ``builtin``: ``module:attribute`` of each name.
    ``forms``: Form of the names that take arguments.
    ``base``: ``module:Class`` that a member must extend or be an instance of; "" if it is a
      function.
    ``also``: Values of the option that name no member.
    ``carriers``: The toolkit's own members whose argument names code of the user's, MODULE:NAME.
    ``joint``: What joins several members in one value; "" if it names one.
    ``declarations``: ``module:Class`` of the options of the toolkit's own that are flags, too: in a
      module that is quick to load, since help needs them.
    """

    kind: str
    group: str
    builtin: Mapping[str, str]
    forms: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    carriers: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    joint: str = ""
    declarations: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        return iter(self.builtin)

    @property
    def members(self) -> list[str]:
        """The names of all members that have one: the toolkit's, then those of packages."""
        return [*self, *(name for name in self._installed if name not in self.builtin)]

    @property
    def names(self) -> list[str]:
        """What a specification may begin with."""
        return self.members

    def has(self, name: object) -> bool:
        """Whether a member has this name; packages are only asked if none of the toolkit's has."""
        return name in self.builtin or name in self._installed

    @property
    def known(self) -> str:
        """All ways to name a member, for a message."""
        known = *self.also, *(self.forms.get(name, name) for name in self)
        return f"{', '.join(known)}, or MODULE:NAME"

    def split(self, spec: str) -> tuple[str, str | None]:
        """Name and arguments of a specification such as ``mlp:7``; nothing is imported."""
        name, colon, rest = spec.partition(":")
        if name not in self.builtin and (own := trust.OWN.fullmatch(spec)):
            return own[1], own[2]
        if not self.has(name):
            meant = did_you_mean(name, self.names)
            raise UsageError(
                f"--{self.kind}: unknown {self.kind} {spec!r}: expected one of {self.known}.{meant}"
            )
        return name, rest if colon else None

    def parts(self, value: str) -> list[str]:
        """The specifications that a value joins."""
        return [part.strip() for part in value.split(self.joint)] if self.joint else [value]

    def tables(self) -> dict[str, tuple[options.Option, ...]]:
        """The options of the toolkit's own that are flags, by the names of the members."""
        return {name: options.table(_attribute(place)) for name, place in self.declarations.items()}

    @property
    def classes(self) -> tuple[type[Any], ...]:
        """The dataclasses of :meth:`tables`."""
        return tuple(map(_attribute, self.declarations.values()))

    @property
    def options(self) -> tuple[options.Option, ...]:
        """The options of :meth:`tables`, each once."""
        return options.once(row for rows in self.tables().values() for row in rows)

    def expanded(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values in which the options of flags do not follow the name of a member any more.

        Raises UsageError (an option has two values, or as :func:`mapreduce.support.options.parse`).
        """
        found, spec = {**values}, values.get(self.kind) or ""
        name, text = self.split(spec) if ":" in spec else ("", None)
        if name not in self:
            return found
        if name not in self.declarations:
            # An error now, if they are wrong.
            self.configured(spec)
            return found
        found[self.kind] = name
        rows = {row.field: row for row in self.tables()[name]}
        declared = _attribute(self.declarations[name])
        for each, value in options.values(declared, text, f"--{self.kind} {name}").items():
            row = rows[each]
            before = found.get(row.name, row.default)
            is_once = before in (row.default, value)
            options.expect(is_once, row.flag, f"one value, as {value} after the name", before)
            found[row.name] = value
        return found

    def code(self, spec: str) -> str:
        """The code that a specification names: a member, or the ``MODULE:NAME`` it carries."""
        name, rest = self.split(spec)
        if name not in self.carriers:
            return name
        own = trust.OWN.fullmatch(rest or "")
        if own is None or own[2] is not None:
            raise UsageError(f"--{self.kind} {spec}: expected {self.forms[name]}")
        return own[1]

    def target(self, name: str) -> str:
        """Where a member is, as ``module:attribute``; an UntrustedError if it is not trusted."""
        if ":" not in name:
            return self.builtin.get(name) or self._installed[name]
        if name not in trust.trusted():
            raise UntrustedError(
                f"{name} is the {self.kind} that a run or a file names. Importing it can run any "
                f"program. If you trust it, add --trust {name}, or in Python trust=[{name!r}] to "
                f"mapreduce.open_run or mapreduce.load"
            )
        return name

    def find(self, name: str) -> Any:
        """The member of a name that :meth:`split` gave."""
        member = self.imported(name)
        if name not in self.builtin:
            self._check(name, member)
        return member

    def imported(self, name: str) -> Any:
        """What :meth:`code` names, whatever it is; errors are those of :meth:`find`."""
        module, _, attribute = self.target(name).partition(":")
        if name in self.builtin:
            return _attribute(self.target(name))
        trust.look_in_folders()
        try:
            imported = import_module(module)
            member = attrgetter(attribute)(imported)
        except (Exception, SystemExit) as error:
            files = [
                one[:-3] for one in names_in(".") if one.endswith(".py") and one[:-3] != module
            ]
            others = [f"{file}:{attribute}" for file in files]
            others += [
                f"{module}:{one}" for one in getattr(sys.modules.get(module), "__dict__", ())
            ]
            meant = did_you_mean(name, [*self, *others])
            raise MemberError(
                f"--{self.kind} {name} cannot be imported: {type(error).__name__}: {error}.{meant}"
            ) from error
        trust.note_folder(imported)
        return member

    def named(self, spec: str) -> tuple[str, Any]:
        """Name and member of a specification that the user has given, who trusts what it names."""
        name, _ = self.split(spec)
        if ":" in name:
            trust.trust(name)
        return name, self.find(name)

    def load(self, spec: str) -> Any:
        """The member of :meth:`configured`."""
        return self.configured(spec)[0]

    def configured(self, spec: str) -> tuple[Any, Any]:
        """The member of a specification, and its options, if it declares any as ``Options``."""
        name, arguments = self.split(spec)
        member = self.find(name)
        kind = getattr(member, "Options", None)
        return member, options.parse(kind, arguments, f"--{self.kind} {name}")

    def spelled(self, spec: str) -> str:
        """The specification, with options in the one way in which a plan has them.

        Errors are those of :meth:`configured`.
        """
        name, arguments = self.split(spec)
        kind = getattr(self.find(name), "Options", None)
        if kind is None or arguments is None:
            return spec
        return f"{name}:{options.spelled(kind, arguments, f'--{self.kind} {name}')}"

    def _check(self, name: str, member: Any) -> None:
        module, _, base = self.base.partition(":")
        expected, is_one = "a function", callable(member)
        if base:
            kind = getattr(import_module(module), base)
            expected = f"a mapreduce.parts.{base}"
            is_one = isinstance(member, kind) or (
                inspect.isclass(member) and issubclass(member, kind)
            )
        if not is_one:
            raise MemberError(f"--{self.kind} {name}: expected {expected}, found {member!r:.60}")
        if missing := sorted(getattr(member, "__abstractmethods__", ())):
            raise MemberError(f"--{self.kind} {name}: it lacks the methods {', '.join(missing)}")

    def digest(self, name: str) -> str:
        """SHA-256 of the source files of a member's module, or of the package that it is in."""
        import hashlib

        digest = hashlib.sha256()
        for path, content in trust.files(self.target(name).partition(":")[0]):
            digest.update(f"{path}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    @property
    def _installed(self) -> dict[str, str]:
        return _entry_points(self.group, tuple(sys.path))


def _attribute(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, str]:
    from importlib import metadata

    found = metadata.entry_points(group=group)
    return {entry.name: f"{entry.module}:{entry.attr}" for entry in found}
