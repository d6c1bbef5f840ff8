"""Tables as lines of text, for people and for programs that read lines."""

from collections.abc import Iterable, Sequence

from mapreduce.support.printable import printable


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
