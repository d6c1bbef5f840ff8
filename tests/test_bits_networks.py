"""One hash for a network, whatever runs it: layers that mix rows, draw numbers and have buffers."""

import json
import os
import random
from importlib.util import find_spec
from pathlib import Path

import pytest

import datasets
import programs
from mapreduce.data.importer import import_rows
from mapreduce.data.readers import text
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

#: More than two pages of parameters, and buffers in several; slices of 8, and the last slice
#: of the second shard is a single row.
SHARDS, SHAPE = (60, 49, 40), (3, 8, 8)
PLANS = {
    "cnn": Settings(
        model="conv:8x3:padding=1,batchnorm,relu,residual(conv:8x3:padding=1,batchnorm),pool:2,"
        "dropout:0.25,dense:250,batchnorm,relu,dropout:0.5",
        optimizer="adam",
        learning_rate=0.003,
        clip_norm=5.0,
        weight_decay=1e-4,
    ),
    "gru": Settings(
        model="embedding:8,gru:96,dropout:0.2,layernorm",
        optimizer="adam",
        learning_rate=0.003,
        clip_norm=5.0,
    ),
    "torch": Settings(
        model="torch:torch_networks:coloured_cnn",
        optimizer="adam",
        learning_rate=0.003,
        clip_norm=5.0,
        weight_decay=1e-4,
    ),
}
_NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
NAMES = [pytest.param(name, marks=[_NEEDS_TORCH] * (name == "torch")) for name in PLANS]
SHARED = {"batch_size": 32, "slice_rows": 8, "rounds": 12, "checkpoint_every": 5}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    images = {"shape": SHAPE, "classes": 4, "dtype": "uint8"}
    datasets.blobs(folder / "images" / "train", SHARDS, **images)
    datasets.blobs(folder / "images" / "test", (40, 31), seed=1, **images)
    (folder / "text").mkdir()
    words = random.Random(0).choices(["map ", "reduce ", "shuffle ", "sort\n"], k=400)
    for part, chosen in (("train", words[:300]), ("test", words[300:])):
        (file := folder / f"{part}.txt").write_text("".join(chosen))
        import_rows(text.source([file], 12), folder / "text" / part, 0)
    return folder


def create(data: Path, run: Path, name: str, settings: Settings) -> RunDir:
    place = data / ("text" if name == "gru" else "images")
    return driver.create(run, settings, place / "train", place / "test")


def train(data: Path, run: Path, name: str, execution: Execution, **changes) -> str:
    settings = Settings(**{**vars(PLANS[name]), **SHARED, **changes})
    created = create(data, run, name, settings)
    return driver.train(created, execution, 3, Events()).model_sha256


@pytest.fixture(scope="module")
def expected(data):
    hashes = {}

    def of(name):
        if name not in hashes:
            hashes[name] = train(data, data / f"inline-{name}", name, Execution("inline"))
        return hashes[name]

    return of


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "execution",
    [
        Execution("parallel", 1, blocks=2),
        Execution("parallel", 2, threads=2),
        Execution("parallel", 3, blocks=3, fan_in=2),
        Execution("parallel", 4, blocks=1, rounds_per_job=3),
        Execution("parallel", 5, blocks=2, rounds_per_job=1),
        Execution("parallel", 1, executor="gang"),
        Execution("parallel", 2, 2, blocks=2, executor="gang"),
        Execution("parallel", 3, blocks=3, executor="gang"),
        Execution("parallel", 5, executor="gang"),
    ],
    ids=lambda one: f"{one.executor}-{one.workers}",
)
def test_the_bits_of_inline(name, execution, data, expected, tmp_path):
    assert train(data, tmp_path / "run", name, execution) == expected(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("executor", ["chain", "gang"])
def test_local_has_the_bits_of_inline(name, executor, data, tmp_path):
    few = {"rounds": 2}
    expected = train(data, tmp_path / "inline", name, Execution("inline"), **few)
    execution = Execution("local", workers=2, executor=executor)
    assert train(data, tmp_path / "local", name, execution, **few) == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_hash_means_something(name, data, expected, tmp_path):
    """Slices belong to the plan: with others a batch norm has other statistics."""
    for number, change in enumerate(({"slice_rows": 16}, {"seed": 1})):
        found = train(data, tmp_path / f"{number}", name, Execution("inline"), **change)
        assert found != expected(name)


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_ten_moments_and_resumed(name, data, tmp_path):
    """By kill -9 of the driver, and resumed with another number of workers and another executor."""
    rounds = 200
    expected = train(data, tmp_path / "undisturbed", name, Execution("inline"), rounds=rounds)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    moments = sorted(chance.sample(range(1, rounds - 10), 10))
    settings = Settings(**{**vars(PLANS[name]), **SHARED, "rounds": rounds})
    run = create(data, tmp_path / "run", name, settings)
    env = {**os.environ, "GRADREDUCE_TEST_MARK": str(tmp_path)}
    for moment in moments:
        way = chance.choice(["chain", "gang"]), chance.randint(1, 3)
        process = programs.start(
            "resume", run.path, "--executor", way[0], "--workers", way[1], env=env
        )
        programs.wait_until(
            lambda at=moment, it=process: has_come(run, at) or it.poll() is not None, 90
        )
        programs.kill(process)
        programs.wait_until(lambda: not programs.processes_of(str(tmp_path)), 10)
    shown = json.loads(programs.succeed("resume", run.path, "--json", env=env))
    assert shown["model_sha256"] == expected
    starts = [event for event in events_of(run) if event["event"] == "RunStarted"]
    assert len(starts) >= 8


def has_come(run: RunDir, moment: int) -> bool:
    return max(run.complete_rounds(), default=0) >= moment


def events_of(run: RunDir) -> list[dict]:
    path = run.path / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
