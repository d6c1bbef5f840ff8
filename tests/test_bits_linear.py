"""One plan, one hash, where gradients are sparse, or an optimizer looks at all blocks first."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import programs
from mapreduce.data.batch import Csr
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, RunStarted, Warned
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

# Three pages of parameters, so that there can be three blocks. Each row has a few of the columns:
# the gradients of slices are sparse, some sums of them dense, and not at the same nodes in blocks.
FEATURES, ROWS = 40_000, 3_000

#: What is trained, by name.
PLANS = {
    "sgd": {"optimizer": "sgd", "learning_rate": 2.0},
    "lbfgs": {"optimizer": "lbfgs", "l2": 1e-3, "slice_rows": 300, "rounds": 14, "tol": 1e-3},
    "clip": {"optimizer": "momentum", "clip_norm": 0.05, "l1": 1e-5, "class_weight": "balanced"},
    "skip": {"optimizer": "adagrad", "non_finite": "skip", "l2": 1e-4, "dtype": "float64"},
}
COMMON = {"model": "logistic", "batch_size": 600, "slice_rows": 60, "rounds": 7}

EXECUTIONS = {
    "inline": Execution("inline", blocks=2, fan_in=2, rounds_per_job=50),
    "parallel-1": Execution("parallel", 1, threads=2, blocks=3, rounds_per_job=50),
    "parallel-2": Execution("parallel", 2, threads=1, blocks=1, fan_in=2, rounds_per_job=3),
    "parallel-3": Execution("parallel", 3, threads=2, blocks=3, fan_in=2, rounds_per_job=1),
    "gang-1": Execution("inline", 1, blocks=3, executor="gang"),
    "gang-2": Execution("parallel", 2, blocks=2, executor="gang"),
    "gang-4": Execution("parallel", 4, threads=2, blocks=3, executor="gang"),
}


def settings_of(plan: str) -> Settings:
    changes = {**COMMON, **PLANS[plan]}
    if plan == "lbfgs":
        del changes["batch_size"]
    return Settings(**changes)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    generator = np.random.default_rng(0)
    lengths = generator.integers(0, 60, ROWS)
    # As words are: few columns are in most rows, most in few.
    columns = [
        np.unique((FEATURES * generator.random(length) ** 4).astype(np.int32)) for length in lengths
    ]
    indptr = np.concatenate([[0], np.cumsum([*map(len, columns)])]).astype(np.int32)
    indices = np.concatenate(columns)
    values = generator.exponential(size=len(indices)).astype(np.float32)
    matrix = Csr(indptr, indices, values, FEATURES)
    weight = generator.standard_normal(FEATURES)
    entries = zip(columns, np.split(values, indptr[1:-1]), strict=True)
    sums = np.array([part @ weight[places] for places, part in entries])
    labels = (sums + generator.standard_normal(ROWS) > 0).astype(np.int64)
    folder = tmp_path_factory.mktemp("bits") / "data"
    source = Source([Rows(matrix, labels)], (FEATURES,), 1.0, 0, {"format": "test"})
    manifest = import_rows(source, folder, 0)
    assert manifest.layout == "sparse"
    return folder


@pytest.fixture(scope="module")
def references(data):
    """The hash of each plan: one worker, one block, one thread."""
    return {plan: train(data, data.parent / plan, plan, Execution("parallel", 1)) for plan in PLANS}


def train(data: Path, path: Path, plan: str, execution: Execution) -> str:
    run = driver.create(path, settings_of(plan), data, None)
    return driver.train(run, execution, 0, Events()).model_sha256


@pytest.mark.parametrize(
    ("plan", "execution"),
    [
        *((plan, "parallel-3") for plan in PLANS),
        *(("lbfgs", execution) for execution in ("inline", "parallel-1")),
        *(("clip", execution) for execution in ("inline", "parallel-2")),
        *(("sgd", execution) for execution in ("parallel-1", "parallel-2")),
    ],
)
def test_the_same_bits(data, references, tmp_path, plan, execution):
    found = train(data, tmp_path / "run", plan, EXECUTIONS[execution])
    assert found == references[plan]


def test_the_plans_do_what_they_are_for(data, references):
    """Else equal hashes would say little."""
    assert len(set(references.values())) == len(PLANS)
    found = {}
    for plan in PLANS:
        run = RunDir(data.parent / plan)
        model = run.config.plan.create_model()
        found[plan] = checkpoint.load(run, model, checkpoint.saved(run)[-1])
        assert model.size > 2 * 16_384
    assert (found["clip"].params[:-1] == 0).sum() > (found["sgd"].params[:-1] == 0).sum()
    # Not only what was never moved.
    assert found["skip"].scalars.tolist() == [0]
    assert np.count_nonzero(found["sgd"].params) > FEATURES // 4
    pairs = found["lbfgs"].scalars[0]
    assert 3 <= pairs <= 10


@pytest.mark.slow
def test_local_has_the_same_bits(data, tmp_path):
    settings = Settings(**{**vars(settings_of("clip")), "rounds": 1})
    hashes = set()
    for runner in ("parallel", "local"):
        run = driver.create(tmp_path / runner, settings, data, None)
        execution = Execution(runner, workers=1, blocks=2)
        hashes.add(driver.train(run, execution, 0, Events()).model_sha256)
    assert len(hashes) == 1


@pytest.mark.parametrize("plan", ["lbfgs", "clip"])
def test_resume_on_other_workers_and_blocks(data, references, tmp_path, plan):
    """Rounds whose arrays lie in several files, read by a run of other blocks."""
    run = driver.create(tmp_path / "run", settings_of(plan), data, None)
    for execution in (
        Execution("parallel", 2, blocks=3, rounds_per_job=3),
        Execution("parallel", 1, blocks=3, rounds_per_job=1),
        Execution("parallel", 1, blocks=1, rounds_per_job=2),
    ):
        training = driver._Training(run, execution, 0, Events(), driver.ChainJob)
        with training._workers():
            position = training._advance(training._start())
        assert not training._checkpoint_and_evaluate(position)
    found = driver.train(run, Execution("parallel", 2, blocks=2), 0, Events())
    assert found.model_sha256 == references[plan]


def stopped_run(data, path, plan, execution, jobs, settle=True):
    """A run after some jobs, of which the driver was then killed."""
    run = driver.create(path, settings_of(plan), data, None)
    training = driver._Training(run, execution, 0, Events(), driver.ChainJob)
    with training._workers():
        position = training._start()
        for _ in range(jobs):
            position = training._advance(position)
            if settle:
                training._checkpoint_and_evaluate(position)
    return run, position


def resumed(run, execution):
    """Where a resumed run started, what it warned of, and the hash at its end."""
    seen = []
    ended = driver.train(run, execution, 0, Events(seen.append))
    starts = [event.completed for event in seen if isinstance(event, RunStarted)]
    warnings = [event.message for event in seen if isinstance(event, Warned)]
    return starts, warnings, ended.model_sha256


@pytest.mark.parametrize("plan", ["lbfgs", "clip"])
@pytest.mark.parametrize("lost", [0, 2])
def test_stopped_between_the_blocks_of_a_round(data, references, tmp_path, plan, lost):
    """The round before is whole still, with the files that its arrays lie in."""
    execution = Execution("parallel", 1, blocks=3, rounds_per_job=6)
    run, position = stopped_run(data, tmp_path / "run", plan, execution, 1, settle=False)
    assert position.completed == 6
    run.block_path(6, lost, 3).unlink()
    assert resumed(run, execution) == ([5], [], references[plan])


@pytest.mark.parametrize("at_checkpoint", [True, False])
def test_a_missing_file_that_a_round_needs(data, references, tmp_path, at_checkpoint):
    """It is told, and the run goes on from a checkpoint: that of the same round, or an older."""
    execution = Execution("parallel", 1, blocks=3, rounds_per_job=4)
    run, position = stopped_run(data, tmp_path / "run", "lbfgs", execution, 1)
    model = run.config.plan.create_model()
    checkpoint.save(run, model, position)
    if not at_checkpoint:
        training = driver._Training(run, execution, 0, Events(), driver.ChainJob)
        with training._workers():
            position = training._advance(training._start())
        training._checkpoint_and_evaluate(position)
    block = run.read_block(position.completed, 1, 3)
    needed = min(block.rounds())
    assert needed < position.completed
    missing = run.block_path(needed, 1, 3)
    missing.unlink()
    starts, warnings, found = resumed(run, execution)
    assert starts == [4]
    # Rounds before it need the file as well, as far as they are there.
    assert warnings
    assert all(f"{missing} does not exist" in warning for warning in warnings)
    assert found == references["lbfgs"]


def test_a_damaged_round_is_in_nobodys_way(data, references, tmp_path):
    """A checkpoint of the same round is there: it takes the place of the damaged files."""
    execution = Execution("parallel", 1, blocks=3, rounds_per_job=4)
    run, position = stopped_run(data, tmp_path / "run", "clip", execution, 1)
    checkpoint.save(run, run.config.plan.create_model(), position)
    path = run.block_path(4, 1, 3)
    path.write_bytes(path.read_bytes()[:-9])
    starts, warnings, found = resumed(run, execution)
    assert (starts, len(warnings), found) == ([4], 1, references["clip"])


@pytest.mark.fault
@pytest.mark.parametrize("plan", ["lbfgs", "clip"])
def test_killed_and_resumed(data, references, tmp_path, plan):
    run = driver.create(tmp_path / "run", settings_of(plan), data, None)
    mark = {**os.environ, "GRADREDUCE_TEST_MARK": str(tmp_path)}
    options = ["--workers", 2, "--blocks", 3, "--rounds-per-job", 50]
    for moment in (1, 4):
        process = programs.start("resume", run.path, *options, env=mark)
        programs.wait_until(
            lambda process=process, moment=moment: (
                process.poll() is not None or max(run.complete_rounds(), default=0) >= moment
            )
        )
        programs.kill(process)
        programs.wait_until(lambda: not programs.processes_of(str(tmp_path)), 10)
        assert max(run.complete_rounds()) >= moment
        assert run.read_json("result.json") is None
    shown = json.loads(programs.succeed("resume", run.path, *options, "--json"))
    assert shown["model_sha256"] == references[plan]
