"""The plan: everything that can change the result of a training, and nothing else.

A plan says which slices of the data each round takes and how their gradients are used. It does not
hold the runner or the number of workers, blocks and rounds per job, which must not matter.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mapreduce import optim
from mapreduce.data import order
from mapreduce.data.batch import Batch
from mapreduce.models.base import Model
from mapreduce.models.context import Key
from mapreduce.models.specification import Specification, Trunk
from mapreduce.plan import augmentation, strategies
from mapreduce.reduction import compression

#: Streams of the orders of :mod:`mapreduce.data.order`: of the slices that are held out, and from
#: the second on, for each round, of those of them that are used. Stream 0 is that of the rows of an
#: import, and those of epochs follow it.
_HELD_OUT, _MEASURED = 1 << 61, (1 << 61) + 1


class Slice(NamedTuple):
    """Consecutive rows of a shard, for which one gradient is computed."""

    shard: int
    start: int
    stop: int


@dataclass(frozen=True)
class DataReference:
    """The training data, as a plan describes them.

    Attributes
    ----------
    sha256 : str
        Digest of the dataset.
    shard_rows : tuple of int
        Rows of each shard that the plan uses.
    features : int
    classes : int
        0 if the labels are numbers.
    standardised : str or None
        Digest of the statistics by which the features were standardised.
    shape : tuple of int or None
        Shape of a row, for a model or an augmentation that uses it.
    recipe : str or None
        Digest of the recipe by which the columns of a table became features.
    """

    sha256: str
    shard_rows: tuple[int, ...]
    features: int
    classes: int
    standardised: str | None = None
    shape: tuple[int, ...] | None = None
    recipe: str | None = None


class _Division:
    """How rows become slices, and slices rounds."""

    data: DataReference
    batch_size: int
    slice_rows: int
    local_steps: int
    held_out: int
    fold: str | None

    @cached_property
    def rows(self) -> int:
        return sum(self.data.shard_rows)

    @cached_property
    def slices_per_step(self) -> int:
        """Slices of ``batch_size`` rows: those of a local step of all replicas."""
        if self.batch_size >= self.rows:
            return self.slices_per_epoch
        return self.batch_size // self.slice_rows

    @cached_property
    def slices_per_round(self) -> int:
        return min(self.slices_per_step * self.local_steps, self.slices_per_epoch)

    @cached_property
    def slices_per_epoch(self) -> int:
        return self._ends[-1] - self.held_out_slices

    @property
    def held_out_slices(self) -> int:
        start, stop = self._held_out_places
        return stop - start

    @cached_property
    def _held_out_places(self) -> tuple[int, int]:
        """Between which places, in the order that the seed draws, slices are held out."""
        if self.fold is None:
            return 0, -(-self.held_out // self.slice_rows)
        number, count = map(int, self.fold.split("/"))
        return (number - 1) * self._ends[-1] // count, number * self._ends[-1] // count

    @cached_property
    def rounds_per_epoch(self) -> int:
        return -(-self.slices_per_epoch // self.slices_per_round)

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """The number of slices up to the end of each shard."""
        return tuple(accumulate(-(-rows // self.slice_rows) for rows in self.data.shard_rows))


@dataclass(frozen=True)
class Sizes(_Division):
    """What the numbers of slices and rounds follow from; attributes are those of :class:`Plan`."""

    data: DataReference
    batch_size: int
    slice_rows: int
    local_steps: int
    held_out: int
    fold: str | None


@dataclass(frozen=True)
class Plan(_Division):
    """An immutable description of the rounds of a training.

    For attributes that are not listed see :class:`mapreduce.plan.flags.Settings`. The last round
    always ends with a checkpoint and, if there are evaluation data, an evaluation. The objective is
    the mean loss of the rows plus ``l1`` times the sum of the weights' magnitudes and ``l2 / 2``
    times the sum of their squares.

    Attributes
    ----------
    data : DataReference
    class_weight : tuple of float, or None
        The weight of a row of each class.
    batch_size : int
        Rows of a round, or of one of its local steps; at least the number of rows for a full batch.
    slice_rows : int
        Rows of a slice; divides ``batch_size``, except for a full batch.
    eval_sha256 : str or None
        Digest of the evaluation data.
    sources : tuple of str
        ``NAME=DIGEST`` of the source files of each model, optimizer and so on that is not the
        toolkit's own.
    initial_sha256 : str or None
        Digest of the initial parameters, if they are not the model's own for the seed.
    held_out : int
        Rows that are never trained on, in whole slices. The seed chooses the slices.
    fold : str or None
        ``K/N``, if not ``held_out`` rows but part K of N parts of the slices is never trained on.
    relative_tol : bool
        Whether ``tol`` is compared with the relative norm of the gradient, not the Euclidean one.
    batch_invariant : bool
        Whether the model in use gives a row the same bits in any batch, on the CPU. Evaluations
        within the training do, too, and decide with ``patience`` which round is the last.
    trunk : Trunk or None
        What turns rows into features before ``model`` takes them. It does not learn.

    Notes
    -----
    An attribute of a later version has a default, which is what earlier versions did. The file
    leaves it out if it has that value, so that the digests of plans do not change.
    """

    data: DataReference
    model: str
    strategy: str
    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: str
    l1: float
    l2: float
    class_weight: tuple[float, ...] | None
    clip_norm: float | None
    non_finite: str
    history_size: int
    tol: float
    batch_size: int
    slice_rows: int
    rounds: int
    seed: int
    dtype: str
    precision: str
    device: str
    eval_every: int
    checkpoint_every: int
    patience: int
    eval_sha256: str | None
    sources: tuple[str, ...] = ()
    initial_sha256: str | None = None
    augment: str | None = None
    replicas: int = 1
    local_steps: int = 1
    replica_state: str = "average"
    elastic: float | None = None
    combine: str = "mean"
    held_out: int = 0
    fold: str | None = None
    spread: float = 1.0
    compress: str | None = None
    staleness: int | None = None
    asynchronous: bool = False
    relative_tol: bool = False
    batch_invariant: bool = False
    trunk: Trunk | None = None

    # What follows from the attributes

    @property
    def is_mixed(self) -> bool:
        return self.precision == "mixed"

    @property
    def first_loss_scale(self) -> float | None:
        """Scale of a slice's sum of losses: 2**16 divided by its rows, to a power of two below."""
        if not self.is_mixed:
            return None
        return max(1.0, 2.0 ** (16 - (self.slice_rows - 1).bit_length()))

    @property
    def steps_per_round(self) -> int:
        """Steps of the optimizer that a round counts: local steps, or one for each replica."""
        is_one_each = self.staleness is not None or self.asynchronous
        return self.replicas if is_one_each else self.local_steps

    def leaves(self, round_number: int) -> int:
        """Slices of a round, which may be fewer in the last round of an epoch."""
        position = round_number % self.rounds_per_epoch
        return min(self.slices_per_round, self.slices_per_epoch - position * self.slices_per_round)

    def slices(self, round_number: int) -> "Slices":
        """The slices of a round, sorted by shard and row: the leaves of its tree, in order.

        Every epoch draws all slices once, in an order of its own.
        """
        epoch, position = divmod(round_number, self.rounds_per_epoch)
        first = position * self.slices_per_round
        drawn = _epoch_order(self, epoch)[first : first + self.slices_per_round]
        return Slices(self, np.sort(drawn))

    def held_out_for(self, round_number: int, count: int) -> "Slices":
        """Some of the slices that are held out, drawn for a round, sorted by shard and row."""
        drawn = order.permutation(self.seed, _MEASURED + round_number, self.held_out_slices)
        return Slices(self, np.sort(self._divided[1][drawn[:count]]))

    @cached_property
    def _divided(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The numbers of the slices that are trained on, and of those that are held out."""
        drawn = order.permutation(self.seed, _HELD_OUT, self._ends[-1])
        before, held_out, after = np.split(drawn, self._held_out_places)
        return np.sort(np.concatenate([before, after])), np.sort(held_out)

    def create_model(self, device: str | None = None) -> Model:
        """The model, for the shape of the data, on the plan's device or another."""
        return self.specification.create(device)

    @cached_property
    def about(self) -> Model:
        """A model that tells its attributes, and computes nothing."""
        return self.create_model()

    @property
    def specification(self) -> Specification:
        """All that decides the functions of the model."""
        return Specification(
            model=self.model,
            shape=self.data.shape or (self.data.features,),
            classes=self.data.classes,
            dtype=self.dtype,
            device=self.device,
            batch_invariant=self.batch_invariant,
            trunk=self.trunk,
        )

    def create_schedule(self, factor: float = 1.0) -> optim.Schedule:
        """From the round to its learning rate; from the step, if a round has several."""
        rate, steps = self.learning_rate * factor, self.rounds * self.steps_per_round
        return optim.schedule(self.schedule, rate, steps)

    def create_optimizer(
        self, factor: float = 1.0
    ) -> optim.Transformation | optim.GlobalTransformation:
        """The optimizer, with its schedule, of which a replica may take a multiple."""
        options = optim.Options(
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            skip_non_finite=self.non_finite == "skip",
            loss_scale=self.first_loss_scale,
            rounds=self.rounds,
        )
        return optim.create(self.optimizer, self.create_schedule(factor), options, vars(self))

    @cached_property
    def transformation(self) -> optim.Transformation | optim.GlobalTransformation:
        """The optimizer of :meth:`create_optimizer`, which has no state: one serves all."""
        return self.create_optimizer()

    def initial_arrays(self, params: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """The strategy's arrays before the first round, in addition to the parameters.

        Those that units own have names of :func:`mapreduce.plan.strategies.owned_name`.
        """
        kind = strategies.find(self.strategy)
        found: dict[str, npt.NDArray[Any]] = dict(kind.initial_arrays(self, params))
        for name, array in kind.own_arrays(self, params).items():
            found |= {strategies.owned_name(name, at): array for at in range(self.owners)}
        return found

    @cached_property
    def owners(self) -> int:
        """Units of each round that own arrays; 0 if units own nothing."""
        kind = strategies.find(self.strategy)
        found: int = kind.units(self, 0) if kind.own_arrays(self, np.empty(0)) else 0
        return found

    @cached_property
    def notes(self) -> int:
        """Numbers that the strategy notes of a round, beside its rows and their loss."""
        found: int = strategies.find(self.strategy).notes(self)
        return found

    @cached_property
    def needs_scalars(self) -> bool:
        """Whether an update needs scalars of all blocks."""
        return isinstance(self.transformation, optim.GlobalTransformation)

    @cached_property
    def compression(self) -> compression.Compression | None:
        """The format of updates, if they are compressed."""
        if self.compress is None:
            return None
        return compression.parse(self.compress, self.rounds_per_epoch)

    @property
    def cures(self) -> str:
        """What to try if the training diverges."""
        tries = []
        # Tables are standardised when they are imported.
        if self.data.standardised is None and self.data.recipe is None:
            tries.append("standardise the features with 'gradreduce data standardise'")
        if not (self.data.classes or self.needs_scalars or self.model == "linear"):
            tries.append("standardise the labels, if they are far from 1")
        tries += self.transformation.cures(self.dtype)
        tries += ["take --precision full"] * self.is_mixed
        return ", or ".join(tries or ["look for extreme features"])

    def weighted(self, batch: Batch) -> Batch:
        """Rows of the data with the weights of their classes."""
        return weighted(batch, self.class_weight)

    def augmented(self, batch: Batch, key: Key) -> Batch:
        """Rows for a gradient: their images changed at random, if the plan says so."""
        if self._augmentation is None:
            return batch
        return self._augmentation.apply(batch, self.data.shape or (), key)

    @cached_property
    def _augmentation(self) -> augmentation.Augmentation | None:
        return None if self.augment is None else augmentation.parse(self.augment)

    @cached_property
    def is_evaluated(self) -> bool:
        """Whether the model is evaluated: on data of their own, or on rows that are held out."""
        return self.eval_sha256 is not None or self.evaluates_held_out

    @cached_property
    def evaluates_held_out(self) -> bool:
        """Whether the model is evaluated on the rows that are held out."""
        return self.held_out_slices > 0 and strategies.find(self.strategy).evaluates_held_out

    def is_checkpoint(self, completed: int) -> bool:
        """Whether a checkpoint is saved after this number of rounds."""
        return completed == self.rounds or (
            completed > 0 and completed % self.checkpoint_every == 0
        )

    def is_evaluation(self, completed: int) -> bool:
        """Whether the model is evaluated after this number of rounds."""
        is_due = completed == self.rounds or (completed > 0 and completed % self.eval_every == 0)
        return is_due and self.is_evaluated

    def next_stop(self, completed: int) -> int:
        """The next number of completed rounds at which a checkpoint or an evaluation is due."""
        stops = [self.rounds, (completed // self.checkpoint_every + 1) * self.checkpoint_every]
        if self.is_evaluated:
            stops.append((completed // self.eval_every + 1) * self.eval_every)
        return min(stops)

    # As a file

    def to_dict(self) -> dict[str, Any]:
        """The content of the plan's file, which ``jsonfiles.build(Plan, ...)`` reads."""
        later = {one.name: one.default for one in fields(self) if one.default is not MISSING}
        content = asdict(self)
        for name in ("shape", "recipe"):
            # As in earlier versions, so that the digest does not change.
            if content["data"][name] is None:
                del content["data"][name]
        return {
            name: content[name] for name in content if content[name] != later.get(name, MISSING)
        }

    @property
    def sha256(self) -> str:
        """Digest of the plan."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def weighted(batch: Batch, class_weight: tuple[float, ...] | None) -> Batch:
    """Rows with the weights of their classes, if these have any."""
    if class_weight is None:
        return batch
    weights = np.array(class_weight)[batch.labels]
    if batch.weights is not None:
        weights = weights * batch.weights
    return replace(batch, weights=weights)


class Slices(Sequence[Slice]):
    """Slices by their numbers, each made when it is asked for: a round may have millions."""

    def __init__(self, plan: Plan, numbers: npt.NDArray[np.int64]) -> None:
        self._plan = plan
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: Any) -> Any:
        found = self._numbers[at]
        return (
            Slices(self._plan, found) if isinstance(at, slice) else _slice(self._plan, int(found))
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]


@lru_cache(maxsize=2)
def _epoch_order(plan: Plan, epoch: int) -> npt.NDArray[np.int64]:
    drawn = order.permutation(plan.seed, epoch + 1, plan.slices_per_epoch)
    return plan._divided[0][drawn] if plan.held_out_slices else drawn


def _slice(plan: Plan, number: int) -> Slice:
    ends = plan._ends
    shard = bisect_right(ends, number)
    first = ends[shard - 1] if shard else 0
    start = (number - first) * plan.slice_rows
    return Slice(shard, start, min(start + plan.slice_rows, plan.data.shard_rows[shard]))
