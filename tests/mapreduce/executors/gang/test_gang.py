"""The state that a gang leaves is the chain's; and what becomes of ranks that do not come."""

import time
from pathlib import Path

import numpy as np
import pytest

import programs
from builders import GANG, INLINE, advanced, blobs_in
from gangs import Gang, initial, train
from mapreduce import models
from mapreduce.engine.executor import Hooks
from mapreduce.errors import NonFiniteError, UsageError
from mapreduce.executors.gang import follow, job
from mapreduce.executors.gang.errors import TooSmallError
from mapreduce.executors.gang.follow import Follower
from mapreduce.executors.gang.rendezvous import Announcement, Meeting
from mapreduce.executors.gang.state import GangState
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Evaluated, Events, PhasesTimed, RoundCompleted, Warned
from mapreduce.runs.execution import Execution
from mapreduce.runs.flags import execution
from mapreduce.strategies.program import Training
from mapreduce.support import cores
from mapreduce.training import creating, driver
from quick import cases

# Three pages of parameters.
SETTINGS = Settings(model="mlp:90", batch_size=96, slice_rows=12, rounds=3, learning_rate=0.05)

data = blobs_in(train=(200, 170, 97), test=(60, 31), features=400, classes=4)


def create(data: Path, path: Path, evaluation: bool = False, **changes) -> RunDir:
    chosen = Settings(**{**vars(SETTINGS), **changes})
    return creating.create(path, chosen, data / "train", data / "test" if evaluation else None)


@pytest.mark.parametrize("patience", [0, 2])
def test_a_gang_tells_and_saves_what_a_chain_does(data, tmp_path, patience):
    """Events in their order, checkpoints, evaluations; also where the evaluations end it."""
    changes = {"rounds": 40 if patience else 14, "eval_every": 3, "checkpoint_every": 4}
    changes |= {"model": "softmax", "learning_rate": 0.5, "patience": patience}
    told, files = [], []
    for name, how in (("chain", INLINE), ("gang", GANG)):
        run = create(data, tmp_path / name, evaluation=True, **changes)
        events = []
        driver.train(run, how, 3, Events(events.append))
        told.append([event for event in events[1:] if not isinstance(event, PhasesTimed)])
        parts = sorted(p for p in run.path.rglob("*") if p.is_file() and p.parent != run.path)
        files.append({str(p.relative_to(run.path)): p.read_bytes() for p in parts})
    assert told[0] == told[1]
    assert len([event for event in told[0] if isinstance(event, Evaluated)]) >= 3
    assert len([event for event in told[0] if isinstance(event, RoundCompleted)]) >= 9
    blocks = [{name for name in found if name.startswith("rounds/")} for found in files]
    assert blocks[0] == blocks[1]
    kept = [{n: c for n, c in found.items() if not n.startswith("rounds/")} for found in files]
    assert kept[0] == kept[1]


# Ranks that do not come, come late, or fail


def test_a_gang_that_is_too_small_ends_in_time_with_the_numbers(data, tmp_path):
    """Row 19."""
    run = create(data, tmp_path / "run")
    gang = Gang(run, 4, initial(run, 2), wait=0.1)
    for rank in (1, 3):
        gang.meeting.announce(1, rank, Announcement("nowhere", {}, None))
    gang.start(0)
    (error,) = gang.join().values()
    assert isinstance(error, TooSmallError)
    assert "3 of 4 tasks of the gang came within 0.1 s; missing: rank 2." in str(error)
    assert gang.meeting.error()["type"] == "TooSmallError"


def test_a_late_rank_is_waited_for(data, tmp_path):
    run = create(data, tmp_path / "run")
    gang = Gang(run, 3, initial(run, 1))
    gang.start(0, 2)
    programs.wait_until(lambda: gang.meeting.look(1).get(1) == {0, 2})
    assert run.latest_round().completed == 0
    gang.start(1)
    assert gang.join() == {}
    assert run.latest_round().completed == SETTINGS.rounds


@pytest.fixture
def follower(data, tmp_path, monkeypatch):
    """Follows a gang of four ranks, and its warnings; each look is one for lost ranks, too."""
    monkeypatch.setattr(follow, "_RANK_SECONDS", 0.0)
    run, said = create(data, tmp_path / "run"), []
    initial(run, 2)
    meeting = Meeting.prepare(run.path)
    hooks = Hooks(warn=said.append)
    place = meeting, 4, 0, hooks, run.path, 60.0
    return Follower(Training.of(run), run.rounds, *place), said


def test_a_driver_looks_again_soon_after_a_due_round(follower, monkeypatch):
    one, _ = follower
    pauses, settled = [], [1, 1, 0, 1]

    def look():
        one._settled += settled.pop(0) if settled else 0

    monkeypatch.setattr(one, "look", look)
    monkeypatch.setattr(follow.time, "sleep", pauses.append)
    one._look_unless_failed()
    assert [round(1e3 * pause) for pause in pauses] == [0, 1, 1, 2, 1, 2, 4, 8, 16]
    pauses.clear()
    one._look_unless_failed()
    assert pauses == [0]


def announce(meeting, generation, rank, **more):
    meeting.announce(generation, rank, Announcement(f"rank-{rank}", {}, **more))


def test_a_gang_that_lost_a_rank_says_which_and_who_waits(follower):
    follower, said = follower
    for rank in range(4):
        announce(follower.meeting, 1, rank)
    follower.look()
    announce(follower.meeting, 2, 1, left=1, lost=2)
    # It saw rank 1 leave, and not that rank 2 was gone.
    announce(follower.meeting, 2, 3, left=1, lost=1)
    follower.look()
    # Others may be about to come.
    assert said == []
    announce(follower.meeting, 2, 0, left=1, lost=3, start=1200)
    follower.look()
    follower.look()
    assert said == [
        "the gang lost rank 2. All go on after round 1,200, as generation 2: 3 of 4 ranks are "
        "there, and wait up to 60 s for rank 2"
    ]
    announce(follower.meeting, 2, 2)
    follower.look()
    follower.look(is_last=True)
    assert said[1:] == ["all 4 ranks of the gang are there again"]


def test_a_gang_that_loses_ranks_while_it_waits(follower):
    """Two at once, then one that had no peer yet, which is replaced before anybody looks."""
    follower, said = follower
    for rank in range(4):
        announce(follower.meeting, 1, rank)
    announce(follower.meeting, 2, 0, left=1, lost=3)
    announce(follower.meeting, 2, 1, left=1, lost=2)
    follower.look()
    follower.look()
    assert said == [
        "the gang lost rank 2, rank 3. All go on after the last published round, as generation 2: "
        "2 of 4 ranks are there, and wait up to 60 s for rank 2, rank 3"
    ]
    announce(follower.meeting, 2, 2)
    announce(follower.meeting, 3, 2)
    for rank in (0, 1):
        announce(follower.meeting, 3, rank, left=2, start=0)
    follower.look(is_last=True)
    assert said[1:] == [
        "the gang lost rank 2. All go on after round 0, as generation 3: 3 of 4 ranks are there, "
        "and wait up to 60 s for rank 3"
    ]


def test_a_rank_that_comes_late_was_not_lost(follower):
    """The first generation ended before it came: another rank was replaced meanwhile."""
    follower, said = follower
    for rank in (0, 1, 2):
        announce(follower.meeting, 1, rank)
    for rank, left in enumerate((0, 1, 1, 0)):
        announce(follower.meeting, 2, rank, left=left, start=None if rank else 0)
    follower.look()
    assert said == [
        "the gang lost rank 0. All go on after round 0, as generation 2: 4 of 4 ranks are there"
    ]


def test_a_rank_that_failed_is_not_told_as_lost(follower):
    """The others may see it leave before it has published its error, which the job tells."""
    follower, said = follower
    for rank in range(4):
        announce(follower.meeting, 1, rank)
    announce(follower.meeting, 2, 0, left=1, lost=1)
    follower.look()
    follower.meeting.fail(ValueError("no gradient"), 1)
    follower.look()
    follower.look(is_last=True)
    assert said == []


def test_who_comes_after_the_end_has_nothing_to_do(data, tmp_path):
    """A rank that was killed when it had done all is started again."""
    gang = train(create(data, tmp_path / "run"), 2, 1)
    gang.start(1)
    assert gang.join() == {}


def test_the_error_of_one_rank_ends_all_and_is_told_by_it_alone(data, tmp_path):
    run = create(data, tmp_path / "run", learning_rate=1e30, rounds=9)
    gang = Gang(run, 3, initial(run, 2))
    gang.start()
    errors = gang.join()
    told = gang.meeting.error()
    assert told["type"] == "NonFiniteError"
    assert isinstance(errors[told["rank"]], NonFiniteError)
    # Others may have come upon the same in the same round, but none says that it lost a peer.
    assert {type(error) for error in errors.values()} == {NonFiniteError}
    # What Hadoop does next: another attempt of the task that failed.
    failed = told["rank"]
    gang.errors.clear()
    gang.start(failed)
    assert str(gang.join()[failed]) == told["message"]


def test_a_gang_that_is_too_small_goes_on_as_a_chain_if_asked(data, tmp_path, monkeypatch):
    def too_small(*_, **__):
        raise TooSmallError("1 of 2 tasks of the gang came within 60 s")

    monkeypatch.setattr(job.Gang, "_run", too_small)
    how = {"runner": "inline", "executor": "gang"}
    with pytest.raises(TooSmallError):
        driver.train(create(data, tmp_path / "error"), Execution(**how), 3, Events())
    seen = []
    run = create(data, tmp_path / "chain")
    ended = driver.train(run, Execution(**how, gang_fallback="chain"), 3, Events(seen.append))
    assert ended.completed == SETTINGS.rounds
    (warned,) = [event.message for event in seen if isinstance(event, Warned)]
    assert warned.startswith("1 of 2 tasks of the gang came within 60 s")
    assert not list((run.path / "gang").iterdir())


def test_mixed_profiles_are_told_and_noted(data, tmp_path, monkeypatch):
    seen = []
    plain = create(data, tmp_path / "plain")
    driver.train(plain, Execution("parallel", 2, executor="gang"), 3, Events(seen.append))
    assert not [event for event in seen if isinstance(event, Warned)]
    assert plain.read_json("mixed_profiles.json") is None

    announce = Meeting.announce

    def other_processor(self, generation, number, announcement):
        profile = {**announcement.profile, "cpu": f"cpu-of-rank-{number}"}
        changed = Announcement(**{**vars(announcement), "profile": profile})
        announce(self, generation, number, changed)

    monkeypatch.setattr(Meeting, "announce", other_processor)
    for name, profile, warnings in (("native", "native", 1), ("portable", "portable", 0)):
        run = creating.create(tmp_path / name, SETTINGS, data / "train", None, profile)
        seen.clear()
        driver.train(run, Execution("parallel", 2, executor="gang"), 3, Events(seen.append))
        found = [event.message for event in seen if isinstance(event, Warned)]
        assert len(found) == warnings
        noted = run.read_json("mixed_profiles.json")
        assert (noted is not None) == bool(warnings)
        if warnings:
            assert "rank 1: cpu: cpu-of-rank-0, now cpu-of-rank-1" in found[0]


def test_a_rank_without_units_in_a_round_has_the_next_parameters(data, tmp_path):
    """The vectors of all other rounds lie at the same place; of mixed precision there are copies.

    The last round of an epoch of 41 slices has one.
    """
    run, other = (create(data, tmp_path / name, precision="mixed", rounds=8) for name in "ab")
    driver.train(run, Execution("inline"), 0, Events())
    assert [run.config.plan.leaves(completed) for completed in (4, 5, 6)] == [8, 1, 8]
    driver.train(other, Execution("parallel", 2, blocks=2, executor="gang"), 0, Events())
    assert other.result() == run.result()


# Options


@cases(
    "spec, dtype, workers, blocks",
    ("softmax", "float32", 4, 1),
    # Two have a core each.
    ("softmax", "float32", 2, 1),
    ("mlp:300", "float32", 2, 2),
    # 400 kB of parameters; and 4 MB.
    ("mlp:900", "float32", 4, 1),
    ("mlp:900", "float32", 16, 2),
    ("mlp:900", "float64", 16, 4),
    ("mlp:9000", "float32", 1, 1),
    ("mlp:9000", "float32", 4, 4),
    # Blocks are whole pages.
    ("mlp:900", "float32", 100, 7),
)
def test_a_gang_has_as_many_blocks_as_there_is_to_send(spec, dtype, workers, blocks, monkeypatch):
    monkeypatch.setattr(cores, "available_cores", lambda: 2)
    model = models.create(spec, 100, 10, dtype)
    chosen = execution({"executor": "gang", "workers": workers}).with_blocks_for(model)
    assert (chosen.workers, chosen.blocks) == (workers, blocks)
    for executor in ("gang", "chain"):
        asked = execution({"workers": workers, "blocks": 3, "executor": executor})
        assert asked.with_blocks_for(model).blocks == 3
    assert execution({"workers": workers, "executor": "chain"}).with_blocks_for(model).blocks == 1


@cases(
    "change, message",
    ({"runner": "inline"}, "-r inline runs one after the other"),
    ({"gang_wait": 0.0}, "--gang-wait: expected a positive number of seconds"),
    ({"gang_wait": float("nan")}, "--gang-wait: expected a positive number of seconds"),
)
def test_options_that_make_no_sense(change, message):
    with pytest.raises(UsageError, match=message):
        execution({"executor": "gang", **change})


def test_the_secret_is_for_its_owner_alone(data, tmp_path):
    run = create(data, tmp_path / "run")
    meeting = Meeting.prepare(run.path)
    assert (run.path / "gang").stat().st_mode & 0o777 == 0o700
    assert len(meeting.secret) == 64
    assert Meeting.prepare(run.path).secret != meeting.token
    assert np.unique([Meeting.prepare(run.path).secret for _ in range(3)]).size == 3


def test_a_disk_without_permissions_holds_a_gang_too(data, tmp_path, monkeypatch):
    """Its ranks hear their own user alone."""

    def refuse(path, mode):
        raise PermissionError(1, "Operation not permitted", str(path))

    run = create(data, tmp_path / "run")
    monkeypatch.setattr(Path, "chmod", refuse)
    gang = train(run, 2, 1)
    assert gang.meeting.announced(1, range(2))[0].address.startswith(":")


def test_files_that_the_first_round_needs_are_kept(data, tmp_path):
    """A chain's block names the rounds that wrote what it has not changed, as L-BFGS's pairs."""
    settings = Settings(model="softmax", optimizer="lbfgs", batch_size=0, rounds=9)
    run = creating.create(tmp_path / "run", settings, data / "train", None)
    execution = Execution("inline", rounds_per_job=6)
    position = advanced(run, execution, 6)
    assert run.rounds.read(6, 0, 1).rounds() > {6}
    meeting, program = Meeting.prepare(run.path), Training.of(run)
    Follower(program, run.rounds, meeting, 1, 6, Hooks(), run.path).look()
    assert run.read_round(6, 1).params.tobytes() == position.params.tobytes()


def test_a_rank_without_units_may_be_slow_to_read_the_first_round(data, tmp_path, monkeypatch):
    vector = GangState.vector

    def slow_vector(self, completed, name):
        if self._mesh.rank == 1 and name not in self._vectors:
            time.sleep(0.5)
        return vector(self, completed, name)

    monkeypatch.setattr(GangState, "vector", slow_vector)
    settings = Settings(model="softmax", batch_size=8, slice_rows=8, rounds=20)
    run = creating.create(tmp_path / "run", settings, data / "train", None)
    driver.train(run, Execution("parallel", 2, executor="gang"), 3, Events())
    assert run.result().completed == 20
