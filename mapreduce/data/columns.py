"""Names of features, which decide whether data fit those that a model was trained on."""

from collections.abc import Collection, Sequence
from unicodedata import normalize

_SHOWN = 8

#: Names of features, in order.
Columns = tuple[str, ...]


def check(columns: Columns | None, features: int) -> None:
    """Raise a ``ValueError`` if names of a JSON file are not those of so many features."""
    for name in columns or ():
        # Raises an error for text that is not Unicode and so could not be shown.
        name.encode()
    if columns is not None and not features == len(columns) == len(set(columns)):
        raise ValueError(f"columns: expected {features} names that come once")


def renamings(names: Collection[str], wanted: Collection[str]) -> dict[str, str]:
    """New names for columns that have a wanted one but for Unicode's composition.

    Macs may write an umlaut as two characters. A column gets a wanted name that no column has, if
    exactly one column has the name in Unicode's form NFC.
    """
    missing = [name for name in wanted if name not in names]
    alike: dict[str, list[str]] = {normalize("NFC", name): [] for name in missing}
    for name in names if missing else ():
        if name not in wanted:
            alike.get(normalize("NFC", name), []).append(name)
    pairs = [(alike[normalize("NFC", name)], name) for name in missing]
    return {columns[0]: name for columns, name in pairs if len(columns) == 1}


def column_of(name: str, names: Collection[str]) -> str:
    """The column that a user names, see :func:`renamings`; the name itself if there is none."""
    return next(iter(renamings(names, [name])), name)


def misfit(found: Columns | None, expected: Columns | None) -> str | None:
    """How features differ from those that are expected, or None; those without names fit any."""
    if found is None or expected is None:
        return None
    new = renamings(found, expected)
    found = tuple(new.get(name, name) for name in found)
    known, wanted = set(found), set(expected)
    parts = [
        f"{what}: {_preview(names)}"
        for what, names in (
            ("missing", [name for name in expected if name not in known]),
            ("extra", [name for name in found if name not in wanted]),
        )
        if names
    ]
    if not parts and found != expected:
        parts = [f"in another order: {_preview(found)}; expected: {_preview(expected)}"]
    return "; ".join(parts) or None


def _preview(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f", … ({len(names)})" if len(names) > _SHOWN else "")
