"""The trace of a real gang, whose ranks are threads; and what strangers make of such files."""

import os
import shutil
from random import Random

import numpy as np
import pytest

import gangs
from builders import blobs_in
from mapreduce.errors import DataError, MissingInputError
from mapreduce.plan.settings import Settings
from mapreduce.support import phases
from mapreduce.support.phases import EVENT, HEAD, PHASES, ROUND, SAMPLE, START
from mapreduce.support.tasks import tracing
from mapreduce.support.tracefiles import FOLDER, clock
from mapreduce.timing.reading import read
from mapreduce.training import creating

data = blobs_in(train=(200, 170, 97), test=(60, 31), features=40, classes=4)


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A run without a trace, and the same run with one."""
    chosen = Settings(
        model="mlp:9", batch_size=96, slice_rows=12, rounds=60, eval_every=30, learning_rate=0.05
    )
    found = []
    for trace in (False, True):
        path = tmp_path_factory.mktemp("runs") / "run"
        run = creating.create(path, chosen, data / "train", data / "test")
        gangs.train(run, 2, 2, trace=trace, threads=1 + trace)
        found.append(run)
    return found


@pytest.fixture
def folder(runs, tmp_path):
    """A copy of a trace, to be damaged."""
    return shutil.copytree(runs[1].path / FOLDER, tmp_path / "timing")


def within(events, depth):
    return events[(events["depth"] == depth) & (events["thread"] == 0) & (events["code"] != SAMPLE)]


def test_phases_of_a_rank_follow_each_other_and_lie_in_each_other(runs):
    trace = read(runs[1].path)
    (segment,) = trace.segments
    assert segment.rounds == 60
    assert len(segment.ranks) == 2
    for events, seconds in zip(segment.ranks, segment.seconds, strict=True):
        for depth in range(3):
            level = within(events, depth)
            assert (level["start"][1:] >= level["stop"][:-1]).all()
            outer = within(events, depth - 1) if depth else level
            at = np.searchsorted(outer["start"], level["start"], "right") - 1
            assert (level["stop"] <= outer["stop"][at]).all()
            assert (level["round"] == outer["round"][at]).all()
        # With what is in no phase, they are the time from the start to the end.
        top = within(events, 0)
        assert [PHASES[code] for code in top["code"][:2]] == ["start", "round"]
        assert (top["code"] == ROUND).sum() == 60
        assert top["start"][0] == trace.start or events is not segment.ranks[0]
        spans = (top["stop"] - top["start"]).sum() / 1e9
        assert spans <= (trace.stop - trace.start) / 1e9
        assert spans == pytest.approx(seconds[[ROUND, START]].sum() + tail(top), abs=1e-6)
        inner = within(events, 1)
        inner = inner[inner["round"] > 0]
        for code in np.unique(inner["code"]):
            took = (inner["stop"] - inner["start"])[inner["code"] == code].sum() / 1e9
            assert took <= seconds[code] + 1e-6


def tail(top):
    """Seconds of what follows the last round."""
    last = top[~np.isin(top["code"], (ROUND, START))]
    return (last["stop"] - last["start"]).sum() / 1e9


def test_each_round_has_its_units_and_threads(runs):
    (segment,) = read(runs[1].path).segments
    maps, reads, rows = np.zeros((3, 61), int)
    for events in segment.ranks:
        mapped = events[(events["code"] == PHASES.index("map")) & (events["depth"] == 1)]
        np.add.at(maps, mapped["round"], mapped["units"])
        taken = events[(events["code"] == PHASES.index("read")) & (events["depth"] == 2)]
        assert (taken["thread"] > 0).all()
        np.add.at(reads, taken["round"], 1)
        np.add.at(rows, taken["round"], taken["units"])
        assert {"load", "exchange", "spread", "publish", "evaluate"} <= {
            segment.phases[code] for code in np.unique(events["code"])
        }
    slices = [runs[1].config.plan.slices(completed) for completed in range(60)]
    assert maps[1:].tolist() == reads[1:].tolist() == [*map(len, slices)]
    assert rows[1:].tolist() == [sum(one.stop - one.start for one in each) for each in slices]


def test_a_trace_changes_no_bit(runs):
    digests = [
        {
            p.name: p.read_bytes()
            for p in run.rounds.folder.iterdir()
            if p.name.startswith("00000060")
        }
        for run in runs
    ]
    assert len(digests[0]) == 1
    assert digests[0] == digests[1]
    assert not (runs[0].path / FOLDER).exists()


def test_a_trace_that_was_cut_is_read_as_far_as_it_goes(folder):
    whole = read(folder).segments[0]
    path = folder / f"{whole.name}.1{phases.SUFFIX}"
    os.truncate(path, HEAD.itemsize + 10 * EVENT.itemsize + 7)
    cut = read(folder).segments[0]
    assert len(cut.ranks[1]) == 10
    assert (cut.seconds == whole.seconds).all()
    for size in (HEAD.itemsize - 1, 0):
        os.truncate(path, size)
        alone = read(folder).segments[0]
        assert [len(events) for events in alone.ranks] == [len(whole.ranks[0]), 0]
        assert not alone.seconds[1].any()


def test_a_run_without_a_trace(runs, tmp_path):
    for place in (runs[0].path, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(MissingInputError, match=r"has no trace: .*Train with --trace"):
            read(place)


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("head", "magic", b"GRX", "first bytes: expected"),
        ("head", "version", 7, "has version 7; this program reads version 1. Use the program"),
        ("head", "rank", 9, "rank: expected"),
        ("head", "rank", 1, "head: expected a rank once"),
        ("head", "ranks", 4_000_000_000, "rank: expected one of 65536 at most"),
        ("head", "ranks", 3, "head: expected . ranks, as another has"),
        ("head", "level", 200, "level: expected"),
        ("head", "start", -5, "times: expected"),
        ("head", "stop", 1 << 62, "times: expected"),
        ("head", "rounds", -1, "rounds: expected"),
        ("head", "nanoseconds", -1, "sums: expected"),
        ("head", "names", b"<b>", "names: expected"),
        ("event", "code", 63, "row 3, code 63: expected a number below 13"),
        ("event", "start", -(1 << 62), "row 3, start .* expected"),
        ("event", "stop", 0, "row 3, stop 0: expected a later time"),
        ("event", "stop", 1 << 62, "row 3, stop"),
        ("event", "bytes", 1 << 60, "row 3, bytes"),
        ("event", "units", -1, "row 3, units -1"),
    ],
)
def test_a_damaged_trace_says_where(folder, part, name, value, message):
    path = min(folder.iterdir())
    content = bytearray(path.read_bytes())
    head, events = np.frombuffer(content, HEAD, 1), np.frombuffer(content, EVENT, -1, HEAD.itemsize)
    (head if part == "head" else events[3:4])[name] = value
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{folder}/.*{message}"):
        read(folder)


def test_links_and_what_is_too_large_are_refused(folder):
    path = min(folder.iterdir())
    with path.open("ab") as file:
        file.truncate(1 << 34)
    with pytest.raises(DataError, match="size: expected"):
        read(folder)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="a file, and no link"):
        read(folder)


def test_names_of_ones_own_join_those_of_other_ranks(tmp_path):
    for rank, names in enumerate((["b", "a"], ["a", "c"])):
        recorder = phases.Recorder(tmp_path / f"t.1.{rank}{phases.SUFFIX}", rank, 2)
        with phases.recording(recorder):
            for name in names:
                with phases.phase(name):
                    pass
    (segment,) = read(tmp_path).segments
    assert segment.phases == (*PHASES, "b", "a", "c")
    found = [[segment.phases[code] for code in events["code"]] for events in segment.ranks]
    assert [sorted(names) for names in found] == [["a", "b", "sample"], ["a", "c", "sample"]]


def test_bytes_of_strangers_are_read_or_refused(folder, tmp_path):
    with tracing(tmp_path / "tasks") as tasks:
        tasks.job = 0
        for number in range(4):
            task = {"step": 0, "kind": "map", "number": number, "splits": [["a", 0, 9]]}
            start = clock()
            tasks.note(task, number % 2, 2, start, (start, clock(), 5, 7))
    paths = [*folder.iterdir(), *(tmp_path / "tasks").iterdir()]
    contents = [path.read_bytes() for path in paths]
    random = Random(7)
    refused = 0
    place = tmp_path / "mixed"
    place.mkdir()
    for _ in range(400):
        for path, content in zip(paths, contents, strict=True):
            changed = bytearray(content[: 4096 + random.randrange(4000)])
            for _ in range(random.choice((0, 1, 3))):
                at = random.randrange(random.choice((200, len(changed))) % len(changed) + 1)
                changed[at % len(changed)] = random.choice((0, 1, 127, 128, 255))
            (place / path.name).write_bytes(changed)
        try:
            trace = read(place)
        except DataError as error:
            refused += 1
            assert str(place) in str(error)
        else:
            assert trace.start <= trace.stop
            assert len(trace.tasks) <= 4
    assert 50 < refused < 390
