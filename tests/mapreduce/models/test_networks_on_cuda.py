"""Networks of layers on a CUDA device, or its simulator, beside the CPU."""

from dataclasses import replace

import numpy as np
import pytest

import simulator
from devices import DEVICES, SIMULATED
from kernels import arrays
from mapreduce import models
from mapreduce.data.batch import Batch
from mapreduce.models.context import Context, Key, Workspace

pytestmark = [
    pytest.mark.every_case,
    pytest.mark.skipif("cuda" not in DEVICES, reason="no CUDA device, nor its simulator"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
if SIMULATED:
    simulator.install()

ROWS, CLASSES = 3, 3
#: Together they have every layer that runs on CUDA.
NETWORKS = [
    ("dense:4,tanh,dense:3,sigmoid,dense:3,gelu,dense:3,leaky-relu:slope=0.1", (6,)),
    ("dense:4,batchnorm,relu,dropout:0.4,dense:4,batchnorm", (6,)),
    ("conv:3x3:padding=1,batchnorm,relu,pool:2,dense:4,relu,dropout:0.3", (2, 6, 4)),
    ("conv:3x2,relu,pool:3:stride=1,conv:2x2,average-pool:2:stride=1", (7, 6)),
    ("conv:3x3:padding=1,pool:2,residual(conv:4x3:stride=2:padding=1,batchnorm,relu)", (2, 5, 4)),
    ("conv:2x2,global-average-pool", (4, 4)),
]


def computed(model, params, batch, rows):
    """Loss, gradient, moments and probabilities as the model's device computes them."""
    context = Context(Workspace(model.device), key=Key(3, 1, shard=2, row=5), training=True)
    params = arrays.to_device(params, model.device)
    out = context.workspace.array("gradient", (1, model.size), model.dtype)[0]
    losses, results = [], []
    for count in rows:
        losses.append(model.gradient(params, batch[:count], out, context))
        host = np.empty(model.size, model.dtype)
        host[:] = out if model.device == "cpu" else arrays.to_host(out, host)
        results.append(host)
    context = replace(context, training=False)
    found = model.probabilities(params, batch, context)
    shape = (batch.rows, CLASSES)
    probabilities = found if model.device == "cpu" else arrays.to_host(found, np.empty(shape))
    return losses, results, dict(context.extras), probabilities


def given(spec, shape):
    """The network on the CPU and on the device, parameters, and a batch."""
    host, device = (models.create(spec, shape, CLASSES, "float64", d) for d in ("cpu", "cuda"))
    generator = np.random.default_rng(1)
    params = host.init(1) + generator.uniform(0.1, 0.2, host.size)
    x = generator.standard_normal((ROWS, host.features))
    batch = Batch(x, generator.integers(0, CLASSES, ROWS).astype(np.int32))
    return host, device, params, batch


@pytest.mark.parametrize(("spec", "shape"), NETWORKS, ids=[spec for spec, _ in NETWORKS])
def test_a_network_computes_what_it_does_on_the_cpu(spec, shape):
    """A slice, one of a single row, for which batch norm takes other moments, and predictions."""
    host, device, params, batch = given(spec, shape)
    expected = computed(host, params, batch, (ROWS, 1))
    found = computed(device, params, batch, (ROWS, 1))
    for one, other in zip(expected, found, strict=True):
        if isinstance(one, dict):
            assert one.keys() == other.keys()
            one, other = list(one.values()), list(other.values())
        for left, right in zip(one, other, strict=True):
            np.testing.assert_allclose(right, left, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("spec", "shape"), NETWORKS, ids=[spec for spec, _ in NETWORKS])
def test_it_takes_parameters_of_the_host(spec, shape):
    """Replicas compete by their parameters as they are sent."""
    host, device, params, batch = given(spec, shape)
    (loss, right), (expected, others) = (
        one.score(params, batch, Context(Workspace(one.device))) for one in (device, host)
    )
    assert right == others
    assert loss == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("spec", "shape"), NETWORKS, ids=[spec for spec, _ in NETWORKS])
def test_outputs_of_layers(spec, shape):
    host, device, params, batch = given(spec, shape)
    on_device = arrays.to_device(params, device.device)
    for layer in host.named_layers():
        expected, found = (
            arrays.values(one.layer_outputs(held, batch, Context(Workspace(one.device)), layer))
            for one, held in ((host, params), (device, on_device))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
