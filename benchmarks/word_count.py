"""Counting words: the textbook's job and the vectorized one, beside other tools.

All are whole processes, from the interpreter's start to a result in a file, on the same ASCII text.
Before anything is compared, each has counted the same words equally often.
"""

from functools import partial
from pathlib import Path

from benchmarks import programs, texts
from benchmarks.common import OURS, Bench, case, folder
from benchmarks.memory import most, private_mib
from benchmarks.paired import Timed
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

MB, GB = 1_000_000, 1_000_000_000
FASTER = (DUCKDB.name, POLARS.name)
TEN_LINES = "To be, or not to be: that's the question.\n" * 10
WHOLE = "`jobs/word_count.py`, whole process."


def compare(
    bench: Bench, text: Path, ours: Program, others: list[Program], note: str
) -> dict[str, Timed]:
    """Check that all programs count alike.

    Raises
    ------
    AssertionError
        If one of them counts otherwise.
    """
    scratch = text.parent / "out"
    scratch.mkdir()
    bench.skipped |= {other.name: other.missing() for other in others if other.missing()}
    present = {other.name: other for other in others if other.name not in bench.skipped}
    expected: programs.Counts = {}
    for program in (ours, *present.values()):
        program.seconds(text, scratch / "checked")
        found = program.counts(scratch / "checked")
        expected = expected or found
        assert found == expected, f"{program.name} counts otherwise than {ours.name}"
        programs.remove(scratch / "checked")
    words = f"{sum(expected.values()):,} words, {len(expected):,} of them different"
    bench.note = f"{words}. {note}".strip()
    timed = {OURS: ours, **present}
    return {name: partial(one.seconds, text, scratch / "timed") for name, one in timed.items()}


@case("Counting words of 100 MB, the textbook's job", limits=[((LOCAL.name,), 0.25)])
def textbook(bench: Bench) -> dict[str, Timed]:
    """The job of the README, beside mrjob's own runners."""
    text = texts.write(bench.path / "text.txt", bench.pick(MB, 100 * MB))
    return compare(bench, text, TEXTBOOK, [LOCAL], WHOLE)


@case("Counting words of ten lines, the textbook's job", repeats=(1, 9), limits=[(("",), 0.6)])
def ten_lines(bench: Bench) -> dict[str, Timed]:
    """What a job costs that has nothing to do."""
    text = bench.path / "text.txt"
    text.write_text(TEN_LINES)
    return compare(bench, text, TEXTBOOK, [LOCAL, INLINE], WHOLE)


def _vectorized(bench: Bench, size: int, others: list[Program]) -> dict[str, Timed]:
    text = texts.write(bench.path / "text.txt", size)
    note = (
        "`jobs/word_count_vectorized.py -r parallel`, whole process; each peer on two threads "
        "(`benchmarks/peers/`), DuckDB and Polars in the fastest of several ways tried."
    )
    return compare(bench, text, VECTORIZED, others, note)


# The ratios of slow peers are far from any limit.
@case(
    "Counting words of 100 MB, the vectorized job",
    repeats=(1, 7),
    limits=[(FASTER, 0.8), ((COREUTILS.name,), 0.4)],
    few={PYARROW.name: 3, COREUTILS.name: 3, PYSPARK.name: 3},
)
def vectorized(bench: Bench) -> dict[str, Timed]:
    """The job that counts in arrays, beside engines that do."""
    others = [DUCKDB, POLARS, PYARROW, COREUTILS, PYSPARK]
    return _vectorized(bench, bench.pick(MB, 100 * MB), others)


@case("Counting words of 1 GB, the vectorized job", repeats=(1, 2), limits=[(FASTER, 0.5)])
def vectorized_large(bench: Bench) -> dict[str, Timed]:
    """The same on ten times the text."""
    return _vectorized(bench, bench.pick(2 * MB, GB), [DUCKDB, POLARS])


@case("Memory of counting words of 4 GB, beside 1 GB", "MB", repeats=(1, 1), limits=[(("",), 600)])
def memory(bench: Bench) -> dict[str, Timed]:
    """Memory of the textbook's job, beside the size of its text."""

    def peak(size: int) -> float:
        """Most anonymous memory of the program and all that it starts."""
        with folder() as path:
            process = TEXTBOOK.start(texts.write(path / "text.txt", size), path / "out")
            with most(lambda: private_mib(process.pid), every=0.05) as found:
                programs.finish(process)
        return found() * 1024**2 / MB

    sizes = bench.pick((2 * MB, 8 * MB), (GB, 4 * GB))
    bench.note = (
        "Largest sum of Pss_Anon over the process tree of `jobs/word_count.py -r parallel`. The "
        "row of this toolkit is the larger text's, that of the peer the smaller's."
    )
    return {OURS: partial(peak, sizes[1]), "1 GB": partial(peak, sizes[0])}
