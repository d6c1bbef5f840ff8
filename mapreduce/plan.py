"""The plan: everything that can change the result of a training, and nothing else.

A plan says which slices of the data each round takes and what is done with their gradients. The
runner, the number of workers, blocks and rounds per job are not in it, since they must not matter.
"""

import hashlib
import json
import math
from bisect import bisect_right
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mapreduce import models, optim
from mapreduce.data import order
from mapreduce.data.manifest import Manifest
from mapreduce.errors import DataError, UsageError
from mapreduce.models.base import Model

#: Rows of a slice when a round takes the whole data.
FULL_BATCH_SLICE = 2048
#: A batch is cut into at least so many slices of at least so many rows, if it has such a divisor.
LEAST_SLICES = 4
LEAST_SLICE_ROWS = 16
#: Rounds between checkpoints, if the plan does not say.
CHECKPOINT_EVERY = 500

STRATEGIES = ("sync",)
DTYPES = ("float32", "float64")


class Slice(NamedTuple):
    """Consecutive rows of a shard, for which one gradient is computed."""

    shard: int
    start: int
    stop: int


@dataclass(frozen=True)
class DataReference:
    """What a plan knows of its data.

    Attributes
    ----------
    sha256 : str
        Digest of the dataset.
    shard_rows : tuple of int
        Rows of each shard that the plan uses.
    features, classes : int
    """

    sha256: str
    shard_rows: tuple[int, ...]
    features: int
    classes: int


@dataclass(frozen=True)
class Plan:
    """An immutable description of the rounds of a training.

    Attributes
    ----------
    data : DataReference
    model : str
        Specification, as in ``mlp:256,128``.
    strategy : {"sync"}
    optimizer : {"sgd", "momentum", "adam"}
    learning_rate, momentum, weight_decay : float
    schedule : str
        See :func:`mapreduce.optim.schedule`.
    batch_size : int
        Rows of a round; all rows if it is not below their number.
    slice_rows : int
        Rows of a slice; divides ``batch_size``, but for a full batch.
    rounds : int
    seed : int
        Of the initial parameters and of the order of the slices.
    dtype : {"float32", "float64"}
    eval_every, checkpoint_every : int
        Rounds between evaluations and between checkpoints. The last round is always both.
    patience : int
        Stop after so many evaluations without a lower loss; 0 never.
    eval_sha256 : str or None
        Digest of the dataset that is evaluated on.
    """

    data: DataReference
    model: str
    strategy: str
    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: str
    batch_size: int
    slice_rows: int
    rounds: int
    seed: int
    dtype: str
    eval_every: int
    checkpoint_every: int
    patience: int
    eval_sha256: str | None

    # What follows from the attributes

    @property
    def rows(self) -> int:
        return sum(self.data.shard_rows)

    @property
    def slices_per_round(self) -> int:
        if self.batch_size >= self.rows:
            return self.slices_per_epoch
        return self.batch_size // self.slice_rows

    @property
    def slices_per_epoch(self) -> int:
        return sum(_slices_per_shard(self))

    @property
    def rounds_per_epoch(self) -> int:
        return -(-self.slices_per_epoch // self.slices_per_round)

    def leaves(self, round_number: int) -> int:
        """Slices of a round: fewer in the last one of an epoch, if they do not come out even."""
        position = round_number % self.rounds_per_epoch
        return min(self.slices_per_round, self.slices_per_epoch - position * self.slices_per_round)

    def slices(self, round_number: int) -> list[Slice]:
        """The slices of a round, sorted by shard and row: the leaves of its tree, in order.

        Every epoch draws all slices once, in an order of its own.
        """
        epoch, position = divmod(round_number, self.rounds_per_epoch)
        drawn = _epoch_order(self, epoch)[position * self.slices_per_round :][
            : self.slices_per_round
        ]
        return [_slice(self, int(number)) for number in np.sort(drawn)]

    def create_model(self) -> Model:
        """The model, for the shape of the data."""
        return models.create(self.model, self.data.features, self.data.classes, self.dtype)

    def create_optimizer(self) -> optim.Transformation:
        """The optimizer, with its schedule."""
        schedule = optim.schedule(self.schedule, self.learning_rate, self.rounds)
        return optim.create(self.optimizer, schedule, self.momentum, self.weight_decay)

    def is_checkpoint(self, completed: int) -> bool:
        """Whether a checkpoint is taken after so many rounds."""
        return completed == self.rounds or (
            completed > 0 and completed % self.checkpoint_every == 0
        )

    def is_evaluation(self, completed: int) -> bool:
        """Whether the model is evaluated after so many rounds."""
        if self.eval_sha256 is None:
            return False
        return completed == self.rounds or (completed > 0 and completed % self.eval_every == 0)

    def next_stop(self, completed: int) -> int:
        """The next number of completed rounds at which a checkpoint or an evaluation is due."""
        stops = [self.rounds, (completed // self.checkpoint_every + 1) * self.checkpoint_every]
        if self.eval_sha256 is not None:
            stops.append((completed // self.eval_every + 1) * self.eval_every)
        return min(stops)

    # As a file

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Plan":
        data = dict(content["data"])
        data["shard_rows"] = tuple(data["shard_rows"])
        return cls(**{**content, "data": DataReference(**data)})

    @property
    def sha256(self) -> str:
        """Digest of the plan."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=8)
def _slices_per_shard(plan: Plan) -> tuple[int, ...]:
    return tuple(-(-rows // plan.slice_rows) for rows in plan.data.shard_rows)


@lru_cache(maxsize=8)
def _ends(plan: Plan) -> tuple[int, ...]:
    """Number of the slice after the last one of each shard."""
    return tuple(accumulate(_slices_per_shard(plan)))


@lru_cache(maxsize=8)
def _epoch_order(plan: Plan, epoch: int) -> npt.NDArray[np.int64]:
    # Stream 0 belongs to the rows of an import.
    return order.permutation(plan.seed, epoch + 1, plan.slices_per_epoch)


def _slice(plan: Plan, number: int) -> Slice:
    ends = _ends(plan)
    shard = bisect_right(ends, number)
    first = ends[shard - 1] if shard else 0
    start = (number - first) * plan.slice_rows
    return Slice(shard, start, min(start + plan.slice_rows, plan.data.shard_rows[shard]))


def default_slice_rows(batch_size: int) -> int:
    """The largest divisor that gives at least 4 slices of at least 16 rows, else the batch.

    100 gives 25, 128 gives 32, 512 gives 128.
    """
    for count in range(LEAST_SLICES, batch_size // LEAST_SLICE_ROWS + 1):
        if batch_size % count == 0:
            return batch_size // count
    return batch_size


@dataclass(frozen=True)
class Settings:
    """What a user chooses; :func:`make` completes and checks it. See :class:`Plan`."""

    model: str
    strategy: str = "sync"
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "constant"
    batch_size: int = 128
    slice_rows: int | None = None
    epochs: int | None = None
    rounds: int | None = None
    limit_rows: int | None = None
    seed: int = 0
    dtype: str = "float32"
    eval_every: int | None = None
    checkpoint_every: int | None = None
    patience: int = 0


def make(settings: Settings, data: Manifest, evaluation: Manifest | None = None) -> Plan:
    """The plan of a training.

    Parameters
    ----------
    settings : Settings
        ``batch_size`` 0 means all rows. Neither ``epochs`` nor ``rounds``: one epoch.
    data : Manifest
        Of the training data.
    evaluation : Manifest, optional
        Of the data that is evaluated on.

    Raises
    ------
    UsageError
        A setting is out of range, unknown, or contradicts another.
    DataError
        The data have no labels, or only one class; or the data evaluated on have other features
        or classes that are not among those trained on.
    """
    _check_settings(settings)
    models.parse(settings.model)
    classes = _check_data(data, evaluation)
    shard_rows = _limit(tuple(shard.rows for shard in data.shards), settings.limit_rows)
    rows = sum(shard_rows)
    batch_size = settings.batch_size
    full = batch_size == 0 or batch_size >= rows
    if full:
        batch_size = rows
    plan = Plan(
        data=DataReference(data.sha256, shard_rows, data.features, len(classes)),
        model=settings.model,
        strategy=settings.strategy,
        optimizer=settings.optimizer,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        schedule=settings.schedule,
        batch_size=batch_size,
        slice_rows=_slice_rows(settings.slice_rows, batch_size, full),
        rounds=1,
        seed=settings.seed,
        dtype=settings.dtype,
        eval_every=1,
        checkpoint_every=1,
        patience=settings.patience,
        eval_sha256=evaluation.sha256 if evaluation else None,
    )
    rounds = settings.rounds or (settings.epochs or 1) * plan.rounds_per_epoch
    plan = replace(
        plan,
        rounds=rounds,
        eval_every=settings.eval_every or plan.rounds_per_epoch,
        checkpoint_every=settings.checkpoint_every or CHECKPOINT_EVERY,
    )
    # Malformed specifications are to be told now and not in a reducer.
    plan.create_optimizer()
    plan.create_model()
    return plan


def _check_settings(settings: Settings) -> None:
    def expect(condition: bool, option: str, expected: str, found: object) -> None:
        if not condition:
            raise UsageError(f"{option}: expected {expected}, found {found}")

    for option, value, known in (
        ("--strategy", settings.strategy, STRATEGIES),
        ("--optimizer", settings.optimizer, optim.OPTIMIZERS),
        ("--dtype", settings.dtype, DTYPES),
    ):
        expect(value in known, option, f"one of {', '.join(known)}", repr(value))
    for option, number in (
        ("--slice-rows", settings.slice_rows),
        ("--epochs", settings.epochs),
        ("--rounds", settings.rounds),
        ("--limit-rows", settings.limit_rows),
        ("--eval-every", settings.eval_every),
        ("--checkpoint-every", settings.checkpoint_every),
    ):
        expect(number is None or number >= 1, option, "a positive number", number)
    expect(settings.batch_size >= 0, "--batch-size", "a number of rows", settings.batch_size)
    expect(settings.patience >= 0, "--patience", "a number of evaluations", settings.patience)
    expect(0 <= settings.seed < 2**63, "--seed", "a number from 0 to 2**63 - 1", settings.seed)
    expect(0 <= settings.momentum < 1, "--momentum", "a number in [0, 1)", settings.momentum)
    rate, decay = settings.learning_rate, settings.weight_decay
    expect(0 < rate < math.inf, "--learning-rate", "a finite, positive number", rate)
    expect(0 <= decay < math.inf, "--weight-decay", "a finite, non-negative number", decay)
    expect(
        settings.epochs is None or settings.rounds is None,
        "--epochs and --rounds",
        "only one of them",
        "both",
    )


def _check_data(data: Manifest, evaluation: Manifest | None) -> tuple[int | str, ...]:
    if data.classes is None:
        raise DataError("the training data have no labels. Import them with --labels or --label")
    if len(data.classes) < 2:
        raise DataError(f"the training data have only one class, {data.classes[0]!r}")
    if evaluation is not None:
        check_fits(evaluation, data.features, data.classes)
        if evaluation.classes is None:
            raise DataError("the data to evaluate on have no labels")
    return data.classes


def check_fits(data: Manifest, features: int, classes: tuple[int | str, ...]) -> None:
    """Refuse data that a model cannot take.

    Raises
    ------
    DataError
        Other features than the model's, or a class that was not among those trained on.
    """
    if data.features != features:
        raise DataError(
            f"the model takes {features} features, the data have {data.features} (examples of "
            f"shape {data.shape})"
        )
    unseen = [label for label in data.classes or () if label not in classes]
    if unseen:
        raise DataError(
            f"the data have classes that were not trained on: {', '.join(map(repr, unseen[:5]))}"
            f"{', …' if len(unseen) > 5 else ''}. The model knows {len(classes)} classes"
        )


def _limit(shard_rows: tuple[int, ...], limit: int | None) -> tuple[int, ...]:
    """The rows of each shard, cut off after ``limit`` rows in all."""
    limited = []
    left = sum(shard_rows) if limit is None else limit
    for rows in shard_rows:
        if left > 0:
            limited.append(min(rows, left))
        left -= rows
    return tuple(limited)


def _slice_rows(wanted: int | None, batch_size: int, full: bool) -> int:
    if full:
        return wanted or FULL_BATCH_SLICE
    if wanted is None:
        return default_slice_rows(batch_size)
    if batch_size % wanted:
        divisors = [n for n in range(1, batch_size + 1) if batch_size % n == 0]
        nearest = sorted(divisors, key=lambda n: abs(n - wanted))[:3]
        raise UsageError(
            f"--slice-rows {wanted}: expected a divisor of the batch size {batch_size}, for "
            f"example {', '.join(map(str, sorted(nearest)))}"
        )
    return wanted
