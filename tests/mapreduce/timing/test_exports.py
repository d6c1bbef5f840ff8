"""Traces in other programs' formats hold all events, and are what their readers take."""

import csv
import json
import tracemalloc
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

import gangs
import made_traces
from builders import blobs_in
from mapreduce.plan.settings import Settings
from mapreduce.support.phases import SAMPLE
from mapreduce.timing import exports
from mapreduce.timing.figures import imbalance, rounds_of, table
from mapreduce.timing.reading import read
from mapreduce.timing.summary import summarise
from mapreduce.training import creating

TRACES = {
    "a gang": made_traces.gang(ranks=4, rounds=30),
    "two generations": made_traces.gang(rounds=30, jobs=2),
    "a job": made_traces.jobs(maps=9),
}


data = blobs_in(train=(200, 170), test=(60,), features=20, classes=3)


@pytest.fixture(scope="module")
def real(data, tmp_path_factory):
    """The trace of a gang whose ranks are threads, with evaluations."""
    chosen = Settings(model="mlp:5", batch_size=96, slice_rows=12, rounds=20, eval_every=10)
    path = tmp_path_factory.mktemp("real") / "run"
    run = creating.create(path, chosen, data / "train", data / "test")
    gangs.train(run, 2, 2, trace=True, threads=2)
    return read(path)


def chrome(trace, folder):
    exports.write_chrome(exports.operations(trace, "a"), folder / "a.json")
    return json.loads((folder / "a.json").read_text())["traceEvents"]


def check_nested(events):
    """By process and thread, an event lies wholly within another, or wholly beside it."""
    around = defaultdict(list)
    for one in sorted(events, key=lambda one: (one["ts"], -one["dur"])):
        stack = around[one["pid"], one["tid"]]
        while stack and stack[-1] <= one["ts"] + 1e-9:
            stack.pop()
        assert not stack or one["ts"] + one["dur"] <= stack[-1] + 1e-3
        stack.append(one["ts"] + one["dur"])


def test_the_checker_can_fail():
    place = {"pid": 0, "tid": 0}
    with pytest.raises(AssertionError):
        check_nested([{**place, "ts": 0.0, "dur": 2.0}, {**place, "ts": 1.0, "dur": 2.0}])


@pytest.mark.parametrize("name", [*TRACES])
def test_chrome_events_are_nested_and_complete(name, tmp_path):
    trace = TRACES[name]
    written = [one for one in chrome(trace, tmp_path) if one["ph"] == "X"]
    check_nested(written)
    expected = sum((one["code"] != SAMPLE).sum() for each in trace.segments for one in each.ranks)
    assert len(written) == expected + len(trace.tasks)
    assert min(one["ts"] for one in written) >= 0


def test_a_real_gang_is_exported_and_reported(real, tmp_path):
    check_nested([one for one in chrome(real, tmp_path) if one["ph"] == "X"])
    (segment,) = real.segments
    rounds = rounds_of(segment)
    assert as_in_r(rows(real, tmp_path)) == pytest.approx(rounds.useful, abs=1e-9)
    columns = table(segment, rounds)
    spans = [(one["stop"].max() - one["start"].min()) / 1e9 for one in segment.ranks]
    assert sum(np.array(one) for one in columns.values()) == pytest.approx(spans, rel=0.02)
    assert (rounds.units.sum(1) > 0).all()
    assert min(columns["read"]) > 0
    summary = summarise(real, None)
    json.dumps(summary, allow_nan=False)
    assert len(summary["causes"]) > 5
    # Others depend on what else the machine does.
    costly = {one["kind"] for one in summary["causes"] if one["seconds"] > 0}
    assert costly >= {"evaluation", "fixed cost of a round", "slow reads", "sums and updates"}


def test_chrome_events_of_threads_and_of_what_overlaps_are_nested(tmp_path):
    (segment,) = made_traces.gang(rounds=5).segments
    ranks = tuple(one.copy() for one in segment.ranks)
    reads = ranks[0]["code"] == 3
    ranks[0]["thread"][reads] = 1 + np.arange(reads.sum()) % 2
    # A clock that jumped: what is within a map ends after it.
    ranks[1]["stop"][np.flatnonzero(ranks[1]["code"] == 3)[1]] += 10**9
    trace = replace(made_traces.gang(rounds=5), segments=(replace(segment, ranks=ranks),))
    check_nested([one for one in chrome(trace, tmp_path) if one["ph"] == "X"])


def rows(trace, folder):
    exports.write_csv(exports.operations(trace, "a"), folder / "a.csv")
    with (folder / "a.csv").open(newline="") as file:
        return [*csv.reader(file)]


def as_in_r(table):
    """Loads by rank and iteration, as scripts in R add them up."""
    loads, iteration = defaultdict(float), defaultdict(int)
    for rank, start, stop, _, name, *_ in sorted(table, key=lambda row: (row[0], float(row[1]))):
        iteration[rank] += name == "iteration"
        if "MPI" not in name and name != "iteration":
            loads[rank, iteration[rank]] += float(stop) - float(start)
    return np.array([loads[key] for key in sorted(loads)]).reshape(len(iteration), -1)


def test_scripts_in_r_find_our_loads_and_metrics(tmp_path):
    trace = TRACES["a gang"]
    content = rows(trace, tmp_path)
    assert {len(row) for row in content} == {7}
    assert {row[4] for row in content} >= {"iteration", "map", "MPI_Reduce_scatter"}
    rounds = rounds_of(trace.segments[0])
    loads = as_in_r(content)
    assert loads == pytest.approx(rounds.useful, abs=1e-12)
    ours, theirs = imbalance(rounds.useful), imbalance(loads)
    for name, values in ours.items():
        assert theirs[name] == pytest.approx(values, abs=1e-9)


def test_rows_of_a_round_do_not_overlap(tmp_path):
    for rank in "0123":
        inner = [
            row for row in rows(TRACES["a gang"], tmp_path) if row[0] == rank and row[3] == "1"
        ]
        times = sorted((float(row[1]), float(row[2])) for row in inner)
        assert all(first[1] <= second[0] for first, second in pairwise(times))


def test_names_of_ones_own_are_no_columns_and_no_communication(tmp_path):
    (segment,) = made_traces.gang(rounds=2).segments
    names = tuple('my,"MPI\n' if name == "pack" else name for name in segment.phases)
    trace = replace(made_traces.gang(rounds=2), segments=(replace(segment, phases=names),))
    assert "my__mpi_" in {row[4] for row in rows(trace, tmp_path)}


def test_parquet_has_the_thirteen_columns(tmp_path):
    trace = TRACES["two generations"]
    exports.write_parquet(exports.operations(trace, "a run", 10), tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == [
        *("Case", "Node", "Rank", "Thread", "Iteration", "Epoch", "Operation", "Type"),
        *("Start", "End", "Duration", "Bytes", "Units"),
    ]
    content = table.to_pydict()
    assert {*content["Case"]} == {"a run"}
    assert {*content["Node"]} == {one.name for one in trace.segments}
    assert max(content["Epoch"]) == 1
    kinds = {*zip(content["Operation"], content["Type"], strict=True)}
    assert {("spread", "MPI"), ("map", "Application")} <= kinds
    assert "sample" not in content["Operation"]


@pytest.mark.parametrize("name", ["chrome", "csv"])
def test_events_are_written_some_at_a_time(name, tmp_path):
    made = exports.operations(made_traces.gang(rounds=1000), "a")
    assert made.num_rows > 12_000
    tracemalloc.start()
    try:
        getattr(exports, f"write_{name}")(made, tmp_path / "a")
        assert tracemalloc.get_traced_memory()[1] < 600 * made.num_rows
    finally:
        tracemalloc.stop()
