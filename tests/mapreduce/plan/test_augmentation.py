"""Augmentation: the draws of a row, and trainings with it."""

from dataclasses import replace

import numpy as np
import pytest

import naive
from builders import imported, keywords, params_of, trained
from mapreduce.data.batch import Batch, Csr
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, UsageError
from mapreduce.explaining.training.explaining import traced
from mapreduce.models.context import Context, Key
from mapreduce.plan import augmentation, settings
from mapreduce.plan.settings import Settings
from quick import cases

KEY = Key(seed=3, round=5, shard=1, row=40)


def images(rows, shape, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(1, 256, (rows, *shape), np.uint8).reshape(rows, -1)


@pytest.mark.parametrize("shape", [(3, 5, 4), (6, 7)], ids=str)
@pytest.mark.parametrize("spec", ["flip", "crop:3", "crop:2,flip"])
def test_a_batch_is_changed_as_by_the_oracle(shape, spec):
    x = images(50, shape)
    wanted = augmentation.parse(spec)
    batch = Batch(x, np.arange(50), 0.5, np.ones(50))
    found = wanted.apply(batch, shape, KEY)
    drawn = KEY.fold(65_000).uniform(50, 3)
    flips = (drawn[:, 0] < 0.5) * wanted.flip
    shifts = np.floor(drawn[:, 1:] * (2 * wanted.crop + 1)).astype(int) - wanted.crop
    expected = naive.augment(x.reshape(50, -1, *shape[-2:]), flips, shifts)
    assert np.array_equal(found.features, expected.reshape(50, -1))
    assert found.features.dtype == np.uint8
    assert (found.labels, found.scale, found.weights) == (batch.labels, 0.5, batch.weights)
    # All shifts occur, and both sides.
    assert set(shifts.flat) == set(range(-wanted.crop, wanted.crop + 1))
    assert 10 < sum(flips) < 40 or not wanted.flip


@cases(
    "shape, layout, message",
    ((3, 8, 4), "dense", r"less than 4 pixels for images of the shape \(3, 8, 4\), found 4"),
    ((4, 9), "dense", "expected a crop of less than 4 pixels"),
    ((64,), "dense", r"found dense rows of the shape \(64,\)"),
    ((2, 3, 8, 8), "dense", "expected images"),
    ((8, 8), "sparse", "expected images, dense rows .* found sparse rows"),
)
def test_rows_that_it_does_not_suit(shape, layout, message):
    with pytest.raises(UsageError, match=f"--augment crop:4: .*{message}"):
        augmentation.check("crop:4", shape, layout)


def test_sparse_rows_of_a_stranger():
    rows = Csr(np.array([0, 1], np.int32), np.array([2], np.int32), np.ones(1), 4)
    with pytest.raises(DataError, match="expected images, dense rows, found sparse rows"):
        augmentation.parse("flip").apply(Batch(rows, None), (2, 2), KEY)


SETTINGS = Settings(
    class_weight="0=2",
    **keywords("model=mlp:8 optimizer=momentum augment=flip,crop:2 batch_size=24 slice_rows=6"),
    **keywords("epochs=2"),
)


@pytest.fixture(scope="module", params=[(1, 8, 8), (8, 8)], ids=str)
def data(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "data"
    x = images(77, request.param)
    imported(folder, x.reshape(-1, *request.param), x[:, 5] % 3, scale=1 / 255)
    return folder


def test_gradients_are_of_changed_rows_and_evaluations_are_not(data, tmp_path):
    changes = {"optimizer": "sgd", "rounds": 2, "epochs": None, "class_weight": None, "seed": 9}
    settings = replace(SETTINGS, **changes, eval_every=2)
    run = trained(tmp_path / "run", data, settings, evaluation=data)
    params = params_of(run)
    plan, dataset = run.config.plan, Dataset(data)
    model, wanted = plan.create_model(), augmentation.parse(plan.augment)
    expected = model.init(9)
    for completed in range(2):
        total = np.zeros(model.size)
        for rows in plan.slices(completed):
            key = Key(9, completed, shard=rows.shard, row=rows.start)
            batch = dataset.shard(rows.shard).rows(rows.start, rows.stop)
            out = np.empty_like(expected)
            model.gradient(
                expected, wanted.apply(batch, dataset.manifest.shape, key), out, Context()
            )
            total += out
        expected = expected - np.float32(0.1) * (total / 24).astype(np.float32)
    np.testing.assert_allclose(params, expected, rtol=1e-5, atol=1e-7)
    loss, correct = model.score(params, dataset.shard(0).rows(0, 77), Context())
    found = run.summary()
    assert found["eval_loss"] == pytest.approx(loss / 77, rel=1e-6)
    assert found["accuracy"] == correct / 77


def test_a_round_is_explained_with_its_augmentation(data, tmp_path):
    run = trained(tmp_path / "run", data, SETTINGS)
    trace = traced(run.path, 3, None, None, None)
    assert trace.checks
    assert not trace.is_other


def test_a_plan_of_a_stranger(data):
    plan = settings.make(SETTINGS, Dataset(data).manifest)
    settings.check(plan)
    flat = replace(plan.data, shape=None)
    for changed, message in (
        (replace(plan, data=flat), r"found dense rows of the shape \(64,\)"),
        (replace(plan, augment="crop:8"), "less than 8 pixels"),
        (replace(plan, augment="sharpen"), "expected flip"),
        (replace(plan, optimizer="lbfgs", dtype="float64"), "L-BFGS"),
    ):
        with pytest.raises(UsageError, match=message):
            settings.check(changed)
