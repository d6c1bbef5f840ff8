"""Random numbers, extra sums and buffers of a model."""

from dataclasses import replace

import numpy as np
import pytest

from builders import imported, keywords, params_of, trained
from mapreduce import models
from mapreduce.data.shards import Dataset
from mapreduce.plan.settings import Settings

SETTINGS = Settings(
    class_weight="0=2,1=1,2=0.5",
    **keywords("model=running-mean optimizer=momentum weight_decay=0.1 l2=0.1 clip_norm=0.5"),
    **keywords("batch_size=24 slice_rows=6 epochs=3"),
)


@pytest.fixture(scope="module", autouse=True)
def known():
    with pytest.MonkeyPatch.context() as patch:
        for name, kind in (("running-mean", "RunningMean"), ("plain", "Plain")):
            patch.setitem(models.MODELS.builtin, name, f"running_mean:{kind}")
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extras") / "data"
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 77)
    x = (generator.standard_normal((77, 64)) + labels[:, None]).astype("float32")
    imported(folder, x, labels)
    return folder


def train(data, path, **changes):
    run = trained(path, data, replace(SETTINGS, **changes))
    return run, params_of(run)


@pytest.fixture(scope="module")
def reference(data):
    return train(data, data.parent / "reference")


def test_a_buffer_follows_the_means_of_its_rounds(data, reference):
    run, params = reference
    plan, dataset = run.config.plan, Dataset(data)
    expected = np.zeros(64)
    for completed in range(plan.rounds):
        batches = [
            plan.weighted(dataset.shard(one.shard).rows(one.start, one.stop))
            for one in plan.slices(completed)
        ]
        total = sum(batch.weights @ batch.features.astype(float) for batch in batches)
        expected += (total / sum(batch.weight for batch in batches) - expected) / 4
    found = plan.create_model().named(params)["mean"]
    np.testing.assert_allclose(found, np.tile(expected, (len(found), 1)), rtol=1e-5, atol=1e-6)


def test_no_optimizer_and_no_penalty_sees_a_buffer(data, reference, tmp_path):
    """What is trained has the bits that it has without one, also its norm and its momentum."""
    _, plain = train(data, tmp_path / "run", model="plain")
    assert plain.any()
    assert reference[1][-plain.size :].tobytes() == plain.tobytes()


def test_a_search_goes_on_beside_a_buffer(data, tmp_path):
    changes = {"optimizer": "lbfgs", "batch_size": None, "epochs": 6}
    changes |= {"weight_decay": 0.0, "clip_norm": None}
    found = [
        train(data, tmp_path / name, model=name, **changes)[1] for name in ("running-mean", "plain")
    ]
    assert found[0][-found[1].size :].tobytes() == found[1].tobytes()
    assert found[0][0] != 0


def test_extras_that_are_not_declared(data, tmp_path, monkeypatch):
    monkeypatch.setattr("running_mean.RunningMean.extras", lambda self, completed: ("other",))
    with pytest.raises(ValueError, match=r"gave the extra sums \['inputs'\].*\['other'\]"):
        train(data, tmp_path / "run")
