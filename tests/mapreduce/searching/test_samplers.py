"""Samplers that learn: a generation follows from all results before it, in their order."""

import json
import os
import signal
import sys

import pytest

from mapreduce.errors import Interrupted
from mapreduce.searching import samplers
from mapreduce.searching.samplers import Scored
from mapreduce.searching.space import Choice, Space
from mapreduce.training import driver as training
from quick import cases

OPTIONS = [
    *("--model", "mlp:4..16|softmax", "--learning-rate", "log:0.01..1", "--epochs", 1),
    *("--optimizer", "sgd|adam:beta1=0.5..0.99", "--sampler", "tpe", "--width", 4),
]
SPACE = Space({"model": "mlp:4..64|softmax", "learning_rate": "log:0.001..1", "l2": "0.0..1"})


@pytest.fixture(scope="module")
def optuna():
    return pytest.importorskip("optuna", reason="needs optuna: pip install 'gradreduce[search]'")


@pytest.fixture
def told(optuna):
    """Twelve trials, the better the nearer their rate is to 0.1; one has failed."""
    draws = samplers.ask("tpe", SPACE, 0, range(12))
    scores = [abs(float(draw.options["learning_rate"]) - 0.1) for draw in draws]
    scores[5] = None
    return [Scored(draw.chosen, score) for draw, score in zip(draws, scores, strict=True)]


def test_one_table_for_any_execution_and_after_an_extension(search, optuna):
    expected = search(*OPTIONS, "--trials", 14)
    tables = {
        search(*OPTIONS, "--trials", 14, *how, name=name, executor="")["table_sha256"]
        for name, how in {
            "inline": ("-r", "inline"),
            "two": ("--workers", 2),
            "three": ("--workers", 3),
        }.items()
    }
    search(*OPTIONS, "--trials", 5, name="part")
    tables.add(search(*OPTIONS, "--trials", 14, name="part")["table_sha256"])
    assert tables == {expected["table_sha256"]}
    # What was learned differs from what is drawn.
    drawn = [str(each) for each in OPTIONS]
    drawn[drawn.index("tpe")] = "RandomSampler"
    other = search(*drawn, "--trials", 14, name="other")
    assert other["rows"][12]["learning_rate"] != expected["rows"][12]["learning_rate"]


def test_workers_that_are_killed_or_slow_change_nothing(
    search, optuna, answer, tmp_path, monkeypatch
):
    """Of twelve trials on, TPE asks what they have told; in each generation the third ends before
    the second.
    """
    expected = search(*OPTIONS, "--trials", 14)
    train, killed, done = training.train, tmp_path / "killed", []
    killed.mkdir()
    for number in (1, 5, 9):
        os.mkfifo(tmp_path / f"after-{number:05d}")

    def die(run, *more, **options):
        name, fifo = run.path.name, tmp_path / f"after-{run.path.name}"
        if name in ("00000", "00007", "00008") and not (killed / name).exists():
            (killed / name).mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
        if fifo.exists():
            fifo.read_text()
        ended = train(run, *more, **options)
        if (before := tmp_path / f"after-{int(name) - 1:05d}").exists():
            before.write_text("go on")
        return ended

    with monkeypatch.context() as deadly:
        deadly.setattr(training, "train", die)
        found = search(*OPTIONS, "--trials", 14, "--workers", 3, name="workers", executor="")
        assert len([*killed.iterdir()]) == 3

    def stop(run, *more, **options):
        done.append(run.path.name)
        if len(done) in (3, 7):
            raise Interrupted(signal.SIGINT)
        return train(run, *more, **options)

    monkeypatch.setattr(training, "train", stop)
    for _ in range(2):
        search(*OPTIONS, "--trials", 14, name="driver", code=130)
    again = json.loads(answer(0, "resume", tmp_path / "driver", "--json").out)
    tables = {found["table_sha256"], again["table_sha256"]}
    assert tables == {expected["table_sha256"]}


def test_a_generation_is_asked_whole_and_before_it_is_trained(search, optuna, tmp_path):
    search(*OPTIONS, "--trials", 5)
    folder = tmp_path / "search"
    assert len([*(folder / "asked").iterdir()]) == 8
    before = {path: path.read_bytes() for path in (folder / "asked").iterdir()}
    assert len(search(*OPTIONS, "--trials", 9)["rows"]) == 9
    assert all(path.read_bytes() == content for path, content in before.items())


def test_the_first_rung_is_told(search, optuna):
    options = [each for each in OPTIONS if each not in ("--epochs", 1)]
    short = search(*options, "--epochs", 1, "--schedule", "constant", "--trials", 8)
    found = search(*options, "--rungs", "1,2", "--trials", 8, name="rungs")
    how = "--rungs", "1,2", "--trials", 8, "--workers", 2
    again = search(*options, *how, name="again", executor="")
    assert found["table_sha256"] == again["table_sha256"] and found["cut"]
    # Without a schedule the first rung is the shorter training, and so says the same.
    chosen = ["model", "learning_rate", "optimizer"]
    both = [[[row[name] for name in chosen] for row in each["rows"]] for each in (short, found)]
    assert both[0] == both[1]


def test_what_is_told_decides(told):
    first = samplers.ask("tpe", SPACE, 0, range(12, 20), told)
    assert first == samplers.ask("tpe", SPACE, 0, range(12, 20), told)
    assert first != samplers.ask("tpe", SPACE, 1, range(12, 20), told)
    assert first != samplers.ask("tpe", SPACE, 0, range(12, 20), told[:-1])
    other = samplers.ask("tpe", SPACE, 0, range(12, 20), [*told[::-1]])
    assert first != other, "the order of trials decides, too: it is always that of their numbers"


def test_trials_lie_in_the_space(told):
    known = {each.label: each for each in SPACE.dimensions()}
    for sampler in ("tpe", "RandomSampler", "NSGAIISampler"):
        for draw in samplers.ask(sampler, SPACE, 3, range(12, 24), told):
            for label, value in draw.chosen.items():
                each = known[label]
                if isinstance(each, Choice):
                    assert value in range(len(each.alternatives))
                else:
                    assert each.low <= value <= each.high
                    assert float(f"{value:.6g}") == value
            assert ("mlp" in draw.options["model"]) == (len(draw.chosen) == 4)


@cases(
    "sampler, message",
    ("best", "--sampler: expected one of random, grid, tpe, "),
    ("Tpe", "Did you mean tpe"),
    ("GridSampler", "--sampler GridSampler: it cannot be used: "),
    ("nsgaii", "TPESampler, GPSampler, found 'nsgaii'"),
)
def test_samplers_that_cannot_be_taken(sampler, message, search, optuna, tmp_path):
    assert message in search("--epochs", 1, "--sampler", sampler, code=2)
    assert not (tmp_path / "search").exists()


def test_without_optuna(search, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    error = search(*OPTIONS, code=2)
    assert "need optuna" in error and "pip install 'gradreduce[search]'" in error
    assert search("--epochs", 1, "--trials", 1)["ended"] == 1


def test_another_version_of_optuna_is_another_search(search, optuna, monkeypatch):
    search(*OPTIONS, "--trials", 1)
    monkeypatch.setattr(optuna, "__version__", "0.1")
    error = search(*OPTIONS, "--trials", 1, code=73)
    assert "sampler version was optuna " in error and "now optuna 0.1" in error
