"""Recorders: what they write and when, how their files stay small, and what a full disk does."""

import errno
import logging
import os
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mapreduce
from mapreduce.errors import UsageError
from mapreduce.support import phases, tasks, tracefiles
from mapreduce.support.phases import (
    EVALUATE,
    EVENT,
    EXCHANGE,
    HEAD,
    LOAD,
    MAP,
    PACK,
    PHASES,
    READ,
    ROUND,
    SAMPLE,
    SETTLE,
    START,
)

SECOND = 10**9


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 10**12

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(phases, "clock", found)
    return found


@pytest.fixture
def path(tmp_path):
    return tmp_path / f"t.1.0{phases.SUFFIX}"


def content(path):
    return np.fromfile(path, HEAD, 1)[0], np.fromfile(path, EVENT, offset=HEAD.itemsize)


def rounds(clock, count, first=1):
    """Rounds of a millisecond, of which the map takes half and the exchange a quarter."""
    for number in range(first, first + count):
        began = phases.begin_round(number)
        clock.now += 500_000
        phases.mark(MAP, units=3)
        clock.now += 250_000
        phases.mark(EXCHANGE, 100)
        clock.now += 250_000
        phases.leave(ROUND, began, units=1)


def test_without_a_recorder_nothing_happens():
    assert phases.now() == phases.enter() == phases.begin_round(3) == 0
    phases.note(READ, 0)
    phases.mark(MAP)
    phases.leave(ROUND, 0)
    phases.mark_exchange(EXCHANGE, phases.now(), [])
    phases.next_round(1)
    phases.mark_between()
    phases.end_round()
    phases.skip()
    phases.sample()
    with mapreduce.phase("mine"):
        pass
    assert phases.inherited(len) is len


def test_each_second_whole_events_are_written(clock, path):
    with phases.recording(phases.Recorder(path)):
        rounds(clock, 999)
        assert content(path)[1].size == 0
        rounds(clock, 1001, 1000)
        head, events = content(path)
        assert head["stop"] - head["start"] >= 2 * SECOND - 50_000_000
        assert head["rounds"] >= 1900
        assert len(events) >= 3 * 1900
        # A long phase is written as it ends.
        clock.now += 5 * SECOND
        phases.mark(MAP)
        assert content(path)[1]["stop"].max() == clock.now
    head, events = content(path)
    assert head["rounds"] == (events["code"] == ROUND).sum() == 2000
    assert head["nanoseconds"][[ROUND, MAP, EXCHANGE]].tolist() == [
        *(2 * SECOND, 6 * SECOND, SECOND // 2)
    ]


def test_a_file_is_bounded_and_its_rounds_are_spread_evenly(clock, path, monkeypatch):
    monkeypatch.setattr(phases, "MOST_BYTES", 100_000)
    count = 20_000
    with phases.recording(phases.Recorder(path)):
        rounds(clock, count)
        assert path.stat().st_size <= 100_000 + HEAD.itemsize
    head, events = content(path)
    assert head["rounds"] == count
    assert head["nanoseconds"][ROUND] == count * 1_000_000
    whole = events[phases.is_kept(events, int(head["level"]))]
    kept = whole[whole["code"] == ROUND]["round"].astype(int)
    assert len(kept) == pytest.approx(count / 2 ** int(head["level"]), rel=0.05)
    # Of any rhythm, too, and with all of their phases.
    for rhythm in (2, 16, 100):
        assert (kept % rhythm == 0).mean() == pytest.approx(1 / rhythm, abs=0.02)
    assert (np.bincount(whole["round"])[kept] >= 3).all()
    # Samples are joined, and none is lost.
    samples = events[events["code"] == SAMPLE]
    assert (samples["start"][1:] == samples["stop"][:-1]).all()
    assert (samples["stop"] - samples["start"]).sum() == clock.now - head["start"]


def test_one_round_with_too_many_events_ends_the_trace(clock, path, monkeypatch, caplog):
    monkeypatch.setattr(phases, "MOST_BYTES", 10_000)
    with phases.recording(phases.Recorder(path)), caplog.at_level(logging.WARNING, "mrjob.trace"):
        for _ in range(5000):
            phases.note(READ, phases.now())
    assert "the trace ends here" in caplog.text
    assert b"one round has more than 10,000 bytes" in content(path)[0]["error"]


def test_a_file_that_cannot_be_opened_again_ends_the_trace(clock, path, monkeypatch, caplog):
    monkeypatch.setattr(phases, "MOST_BYTES", 10_000)
    opened, replace = os.open, tracefiles.publish.replace

    def refuse(name, *more):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def replaced(*given):
        replace(*given)
        monkeypatch.setattr(phases.os, "open", refuse)

    with phases.recording(phases.Recorder(path)), caplog.at_level(logging.WARNING, "mrjob.trace"):
        monkeypatch.setattr(tracefiles.publish, "replace", replaced)
        rounds(clock, 2000)
        monkeypatch.setattr(phases.os, "open", opened)
    assert "the trace ends here" in caplog.text
    head, events = content(path)
    assert b"Too many open files" in head["error"]
    assert (events["code"] == ROUND).any()


def test_a_process_that_is_forked_notes_nothing(clock, path, tmp_path):
    with phases.recording(phases.Recorder(path)), tasks.tracing(tmp_path / "jobs"):
        child = os.fork()
        if not child:
            os._exit(phases.recorder() is not None or tasks.current() is not None)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert phases.recorder() is not None and tasks.current() is not None


def test_a_full_disk_ends_the_trace_and_nothing_else(clock, path, monkeypatch, caplog):
    with phases.recording(phases.Recorder(path)), caplog.at_level(logging.WARNING, "mrjob.trace"):
        rounds(clock, 1500)
        before = content(path)[1].size
        assert before
        write = os.pwrite

        def full(file, text, at):
            # Of rows the system takes a part.
            return write(file, text[:77] if at else text, at)

        monkeypatch.setattr(tracefiles.os, "pwrite", full)
        rounds(clock, 3000, 1501)
    assert caplog.text.count("the trace ends here") == 1
    head, events = content(path)
    assert b"No space left" in head["error"]
    assert (
        path.stat().st_size
        == HEAD.itemsize + before * EVENT.itemsize
        == HEAD.itemsize + events.nbytes
    )
    assert "No space left" in phases.problem(path.with_name("t"))
    assert phases.problem(path.with_name("u")) == ""


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").touch()
    assert phases.open_file(tmp_path / "file" / "t.events", 0, 1, 1, 1) is None
    assert "there will be no trace" in caplog.text


def test_threads_note_with_the_thread_that_sent_them(path):
    def work(number):
        start = phases.now()
        phases.note(READ, start, units=number)
        return phases.recorder()

    with phases.recording(phases.Recorder(path)), ThreadPoolExecutor(2) as pool:
        phases.begin_round(7)
        found = [*pool.map(phases.inherited(work), range(20))]
        assert pool.submit(work, 0).result() is None
    assert None not in found
    _, events = content(path)
    reads = events[events["code"] == READ]
    assert sorted(reads["units"]) == [*range(20)]
    assert {*reads["thread"]} <= {1, 2}
    assert {*reads["round"]} == {7}
    assert {*reads["depth"]} == {2}


def test_marks_end_phases_that_follow_each_other(clock, path):
    """A phase within one does not end it, and what is skipped is in none."""
    with phases.recording(phases.Recorder(path)):
        began = phases.begin_round(1)
        clock.now += 3
        inner = phases.now()
        clock.now += 5
        phases.note(READ, inner)
        phases.mark(MAP)
        clock.now += 7
        phases.skip()
        clock.now += 11
        phases.mark(PACK)
        evaluation = phases.enter()
        clock.now += 13
        phases.mark(MAP)
        phases.leave(EVALUATE, evaluation)
        clock.now += 17
        phases.mark(PACK)
        phases.leave(ROUND, began)
        clock.now += 19
        phases.mark(EXCHANGE)
    events = content(path)[1]
    events = events[events["code"] != SAMPLE]
    assert [
        *zip(events["code"], events["depth"], events["stop"] - events["start"], strict=True)
    ] == [
        *((READ, 2, 5), (MAP, 1, 8), (PACK, 1, 11), (MAP, 2, 13), (EVALUATE, 1, 13)),
        *((PACK, 1, 17), (ROUND, 0, 56), (EXCHANGE, 0, 19)),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_events_are_what_was_noted(clock, path, seed):
    """In any order, whenever events are written: by a naive interpreter of the same calls."""
    draw = random.Random(seed)
    expected, entered, number, depth, since, own = [], [], 0, 0, clock.now, len(PHASES)
    with phases.recording(phases.Recorder(path)):
        for _ in range(3000):
            clock.now += draw.randrange(1, 400_000)
            now, kind = clock.now, draw.randrange(8)
            if kind == 0:
                # What is still open of the round before has no end.
                number, depth, since = number + draw.randrange(1, 3), 1, now
                entered = [(ROUND, phases.begin_round(number))]
            elif kind == 1:
                since = now
                entered.append((EVALUATE, phases.enter()))
                depth += 1
            elif kind == 2 and entered:
                code, start = entered.pop()
                depth = 0 if code == ROUND else depth - 1
                expected.append((code, depth, number, start, now, 0, 5))
                phases.leave(code, start, units=5)
                since = now
            elif kind == 3:
                phases.skip()
                since = now
            elif kind == 4:
                with mapreduce.phase("own"):
                    clock.now += 7
                    start = phases.now()
                    clock.now += 9
                    with mapreduce.phase("own"):
                        clock.now += 3
                    expected.append((own, depth + 3, number, clock.now - 3, clock.now, 0, 0))
                    clock.now += 4
                    expected.append((READ, depth + 2, number, start, clock.now, 3, 4))
                    phases.note(READ, start, 3, 4)
                    clock.now += 8
                expected.append((own, depth + 1, number, now, clock.now, 0, 0))
            elif kind == 5:
                start = phases.now()
                clock.now += 11
                expected.append((PACK, depth, number, since, start, 0, 0))
                expected.append((EXCHANGE, depth, number, start, clock.now, 3, 0))
                phases.mark_exchange(EXCHANGE, start, [(b"a", b"bc")])
                since = clock.now
            elif kind == 6 and not draw.randrange(50):
                phases.recorder().flush()
            else:
                expected.append((MAP, depth, number, since, now, 0, 2))
                phases.mark(MAP, units=2)
                since = now
    events = content(path)[1]
    events = events[events["code"] != SAMPLE]
    names = "code", "depth", "round", "start", "stop", "bytes", "units"
    found = [*zip(*(events[name].tolist() for name in names), strict=True)]
    assert sorted(found) == sorted(expected)
    assert {*events["thread"]} == {0}


def test_a_rank_alone_has_rounds_that_last_until_the_next(clock, tmp_path):
    """What a driver does between two rounds belongs to the first of them."""
    with phases.tracing(tmp_path / "timing") as own:
        clock.now += 2
        phases.mark_between()
        clock.now += 1
        for number in (1, 2):
            phases.next_round(number)
            clock.now += 3
            phases.mark(MAP)
        clock.now += 5
        phases.mark_between()
        began = phases.enter()
        clock.now += 7
        phases.leave(EVALUATE, began)
        phases.next_round(3)
        clock.now += 4
        # An error, in the middle of two phases.
        phases.enter()
        phases.enter()
    (path,) = (tmp_path / "timing").iterdir()
    head, events = content(path)
    assert (head["rank"], head["ranks"], head["rounds"], own.problem()) == (0, 1, 3, "")
    events = events[events["code"] != SAMPLE]
    took = events["stop"] - events["start"]
    assert [*zip(events["code"], events["depth"], events["round"], took, strict=True)] == [
        *((LOAD, 1, 0, 2), (START, 0, 0, 3), (MAP, 1, 1, 3), (ROUND, 0, 1, 3), (MAP, 1, 2, 3)),
        *((SETTLE, 1, 2, 5), (EVALUATE, 1, 2, 7), (ROUND, 0, 2, 15), (ROUND, 0, 3, 4)),
    ]


def test_phases_of_ones_own(path):
    with phases.recording(phases.Recorder(path)):
        for number in range(60):
            with mapreduce.phase(f"{number:02d}" + "é" * 20):
                pass
        with pytest.raises(ZeroDivisionError), mapreduce.phase("00" + "é" * 20):
            1 / 0  # noqa: B018
    head, events = content(path)
    first = len(PHASES)
    assert events["code"][0] == events["code"][60] == first
    # There are no more codes.
    assert (events["code"][51:60] == phases.MOST_CODES - 1).all()
    assert head["names"][first].decode(errors="replace").startswith("00éé")
    for name in ("", "map", "round"):
        with pytest.raises(UsageError, match="expected a name of your own"), mapreduce.phase(name):
            pass


def test_depths_beyond_a_byte_are_no_error(path):
    def deep(left):
        if left:
            with mapreduce.phase("deep"):
                deep(left - 1)

    with phases.recording(phases.Recorder(path)):
        deep(300)
    assert (content(path)[1]["code"] == len(PHASES)).sum() == 300


def test_a_system_without_schedstat(path, monkeypatch):
    monkeypatch.setattr(phases, "_open_schedstat", lambda: -1)
    with phases.recording(phases.Recorder(path)):
        sum(range(1000))
    (sample,) = content(path)[1]
    assert sample["code"] == SAMPLE
    assert sample["bytes"] > 0
    assert sample["units"] == 0
