"""Columns of a source, which decide whether data fit those that a model was trained on."""

from collections.abc import Sequence
from typing import NamedTuple

#: What a column is: a feature, or hashed to features as numbers or as texts.
KINDS = ("number", "hashed number", "hashed text")
_SHOWN = 8


class Column(NamedTuple):
    """A column that features come from."""

    name: str
    kind: str


Columns = tuple[Column, ...]


def check(columns: Columns | None) -> None:
    """Raise a ``ValueError`` if columns of a JSON file make no sense, or two have one name."""
    for name, kind in columns or ():
        if kind not in KINDS:
            raise ValueError(f"columns: expected one of {KINDS}, found another kind")
        # Raises an error for text that is not Unicode and so could not be shown.
        name.encode()
    if columns is not None and (not columns or len(dict(columns)) != len(columns)):
        raise ValueError("columns: expected names that come once")


def misfit(found: Columns | None, expected: Columns | None) -> str | None:
    """How the columns of data differ from those that are expected, in words; None if they fit.

    Columns without names, None, fit any; those that are hashed may come in any order.
    """
    if found is None or expected is None:
        return None
    kinds, wanted = dict(found), dict(expected)
    differing = [
        f"{name} ({kinds[name]}, expected {kind})"
        for name, kind in expected
        if kinds.get(name, kind) != kind
    ]
    parts = [
        f"{what}: {_preview(names)}"
        for what, names in (
            ("missing", [name for name in wanted if name not in kinds]),
            ("extra", [name for name in kinds if name not in wanted]),
            ("of another kind", differing),
        )
        if names
    ]
    if not parts and found != expected and found[0].kind == "number":
        parts = [f"in another order: {_preview([*kinds])}; expected: {_preview([*wanted])}"]
    return "; ".join(parts) or None


def _preview(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f", … ({len(names)})" if len(names) > _SHOWN else "")
