"""The forward pass by batch-invariant kernels, beside the same model's by BLAS, in one thread."""

import statistics
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.common import processor
from benchmarks.paired import Table, in_turn, spread
from mapreduce import models
from mapreduce.data.batch import Batch
from mapreduce.models.context import Context, Workspace

#: Models of 784 features, and the most that they may take of BLAS's time for so many rows.
LIMITS = {
    "mlp:128": {1: 1.8, 8: 1.1, 32: 1.1, 512: 1.1},
    "mlp:1024": {1: 1.8, 8: 1.1, 32: 1.1, 512: 1.1},
    "linear": {1: 1.3, 32: 1.3, 512: 1.3},
    "lstm:64,last": {1: 1.8, 32: 1.1, 512: 1.1},
}
_FEATURES = 784


def _call(spec: str, rows: int, *, invariant: bool) -> Callable[[], None]:
    shape = (28, 28) if spec.startswith("lstm") else (_FEATURES,)
    model = models.create(spec, shape, 0 if spec == "linear" else 10, "float32")
    if invariant:
        model = model.batch_invariant()
    generator = np.random.default_rng(0)
    params = generator.normal(0, 0.1, model.size).astype(np.float32)
    model.hold(params)
    batch = Batch(generator.normal(size=(rows, _FEATURES)).astype(np.float32), None)
    context = Context(Workspace())
    return lambda: model.logits(params, batch, context) is None


def _microseconds(call: Callable[[], None], times: int) -> float:
    return 1e6 * processor(call, times)


def benchmark(quick: bool = False) -> Table:
    """Calls of about 20 ms together, 15 of each in turn."""
    note = (
        f"Processor time of `logits` for rows of {_FEATURES} float32 features and 10 classes "
        "(one number for `linear`, 28 steps of 28 for `lstm:64,last`): by kernels that give a "
        "row the same bits in any batch, and by BLAS, in turn."
    )
    heads = ["model", "rows", "ours, µs", "BLAS, µs", "ratio: median (range)", "at most"]
    result = Table("The forward pass of a trained model, one thread", note, heads)
    for spec, limits in LIMITS.items():
        for rows, most in limits.items():
            calls = [_call(spec, rows, invariant=one) for one in (True, False)]
            calls[0]()
            times = max(1, int((0.002 if quick else 0.02) / max(1e-6, processor(calls[1], 3))))
            ours, theirs = (partial(_microseconds, call, times) for call in calls)
            mine, peers = in_turn(ours, {"BLAS": theirs}, 3 if quick else 15)
            ratios = [one / other for one, other in zip(mine, peers["BLAS"], strict=True)]
            medians = (f"{statistics.median(each):.1f}" for each in (mine, peers["BLAS"]))
            result.rows.append([f"`{spec}`", f"{rows}", *medians, spread(ratios, ".2f"), f"{most}"])
            if statistics.median(ratios) > most and not quick:
                result.missed.append(f"{spec}, {rows} rows")
    return result
