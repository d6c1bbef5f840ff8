"""The forward pass by batch-invariant kernels, beside the same model's by BLAS, in one thread."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

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


@dataclass
class Forwards:
    """Microseconds of a call by BLAS and by ours, in turn, by model and rows."""

    found: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.found)

    def verdict(self) -> str:
        """Which limits do not hold."""
        missed = [
            f"{spec}, {rows} rows: {ratio:.3g}, at most {LIMITS[spec][rows]:g} wanted"
            for (spec, rows), pairs in self.found.items()
            if (ratio := _ratios(pairs)[0]) > LIMITS[spec][rows]
        ]
        return f"MISSED: {'; '.join(missed)}" if missed else "holds"

    def lines(self) -> list[str]:
        """The result as a Markdown section."""
        lines = [
            "## The forward pass of a trained model, one thread",
            "",
            f"Processor time of `logits` for rows of {_FEATURES} float32 features and 10 classes "
            "(one number for `linear`, 28 steps of 28 for `lstm:64,last`): by kernels that give a "
            "row the same bits in any batch, and by BLAS, in turn.",
            "",
            "| model | rows | ours, µs | BLAS, µs | ratio: median (range) | at most |",
            "|---|--:|--:|--:|---|--:|",
        ]
        for (spec, rows), pairs in self.found.items():
            ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
            middle, least, most = _ratios(pairs)
            lines.append(
                f"| `{spec}` | {rows} | {ours:.1f} | {theirs:.1f} | {middle:.2f} ({least:.2f}–"
                f"{most:.2f}) | {LIMITS[spec][rows]} |"
            )
        return [*lines, "", f"Limit: {self.verdict()}.", ""]


def _ratios(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The median, the least and the largest of the ratios."""
    ratios = [ours / theirs for ours, theirs in pairs]
    return statistics.median(ratios), min(ratios), max(ratios)


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


def _seconds(call: Callable[[], None], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - started) / times


def benchmark(quick: bool = False) -> Forwards:
    """Calls of about 20 ms together, 15 of each in turn."""
    forwards = Forwards()
    for spec, limits in LIMITS.items():
        for rows in limits:
            ours, theirs = (_call(spec, rows, invariant=one) for one in (True, False))
            ours(), theirs()
            times = max(1, int((0.002 if quick else 0.02) / max(1e-6, _seconds(theirs, 3))))
            forwards.found[spec, rows] = [
                (1e6 * _seconds(ours, times), 1e6 * _seconds(theirs, times))
                for _ in range(3 if quick else 15)
            ]
    return forwards
