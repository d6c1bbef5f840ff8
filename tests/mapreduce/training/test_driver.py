"""The training loop against a plain loop, and what the plan's options mean."""

import json
import os
import re
import shutil
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import datasets
from builders import advanced, blobs_in
from hdfs_utils.publish import put_if_absent
from mapreduce import models, optim
from mapreduce.data.manifest import Manifest
from mapreduce.engine.rounds import Block
from mapreduce.errors import DataError, NonFiniteError
from mapreduce.plan.settings import Settings
from mapreduce.reduction.message import Message, encode_parts, read_message
from mapreduce.runners.parallel.runner import TaskFailedException
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Evaluated, Events, RoundCompleted, RunEnded
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import Position, block_bounds
from mapreduce.training import creating, driver
from quick import cases

data = blobs_in(train=(200, 170, 97), test=(90,), dtype="uint8")


def train(data, run, evaluation=False, keep=0, **settings):
    """Train in this process; the run, its events and how it ended."""
    created = creating.create(
        run, Settings("softmax", **settings), data / "train", data / "test" if evaluation else None
    )
    seen = []
    ended = driver.train(created, Execution("inline", executor="here"), keep, Events(seen.append))
    return created, seen, ended


def test_a_training_builds_parts_and_syncs_names_once(data, tmp_path, monkeypatch):
    counts = Counter()

    def count(module, name):
        function = getattr(module, name)

        def counted(*arguments):
            counts[f"{module.__name__}.{name}"] += 1
            return function(*arguments)

        monkeypatch.setattr(module, name, counted)

    created = creating.create(tmp_path / "run", Settings("mlp:7", seed=80), data / "train", None)
    for module, name in ((models, "create"), (optim, "create"), (os, "fsync")):
        count(module, name)
    driver.train(created, Execution("inline", executor="here"), 0, Events())
    # A model that tells its attributes, and one that computes; two of the optimizers are those of
    # checks. Files are a lease, a profile, the execution, a checkpoint's three, and the result;
    # folders that of the run, twice, that of the checkpoint and that of all checkpoints.
    expected = {"mapreduce.models.create": 2, "mapreduce.optim.create": 3}
    assert counts == {**expected, "os.fsync": 11}


def params_of(run: RunDir, completed: int) -> np.ndarray:
    return checkpoint.load(run, run.config.plan.create_model(), completed).params


# One process, one loop, float64, the whole batch at once: no slices, tree, blocks or wire.


def softmax_gradient(weights, x, y):
    z = x @ weights[:-1] + weights[-1]
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    return np.vstack([x.T @ p, p.sum(0)]) / len(y), loss


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("batch_size", [96, 0])
def test_training_equals_a_plain_loop(data, tmp_path, optimizer, batch_size):
    rate, decay, rounds = 0.3, 0.01, 30
    settings = {"optimizer": optimizer, "batch_size": batch_size, "learning_rate": rate}
    settings |= {"weight_decay": decay, "schedule": "cosine", "rounds": rounds, "dtype": "float64"}
    settings["slice_rows"] = 24 if batch_size else 48
    run, seen, _ = train(data, tmp_path / "run", **settings)
    plan = run.config.plan
    dataset = datasets.Dataset(data / "train")
    weights = np.zeros((13, 3))
    velocity = mean = square = np.zeros_like(weights)
    losses = []
    for step in range(rounds):
        batches = [dataset.shard(s.shard).rows(s.start, s.stop) for s in plan.slices(step)]
        x = np.concatenate([batch.features for batch in batches]) / 255
        y = np.concatenate([batch.labels for batch in batches])
        gradient, loss = softmax_gradient(weights, x, y)
        losses.append(loss)
        gradient = gradient + decay * weights
        lr = rate * (1 + np.cos(np.pi * step / rounds)) / 2
        if optimizer == "sgd":
            weights = weights - lr * gradient
        elif optimizer == "momentum":
            velocity = 0.9 * velocity + gradient
            weights = weights - lr * velocity
        else:
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            unbiased = mean / (1 - 0.9 ** (step + 1))
            root = np.sqrt(square / (1 - 0.999 ** (step + 1)))
            weights = weights - lr * unbiased / (root + 1e-8)
    np.testing.assert_allclose(params_of(run, rounds), weights.reshape(-1), rtol=1e-9, atol=1e-12)
    told = [event.loss for event in seen if isinstance(event, RoundCompleted)]
    np.testing.assert_allclose(told, losses, rtol=1e-10)


def test_events_tell_every_round_once_and_count_its_rows(data, tmp_path):
    run, seen, _ = train(data, tmp_path / "run", batch_size=128, slice_rows=16, rounds=9)
    rounds = [event for event in seen if isinstance(event, RoundCompleted)]
    assert [event.completed for event in rounds] == list(range(1, 10))
    plan = run.config.plan
    for step, event in enumerate(rounds):
        assert event.rows == sum(rows.stop - rows.start for rows in plan.slices(step))
    lines = (run.path / "events.jsonl").read_text().splitlines()
    recorded = [json.loads(line) for line in lines]
    assert recorded[0]["event"] == "RunStarted"
    assert recorded[-1]["event"] == "RunEnded"


def test_patience_stops_and_the_best_model_is_the_result(data, tmp_path):
    """A learning rate that is far too high: the loss goes up and down."""
    settings = {"rounds": 200, "learning_rate": 40.0, "batch_size": 16, "eval_every": 2}
    run, seen, ended = train(data, tmp_path / "run", True, 1, patience=4, **settings)
    losses = {e.completed: e.loss for e in seen if isinstance(e, Evaluated)}
    best = min(losses, key=losses.get)
    assert ended == RunEnded(best, ended.model_sha256, stopped_early=True)
    assert sum(done > best for done in losses) == 4
    assert max(losses) < 200
    named = run.config.plan.create_model().named(params_of(run, best))
    assert checkpoint.model_sha256(named) == ended.model_sha256
    assert checkpoint.latest(run) == best


@pytest.mark.parametrize(("keep", "expected"), [(0, [3, 6, 9, 10]), (1, [10]), (2, [9, 10])])
def test_keep_leaves_the_last_checkpoints(data, tmp_path, keep, expected):
    run, _, _ = train(data, tmp_path / "run", keep=keep, rounds=10, checkpoint_every=3)
    assert checkpoint.saved_rounds(run) == expected


def test_rounds_that_are_over_are_removed(data, tmp_path):
    run, _, _ = train(data, tmp_path / "run", rounds=10)
    assert list(run.rounds.complete()) == [10]


def test_another_numeric_profile_is_a_warning(data, tmp_path):
    created = creating.create(tmp_path / "run", Settings("softmax"), data / "train", None)
    created.write_json("profile.json", {"cpu": "z80"})
    seen = []
    driver.train(created, Execution("inline"), 0, Events(seen.append))
    messages = [event.message for event in seen if type(event).__name__ == "Warned"]
    assert len(messages) == 1
    assert "cpu: z80, now " in messages[0]


# Rounds whose gradient is not finite


@pytest.fixture(scope="module")
def extreme(tmp_path_factory):
    """40 rows in 10 slices; of one slice the gradient overflows, whatever the parameters."""
    folder = tmp_path_factory.mktemp("extreme") / "data"
    generator = np.random.default_rng(0)
    x = generator.standard_normal((40, 5)).astype(np.float32)
    y = generator.integers(0, 2, 40).astype(np.int32)
    x[24:28, 3], y[24:28] = 3e38, 1
    folder.mkdir()
    shards = (datasets.write_shard(folder / "shard-00000.arrow", x, y),)
    rows = tuple(np.bincount(y).tolist())
    of_classes = {"target": "class", "nonzeros": 200, "class_rows": rows}
    Manifest(40, 5, (5,), "float32", 1.0, (0, 1), 0, {}, shards, **of_classes).save(folder)
    return folder


STEEP = {"model": "logistic", "batch_size": 12, "slice_rows": 4, "rounds": 12}


@pytest.mark.parametrize(("optimizer", "l1"), [("sgd", 0.0), ("momentum", 0.01), ("adam", 0.0)])
def test_skipped_rounds_leave_parameters_and_state_as_they_are(extreme, tmp_path, optimizer, l1):
    settings = Settings(**STEEP, optimizer=optimizer, non_finite="skip", l1=l1)
    run = creating.create(tmp_path / "run", settings, extreme, None)
    plan = run.config.plan
    bad = {
        step for step in range(plan.rounds) if any(rows.start == 24 for rows in plan.slices(step))
    }
    assert len(bad) == 3
    execution = Execution("inline", rounds_per_job=1)
    position = Position.first(plan)
    origins = {"params": 0}
    for step in range(plan.rounds):
        before = position
        position = advanced(run, execution, step + 1)
        block = run.rounds.read(step + 1, 0, 1)
        if step in bad:
            assert position.params.tobytes() == before.params.tobytes()
            assert position.state.keys() == before.state.keys()
            for name, array in position.state.items():
                assert array.tobytes() == before.state[name].tobytes()
            assert position.scalars.tolist() == [before.scalars[0] + 1]
            # Nor are they written again.
            assert block.origins["params"] == origins["params"]
        else:
            assert position.params.tobytes() != before.params.tobytes()
            assert position.scalars.tolist() == before.scalars.tolist()
            assert block.origins["params"] == step + 1
        origins = block.origins
        assert np.isfinite(position.params).all()
    assert position.scalars.tolist() == [3]


@pytest.mark.parametrize("runner", ["inline", "parallel"])
def test_an_error_names_where_a_gradient_is_not_finite(extreme, tmp_path, runner):
    """Row 13."""
    run = creating.create(tmp_path / "run", Settings(**STEEP), extreme, None)
    plan = run.config.plan
    slices = [plan.slices(step) for step in range(plan.rounds)]
    starts = [[rows.start for rows in drawn] for drawn in slices]
    step = next(step for step, drawn in enumerate(starts) if 24 in drawn)
    with pytest.raises((NonFiniteError, TaskFailedException)) as error:
        driver.train(run, Execution(runner, executor="chain"), 0, Events())
    assert (run.latest_round().completed, run.result()) == (step, None)
    place = f"round {step}, slice {starts[step].index(24)} (shard 0, rows 24 to 27): the gradient"
    assert re.search(
        rf"(^|: ){re.escape(place)} of parameter weight is -inf, the ", str(error.value)
    )


def test_clipping_does_not_hide_what_is_not_finite(extreme, tmp_path):
    run = creating.create(tmp_path / "run", Settings(**STEEP, clip_norm=1.0), extreme, None)
    with pytest.raises(NonFiniteError, match="of parameter weight is -inf"):
        driver.train(run, Execution("inline"), 0, Events())


# Files of rounds


class TestBlocks:
    """Arrays that a round does not change stay in the file of an earlier one."""

    @staticmethod
    def files(run):
        return sorted(int(path.name[:8]) for path in run.rounds.folder.glob("*.block"))

    def test_of_a_search(self, data, tmp_path):
        """A round writes one pair of vectors; old files go when no array in them is needed."""
        created = creating.create(
            tmp_path / "run",
            Settings("softmax", optimizer="lbfgs", history_size=2, rounds=9, tol=0.0),
            data / "train",
            None,
        )
        execution = Execution("inline", rounds_per_job=1)
        for at in range(1, 10):
            advanced(created, execution, at)
            stored = set(read_message(created.rounds.path(at, 0, 1)).arrays)
            slots = {name for name in stored if name[0] in "sy" and name[1:].isdigit()}
            assert len(slots) in (0, 2)
            # The last round ends with a point that it may not have moved from.
            assert {"memory", "history", *(["params"] if at < 9 else [])} <= stored
            created.prune_rounds(at, 1)
            block = created.rounds.read(at, 0, 1)
            assert self.files(created) == sorted(block.rounds() | {at})
        # The first round's file is needed as long as a slot was never filled.
        assert 0 not in {block.origins[name] for name in ("s0", "s1", "y0", "y1")}


@pytest.mark.parametrize("size", [1, 16_384, 16_385, 100_000, 200_000])
@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 100])
def test_blocks_are_whole_pages_and_cover_everything(size, blocks):
    bounds = block_bounds(size, blocks)
    assert bounds[0][0] == 0
    assert bounds[-1][1] == size
    assert all(a[1] == b[0] for a, b in pairwise(bounds))
    assert all(start % 16_384 == 0 and start < stop for start, stop in bounds)
    assert len(bounds) == min(blocks, -(-size // 16_384))
    sizes = [-(-(stop - start) // 16_384) for start, stop in bounds]
    assert max(sizes) - min(sizes) <= 1


def test_skipped_rounds_are_told_and_leave_json_that_others_can_read(data, tmp_path):
    """The first update is too long: every gradient from then on is not finite."""
    run, seen, _ = train(
        data, tmp_path / "run", learning_rate=3e38, non_finite="skip", rounds=4, dtype="float32"
    )
    (told,) = {event.message for event in seen if type(event).__name__ == "Warned"}
    assert re.match(r"[23] of 4 rounds were skipped, .*: .*smaller --learning-rate", told)
    # The run has learned nothing in them, and says so as long as it is there.
    assert told in run.summary()["warnings"]

    def refuse(text):
        raise AssertionError(text)

    lines = (run.path / "events.jsonl").read_text().splitlines()
    losses = [json.loads(line, parse_constant=refuse).get("loss") for line in lines]
    assert None in losses
    json.dumps(run.summary(), allow_nan=False)


MEAN = "expected {'mean': 'float32 (39,)'}, found "


@cases(
    "expected, change",
    (MEAN + "{}", lambda mean: {}),
    (MEAN + "{'mean': 'float32 (38,)'}", lambda mean: {"mean": mean[1:]}),
    (MEAN + "{'mean': 'float64 (39,)'}", lambda mean: {"mean": mean.astype(np.float64)}),
    (
        "expected {}, found {'velocity': 'float32 (39,)'}",
        lambda mean: {"mean": mean, "velocity": mean},
    ),
)
def test_a_state_of_another_optimizer_is_refused(data, tmp_path, expected, change):
    """The digests fit: who wrote it, wrote them too. A round that is so does not count."""
    run, _, _ = train(data, tmp_path / "run", optimizer="adam", rounds=4)
    model = run.config.plan.create_model()
    position = checkpoint.load(run, model, 4)
    position.state |= change(position.state.pop("mean"))
    shutil.rmtree(run.checkpoints / "00000004")
    checkpoint.save(run, model, position)
    with pytest.raises(DataError, match=re.escape(expected)) as error:
        checkpoint.load(run, model, 4)
    assert "optimizer.safetensors" in str(error.value)
    run.rounds.path(4, 0, 1).unlink()
    arrays = {"params": position.params, "history": position.history, "memory": position.scalars}
    run.rounds.publish(4, 0, 1, Block.of(4, {**arrays, **position.state}))
    told = []
    assert run.latest_round(told.append) is None
    assert expected in told[0]


@pytest.mark.parametrize("elsewhere", [None, [1], {"params": "../1"}, {"params": True}])
def test_a_round_whose_parts_lie_nowhere_does_not_count(data, tmp_path, elsewhere):
    run, _, _ = train(data, tmp_path / "run", rounds=4)
    path = run.rounds.path(4, 0, 1)
    message = read_message(path)
    path.unlink()
    patched = Message({**message.meta, "elsewhere": elsewhere}, message.arrays)
    put_if_absent(path, *encode_parts(patched))
    told = []
    assert run.latest_round(told.append) is None
    assert f"{path} is damaged: its arrays are in the rounds" in told[0]


# Trainings that went wrong


@cases(
    "settings, is_bad",
    ({"learning_rate": 1e30}, True),
    ({"learning_rate": 3e4, "batch_size": 0, "rounds": 15}, True),
    ({"rounds": 1}, False),
    ({"learning_rate": 3.0, "batch_size": 8, "epochs": 2}, False),
)
def test_a_training_that_diverged_says_so_and_no_other(data, tmp_path, settings, is_bad):
    run, _, _ = train(data, tmp_path / "run", **settings)
    message = run.summary()["warning"] or ""
    assert message.startswith("the training diverged: the loss is ") == is_bad
    assert ("by guessing it is 1.099" in message) == is_bad
    advice = "'gradreduce data standardise', or try a smaller --learning-rate"
    assert (advice in message) == is_bad == bool(message)
