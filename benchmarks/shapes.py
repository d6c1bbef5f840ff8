"""What a pair costs: jobs with few keys and with many, beside mrjob's ``-r local``.

Processor time is compared, of the whole process and all that it starts: on a machine that has other
things to do it drifts less than what the clock says. Both runners must write the same lines.
"""

import os
import random
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import folder
from benchmarks.paired import in_turn
from benchmarks.programs import ROOT

SCRIPT = ROOT / "benchmarks" / "stock" / "shapes.py"
COMMAND = [sys.executable, "-m", "gradreduce", "run", str(SCRIPT), "--no-conf", "-q"]

#: What a shape reads, if it is no visits, and the most of mrjob's time that it may take.
INPUTS = {"Identity": "lines", "Records": "records", "Words": "words"}
LIMITS = {
    "Visits": 0.25,
    "Identity": 0.27,
    "Sessions": 0.35,
    "SortedValues": 0.30,
    "SortedPickles": 0.35,
    "SortedReprs": 0.35,
    "SortedTexts": 0.35,
    "Pickles": 0.35,
    "Reprs": 0.35,
    "Reverse": 0.35,
    "Divided": 0.35,
    "TwoFields": 0.35,
    "Floats": 0.22,
    "Index": 0.25,
    "TwoSteps": 0.25,
    "Pages": 0.18,
    "Records": 0.36,
    "Pairs": 0.20,
    "Grep": 0.30,
    "Words": 0.28,
}

#: Programs of others, and what each shape is for them, where it can be said. One thread each.
PEERS = {
    "DuckDB": (
        "import sys, duckdb; duckdb.sql('SET threads = 1'); visits = duckdb.read_csv(sys.argv[1], "
        "sep='\t', header=False, names=['user', 'page', 'second']); "
        "duckdb.sql(sys.argv[2]).write_csv(sys.argv[3])",
        {
            "Visits": "SELECT user, count(*) FROM visits GROUP BY user",
            "Index": "SELECT page, list_sort(list_distinct(list(user))) FROM visits GROUP BY page",
            "Pages": "SELECT page[:4], count(*) FROM visits GROUP BY page[:4]",
        },
    ),
    "Polars": (
        "import os, sys; os.environ['POLARS_MAX_THREADS'] = '1'; import polars as pl; "
        "from polars import col; visits = pl.scan_csv(sys.argv[1], separator='\t', "
        "has_header=False, new_columns=['user', 'page', 'second']); "
        "eval(sys.argv[2]).collect().write_csv(sys.argv[3])",
        {
            "Visits": "visits.group_by('user').len()",
            "Index": "visits.group_by('page').agg(col('user').unique().sort().str.join(' '))",
            "Pages": "visits.group_by(col('page').str.head(4)).len()",
        },
    ),
}

#: Times the rows, and megabytes of ``--memory``, of the curve.
TIMES, MEMORIES, MOST_GROWTH = (1, 10, 40), (400, 100, 50), 1.15
#: Of a worker, beside what ``--memory`` is for, in MiB.
BESIDE = 45


def write(path: Path, rows: int, all_of_them: bool = True) -> None:
    """Write the inputs of all shapes, or of visits and lines, of a seed."""
    chance = random.Random(7)
    users = 260_000 * rows // 600_000

    def visits() -> Iterator[tuple[str, str, int]]:
        for _ in range(rows):
            user, page = int(chance.random() ** 1.5 * users), int(chance.paretovariate(0.7))
            yield f"u{user}", f"/p{page % 40_000}", chance.randrange(86_400)

    with (path / "visits").open("w") as plain, (path / "records").open("w") as records:
        for user, page, second in visits():
            plain.write(f"{user}\t{page}\t{second}\n")
            if all_of_them:
                records.write(f'{{"user": "{user}", "page": "{page}", "second": {second}}}\n')
    with (path / "lines").open("w") as lines:
        lines.writelines(f"{chance.randrange(10**12):012d} line {n}\n" for n in range(rows))
    if not all_of_them:
        return
    with (path / "words").open("w") as words:
        for _ in range(rows // 3):
            some = (int(chance.paretovariate(0.14)) % 4_000_000 for _ in range(20))
            words.write(" ".join(f"w{word}" for word in some) + "\n")


@dataclass
class Table:
    """What was measured, as a section of the page."""

    title: str
    note: str
    head: str
    rows: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    @property
    def measured(self) -> bool:
        return bool(self.rows)

    def verdict(self) -> str:
        return f"MISSED: {'; '.join(self.missed)}" if self.missed else "holds"

    def lines(self) -> list[str]:
        rule = "|---" * self.head.count("|", 1) + "|"
        head = [f"## {self.title}", "", self.note, "", self.head, rule]
        return [*head, *self.rows, "", f"Limit: {self.verdict()}.", ""]


def run(shape: str, source: Path, out: Path, *options: str) -> list[bytes]:
    """The sorted lines that a shape's job writes."""
    environment = {**os.environ, "SHAPE": shape}
    with out.open("wb") as file:
        subprocess.run(
            [*COMMAND, *options, str(source)], env=environment, cwd=ROOT, stdout=file, check=True
        )
    return sorted(out.read_bytes().splitlines())


def processor_seconds(shape: str, source: Path, out: Path, *options: str) -> float:
    """Processor time of a job and of all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(shape, source, out, *options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def jobs(quick: bool) -> Table:
    """Textbook jobs, secondary sorts and their neighbours, a word count with many words."""
    rows, repeats = (2_000, 1) if quick else (600_000, 3)
    table = Table(
        f"Shapes of jobs, {rows:,} rows",
        "`benchmarks/stock/shapes.py`: processor time of the whole process, `-r parallel --workers "
        "2` and mrjob's `-r local --num-cores 2` in turn, medians of "
        f"{repeats}. Beside them {' and '.join(PEERS)} on one thread, where they can say it.",
        "| shape | `-r local`, s | this toolkit, s | ratio: median (range) | wanted "
        f"| {' | '.join(f'{peer}, s' for peer in PEERS)} |",
    )
    with folder() as path:
        write(path, rows)
        for shape, limit in LIMITS.items():
            source, out = path / INPUTS.get(shape, "visits"), path / "out"
            ours = ("-r", "parallel", "--workers", "2")
            theirs = ("-r", "local", "--num-cores", "2")
            found = [run(shape, source, out, *options) for options in (ours, theirs)]
            assert found[0] == found[1], f"{shape}: -r parallel writes other lines than -r local"

            def timed(options: tuple[str, ...], shape: str = shape, source: Path = source) -> float:
                return processor_seconds(shape, source, path / "out", *options)

            times, peers = in_turn(
                lambda timed=timed, ours=ours: timed(ours),
                {"local": lambda timed=timed, theirs=theirs: timed(theirs)},
                repeats,
            )
            ratios = [a / b for a, b in zip(times, peers["local"], strict=True)]
            middle = statistics.median(ratios)
            if middle > limit + 0.03 and not quick:
                table.missed.append(f"{shape} {middle:.2f}")
            table.rows.append(
                f"| {shape} | {statistics.median(peers['local']):.2f} "
                f"| {statistics.median(times):.2f} | {middle:.2f} "
                f"({min(ratios):.2f}–{max(ratios):.2f}) | {limit} + 0.03 "
                f"| {' | '.join(peer_seconds(peer, shape, source) for peer in PEERS)} |"
            )
    return table


def peer_seconds(peer: str, shape: str, source: Path) -> str:
    """Processor time of another program for the same, started anew; how else it is said."""
    program, queries = PEERS[peer]
    if shape not in queries:
        return "–"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", program, str(source), queries[shape], f"{source}.{peer}"]
    done = subprocess.run(command, capture_output=True, check=False)
    if b"No module named" in done.stderr:
        return "not installed"
    assert not done.returncode, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.2f}"


def measured(shape: str, command: list[str]) -> tuple[float, float]:
    """Processor seconds of a command, and MiB of the largest of its processes."""
    # A process that has imported little: those that it starts begin with its memory.
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
        "stdout=subprocess.DEVNULL); used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        env={**os.environ, "SHAPE": shape},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, largest = map(float, done.stdout.split())
    return seconds, largest / 1024


def growth(quick: bool) -> Table:
    """Processor time and memory of the jobs with most keys against rows and ``--memory``."""
    rows = 2_000 if quick else 600_000
    table = Table(
        f"Many keys: growth from {rows:,} rows",
        "Visits and Identity of `benchmarks/stock/shapes.py`, `--workers 2`. The largest "
        f"process shall have at most half of `--memory` and {BESIDE} MiB; time beside that of the "
        f"first rows, the median of three runs, at most {MOST_GROWTH} of linear.",
        "| shape | `--memory`, MB | rows, times | processor time, s | of linear | largest, MiB |",
    )
    first: dict[tuple[str, int], float] = {}
    for times in TIMES:
        with folder() as path:
            write(path, rows * times, all_of_them=False)
            for shape in ("Visits", "Identity"):
                for memory in MEMORIES:
                    options = ["-r", "parallel", "--workers", "2", "--memory", str(memory)]
                    command = [*COMMAND, *options, str(path / INPUTS.get(shape, "visits"))]
                    # All others are compared with the first.
                    runs = [measured(shape, command) for _ in range(3 if times == 1 else 1)]
                    seconds = statistics.median(seconds for seconds, _ in runs)
                    mib = max(largest for _, largest in runs)
                    linear = seconds / (first.setdefault((shape, memory), seconds) * times)
                    if not quick and (linear > MOST_GROWTH or mib > memory / 2 + BESIDE):
                        table.missed.append(f"{shape} {times} times, --memory {memory}")
                    table.rows.append(
                        f"| {shape} | {memory} | {times} | {seconds:.2f} | {linear:.2f} "
                        f"| {mib:.0f} |"
                    )
    return table
