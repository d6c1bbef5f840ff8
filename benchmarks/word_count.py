"""Counting words: the textbook's job and the vectorized one, beside other tools.

All are whole processes, from the interpreter's start to a result in a file, on the same ASCII text.
Before anything is compared, each has counted the same words equally often.
"""

from collections.abc import Mapping
from pathlib import Path

from benchmarks import programs, texts
from benchmarks.common import folder
from benchmarks.memory import most, private_mib
from benchmarks.paired import Result, Timed, in_turn
from benchmarks.programs import (
    COREUTILS,
    DUCKDB,
    INLINE,
    LOCAL,
    POLARS,
    PYARROW,
    PYSPARK,
    TEXTBOOK,
    VECTORIZED,
    Program,
)

Limits = list[tuple[tuple[str, ...], float]]

MB, GB = 1_000_000, 1_000_000_000
FASTER = (DUCKDB.name, POLARS.name)
#: Slow peers, and how often they are measured: their ratios are far from any limit.
FEW = {PYARROW.name: 3, COREUTILS.name: 3, PYSPARK.name: 3}
TEN_LINES = "To be, or not to be: that's the question.\n" * 10


def compare(
    title: str,
    text: Path,
    ours: Program,
    others: list[Program],
    repeats: int,
    note: str,
    few: Mapping[str, int] | None = None,
) -> Result:
    """Check that all programs count alike, then time them in turn, some in ``few`` rounds only.

    Raises
    ------
    AssertionError
        If one of them counts otherwise.
    """
    scratch = text.parent / "out"
    scratch.mkdir()
    skipped = {other.name: other.missing() for other in others if other.missing()}
    present = [other for other in others if other.name not in skipped]
    expected: programs.Counts = {}
    for program in (ours, *present):
        program.seconds(text, scratch / "checked")
        found = program.counts(scratch / "checked")
        expected = expected or found
        assert found == expected, f"{program.name} counts otherwise than {ours.name}"
        programs.remove(scratch / "checked")

    def timed(program: Program) -> Timed:
        return lambda: program.seconds(text, scratch / "timed")

    others_timed = {other.name: timed(other) for other in present}
    times, peers = in_turn(timed(ours), others_timed, repeats, few)
    words = f"{sum(expected.values()):,} words, {len(expected):,} of them different"
    return Result(title, "s", f"{words}. {note}".strip(), times, peers, skipped=skipped)


def size(count: int) -> str:
    return f"{count / GB:g} GB" if count >= GB else f"{count / MB:g} MB"


def textbook(quick: bool) -> Result:
    """The job of the README, beside mrjob's own runners."""
    count, repeats = (MB, 1) if quick else (100 * MB, 3)
    with folder() as path:
        result = compare(
            f"Counting words of {size(count)}, the textbook's job",
            texts.write(path / "text.txt", count),
            TEXTBOOK,
            [LOCAL],
            repeats,
            "`jobs/word_count.py`, whole process.",
        )
    result.limit = None if quick else (LOCAL.name, 0.25)
    return result


def ten_lines(quick: bool) -> Result:
    """What a job costs that has nothing to do."""
    with folder() as path:
        text = path / "text.txt"
        text.write_text(TEN_LINES)
        result = compare(
            "Counting words of ten lines, the textbook's job",
            text,
            TEXTBOOK,
            [LOCAL, INLINE],
            1 if quick else 9,
            "`jobs/word_count.py`, whole process.",
        )
    result.limit = None if quick else ("", 0.6)
    return result


def _vectorized(count: int, others: list[Program], repeats: int, limits: Limits) -> Result:
    with folder() as path:
        result = compare(
            f"Counting words of {size(count)}, the vectorized job",
            texts.write(path / "text.txt", count),
            VECTORIZED,
            others,
            repeats,
            "`jobs/word_count_vectorized.py -r parallel`, whole process; each peer on two threads "
            "(`benchmarks/peers/`), DuckDB and Polars in the fastest of several ways tried.",
            FEW,
        )
    result.limits = limits
    return result


def vectorized(quick: bool) -> Result:
    """The job that counts in arrays, beside engines that do."""
    others = [DUCKDB, POLARS, PYARROW, COREUTILS, PYSPARK]
    if quick:
        return _vectorized(MB, others, 1, [])
    return _vectorized(100 * MB, others, 7, [(FASTER, 0.8), ((COREUTILS.name,), 0.4)])


def vectorized_large(quick: bool) -> Result:
    """The same on ten times the text."""
    others = [DUCKDB, POLARS]
    if quick:
        return _vectorized(2 * MB, others, 1, [])
    return _vectorized(GB, others, 2, [(FASTER, 0.5)])


def peak_mb(program: Program, text: Path, out: Path) -> float:
    """Most anonymous memory of a program and all that it starts, in MB."""
    process = program.start(text, out)
    with most(lambda: private_mib(process.pid), every=0.05) as found:
        programs.finish(process)
    return found() * 1024**2 / MB


def memory(quick: bool) -> Result:
    """Memory of the textbook's job, beside the size of its text."""
    peaks = []
    counts = (2 * MB, 8 * MB) if quick else (GB, 4 * GB)
    for count in counts:
        with folder() as path:
            text = texts.write(path / "text.txt", count)
            peaks.append(peak_mb(TEXTBOOK, text, path / "out"))
    small, large = map(size, counts)
    return Result(
        f"Memory of counting words of {large}, beside {small}",
        "MB",
        "Largest sum of Pss_Anon over the process tree of `jobs/word_count.py -r parallel`. The "
        "row of this toolkit is the larger text's, that of the peer the smaller's.",
        [peaks[1]],
        {small: [peaks[0]]},
        None if quick else ("", 600.0),
    )
