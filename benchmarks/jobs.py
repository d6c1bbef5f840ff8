"""Jobs that nobody has tuned anything for, beside mrjob's own ``-r local``.

Each is written as one would write it: two steps with lists for values, dictionaries of floats, and
a join of tuples without a combiner. All are whole processes on two cores, and both runners must
write the same lines.
"""

import sys
from pathlib import Path

import numpy as np

from benchmarks import texts
from benchmarks.common import folder
from benchmarks.paired import Result, Timed, in_turn
from benchmarks.programs import Program

MB = 1_000_000
LOCAL = "mrjob `-r local`"
OPTIONS = {"parallel": ["--workers", "2"], LOCAL: ["--num-cores", "2"]}


def compare(title: str, script: str, data: Path, repeats: int, note: str) -> Result:
    """Check that both runners give the same lines, then time them in turn.

    Raises
    ------
    AssertionError
        They do not.
    """
    path = Path(__file__).parent / "stock" / f"{script}.py"

    def program(runner: str) -> Program:
        options = ["-r", runner.split()[-1].strip("`"), "--no-conf", "-q", *OPTIONS[runner]]

        def command(source: Path, out: Path) -> list[str]:
            return [sys.executable, str(path), *options, "--output-dir", str(out), str(source)]

        return Program(runner, command)

    ours, theirs = program("parallel"), program(LOCAL)
    found = [lines(one, data) for one in (ours, theirs)]
    assert found[0] == found[1], f"{script}: -r parallel writes other lines than -r local"

    def timed(one: Program) -> Timed:
        return lambda: one.seconds(data, data.parent / "timed")

    times, peers = in_turn(timed(ours), {LOCAL: timed(theirs)}, repeats)
    result = Result(
        title, "s", f"{note} `benchmarks/stock/{script}.py`, whole process.", times, peers
    )
    result.limit = (LOCAL, 0.35) if repeats > 1 else None
    return result


def lines(program: Program, data: Path) -> list[bytes]:
    """All lines of a program's output, sorted."""
    out = data.parent / "checked"
    program.seconds(data, out)
    return sorted(b"".join(part.read_bytes() for part in out.glob("part*")).splitlines())


def two_steps(quick: bool) -> Result:
    """The word with the highest count: lists for values, a combiner, ``max`` with a key."""
    size, repeats = (MB, 1) if quick else (16 * MB, 3)
    with folder() as path:
        text = texts.write(path / "text.txt", size)
        note = "Steps of lists, a combiner, `max` with a key."
        return compare("The most used word, in two steps", "most_used_word", text, repeats, note)


def dictionaries(quick: bool) -> Result:
    """A dictionary of an integer and floats for each word."""
    size, repeats = (MB, 1) if quick else (10 * MB, 3)
    with folder() as path:
        text = texts.write(path / "text.txt", size)
        note = "Values `{...}` of an integer and two floats, a combiner."
        return compare("Where words stand", "word_places", text, repeats, note)


def join(quick: bool) -> Result:
    """Customers and orders, by tuples of two kinds."""
    orders, repeats = (50_000, 1) if quick else (1_500_000, 3)
    with folder() as path:
        note = "Tuples for values, integers for keys, no combiner."
        data = write_orders(path / "orders.csv", orders)
        return compare("Customers and their orders, a join", "orders_join", data, repeats, note)


def write_orders(path: Path, orders: int) -> Path:
    """A line for each customer and order: ``u,NUMBER,NAME`` and ``o,NUMBER,ARTICLE,PRICE``."""
    generator = np.random.default_rng(0)
    customers = orders // 20
    buyers = generator.integers(0, customers, orders)
    articles, prices = generator.integers(0, 1000, orders), generator.integers(1, 10_000, orders)
    with path.open("w") as out:
        out.writelines(f"u,{number},Customer {number:x}\n" for number in range(customers))
        out.writelines(
            f"o,{buyer},article {article},{price / 100:.2f}\n"
            for buyer, article, price in zip(buyers, articles, prices, strict=True)
        )
    return path
