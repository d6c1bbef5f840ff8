"""Asynchronous rounds: the log says what was done, and doing it again gives the same bits."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from mrjob.step import StepFailedException

import datasets
from builders import keywords, mean_gradient
from gangs import Gang, initial, train
from hdfs_utils.errors import StorageError
from mapreduce.errors import DataError, NonFiniteError, UsageError
from mapreduce.plan.settings import Settings
from mapreduce.runs import pushes
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.runs.flags import execution
from mapreduce.runs.state import block_bounds
from mapreduce.strategies import arrivals, replicas
from mapreduce.strategies.task_context import TaskContext
from mapreduce.training import creating, driver
from mapreduce.training.replaying import replay
from quick import cases, first_of

#: Three pages of parameters; rounds of eight slices, the last one of an epoch has two.
SETTINGS = Settings(
    "mlp:700",
    **keywords("strategy=downpour asynchronous=True replicas=3 batch_size=32 slice_rows=4"),
    **keywords("rounds=10 checkpoint_every=5 learning_rate=0.05"),
)
CNN = "conv:8x3:padding=1,batchnorm,relu,pool:2,dropout:0.25,dense:250,batchnorm,relu"
GANG = Execution("parallel", 3, executor="gang", blocks=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrivals")
    datasets.blobs(folder / "train", (56, 48), features=50)
    datasets.blobs(folder / "test", (30,), seed=1, features=50)
    datasets.blobs(folder / "images", (64, 48, 33), shape=(3, 8, 8), classes=4, dtype="uint8")
    return folder


@pytest.fixture(autouse=True)
def slow_clock(monkeypatch):
    """Stretches end where checkpoints are due, however long kernels are compiled."""
    monkeypatch.setattr(arrivals, "_STRETCH_SECONDS", 1e6)


def create(data, path, **changes):
    return creating.create(path, replace(SETTINGS, **changes), data / "train", None)


def stretches(run):
    """The log: of each stretch its first round and the pushes of each block."""
    starts = pushes.starts(run).items()
    return {start: pushes.read(run, start, blocks, 1 << 40) for start, blocks in starts}


def naive(run):
    """The parameters in the end, by a loop over the log that keeps all versions of all blocks."""
    plan = run.config.plan
    context, model = TaskContext(run.config, 1), plan.create_model()
    optimizer = plan.create_optimizer()
    params = model.init(plan.seed)
    state = optimizer.init(params)
    for start, script in stretches(run).items():
        context_of = [
            (at, unit)
            for at in range(start, plan.rounds)
            for unit in range(replicas.count(plan, at))
        ]
        bounds = block_bounds(model.size, len(script.orders))
        versions = [[params[slice(*each)]] for each in bounds]
        gradients = {}
        # Each block by itself, as far as the gradients of others are there.
        applied = sum(map(len, script.orders)) + len(script.orders)
        while sum(map(len, versions)) < applied:
            before = sum(map(len, versions))
            for block, order in enumerate(script.orders):
                while len(versions[block]) <= len(order):
                    number = len(versions[block]) - 1
                    unit = order[number]
                    read = script.versions[unit]
                    if any(v >= len(versions[at]) for at, v in enumerate(read)):
                        break
                    if unit not in gradients:
                        base = np.concatenate([versions[at][v] for at, v in enumerate(read)])
                        rows = replicas.slices_of(plan, *context_of[unit])
                        gradients[unit] = mean_gradient(context, rows, base)
                    part = slice(*bounds[block])
                    own = {name: array[part] for name, array in state.items()}
                    step = start * plan.replicas + number
                    last = versions[block][-1]
                    updates, own = optimizer.update(gradients[unit][part], own, last, step)
                    for name, array in own.items():
                        state[name][part] = array
                    versions[block].append(last + updates)
            assert sum(map(len, versions)) > before
        params = np.concatenate([made[-1] for made in versions])
    return params


@cases(
    "ranks, blocks, change",
    (3, 3, {"schedule": "cosine"}),
    (4, 2, {"optimizer": "momentum", "l2": 0.01}),
    (2, 1, {"optimizer": "adam", "learning_rate": 0.01, "replicas": 8}),
    (5, 3, {"optimizer": "adagrad", "staleness": 2}),
    ids=str,
)
def test_what_the_log_says_is_what_was_done(data, tmp_path, ranks, blocks, change):
    run = create(data, tmp_path / "run", dtype="float64", **change)
    train(run, ranks, blocks)
    found = run.latest_round().params
    np.testing.assert_allclose(found, naive(run), rtol=1e-10, atol=1e-12)


def test_each_gradient_is_applied_once_to_each_block(data, tmp_path):
    run = create(data, tmp_path / "run")
    train(run, 4, 3)
    plan, found = run.config.plan, stretches(run)
    # Checkpoints are due after 5 and 10 rounds.
    assert [*found] == [0, 5]
    for (start, script), stop in zip(found.items(), (5, 10), strict=True):
        units = sum(replicas.count(plan, at) for at in range(start, stop))
        assert [sorted(order) for order in script.orders] == [[*range(units)]] * 3


def test_one_worker_with_one_replica_has_the_bits_of_sync(data, tmp_path):
    run = create(data, tmp_path / "run", replicas=1)
    train(run, 1, 1)
    found = run.latest_round()
    other = create(data, tmp_path / "sync", strategy="sync", asynchronous=False, replicas=1)
    driver.train(other, Execution("inline"), 3, Events())
    expected = other.latest_round()
    assert found.params.tobytes() == expected.params.tobytes()
    assert found.history.tobytes() == expected.history.tobytes()
    assert pushes.staleness(run) == (10, 0.0, 0)


@pytest.mark.parametrize("most", [0, 1, 4])
def test_the_staleness_keeps_its_bound(data, tmp_path, most):
    run = create(data, tmp_path / "run", staleness=most, rounds=40, checkpoint_every=40)
    train(run, 5, 2)
    late = pushes.staleness(run)
    assert late.pushes >= 80
    assert late.most <= most


def test_rounds_are_reported_with_their_rows(data, tmp_path):
    run = creating.create(
        tmp_path / "run", replace(SETTINGS, eval_every=4), data / "train", data / "test"
    )
    events = []
    driver.train(run, GANG, 3, Events(events.append))
    plan = run.config.plan
    rows = {
        at + 1: sum(one.stop - one.start for one in plan.slices(at)) for at in range(plan.rounds)
    }
    assert {one.completed: one.rows for one in events if isinstance(one, RoundCompleted)} == rows
    assert [*run.evaluation_losses()] == [4, 8, 10]


@pytest.mark.parametrize("workers", first_of(5, 1, 2))
def test_a_replay_on_other_workers_has_the_same_hash(data, tmp_path, workers):
    settings = replace(SETTINGS, model=CNN, optimizer="momentum", replicas=4, learning_rate=0.01)
    run = creating.create(tmp_path / "run", settings, data / "images", None)
    ended = driver.train(run, GANG, 3, Events())
    assert ended.completed == 10
    again = Execution("parallel", workers, executor="gang")
    # It raises an error if the models differ.
    assert replay(run, tmp_path / "again", again, Events()).model_sha256 == ended.model_sha256


@pytest.mark.slow
def test_stretches_that_time_ends_are_replayed_too(data, tmp_path, monkeypatch):
    monkeypatch.setattr(arrivals, "_STRETCH_SECONDS", 0.02)
    monkeypatch.setattr(arrivals, "_STRETCH_UNITS", 0)
    run = create(data, tmp_path / "run", rounds=80, checkpoint_every=80)
    driver.train(run, GANG, 3, Events())
    assert len(stretches(run)) > 2
    replay(run, tmp_path / "again", Execution("parallel", 2, executor="gang"), Events())


@pytest.mark.slow
def test_stretches_in_several_numbers_of_blocks(data, tmp_path):
    """What is logged is repeated in as many blocks as before."""
    run = create(data, tmp_path / "run")
    train(run, 2, 3)
    # As if it had been killed in the second stretch, before anything was logged.
    for path in [*run.rounds.folder.glob("00000010.*"), *(run.path / "pushes").glob("00000005.*")]:
        path.unlink()
    ended = driver.train(run, replace(GANG, blocks=2), 3, Events())
    assert {start: len(one.orders) for start, one in stretches(run).items()} == {0: 3, 5: 2}
    found = replay(run, tmp_path / "again", replace(GANG, workers=2, blocks=1), Events())
    assert found.model_sha256 == ended.model_sha256


@pytest.mark.parametrize("cut", [2, 5, 11])
def test_a_log_that_was_cut_off_is_gone_on_with(data, tmp_path, cut):
    """Each block's server may have been killed at another push, and in the midst of a line."""
    run = create(data, tmp_path / "run", rounds=5)
    train(run, 3, 3)
    for path in run.rounds.folder.iterdir():
        path.unlink()
    files = sorted((run.path / "pushes").iterdir())
    whole = {path: path.read_bytes().splitlines(keepends=True) for path in files}
    # A server is never ahead of what others have logged, and a push may be with some of them.
    cuts = {path: cut + number for number, path in enumerate(files)}
    possible = _closed({path: lines[1 : cuts[path]] for path, lines in whole.items()})
    for path, lines in possible.items():
        path.write_bytes(b"".join([whole[path][0], *lines]) + b"12 3")
    train(run, 2, 3)
    for path, lines in possible.items():
        assert path.read_bytes().splitlines(keepends=True)[1 : len(lines) + 1] == lines
    for script in stretches(run).values():
        assert [len({*order}) for order in script.orders] == [len(script.versions)] * 3
    assert len(stretches(run)[0].versions) == sum(
        replicas.count(run.config.plan, at) for at in range(5)
    )


def _closed(logs):
    """The longest beginnings of logs in which no push has read what is in none of them."""
    paths = [*logs]
    while True:
        before = sum(map(len, logs.values()))
        for path in paths:
            for number, line in enumerate(logs[path]):
                _, *versions = map(int, line.split())
                if any(v > len(logs[at]) for at, v in zip(paths, versions, strict=True)):
                    logs[path] = logs[path][:number]
                    break
        if sum(map(len, logs.values())) == before:
            return logs


# Bad input


@cases(
    "given, message",
    ({"executor": "chain"}, "expected --executor gang, found --executor chain"),
    ({"gang_fallback": "chain"}, "expected a gang alone, found --gang-fallback chain"),
    ({"runner": "inline"}, "needs tasks that run at once"),
    ({"stages": 2}, "expected --strategy sync, found downpour"),
)
def test_executions_that_do_not_do(data, tmp_path, given, message):
    run = create(data, tmp_path / "run")
    with pytest.raises(UsageError, match=message):
        driver.train(run, execution({"workers": 2, **given}), 3, Events())


def test_only_downpour_is_asynchronous(data, tmp_path):
    with pytest.raises(UsageError, match="--asynchronous: expected the default, since --strategy"):
        create(data, tmp_path / "run", strategy="averaging")


def test_a_gradient_that_is_not_finite_names_its_replica(data, tmp_path):
    run = create(data, tmp_path / "run", learning_rate=1e30)
    gang = Gang(run, 2, initial(run, 1))
    gang.start()
    found = [str(one) for one in gang.join().values() if isinstance(one, NonFiniteError)]
    assert found
    assert "replica" in found[0]
    assert "diverged" in found[0]


@pytest.fixture(scope="module")
def original(data, tmp_path_factory):
    run = create(data, tmp_path_factory.mktemp("ended") / "run")
    driver.train(run, GANG, 3, Events())
    return run


@pytest.fixture
def ended(original, tmp_path):
    """A run that has ended, whose log may be damaged."""
    return RunDir(shutil.copytree(original.path, tmp_path / "ended"))


@pytest.fixture
def file(ended):
    """A file of its log."""
    return ended.path / "pushes/00000005.00001-of-00003.log"


def first(line):
    """Another first line; in the place of %d it has the unit of the one before."""

    def change(lines):
        unit = int(lines[1].split()[0])
        return [lines[0], line % unit if b"%" in line else line, *lines[2:]]

    return change


def other_versions(lines):
    unit, version, *versions = map(int, lines[-1].split())
    version += -1 if version else 1
    return [*lines[:-1], " ".join(map(str, [unit, version, *versions])).encode() + b"\n"]


class TestTheLogOf:
    def refused(self, ended, tmp_path, message):
        with pytest.raises(DataError, match=message):
            replay(ended, tmp_path / "again", GANG, Events())
        assert not (tmp_path / "again").exists()

    def test_another_run(self, data, ended, file, tmp_path):
        other = create(data, tmp_path / "other", learning_rate=0.04)
        driver.train(other, GANG, 3, Events())
        file.write_bytes((other.path / "pushes" / file.name).read_bytes())
        self.refused(ended, tmp_path, "does not belong to this run: expected the first line")

    def test_another_run_with_the_same_options(self, ended, tmp_path, data):
        """Its log is whole and its own plan's: only the model tells."""
        before = (log := ended.path / "pushes").rename(tmp_path / "before")
        other = create(data, tmp_path / "other")
        driver.train(other, GANG, 3, Events())
        (other.path / "pushes").rename(log)
        names = [path.name for path in before.iterdir()]
        if any((before / name).read_bytes() != (log / name).read_bytes() for name in names):
            with pytest.raises(DataError, match=r"the log gives the model \w{64}, and the"):
                replay(ended, tmp_path / "again", GANG, Events())

    @cases(
        "change, message",
        (first(b"0 0 0\n"), "line 2: expected a new unit below 14 and 3 version"),
        (first(b"14 0 0 0\n"), "line 2: expected a new unit below 14"),
        (first(b"-1 0 0 0\n"), "line 2: expected a new unit below 14"),
        (
            first(b"%d 99 0 0\n"),
            r"00000-of-00003.log, line 16: expected at least 99 gradients, since "
            r".*00001-of-00003.log, line 2, has read as many versions, found 14\. The log is "
            r"damaged, .* Put the run's own log there$",
        ),
        (first(b"%d 0 1 0\n"), r"line 2: unit \d+ read version 1 of its own block, which it m"),
        (first(b"\xff\x00\n"), "line 2: expected a new unit"),
        (first(b"99999999999999999999 0 0 0\n"), "line 2: expected a new unit"),
        # A unit twice, other versions than in the log of another block, and a missing end.
        (lambda lines: [*lines[:-1], lines[1]], "expected a new unit below 14"),
        (other_versions, "other versions than in the log of another block"),
        (lambda lines: lines[:-1], "13 of the 14 gradients of the rounds from 5 to 10|version"),
        # The message names this file, not those that have read what is missing here.
        (lambda _: [], "^[^ ]*00001-of-00003.log[, ].*gradients, since"),
        (lambda _: [b"\x00\xff" * 100], "^[^ ]*00001-of-00003.log[, ].*belong"),
        (lambda _: [b"\n\n"], "^[^ ]*00001-of-00003.log[, ].*belong"),
    )
    def test_damaged_files(self, ended, file, tmp_path, change, message):
        file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
        self.refused(ended, tmp_path, message)

    def test_folders(self, ended, file, tmp_path):
        file.unlink()
        file.mkdir()
        with pytest.raises(StorageError, match=f"cannot read .*{file.name}: Is a directory"):
            replay(ended, tmp_path / "again", GANG, Events())

    def test_what_is_shown_of_a_run(self, ended, file, answer):
        """A damaged log does not hide the rest."""
        whole = pushes.staleness(ended)
        assert f"pushes            {whole.pushes}" in answer(0, "runs", "show", ended.path).out
        file.write_bytes(file.read_bytes() + b"broken\n")
        shown = answer(0, "runs", "show", ended.path)
        assert shown.err.startswith(f"warning: {file}, line 16: expected a new unit and 3 version")
        assert ended.result().model_sha256 in shown.out
        assert "staleness" not in shown.out.replace("  staleness", "")

    def test_a_run_that_goes_on(self, data, tmp_path):
        """It may go on without its log, and cannot be replayed then."""
        run = create(data, tmp_path / "run")
        train(run, 2, 2)
        (log,) = run.path.glob("pushes/00000005.00001-*")
        log.write_bytes(log.read_bytes() + b"broken\n")
        for path in run.rounds.folder.glob("*10.*"):
            path.unlink()
        match = f"{log.name}, line 16: .*, or remove .*pushes to go on; nobody can replay the"
        with pytest.raises(StepFailedException, match=match):
            driver.train(run, GANG, 3, Events())
        shutil.rmtree(run.path / "pushes")
        assert driver.train(run, GANG, 3, Events()).completed == SETTINGS.rounds
        with pytest.raises(DataError, match=r"the log has 0 of the 14 gradients of the rounds"):
            replay(run, tmp_path / "again", GANG, Events())

    def test_missing_stretches(self, ended, tmp_path):
        for path in (ended.path / "pushes").glob("00000005.*"):
            path.unlink()
        self.refused(ended, tmp_path, "the log ends after 5 of 10 rounds")

    def test_runs_that_are_not_asynchronous(self, data, tmp_path):
        run = create(data, tmp_path / "run", asynchronous=False)
        with pytest.raises(UsageError, match="expected a run with --asynchronous"):
            replay(run, tmp_path / "again", GANG, Events())

    def test_runs_that_have_not_ended(self, data, tmp_path):
        run = create(data, tmp_path / "run")
        with pytest.raises(UsageError, match="has not ended"):
            replay(run, tmp_path / "again", GANG, Events())
