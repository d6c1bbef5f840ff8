"""What a pair costs: jobs with few keys and with many, beside mrjob's ``-r local``.

Processor time is compared, of the whole process and all that it starts: on a machine that has other
things to do it drifts less than what the clock says. Both runners must write the same lines.
"""

import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.common import ROOT, folder, processor_of_children
from benchmarks.paired import Table, in_turn, spread

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


def write(path: Path, rows: int) -> None:
    """Write the inputs of all shapes."""
    chance = random.Random(7)
    users = 260_000 * rows // 600_000

    def visits() -> Iterator[tuple[str, str, int]]:
        for _ in range(rows):
            user, page = int(chance.random() ** 1.5 * users), int(chance.paretovariate(0.7))
            yield f"u{user}", f"/p{page % 40_000}", chance.randrange(86_400)

    with (path / "visits").open("w") as plain, (path / "records").open("w") as records:
        for user, page, second in visits():
            plain.write(f"{user}\t{page}\t{second}\n")
            records.write(f'{{"user": "{user}", "page": "{page}", "second": {second}}}\n')
    with (path / "lines").open("w") as lines:
        lines.writelines(f"{chance.randrange(10**12):012d} line {n}\n" for n in range(rows))
    with (path / "words").open("w") as words:
        for _ in range(rows // 3):
            some = (int(chance.paretovariate(0.14)) % 4_000_000 for _ in range(20))
            words.write(" ".join(f"w{word}" for word in some) + "\n")


def run(shape: str, source: Path, out: Path, *options: str) -> list[bytes]:
    """The sorted lines that a shape's job writes."""
    environment = {**os.environ, "SHAPE": shape}
    with out.open("wb") as file:
        subprocess.run(
            [*COMMAND, *options, str(source)], env=environment, cwd=ROOT, stdout=file, check=True
        )
    return sorted(out.read_bytes().splitlines())


def jobs(quick: bool) -> Table:
    """Textbook jobs, secondary sorts and their neighbours, a word count with many words."""
    rows, repeats = (2_000, 1) if quick else (600_000, 3)
    table = Table(
        f"Shapes of jobs, {rows:,} rows",
        "`benchmarks/stock/shapes.py`: processor time of the whole process, `-r parallel --workers "
        "2` and mrjob's `-r local --num-cores 2` in turn, medians of "
        f"{repeats}. Beside them {' and '.join(PEERS)} on one thread, where they can say it.",
        [
            *("shape", "`-r local`, s", "this toolkit, s", "ratio: median (range)", "wanted"),
            *(f"{peer}, s" for peer in PEERS),
        ],
    )
    options = ("-r", "parallel", "--workers", "2"), ("-r", "local", "--num-cores", "2")
    with folder() as path:
        write(path, rows)
        for shape, limit in LIMITS.items():
            source, out = path / INPUTS.get(shape, "visits"), path / "out"
            written = [run(shape, source, out, *how) for how in options]
            assert written[0] == written[1], f"{shape}: -r parallel writes other lines"
            ours, theirs = (
                partial(processor_of_children, partial(run, shape, source, out, *how))
                for how in options
            )
            times, peers = in_turn(ours, {"local": theirs}, repeats)
            ratios = [a / b for a, b in zip(times, peers["local"], strict=True)]
            middle = statistics.median(ratios)
            if middle > limit + 0.03 and not quick:
                table.missed.append(f"{shape} {middle:.2f}")
            medians = (f"{statistics.median(each):.2f}" for each in (peers["local"], times))
            others = (peer_seconds(peer, shape, source) for peer in PEERS)
            wanted = f"{limit} + 0.03"
            table.rows.append([shape, *medians, spread(ratios, ".2f"), wanted, *others])
    return table


def peer_seconds(peer: str, shape: str, source: Path) -> str:
    """Processor time of another program for the same, started anew; how else it is said."""
    program, queries = PEERS[peer]
    if shape not in queries:
        return "–"
    if find_spec(peer.lower()) is None:
        return "not installed"
    command = [sys.executable, "-c", program, str(source), queries[shape], f"{source}.{peer}"]
    return f"{processor_of_children(lambda: subprocess.run(command, check=True)):.2f}"
