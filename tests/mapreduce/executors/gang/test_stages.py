"""A network in stages, each in another rank, is trained to the bits of the whole network."""

import json
import os
import re
import subprocess
import sys
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import gang_rank
import programs
from builders import images_and_text, imported, keywords, left_by
from gangs import Gang, initial, train
from mapreduce.errors import NonFiniteError, UsageError
from mapreduce.executors.gang.rendezvous import Meeting
from mapreduce.models.layers.stages import edges
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.runs.flags import execution
from mapreduce.training import creating, driver
from quick import cases

PLANS = {
    # The second stage has no parameters in the first pages, and the last one ends within a page.
    "dense": Settings(model="dense:90,relu,dense:60,tanh", clip_norm=0.5, l2=1e-3),
    "cnn": Settings(
        **keywords(
            "model=conv:8x3:padding=1,batchnorm,relu,residual(conv:8x3:padding=1,batchnorm),pool:2,dropout:0.25,dense:250,batchnorm,relu,dropout:0.5"
        ),
        **keywords("optimizer=adam learning_rate=0.003 augment=flip class_weight=balanced"),
    ),
    "gru": Settings(model="embedding:8,gru:96,dropout:0.2,layernorm", optimizer="adam"),
    "numbers": Settings(model="dense:90,batchnorm,gelu,dense:9", learning_rate=0.01),
}
SHARED = {"batch_size": 32, "slice_rows": 8, "rounds": 6, "checkpoint_every": 6, "eval_every": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = images_and_text(tmp_path_factory.mktemp("stages"))
    x = np.random.default_rng(0).standard_normal((90, 192))
    for part in ("train", "test"):
        imported(folder / "numbers" / part, x, x[:, :9].sum(axis=1))
    return folder


def create(data, path, name, **changes):
    place = data / {"gru": "text", "numbers": "numbers"}.get(name, "images")
    settings = Settings(**{**vars(PLANS[name]), **SHARED, **changes})
    return creating.create(path, settings, place / "train", place / "test")


@pytest.fixture(scope="module")
def expected(data):
    """What one process leaves that has the whole model."""
    found = {}

    def of(name):
        if name not in found:
            run = create(data, data / f"runs-{name}", name)
            train(run, 1, 1)
            found[name] = left_by(run)
            assert len(found[name]["losses"]) == 2
        return found[name]

    return of


@cases(
    "name, ranks, stages, blocks",
    ("dense", 2, 2, 1),
    ("dense", 6, 3, 2),
    ("cnn", 2, 2, 3),
    ("cnn", 4, 2, 8),
    ("cnn", 5, 5, 2),
    ("numbers", 3, 3, 2),
    ("gru", 3, 3, 2),
    # More groups than slices: some have none.
    ("gru", 10, 2, 4),
)
def test_stages_leave_the_state_of_the_whole_model(
    data, expected, tmp_path, name, ranks, stages, blocks
):
    run = create(data, tmp_path / "run", name)
    train(run, ranks, blocks, stages=stages)
    assert left_by(run) == expected(name)


def test_processes_with_stages_have_the_hash_of_a_chain(data, tmp_path):
    """By the options alone: 2 × 2 of a network with batch norm, dropout and augmentation."""
    whole = create(data, tmp_path / "chain", "cnn")
    ended = driver.train(whole, Execution("inline"), 3, Events())
    how = execution({"workers": 4, "stages": 2})
    assert (how.executor, how.auto) == ("gang", ())
    run = create(data, tmp_path / "run", "cnn")
    told = []
    assert driver.train(run, how, 3, Events(told.append)).model_sha256 == ended.model_sha256
    assert (told[0].executor, told[0].workers, told[0].stages) == ("gang", 4, 2)
    assert run.evaluation_losses() == whole.evaluation_losses()
    assert run.read_json("execution.json")["stages"] == 2


def test_a_step_that_needs_scalars_of_all_stages(data, tmp_path):
    """L-BFGS takes products over the whole vector, and a clipped gradient its norm."""
    changes = {"optimizer": "lbfgs", "batch_size": None, "slice_rows": 20}
    changes |= {"learning_rate": Settings.learning_rate, "clip_norm": None, "rounds": 5}
    found = []
    for stages in (1, 2):
        run = create(data, tmp_path / str(stages), "dense", **changes)
        train(run, stages, stages, stages=stages)
        found.append(left_by(run))
    assert found[0] == found[1]


def test_a_gradient_that_is_not_finite_is_named(data, tmp_path):
    changes = {"model": "dense:90,relu,dense:60,relu", "learning_rate": 1e15, "clip_norm": None}
    run = create(data, tmp_path / "run", "dense", l2=0.0, **changes)
    gang = Gang(run, 2, initial(run, 1), stages=2)
    gang.start()
    errors = [str(one) for one in gang.join().values() if isinstance(one, NonFiniteError)]
    # Each stage that has such a sum names its own parameter.
    assert errors
    says = r"round 1, slices 0 to 3: the sum of the gradients of parameter \d\.\w+ is not finite"
    assert all(re.search(says, error) for error in errors)
    assert "smaller --learning-rate" in errors[0]


@pytest.mark.slow
def test_ranks_train_what_one_process_has_no_memory_for(data, tmp_path):
    """56 MB of parameters: with 285 MiB more, one process cannot train them, and four can."""
    model = ",".join(["dense:2100,relu"] * 4)
    changes = {"model": model, "rounds": 2, "checkpoint_every": 2, "eval_every": 2}
    ended = {}
    for stages in (1, 4):
        run = create(data, tmp_path / str(stages), "dense", **changes)
        role = {"ranks": stages, "stages": stages, "blocks": initial(run, 16)}
        role |= {"home": str(run.path), "place": str(run.rounds.folder)}
        role |= {"token": Meeting.prepare(run.path).token, "wait": programs.PATIENCE}
        command = [sys.executable, gang_rank.__file__, run.path]
        # Beside that file there is a folder with the package's name.
        env = {**os.environ, "PYTHONPATH": str(Path(gang_rank.__file__).parent.parent)}
        processes = [
            subprocess.Popen(
                [*command, str(rank), json.dumps(role), str(285 << 20)],
                **{"env": env, "stderr": subprocess.PIPE, "text": True},
            )
            for rank in range(stages)
        ]
        told = "".join(one.communicate(timeout=programs.PATIENCE)[1] for one in processes)
        ended[stages] = [one.returncode for one in processes], told, run.latest_round().completed
    assert ended[4] == ([0] * 4, "", 2)
    assert ended[1][0] == [1]
    assert "MemoryError" in ended[1][1]


# Where a model is cut


COSTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8)


@given(COSTS, st.data())
def test_the_largest_stage_is_as_small_as_it_can_be(costs, chosen):
    count = chosen.draw(st.integers(1, len(costs)))

    def largest(starts):
        parts = [costs[a:b] for a, b in pairwise([*starts, len(costs)])]
        return max(sum(w for w, _ in p) for p in parts), max(sum(n for _, n in p) for p in parts)

    found = edges(costs, count)
    assert found == sorted({0, *found})
    assert len(found) == count
    every = combinations(range(1, len(costs)), count - 1)
    assert largest(found) == min(largest((0, *one)) for one in every)


# What cannot be


@cases(
    "changes, stages, says",
    ({"model": "mlp:90,9"}, 2, "--stages 2: expected a model that is a list of layers.*mlp"),
    ({"model": "softmax"}, 2, "softmax, which has no layers to cut between"),
    ({"model": "dense:9,relu,dense:9,relu"}, 4, "expected at most 3, .* as many as the model"),
    (
        {"model": "residual(conv:3x3:padding=1,relu,conv:3x3:padding=1)"},
        3,
        "expected at most 2.* residual block",
    ),
)
def test_models_that_cannot_be_cut(data, tmp_path, changes, stages, says):
    run = create(data, tmp_path / "run", "dense", **changes)
    with pytest.raises(UsageError, match=says):
        driver.train(run, execution({"workers": stages, "stages": stages}), 3, Events())


def test_a_strategy_whose_tasks_need_the_whole_model(data, tmp_path):
    run = create(data, tmp_path / "run", "gru", strategy="averaging", replicas=2)
    with pytest.raises(UsageError, match="--stages 2: expected --strategy sync, found averaging"):
        driver.train(run, execution({"workers": 2, "stages": 2}), 3, Events())


@cases(
    "given, says",
    ({"executor": "chain"}, "--stages 2: expected --executor gang, found --executor chain"),
    ({"workers": 3}, "--stages 2: expected --workers that are a multiple of 2, found --worke"),
    ({"threads": 2}, "--stages 2: expected --threads 1, found --threads 2"),
    ({"runner": "inline"}, "runs one after the other"),
    ({"stages": 0}, "--stages: expected"),
)
def test_options_that_contradict_stages(given, says):
    with pytest.raises(UsageError, match=says):
        execution({"stages": 2, **given})


def test_workers_without_a_number_are_whole_groups():
    assert execution({"stages": 3}).workers % 3 == 0
    assert execution({"stages": 3, "executor": "auto", "workers": "auto"}).workers >= 3
