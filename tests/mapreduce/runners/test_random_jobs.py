"""Random jobs give the same lines on ``-r parallel`` as on ``-r inline``, also on the disk.

Keys that are equal but written differently, such as 1 and 1.0, are one group if they are neighbours
in one reducer, and two if they are not: such keys are drawn for one reducer only.
"""

import contextlib
import io
import os
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from mrjob.inline import InlineMRJobRunner
from mrjob.job import MRJob
from mrjob.protocol import JSONProtocol, PickleProtocol, RawProtocol, RawValueProtocol, ReprProtocol
from mrjob.step import MRStep
from odd_values import Number, Text, odd

import mapreduce.job  # noqa: F401  (teaches mrjob the runner)
from mapreduce.batches import pairs
from mapreduce.runners.parallel import columns, gathered, merge, records, segments, tasks
from mapreduce.runners.parallel.runner import ParallelMRJobRunner
from quick import cases

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Step:
    """What a step does; every choice is such that the cutting of the input does not show."""

    mapper: str
    combiner: str | None
    reducer: str | None


VERBS = {"mapper": "map", "combiner": "combine", "reducer": "reduce"}


class RandomJob(MRJob):
    """Steps of a few words; the first mapper takes its pairs from a table."""

    plan: tuple[Step, ...] = ()
    table: list = []  # noqa: RUF012  (replaced for each test)

    def steps(self):
        return [
            MRStep(**self._methods(step, "table" if number == 0 else step.mapper))
            for number, step in enumerate(self.plan)
        ]

    def _methods(self, step, mapper):
        found = {}
        chosen = {"mapper": mapper, "combiner": step.combiner, "reducer": step.reducer}
        for kind, name in chosen.items():
            if name == "late":
                keep = self.keep if kind == "mapper" else self.keep_all
                found |= {f"{kind}_init": self.prepare, kind: keep, f"{kind}_final": self.give_back}
            elif name:
                found[kind] = getattr(self, f"{VERBS[kind]}_{name}")
        return found

    # Mappers

    def map_table(self, _, line):
        number, _, rest = line.partition(" ")
        self.increment_counter("seen", "lines")
        if rest:
            yield self.plain(rest[:1]), self.plain(rest)
        yield from self.table[int(number)]

    def plain(self, text):
        return text if text.isprintable() else repr(text)

    def map_same(self, key, value):
        self.increment_counter("seen", "pairs")
        return [(key, value)]

    def map_swap(self, key, value):
        yield str(value)[:2].replace("\n", ""), key

    def map_nothing_of_some(self, key, value):
        if len(str(value)) % 2:
            return None
        return [(key, value), (key, value)]

    def prepare(self):
        self.kept = []

    def keep(self, key, value):
        self.kept.append((key, value))

    def give_back(self):
        return self.kept

    # Combiners

    def combine_same(self, key, values):
        for value in values:
            yield key, value

    def combine_first_of_each(self, key, values):
        seen = {}
        for value in values:
            seen.setdefault(repr(value), value)
        for value in seen.values():
            yield key, value

    def keep_all(self, key, values):
        self.kept += [(key, value) for value in values]

    # Reducers

    def reduce_same(self, key, values):
        self.increment_counter("seen", "keys")
        for value in values:
            yield key, value

    def reduce_list(self, key, values):
        yield key, str(list(values))

    def reduce_sorted(self, key, values):
        yield key, str(sorted(map(repr, values)))

    def reduce_set(self, key, values):
        yield key, str(sorted(set(map(repr, values))))

    def reduce_first(self, key, values):
        """Leaves values unread; which one is first is not said."""
        next(values)
        yield key, "one at least"

    def reduce_none(self, key, values):
        pass


text = st.text(
    st.one_of(
        st.sampled_from(["a", "b", "ä", "\0", "\x01", "\x0b", "\x1f", "\x7f", "\x85", "\u2028"]),
        st.sampled_from([" ", '"', "\\", "\t", "\n", "\r", "語", "😀", "'"]),
    ),
    max_size=3,
)
#: Of those that are equal to others of another type, False and 0.0 among them, one each.
numbers = st.one_of(
    st.integers(2, 12), st.just(-(10**30)), st.sampled_from([0.5, 1.25, 1e300, -2.5e-9])
)


special = st.sampled_from([float("inf"), float("-inf"), float("nan")])


def nested(leaves):
    return st.one_of(
        leaves,
        st.lists(leaves, max_size=2),
        st.dictionaries(st.sampled_from(["k", "é"]), leaves, max_size=1),
        st.tuples(leaves, leaves),
    )


scalars = st.one_of(text, numbers, st.booleans(), st.none())
values = {
    JSONProtocol: nested(st.one_of(scalars, special, st.integers(-1, 1), st.just(1.0), odd)),
    PickleProtocol: nested(st.one_of(scalars, special, st.binary(max_size=2))),
    ReprProtocol: nested(st.one_of(scalars, st.binary(max_size=2), st.integers(-1, 1))),
    RawProtocol: text.map(lambda value: value.replace("\n", "")),
    RawValueProtocol: text.map(lambda value: value.replace("\n", "")),
}
#: Lists and tuples of equal content may have different pickles.
keys = {
    JSONProtocol: nested(st.one_of(scalars, special)),
    PickleProtocol: st.one_of(scalars, special),
    ReprProtocol: st.one_of(scalars, st.binary(max_size=2)),
    RawProtocol: text.map(lambda key: key.replace("\n", "").replace("\t", "")),
    RawValueProtocol: st.none(),
}
equal_texts = ["\ud83d\ude00", "😀", Text("1"), "1"]
equal_numbers = [Number(1), 1, 1.0, True, 0, 0.0, -0.0, False, 10]
equal_keys = st.sampled_from(
    [*equal_texts, *equal_numbers, None, [1], [1.0], [True], {"a": 1}, {"a": True}]
)


@st.composite
def plans(draw, ordered=False):
    """Steps; without combiners and sorting, so that values keep their order, if so wanted."""
    count = draw(st.integers(1, 3))
    mappers = st.sampled_from(["same", "swap", "nothing_of_some", "late"])
    combiners = st.sampled_from([None, "same", "first_of_each", "late"])
    reducers = st.sampled_from(["same", "sorted", "set", "first", "late", "none", None])
    plan = []
    for number in range(count):
        reducer = draw(reducers)
        if ordered and number == 0:
            plan.append(Step("table", None, "list"))
            break
        combiner = draw(combiners) if reducer else None
        # It leaves out values, and what remains depends on the cutting.
        if combiner == "first_of_each" and reducer in ("same", "sorted", "late"):
            combiner = "same"
        plan.append(Step(draw(mappers), combiner, reducer))
    return tuple(plan)


@contextlib.contextmanager
def next_to_no_memory():
    """Workers are forked, so what is replaced here is replaced in them."""
    with (
        mock.patch.object(ParallelMRJobRunner, "_budget", 3000),
        mock.patch.object(records.SplitReader.blocks, "__defaults__", (40,)),
        mock.patch.object(segments, "_READ_BYTES", 64),
        mock.patch.object(pairs, "REMEMBERED", 3),
        mock.patch.object(gathered, "_CHUNK", 3),
        mock.patch.object(gathered, "_LOOK", 6),
        mock.patch.object(columns, "_BLOCK_ITEMS", (2, 3)),
        mock.patch.object(columns, "_BLOCK_BYTES", 60),
        mock.patch.object(merge, "_AHEAD_BYTES", 1000),
        mock.patch.object(columns, "_SMALLEST", 1),
        mock.patch.object(tasks, "_OUTPUT_BYTES", 64),
    ):
        yield


def one_reducer():
    """Have ``inline`` use one; by mrjob's arithmetic, half of its reducers' number."""
    return mock.patch.object(InlineMRJobRunner, "_num_reducers", lambda *_: 0.5)


def run(job_class, runner, content, *arguments):
    """Lines of the output, and counters of the job's own."""
    with tempfile.TemporaryDirectory(prefix=f"random-{os.getpid()}-") as folder:
        path = Path(folder, "input")
        path.write_bytes(content)
        job = job_class(["--no-conf", "-r", runner, *map(str, arguments), str(path)])
        with job.make_runner() as made:
            made._opts["local_tmp_dir"] = folder
            made.run()
            # Lines end with line feeds and with nothing else.
            lines = b"".join(made.cat_output()).split(b"\n")
            counters = [{"seen": dict(step).get("seen")} for step in made.counters()]
    assert lines.pop() == b""
    return lines, counters


def job_of(plan, table, protocol=JSONProtocol, output=None, sort_values=False):
    content = {
        "plan": plan,
        "table": table,
        "INTERNAL_PROTOCOL": protocol,
        "OUTPUT_PROTOCOL": output or protocol,
        "SORT_VALUES": sort_values,
    }
    return type("RandomJob", (RandomJob,), {**content, "__module__": __name__})


lines_of_text = st.lists(text.map(lambda line: line.replace("\n", "")), min_size=1, max_size=12)


def encoded(lines, last="\n"):
    numbered = "\n".join(f"{number} {line}" for number, line in enumerate(lines))
    return (numbered + last).encode()


@st.composite
def jobs(draw, protocols):
    protocol = draw(st.sampled_from(protocols))
    lines = draw(lines_of_text)
    pair = st.tuples(keys[protocol], values[protocol])
    # The same pairs again and again, so that there are groups.
    pool = draw(st.lists(pair, min_size=1, max_size=6))
    table = [draw(st.lists(st.sampled_from(pool), max_size=8)) for _ in lines]
    job = job_of(draw(plans()), table, protocol, sort_values=draw(st.booleans()))
    return job, encoded(lines, draw(st.sampled_from(["\n", ""])))


def options(reduces):
    return st.tuples(
        st.sampled_from([[], ["-D", "mapreduce.job.maps=1"], ["-D", "mapreduce.job.maps=7"]]),
        st.sampled_from([["-D", f"mapreduce.job.reduces={number}"] for number in reduces]),
        st.sampled_from([["--workers", 2], ["--workers", 2, "--memory", 16]]),
    ).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


many = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def law(examples, *strategies):
    """A test of some examples, and a long one of thirty times as many."""

    def tests(function):
        more = settings(many, max_examples=30 * examples)(given(*strategies)(function))
        globals()[f"{function.__name__}_again"] = pytest.mark.long(more)
        return settings(many, max_examples=examples)(given(*strategies)(function))

    return tests


def check(job_class, content, arguments, small, group=False):
    """Equal lines and counters, and no doubts; with one reducer of ``inline`` for one group."""
    with next_to_no_memory() if small else contextlib.nullcontext():
        ours, counters = run(job_class, "parallel", content, *arguments)
    said = io.StringIO()
    with one_reducer() if group else contextlib.nullcontext(), contextlib.redirect_stderr(said):
        theirs, expected = run(job_class, "inline", content)
    # What reducers yield at their end is what they were given, and no doubt is said of it.
    assert "reducer_final" not in said.getvalue()
    assert Counter(ours) == Counter(theirs)
    assert counters == expected
    return ours, theirs


@law(12, jobs([JSONProtocol, PickleProtocol, ReprProtocol]), options([1, 2, 5]), st.booleans())
def test_same_lines_as_inline(job, arguments, small):
    check(*job, arguments, small)


@law(6, jobs([RawProtocol]), options([1, 3]), st.booleans())
def test_raw_keys_and_values(job, arguments, small):
    # Raw protocols take text only, and their keys no TAB.
    job[0].plan = tuple(
        replace(step, mapper="same" if step.mapper == "swap" else step.mapper)
        for step in job[0].plan
    )
    check(*job, arguments, small)


@law(6, st.data(), options([1]), st.booleans())
def test_raw_values_are_one_group(data, arguments, small):
    lines = data.draw(lines_of_text)
    table = [[(None, data.draw(values[RawValueProtocol])) for _ in range(3)] for _ in lines]
    reducer = data.draw(st.sampled_from(["same", "sorted", "set", "first", "late"]))
    plan = (Step("table", None, reducer), Step("same", None, None))
    job_class = job_of(plan, table, RawValueProtocol, sort_values=data.draw(st.booleans()))
    check(job_class, encoded(lines), arguments, small, group=True)


@law(6, st.data(), options([1, 2, 5]), st.booleans())
def test_values_of_a_key_keep_the_order_of_the_input(data, arguments, small):
    lines = data.draw(lines_of_text)
    pair = st.tuples(st.sampled_from(["a", "b", 3, None, ["x"]]), values[JSONProtocol])
    table = [data.draw(st.lists(pair, max_size=8)) for _ in lines]
    check(job_of(data.draw(plans(ordered=True)), table), encoded(lines), arguments, small)


@law(6, st.data(), options([1]), st.booleans())
def test_equal_keys_of_other_types_are_one_group_among_neighbours(data, arguments, small):
    lines = data.draw(lines_of_text)
    protocol = data.draw(st.sampled_from([JSONProtocol, PickleProtocol]))
    pair = st.tuples(equal_keys, values[protocol])
    table = [data.draw(st.lists(pair, max_size=8)) for _ in lines]
    plan = (Step("table", None, data.draw(st.sampled_from(["list", "same", "late"]))),)
    job_class = job_of(plan, table, protocol, sort_values=data.draw(st.booleans()))
    ours, theirs = check(job_class, encoded(lines), arguments, small, group=True)
    assert ours == theirs


@cases("combiner, sort_values", (None, False), ("same", False), (None, True))
def test_what_exceeds_the_memory_goes_to_the_disk(combiner, sort_values, tmp_path):
    """Many pairs of each line, whose keys come again."""
    table = [
        [(f"key {(number * 7 + i * 13) % 5000}", [number, "x" * (i % 40)]) for i in range(300)]
        for number in range(200)
    ]
    plan = (Step("table", combiner, "set"),)
    job_class, content = job_of(plan, table, sort_values=sort_values), encoded([""] * len(table))
    overflow, overflows = segments.SegmentWriter._overflow, tmp_path / "overflows"

    def noted(self):
        overflows.touch()
        overflow(self)

    with mock.patch.object(segments.SegmentWriter, "_overflow", noted):
        arguments = ["--workers", 2, "--memory", 16]
        _, theirs = check(job_class, content, arguments, small=False)
        # Half of it is for files in memory.
        with mock.patch.object(ParallelMRJobRunner, "_budget", 1 << 20):
            ours, _ = run(job_class, "parallel", content, "--workers", 2)
    assert Counter(ours) == Counter(theirs)
    assert overflows.exists()
