"""One plan, one hash: whatever runs it, on however many workers, in however many pieces."""

import fcntl
import json
import os
import pickle
import random
from functools import partial
from importlib.util import find_spec
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

import datasets
import programs
from builders import (
    INLINE,
    advanced,
    events_of,
    forget_rounds,
    images_and_text,
    imported,
    killed,
    left_by,
    stopped,
)
from mapreduce.data.batch import Csr
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint, events
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver
from quick import cases, each, first_of

CNN = (
    "conv:8x3:padding=1,batchnorm,relu,residual(conv:8x3:padding=1,batchnorm),pool:2,"
    "dropout:0.25,dense:250,batchnorm,relu,dropout:0.5"
)
ADAM = {"optimizer": "adam", "learning_rate": 0.003}
#: Eight slices a step, and so up to eight replicas; the last round of an epoch has six slices.
REPLICAS = {"model": CNN, "optimizer": "momentum", "learning_rate": 0.01, "replicas": 5}
REPLICAS |= {"batch_size": 32, "slice_rows": 4, "strategy": "averaging"}
KEEP = {**REPLICAS, "replica_state": "keep"}
SPARSE = {"model": "logistic", "batch_size": 600, "slice_rows": 60}
#: The rows and the settings of each plan: with all kinds of state that a run may have, in two pages
#: of parameters or more, so that there can be several blocks. The last round of an epoch has fewer
#: slices than the others, and the last slice of a shard fewer rows.
PLANS = {
    "rows": {"model": "mlp:190,50", "optimizer": "momentum", "schedule": "warmup:5+cosine"}
    | {"weight_decay": 1e-4, "batch_size": 96, "slice_rows": 12, "learning_rate": 0.05},
    "rows-mixed": {"model": "mlp:190,50", "optimizer": "momentum", "precision": "mixed"}
    | {"learning_rate": 0.01, "batch_size": 96, "slice_rows": 12, "non_finite": "skip"},
    "sparse-sgd": {**SPARSE, "learning_rate": 2.0},
    "sparse-clip": {**SPARSE, "optimizer": "momentum", "clip_norm": 0.05, "l1": 1e-5}
    | {"class_weight": "balanced"},
    "sparse-skip": {**SPARSE, "optimizer": "adagrad", "non_finite": "skip", "l2": 1e-4}
    | {"dtype": "float64"},
    "sparse-search": {"model": "logistic", "optimizer": "lbfgs", "slice_rows": 300, "l2": 1e-3}
    | {"tol": 1e-3, "rounds": 14, "checkpoint_every": 4},
    "images-cnn": {"model": CNN, **ADAM, "clip_norm": 5.0, "weight_decay": 1e-4}
    | {"batch_size": 32, "slice_rows": 8},
    "images-torch": {"model": "torch:torch_networks:coloured_cnn", **ADAM, "clip_norm": 5.0}
    | {"batch_size": 32, "slice_rows": 8},
    # Its buffer follows extra sums, and its dropout is its own.
    "images-own-model": {"model": "running_mean:RunningMean", "optimizer": "momentum", "l2": 0.1}
    | {"weight_decay": 0.1, "clip_norm": 0.5, "class_weight": "0=2,1=1,2=0.5,3=1"}
    | {"augment": "flip,crop:2", "batch_size": 24, "slice_rows": 6},
    "images-averaging": {**REPLICAS, "local_steps": 2},
    "images-adasum": {**KEEP, "combine": "adasum"},
    "images-elastic": {**KEEP, "elastic": 0.2},
    "images-fp16": {**REPLICAS, "compress": "fp16", "replicas": 3},
    "images-onebit": {**KEEP, "compress": "onebit", "local_steps": 2},
    "images-topk": {**KEEP, "compress": "topk:0.01"},
    "images-downpour": {**REPLICAS, "strategy": "downpour", "staleness": 9},
    "images-tournament": {**REPLICAS, "strategy": "tournament", "local_steps": 2, "spread": 2.0},
    "images-own-strategy": {"model": CNN, "strategy": "own_averaging:Averaging"}
    | {"optimizer": "momentum", "batch_size": 24, "slice_rows": 4},
    "text-gru": {"model": "embedding:8,gru:96,dropout:0.2,layernorm", **ADAM, "clip_norm": 5.0}
    | {"batch_size": 32, "slice_rows": 8},
}
#: The plans that ``make test`` trains: rows, sparse rows, images and texts, and one with replicas.
QUICK = ("rows", "sparse-clip", "images-cnn", "images-torch", "images-downpour", "text-gru")
_NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
NAMES = [
    pytest.param(
        name, marks=[_NEEDS_TORCH] * ("torch" in name) + [pytest.mark.slow] * (name not in QUICK)
    )
    for name in PLANS
]

#: Executor, workers, threads, blocks and fan-in. Any two values occur together.
EXECUTIONS = [
    ("gang", 1, 1, 1, 0),
    ("gang", 1, 2, 2, 0),
    ("chain", 1, 2, 3, 2),
    ("chain", 2, 2, 1, 0),
    ("chain", 2, 2, 2, 0),
    ("gang", 2, 1, 3, 2),
    ("chain", 3, 2, 1, 2),
    ("gang", 3, 2, 2, 2),
    ("gang", 3, 1, 3, 0),
    ("gang", 5, 2, 1, 0),
    ("chain", 5, 1, 2, 2),
    ("chain", 5, 1, 3, 2),
]
#: A run that is stopped twice goes on in the next of these.
RELAY = [
    Execution("parallel", 2, blocks=2, rounds_per_job=1),
    Execution("parallel", 3, blocks=3, executor="gang"),
    Execution("inline", 3, blocks=1, fan_in=2, rounds_per_job=2),
]


#: And one that computes in this process, twice, with a gang between.
HERE = [Execution("inline", blocks=blocks, executor="here") for blocks in (2, 1)]


@pytest.fixture(scope="module", autouse=True)
def _forgotten():
    """What these tests trust is forgotten when they end."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GRADREDUCE_TRUSTED", "GRADREDUCE_TRUSTED_FOLDERS"):
            patch.setenv(name, "")
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The rows of all plans, for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "bits"
    folder.mkdir(exist_ok=True)
    once(folder / "made", partial(make, folder))
    return folder


def once(path, work):
    """What a function returns, which one process calls, and the others find in a file."""
    with open(path, "a+b") as file:  # noqa: PTH123
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if text := file.read():
            return pickle.loads(text)
        made = work()
        file.write(pickle.dumps(made))
        return made


def make(folder):
    images_and_text(folder)
    for part, several, one in (("train", (200, 170, 97), 0), ("test", (60, 31), 1)):
        datasets.blobs(folder / "rows" / part, several, features=300, classes=4, seed=one)
        sparse(folder / "sparse" / part, 300 if one else 3000, seed=one)


def sparse(folder, rows, features=40_000, seed=0):
    """Rows of two classes whose columns are as words: few are in most rows, most in few.

    So gradients of slices are sparse, some sums of them dense, and not at the same nodes in blocks.
    """
    generator = np.random.default_rng(seed)
    columns = [
        np.unique((features * generator.random(length) ** 4).astype(np.int32))
        for length in generator.integers(0, 60, rows)
    ]
    indptr = np.concatenate([[0], np.cumsum([*map(len, columns)])]).astype(np.int32)
    values = generator.exponential(size=indptr[-1]).astype(np.float32)
    matrix = Csr(indptr, np.concatenate(columns), values, features)
    weight = np.random.default_rng(5).standard_normal(features)
    parts = zip(columns, np.split(values, indptr[1:-1]), strict=True)
    sums = np.array([part @ weight[places] for places, part in parts])
    labels = (sums + generator.standard_normal(rows) > 0).astype(np.int64)
    assert imported(folder, matrix, labels).manifest.layout == "sparse"


def create(data, path, name, **changes):
    """A run of a plan that has not begun; two checkpoints come before its end."""
    given = {"rounds": 7, "checkpoint_every": 2, "eval_every": 3, **PLANS[name], **changes}
    folder = data / name.partition("-")[0]
    return creating.create(path, Settings(**given), folder / "train", folder / "test")


def ended(run, execution=INLINE):
    """What a run has in the end: its hash, state and evaluations, and what its log tells."""
    result = driver.train(run, execution, 0, Events())
    kinds = "RoundCompleted", "TournamentDecided", "Evaluated"
    told = [{**event, "time": 0} for event in events_of(run, *kinds)]
    return {"hash": result.model_sha256, "told": told, **left_by(run)}


@pytest.fixture(scope="module")
def reference(data):
    """What one process leaves of a plan, with one worker and one block; each is trained once."""
    (data / "runs").mkdir(exist_ok=True)

    def of(name):
        path = data / "runs" / name
        Settings(**PLANS[name]).trust_members()
        return once(path.with_suffix(".pickle"), lambda: ended(create(data, path, name)))

    return of


def test_any_two_values_of_executions_occur_together():
    for one, other in combinations(zip(*EXECUTIONS, strict=True), 2):
        assert {*zip(one, other, strict=True)} == {*product(one, other)}


@pytest.mark.every_case
@pytest.mark.parametrize("name", NAMES)
def test_an_execution_changes_nothing(name, data, reference, tmp_path):
    at = [*PLANS].index(name)
    executor, *numbers, fan_in = EXECUTIONS[at % len(EXECUTIONS)]
    own = {"fan_in": fan_in, "rounds_per_job": (50, 3, 1)[at % 3], "start_method": "fork"}
    execution = Execution("parallel", *numbers, executor=executor, **own)
    run = create(data, tmp_path / "run", name)
    assert ended(run, execution) == reference(name)


@pytest.mark.every_case
@pytest.mark.parametrize("name", NAMES)
def test_this_process_alone_changes_nothing(name, data, reference, tmp_path):
    at = [*PLANS].index(name)
    execution = Execution("inline", threads=1 + at % 2, blocks=1 + at % 3, executor="here")
    assert ended(create(data, tmp_path / "run", name), execution) == reference(name)


@pytest.mark.parametrize("name", NAMES)
def test_this_process_and_a_gang_take_turns(name, data, reference, tmp_path):
    run = create(data, tmp_path / "run", name)
    after = run.config.plan.checkpoint_every
    stopped(run, HERE[0], after)
    stopped(run, RELAY[1], 2 * after)
    assert ended(run, HERE[1]) == reference(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_stopped_goes_on_elsewhere(name, data, reference, tmp_path):
    """With other workers, blocks and executor: from its last round, and from a checkpoint alone."""
    run = create(data, tmp_path / "run", name)
    after = run.config.plan.checkpoint_every
    stopped(run, RELAY[0], after)
    stopped(run, RELAY[1], 2 * after)
    forget_rounds(run)
    assert ended(run, RELAY[2]) == reference(name)


@pytest.mark.slow
def test_the_plans_do_what_they_are_for(data, reference):
    """Else equal hashes would say little."""
    found = {}
    names = [name for name in PLANS if "torch" not in name]
    assert len({reference(name)["hash"] for name in names}) == len(names)
    for name in names:
        run = driver.RunDir(data / "runs" / name)
        model = run.config.plan.create_model()
        assert model.size > 2 * 16_384
        found[name] = checkpoint.load(run, model, checkpoint.saved_rounds(run)[-1])
    zeros = {name: (found[f"sparse-{name}"].params[:-1] == 0).sum() for name in ("clip", "sgd")}
    assert 0 < zeros["sgd"] < zeros["clip"]
    # Not only what was never moved.
    assert np.count_nonzero(found["sparse-sgd"].params) > 40_000 // 4
    assert found["sparse-skip"].scalars.tolist() == [0]
    assert 3 <= found["sparse-search"].scalars[0] <= 10
    skipped, _, _ = found["rows-mixed"].scalars
    assert 0 < skipped < 7
    # What was not sent is in the checkpoint.
    assert all(found["images-topk"].state[f"residual@{replica}"].any() for replica in range(5))


@cases(
    "name, change",
    ("rows", {"slice_rows": 24}),
    ("rows", {"rounds": 6}),
    ("rows", {"weight_decay": 0.0}),
    ("rows", {"batch_size": 48}),
    ("rows-mixed", {"precision": "full", "non_finite": "error"}),
    ("images-own-model", {"augment": None}),
    ("images-own-model", {"augment": "flip"}),
    # A batch norm has other statistics.
    ("images-cnn", {"slice_rows": 16}),
    ("text-gru", {"seed": 1}),
)
def test_other_plans_have_other_bits(name, change, data, reference, tmp_path):
    """The hash means something: what is in the plan changes it."""
    assert ended(create(data, tmp_path / "run", name, **change))["hash"] != reference(name)["hash"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "execution"),
    each(
        3,
        [
            ("images-cnn", Execution("local", workers=3, blocks=2, executor="gang")),
            ("sparse-clip", Execution("local", workers=1, blocks=2)),
            ("images-own-strategy", Execution("local", rounds_per_job=2)),
            (
                "text-gru",
                Execution("parallel", 2, blocks=2, start_method="forkserver", executor="gang"),
            ),
        ],
    ),
)
def test_new_processes_have_the_bits_of_inline(name, execution, data, tmp_path):
    """Tasks that find nothing imported: those of mrjob, and of the start method forkserver."""
    few = {"rounds": 2, "checkpoint_every": 9}
    expected = ended(create(data, tmp_path / "inline", name, **few))
    assert ended(create(data, tmp_path / "new", name, **few), execution) == expected


class TestRoundsInSeveralFiles:
    """A file of an earlier round has what later ones have not changed; one of them is lost."""

    EXECUTION = Execution("parallel", 1, blocks=3, rounds_per_job=4)

    def run(self, data, path, name, jobs=1, checkpoints=True):
        """A run after some jobs of four rounds, of which the driver was then killed."""
        run = create(data, path, name, checkpoint_every=9, eval_every=99)
        for job in range(jobs):
            position = advanced(run, self.EXECUTION, 4 * (job + 1))
            if checkpoints and not job:
                checkpoint.save(run, run.config.plan.create_model(), position)
                run.prune_rounds(4, 3)
        return run

    def resumed(self, run, reference, name):
        """Where a run goes on, and what it warns of; it must end as without the loss."""
        seen = []
        found = driver.train(run, self.EXECUTION, 0, Events(seen.append)).model_sha256
        assert found == reference(name)["hash"]
        starts = [event.completed for event in seen if isinstance(event, events.RunStarted)]
        return starts, [event.message for event in seen if isinstance(event, events.Warned)]

    @pytest.mark.parametrize("name", first_of("sparse-clip", "sparse-search"))
    @pytest.mark.parametrize("lost", [0, 2])
    def test_a_block_of_the_last_round(self, data, reference, tmp_path, name, lost):
        """The round before is whole still, with the files that its arrays lie in."""
        run = self.run(data, tmp_path / "run", name, checkpoints=False)
        run.rounds.path(4, lost, 3).unlink()
        assert self.resumed(run, reference, name) == ([3], [])

    @pytest.mark.slow
    @pytest.mark.parametrize("jobs", [1, 2])
    def test_a_file_that_a_round_needs(self, data, reference, tmp_path, jobs):
        """It is told, and the run goes on from a checkpoint: of the same round, or an older."""
        run = self.run(data, tmp_path / "run", "sparse-search", jobs)
        needed = min(run.rounds.read(4 * jobs, 1, 3).rounds())
        assert needed < 4 * jobs
        missing = run.rounds.path(needed, 1, 3)
        missing.unlink()
        starts, warnings = self.resumed(run, reference, "sparse-search")
        assert starts == [4]
        # Rounds before it need the file as well, as far as they are there.
        assert warnings
        assert all(f"{missing} does not exist" in warning for warning in warnings)

    def test_damage_of_a_round_with_a_checkpoint(self, data, reference, tmp_path):
        run = self.run(data, tmp_path / "run", "sparse-clip")
        path = run.rounds.path(4, 1, 3)
        path.write_bytes(path.read_bytes()[:-9])
        starts, warnings = self.resumed(run, reference, "sparse-clip")
        assert (starts, len(warnings)) == ([4], 1)


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rounds", "kills", "executors"),
    each(
        2,
        [("images-topk", 100, 5, ["chain", "gang", "here"]), ("rows", 400, 10, ["chain", "here"])],
    ),
)
def test_kill_9_at_any_moment_and_resume(name, rounds, kills, executors, data, tmp_path):
    """Of the driver, and of a task while the driver goes on; nothing is lost, nobody is left."""
    many = {"rounds": rounds, "checkpoint_every": 9, "eval_every": rounds}
    # The tests above hold it equal to inline.
    expected = ended(create(data, tmp_path / "undisturbed", name, **many), HERE[1])
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    run = create(data, tmp_path / "run", name, **many)
    reached = [0]

    def how():
        executor = chance.choice(executors)
        if executor == "here":
            return ["--executor", executor]
        more = ["--rounds-per-job", 30, "--workers", chance.randint(2, 3)]
        return ["-r", "parallel", "--executor", executor, *more]

    def progress():
        return max(run.rounds.complete(), default=0)

    moments = chance.sample(range(1, rounds - 10), kills)
    for _ in killed(run, str(tmp_path), moments, chance, how, progress):
        reached.append(progress())
    shown = json.loads(programs.succeed("resume", run.path, "--json"))
    assert shown["model_sha256"] == expected["hash"]
    starts = [event["completed"] for event in events_of(run, "RunStarted")]
    assert len(starts) == kills + 1
    assert all(at >= before for at, before in zip(starts, reached, strict=True))
    done = [event["completed"] for event in events_of(run, "RoundCompleted")]
    assert done == [*range(1, rounds + 1)]


@pytest.mark.skipif(
    "avx512f" not in Path("/proc/cpuinfo").read_text(), reason="needs a processor with AVX-512"
)
@pytest.mark.slow
def test_portable_has_the_same_bits_on_two_blas_cores(data, tmp_path):
    """Under native the forced cores differ, so that the test is able to fail."""
    hashes = {}
    for profile in ("native", "portable"):
        for core in ("SkylakeX", "Sandybridge"):
            folder = data / "rows"
            path, settings = tmp_path / f"{profile}-{core}", Settings(**PLANS["rows"], rounds=10)
            creating.create(path, settings, folder / "train", None, profile)
            env = {**os.environ, "OPENBLAS_CORETYPE": core}
            shown = json.loads(programs.succeed("resume", path, "--json", "-q", env=env))
            hashes[profile, core] = shown["model_sha256"]
    assert hashes["portable", "SkylakeX"] == hashes["portable", "Sandybridge"]
    assert hashes["native", "SkylakeX"] != hashes["native", "Sandybridge"]
