"""Objects as a person reads them: their text, shortened, and their type with what is in it."""

import reprlib
from typing import Any

from mapreduce.explaining.model import Shown

#: Characters of an object's text.
_LONGEST = 160

_short = reprlib.Repr()
_short.maxlevel = 4
_short.maxtuple = _short.maxlist = _short.maxdict = _short.maxset = 8
_short.maxstring = 120
_short.maxlong = 60
_short.maxother = 100


def show(item: Any) -> Shown:
    """An object's text and type; never raises."""
    try:
        text = _short.repr(item)
    except Exception as error:
        text = f"<{type(item).__name__} whose repr raises {type(error).__name__}>"
    return Shown(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…", kind_of(item))


def kind_of(item: Any, depth: int = 2) -> str:
    """A type and, of a container, the types in it: ``list[int]``, ``tuple[str, int]``."""
    if item is None:
        return "None"
    name = type(item).__name__
    if depth and type(item) in (list, set, frozenset) and item:
        kinds = sorted({kind_of(one, depth - 1) for one in item})
        return f"{name}[{' | '.join(kinds[:3])}{' | …' if len(kinds) > 3 else ''}]"
    if depth and type(item) is tuple and item:
        kinds = [kind_of(one, depth - 1) for one in item[:4]]
        return f"{name}[{', '.join(kinds)}{', …' if len(item) > 4 else ''}]"
    if depth and type(item) is dict and item:
        keys = sorted({kind_of(one, 0) for one in item})
        values = sorted({kind_of(one, depth - 1) for one in item.values()})
        return f"{name}[{' | '.join(keys[:2])}, {' | '.join(values[:3])}]"
    return name


def printf(line: str) -> str:
    """A command of a shell that prints a line, with TABs, and all that is not shown, as escapes."""
    escapes = {"\\": r"\\", "\t": r"\t", "%": "%%", "'": r"'\''"}
    parts = []
    for one in line.encode("latin-1").decode("utf-8", "surrogateescape"):
        octal = "".join(f"\\{byte:03o}" for byte in one.encode("utf-8", "surrogateescape"))
        parts.append(escapes.get(one, one if one.isprintable() else octal))
    return f"printf '{''.join(parts)}\\n'"


def text_of(raw: bytes | str) -> str:
    """Bytes of a line as text, without what a terminal would obey."""
    raw = raw.encode("latin-1") if isinstance(raw, str) else raw
    text = raw.decode("utf-8", "backslashreplace")
    shown = "".join(one if one.isprintable() or one == "\t" else repr(one)[1:-1] for one in text)
    return shown.replace("\t", "    ")
