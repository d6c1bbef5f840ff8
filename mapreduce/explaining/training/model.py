"""The trace of a round: that of its job, with what the job's records hold."""

from dataclasses import dataclass
from typing import Any

from mapreduce.explaining.model import Trace


@dataclass
class _Sum:
    """A sum over rows: its weight, and the Euclidean norm of the sum of their gradients."""

    weight: float
    norm: float


@dataclass
class SliceNote(_Sum):
    """One leaf of the round's tree.

    ``task`` computes its gradient; ``loss`` is the sum over its rows. A replica consists of several
    slices, its ``parts``: the rows after the first may be elsewhere then.
    """

    leaf: int
    task: int
    shard: int
    start: int
    stop: int
    loss: float
    parts: int = 1

    @property
    def rows(self) -> int:
        return self.stop - self.start


@dataclass
class NodeNote(_Sum):
    """One addition: the sum over the slices from ``start`` up to ``stop``, of two parts.

    ``start``, ``middle``, ``stop``: The left part ends, and the right one starts, at ``middle``.
    ``level``: Level in the canonical tree.
    ``task``: The map task that adds, or -1 if a reducer does.
    ``reduce_step``: Which of the round's reduce steps adds, from 0; -1 in a map task.
    """

    start: int
    middle: int
    stop: int
    level: int
    task: int
    reduce_step: int


@dataclass
class BlockNote:
    """A block: its elements, the reducer that owns it, and the bytes of its file."""

    number: int
    start: int
    stop: int
    part: int
    published: int


@dataclass
class ParameterNote:
    """A named array: norms of its mean gradient without penalties, and of its values."""

    name: str
    shape: list[int]
    gradient: float
    before: float
    after: float
    change: float


@dataclass
class FilterNote:
    """A filter of a convolution.

    ``before``, ``after``: Rows of weights, each a list with one for each channel.
    ``map``: What the filter before the round gives at the positions of one row's image.
    """

    before: list[list[list[float]]]
    after: list[list[list[float]]]
    map: list[list[float]]


@dataclass
class ConvolutionNote:
    """The convolution that a network begins with, and the row whose maps are shown.

    ``layer``: As in the model's specification.
    ``count``: Its filters; ``filters`` has the first of them.
    ``shard``, ``row``: The row's place in the data.
    ``image``: Rows of pixels, each a list of channels, as the network saw them.
    """

    layer: str
    count: int
    shard: int
    row: int
    label: str
    image: list[list[list[float]]]
    filters: list[FilterNote]


@dataclass
class Check:
    """A comparison with what the run has kept; ``is_equal`` is None if it has kept nothing."""

    what: str
    text: str
    is_equal: bool | None


@dataclass
class InRow:
    """How a sum of the slices from left to right differs from that along the tree."""

    elements: int
    differing: int
    largest: float


@dataclass(kw_only=True)
class RoundTrace(Trace):
    """A round, whose number is from 1.

    ``facts``: The run, its model and its optimizer, and where the state before the round is from.
    ``unit``, ``summed``: What a leaf is, and what is added up, such as gradients.
    ``is_mean``: Whether sums over rows are added up, and divided by all rows.
    ``story``: What travels, and who waits for whom, if that is not as in synchronous training.
    ``norm``: Of the mean gradient of the round's rows, or of what else was made of the units.
    ``skipped``: Whether the optimizer left the model as it was, since the gradient was not finite.
    ``profile``: Differences between the processors and libraries of the run and those of this
      machine.
    ``convolution``: None for models that do not begin with one.
    """

    number: int
    facts: dict[str, Any]
    unit: str
    summed: str
    is_mean: bool
    story: str
    norm: float
    skipped: bool
    sha256_before: str
    sha256_after: str
    slices: list[SliceNote]
    nodes: list[NodeNote]
    blocks: list[BlockNote]
    parameters: list[ParameterNote]
    in_row: InRow | None
    checks: list[Check]
    profile: list[str]
    convolution: ConvolutionNote | None

    def norm_of(self, one: _Sum) -> float:
        """The norm of a mean; of the vector itself, if that is no sum over rows."""
        return one.norm / (one.weight or 1.0) if self.is_mean else one.norm

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.slices)

    @property
    def weight(self) -> float:
        return sum(one.weight for one in self.slices)

    @property
    def is_other(self) -> bool:
        """Whether something that was compared differs."""
        return any(check.is_equal is False for check in self.checks)


def span(start: int, stop: int) -> str:
    """Slices in a few characters."""
    return f"{start}" if stop == start + 1 else f"{start}–{stop - 1}"
