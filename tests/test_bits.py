"""One plan, one hash: whatever runs it, on however many workers, in however many pieces."""

import json
import os
import random
from pathlib import Path

import pytest

import datasets
import programs
from mapreduce.mrjob_patches.options import DEFAULT_START_METHOD
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

# Five pages of parameters, so that there can be several blocks; eight slices a round, the last
# round of an epoch has fewer, and so have the last slices of the shards.
SETTINGS = Settings(
    model="mlp:190,50",
    optimizer="momentum",
    learning_rate=0.05,
    schedule="warmup:5+cosine",
    weight_decay=1e-4,
    batch_size=96,
    slice_rows=12,
    rounds=23,
    checkpoint_every=9,
)
OTHER_START_METHOD = "forkserver" if DEFAULT_START_METHOD == "fork" else "fork"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bits")
    datasets.blobs(folder / "train", (200, 170, 97), features=300, classes=4)
    datasets.blobs(folder / "test", (60, 31), features=300, classes=4, seed=1)
    return folder


@pytest.fixture(scope="module")
def reference(data):
    return train(data, data / "reference", Execution("inline"))


def train(data: Path, run: Path, execution: Execution, evaluation: bool = False, **changes) -> str:
    settings = Settings(**{**vars(SETTINGS), **changes})
    created = driver.create(run, settings, data / "train", data / "test" if evaluation else None)
    return driver.train(created, execution, 3, Events()).model_sha256


@pytest.mark.parametrize(
    ("workers", "threads", "blocks", "fan_in", "rounds_per_job", "evaluation"),
    [
        (1, 1, 1, 0, 50, False),
        (3, 2, 4, 2, 10, False),
        (5, 1, 1, 8, 1, False),
        (2, 2, 4, 2, 50, True),
        (2, 1, 2, 0, 7, False),
    ],
)
def test_parallel_has_the_bits_of_inline(
    data, reference, tmp_path, workers, threads, blocks, fan_in, rounds_per_job, evaluation
):
    execution = Execution("parallel", workers, threads, blocks, fan_in, rounds_per_job)
    assert train(data, tmp_path / "run", execution, evaluation, eval_every=5) == reference


@pytest.mark.parametrize(
    ("ranks", "threads", "blocks", "evaluation"),
    [(1, 1, 2, True), (2, 2, 4, True), (3, 1, 1, False)],
)
def test_a_gang_has_the_bits_of_inline(
    data, reference, tmp_path, ranks, threads, blocks, evaluation
):
    execution = Execution("parallel", ranks, threads, blocks, executor="gang")
    assert train(data, tmp_path / "run", execution, evaluation, eval_every=5) == reference


def test_a_gang_started_by_the_fork_server_has_the_same_bits(data, reference, tmp_path):
    execution = Execution("parallel", 2, blocks=2, executor="gang", start_method=OTHER_START_METHOD)
    assert train(data, tmp_path / "run", execution) == reference


def test_the_other_start_method_has_the_same_bits(data, reference, tmp_path):
    execution = Execution("parallel", 2, blocks=2, start_method=OTHER_START_METHOD)
    assert train(data, tmp_path / "run", execution) == reference


def test_inline_has_the_same_bits_in_blocks(data, reference, tmp_path):
    execution = Execution("inline", workers=3, blocks=4, fan_in=2, rounds_per_job=5)
    assert train(data, tmp_path / "run", execution) == reference


@pytest.mark.slow
def test_local_has_the_bits_of_inline(data, tmp_path):
    few = {"rounds": 2}
    expected = train(data, tmp_path / "inline", Execution("inline"), **few)
    execution = Execution("local", workers=2)
    assert train(data, tmp_path / "local", execution, **few) == expected
    execution = Execution("local", workers=3, blocks=2, executor="gang")
    assert train(data, tmp_path / "gang", execution, **few) == expected


def test_other_plans_have_other_bits(data, reference, tmp_path):
    """The hash means something: what is in the plan changes it."""
    for number, change in enumerate(
        ({"seed": 1}, {"slice_rows": 24}, {"rounds": 22}, {"weight_decay": 0.0}, {"batch_size": 48})
    ):
        assert train(data, tmp_path / str(number), Execution("inline"), **change) != reference


def arguments(data: Path, run: Path, *more: object) -> list[object]:
    plan = [
        text
        for name in ("model", "optimizer", "learning_rate", "schedule", "weight_decay")
        for text in (f"--{name.replace('_', '-')}", getattr(SETTINGS, name))
    ]
    plan += ["--batch-size", 96, "--slice-rows", 12, "--checkpoint-every", 9]
    return ["train", data / "train", "--run", run, *plan, *more]


def starts_of(run):
    return [event for event in read_events(run) if event["event"] == "RunStarted"]


@pytest.mark.fault
@pytest.mark.slow
def test_kill_9_at_ten_moments_and_resume(data, tmp_path):
    """The driver is killed ten times in one training; nothing is lost, and nobody is left."""
    rounds = 400
    # The tests above hold it equal to inline.
    expected = train(data, tmp_path / "undisturbed", Execution("parallel", 1), rounds=rounds)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    moments = sorted(random.Random(seed).sample(range(1, rounds - 10), 10))
    run = RunDir(tmp_path / "run")
    mark = {**os.environ, "GRADREDUCE_TEST_MARK": str(tmp_path)}
    command = arguments(data, run.path, "--rounds", rounds, "--workers", 2, "--rounds-per-job", 30)
    for number, moment in enumerate(moments):
        process = programs.start(*command, env=mark)
        programs.wait_until(
            lambda number=number, moment=moment, process=process: (
                process.poll() is not None
                # Rounds of the one before may be enough already.
                or (
                    max(run.complete_rounds(), default=0) >= moment and len(starts_of(run)) > number
                )
            )
        )
        before = max(run.complete_rounds(), default=0)
        programs.kill(process)
        programs.wait_until(lambda: not programs.processes_of(str(tmp_path)), 10)
        assert max(run.complete_rounds()) >= before
        command = ["resume", run.path]
    shown = json.loads(programs.succeed("resume", run.path, "--json"))
    assert shown["model_sha256"] == expected
    starts = starts_of(run)
    assert len(starts) == 11
    resumed = [event["completed"] for event in starts]
    assert all(at >= moment for at, moment in zip(resumed[1:], moments, strict=True))
    done = [e["completed"] for e in read_events(run) if e["event"] == "RoundCompleted"]
    assert done == list(range(1, rounds + 1))


def read_events(run: RunDir) -> list[dict]:
    return [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]


def test_resume_on_other_workers_and_blocks(data, reference, tmp_path):
    """What a run is resumed with need not be what it was started with."""
    run = tmp_path / "run"
    created = driver.create(run, SETTINGS, data / "train", None)
    executions = [
        Execution("parallel", workers=2, blocks=4, rounds_per_job=3),
        Execution("inline", workers=1, blocks=1, rounds_per_job=4),
        Execution("parallel", workers=3, blocks=2, rounds_per_job=5),
        Execution("inline", workers=2, blocks=3),
    ]
    for execution in executions[:-1]:
        training = driver._Training(created, execution, 3, Events(), driver.ChainJob)
        with training._workers():
            training._advance(training._start())
    assert driver.train(created, executions[-1], 3, Events()).model_sha256 == reference


@pytest.mark.skipif(
    "avx512f" not in Path("/proc/cpuinfo").read_text(), reason="needs a processor with AVX-512"
)
@pytest.mark.slow
def test_portable_has_the_same_bits_on_two_blas_cores(data, tmp_path):
    """Under native the forced cores differ, so that the test is able to fail."""
    hashes = {}
    for profile in ("native", "portable"):
        for core in ("SkylakeX", "Sandybridge"):
            env = {**os.environ, "OPENBLAS_CORETYPE": core}
            command = arguments(
                data,
                tmp_path / f"{profile}-{core}",
                *("--rounds", 10, "--numeric-profile", profile, "--json", "-q"),
            )
            hashes[profile, core] = json.loads(programs.succeed(*command, env=env))["model_sha256"]
    assert hashes["portable", "SkylakeX"] == hashes["portable", "Sandybridge"]
    assert hashes["native", "SkylakeX"] != hashes["native", "Sandybridge"]
