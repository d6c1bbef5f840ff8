"""Makes texts of unknown origin safe for a terminal, and tables of them."""

from collections.abc import Iterable, Sequence


def printable(text: str) -> str:
    """A text without the control characters that a terminal would obey."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def aligned(rows: Iterable[Sequence[object]], left: int = 1) -> list[str]:
    """Lines of a table: the first ``left`` columns begin, the others end, at the same place."""
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [
        "  ".join(
            f"{cell:{'<' if at < left else '>'}{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in texts
    ]
