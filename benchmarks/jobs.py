"""Jobs that nobody has tuned anything for, beside mrjob's own ``-r local``.

Each is written as one would write it: two steps with lists for values, dictionaries of floats, and
a join of tuples without a combiner. All are whole processes on two cores, and both runners must
write the same lines.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import texts
from benchmarks.common import OURS, Bench, case
from benchmarks.paired import Timed
from benchmarks.programs import Program

MB = 1_000_000
LOCAL = "mrjob `-r local`"
OPTIONS = {OURS: "-r parallel --workers 2", LOCAL: "-r local --num-cores 2"}
LIMITS = [((LOCAL,), 0.35)]


def compare(bench: Bench, script: str, data: Path, note: str) -> dict[str, Timed]:
    """Check that both runners write the same lines.

    Raises
    ------
    AssertionError
        They do not.
    """
    path = Path(__file__).parent / "stock" / f"{script}.py"

    def program(who: str) -> Program:
        def command(source: Path, out: Path) -> list[str]:
            how = [*OPTIONS[who].split(), "--no-conf", "-q", "--output-dir", str(out)]
            return [sys.executable, str(path), *how, str(source)]

        return Program(who, command)

    both = {who: program(who) for who in OPTIONS}
    found = [lines(one, data) for one in both.values()]
    assert found[0] == found[1], f"{script}: -r parallel writes other lines than -r local"
    bench.note = f"{note} `benchmarks/stock/{script}.py`, whole process."
    return {who: partial(one.seconds, data, data.parent / "timed") for who, one in both.items()}


def lines(program: Program, data: Path) -> list[bytes]:
    """All lines of a program's output, sorted."""
    out = data.parent / "checked"
    program.seconds(data, out)
    return sorted(b"".join(part.read_bytes() for part in out.glob("part*")).splitlines())


@case("The most used word, in two steps", limits=LIMITS)
def two_steps(bench: Bench) -> dict[str, Timed]:
    """The word with the highest count: lists for values, a combiner, ``max`` with a key."""
    text = texts.write(bench.path / "text.txt", bench.pick(MB, 16 * MB))
    note = "Steps of lists, a combiner, `max` with a key."
    return compare(bench, "most_used_word", text, note)


@case("Where words stand", limits=LIMITS)
def dictionaries(bench: Bench) -> dict[str, Timed]:
    """A dictionary of an integer and floats for each word."""
    text = texts.write(bench.path / "text.txt", bench.pick(MB, 10 * MB))
    note = "Values `{...}` of an integer and two floats, a combiner."
    return compare(bench, "word_places", text, note)


@case("Customers and their orders, a join", limits=LIMITS)
def join(bench: Bench) -> dict[str, Timed]:
    """Customers and orders, by tuples of two kinds."""
    data = write_orders(bench.path / "orders.csv", bench.pick(50_000, 1_500_000))
    note = "Tuples for values, integers for keys, no combiner."
    return compare(bench, "orders_join", data, note)


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
