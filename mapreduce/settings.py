"""From what a user chooses to a plan: defaults, and what does not fit together.

What follows from the data is filled in here, once; the plan holds the result.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from kernels import dispatch
from mapreduce import models, optim
from mapreduce.data.columns import Columns, misfit
from mapreduce.data.manifest import Manifest
from mapreduce.errors import DataError, UsageError
from mapreduce.models.base import Model
from mapreduce.plan import DataReference, Plan

#: Rows of a slice when a round takes the whole data.
FULL_BATCH_SLICE = 2048
#: A batch is cut into at least so many slices of at least so many rows, if it has such a divisor.
LEAST_SLICES = 4
LEAST_SLICE_ROWS = 16
#: Rounds between checkpoints, if the plan does not say.
CHECKPOINT_EVERY = 500

#: Rows of a round, if the user does not say.
BATCH_SIZE = 128
#: Most rounds of L-BFGS, if the user does not say.
SEARCH_ROUNDS = 100
#: Most steps that L-BFGS remembers: it keeps two vectors and a square of scalar products of them.
MOST_STEPS = 1000

#: Options that only some optimizers have.
_USERS = {
    "--learning-rate": optim.ELEMENTWISE,
    "--schedule": optim.ELEMENTWISE,
    "--momentum": ("momentum",),
    "--weight-decay": optim.ELEMENTWISE,
    "--clip-norm": optim.ELEMENTWISE,
    "--non-finite skip": optim.ELEMENTWISE,
    "--precision mixed": optim.ELEMENTWISE,
    "--history-size": ("lbfgs",),
    "--tol": ("lbfgs",),
}

STRATEGIES = ("sync",)
DTYPES = ("float32", "float64")
PRECISIONS = ("full", "mixed")
NON_FINITE = ("error", "skip")


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
    l1: float = 0.0
    l2: float = 0.0
    class_weight: str | None = None
    clip_norm: float | None = None
    non_finite: str = "error"
    history_size: int = 10
    tol: float = 1e-6
    batch_size: int | None = None
    slice_rows: int | None = None
    epochs: int | None = None
    rounds: int | None = None
    limit_rows: int | None = None
    seed: int = 0
    dtype: str = "float32"
    precision: str = "full"
    device: str = "cpu"
    eval_every: int | None = None
    checkpoint_every: int | None = None
    patience: int = 0


def make(settings: Settings, data: Manifest, evaluation: Manifest | None = None) -> Plan:
    """The plan of a training.

    Parameters
    ----------
    settings : Settings
        ``batch_size`` 0 means all rows, and that is L-BFGS's default; for others it is 128.
        Neither ``epochs`` nor ``rounds``: one epoch, or for L-BFGS 100 rounds at most.
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
    _check_used(settings)
    kind = models.find(settings.model)
    check_kind(kind, settings.model, data, evaluation)
    if settings.precision == "mixed" and data.layout == "sparse":
        raise UsageError(
            "--precision mixed: the training data are sparse, and mixed precision is for dense "
            "rows, whose products it makes faster. Take --precision full"
        )
    shard_rows = _limit(tuple(shard.rows for shard in data.shards), settings.limit_rows)
    rows = sum(shard_rows)
    searches = settings.optimizer == "lbfgs"
    batch_size = settings.batch_size
    if batch_size is None:
        batch_size = 0 if searches else BATCH_SIZE
    full = batch_size == 0 or batch_size >= rows
    if searches and not full:
        raise UsageError(
            f"--batch-size {batch_size}: L-BFGS takes all {rows} rows in every round. Leave it out"
        )
    if full:
        batch_size = rows
    plan = Plan(
        data=DataReference(
            sha256=data.sha256,
            shard_rows=shard_rows,
            features=data.features,
            classes=len(data.classes or ()),
            standardised=_statistics(data),
        ),
        model=settings.model,
        strategy=settings.strategy,
        optimizer=settings.optimizer,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        schedule=settings.schedule,
        l1=settings.l1,
        l2=settings.l2,
        class_weight=_class_weight(settings.class_weight, data),
        clip_norm=settings.clip_norm,
        non_finite=settings.non_finite,
        history_size=settings.history_size,
        tol=settings.tol,
        batch_size=batch_size,
        slice_rows=_slice_rows(settings.slice_rows, batch_size, full, data),
        rounds=1,
        seed=settings.seed,
        dtype=settings.dtype,
        precision=settings.precision,
        device=_device(settings.device),
        eval_every=1,
        checkpoint_every=1,
        patience=settings.patience,
        eval_sha256=evaluation.sha256 if evaluation else None,
    )
    epochs = settings.epochs or (SEARCH_ROUNDS if searches else 1)
    rounds = settings.rounds or epochs * plan.rounds_per_epoch
    plan = replace(
        plan,
        rounds=rounds,
        # Points that L-BFGS tries on its way are nobody's result.
        eval_every=settings.eval_every or (rounds if searches else plan.rounds_per_epoch),
        checkpoint_every=settings.checkpoint_every or CHECKPOINT_EVERY,
    )
    if plan.patience and (evaluation is None or plan.eval_every >= plan.rounds):
        found = "nothing" if evaluation is None else f"only the last of {plan.rounds} rounds"
        advice = "--eval DATA" if evaluation is None else "--eval-every"
        raise UsageError(
            f"--patience {plan.patience}: {found} is evaluated. Leave it out, or add {advice}"
        )
    _check_plan(plan)
    return plan


def check(plan: Plan) -> None:
    """Refuse a plan that :func:`make` has not made: it may be a stranger's.

    Raises
    ------
    UsageError
        A value is out of range, or unknown, or does not fit the others.
    """
    shared = {field.name for field in fields(Settings)} & {field.name for field in fields(Plan)}
    chosen: dict[str, Any] = {name: getattr(plan, name) for name in shared}
    settings = Settings(**{**chosen, "class_weight": None})
    _check_settings(settings)
    if plan.optimizer == "lbfgs":
        # Others simply do not look at what is not theirs, which earlier versions took.
        _check_used(settings)
    data, size, weights = plan.data, plan.batch_size, plan.class_weight or ()
    numbers = (*data.shard_rows, data.features, data.classes + 1, *(w + 1 for w in weights))
    expect(min(numbers) >= 1, "data", "positive numbers", numbers[:9])
    expect(len(weights) in (0, data.classes), "--class-weight", "one of each class", len(weights))
    parts = size == plan.rows or (size < plan.rows and size % plan.slice_rows == 0)
    expect(parts, "--batch-size", f"slices of {plan.slice_rows} of {plan.rows} rows", size)
    _check_plan(plan)


def _check_plan(plan: Plan) -> None:
    for option, count in (("--rounds", plan.rounds), ("slices in a round", plan.leaves(0))):
        # Names of files and references have eight digits for them.
        expect(count < 10**8, option, "less than 100,000,000", f"{count:,}")
    # Malformed specifications are to be told now and not in a reducer.
    plan.create_optimizer()
    plan.create_model()


def expect(condition: bool, option: str, expected: str, found: object) -> None:
    """Raise a UsageError unless a condition holds."""
    if not condition:
        raise UsageError(f"{option}: expected {expected}, found {found}")


def _check_settings(settings: Settings) -> None:
    for option, value, known in (
        ("--strategy", settings.strategy, STRATEGIES),
        ("--optimizer", settings.optimizer, optim.OPTIMIZERS),
        ("--dtype", settings.dtype, DTYPES),
        ("--precision", settings.precision, PRECISIONS),
        ("--non-finite", settings.non_finite, NON_FINITE),
        ("--device", settings.device, ("auto", *dispatch.DEVICES)),
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
    size = settings.batch_size
    expect(size is None or size >= 0, "--batch-size", "a number of rows", size)
    steps = settings.history_size
    expect(1 <= steps <= MOST_STEPS, "--history-size", f"a number from 1 to {MOST_STEPS}", steps)
    expect(settings.patience >= 0, "--patience", "a number of evaluations", settings.patience)
    expect(0 <= settings.seed < 2**63, "--seed", "a number from 0 to 2**63 - 1", settings.seed)
    expect(0 <= settings.momentum < 1, "--momentum", "a number in [0, 1)", settings.momentum)
    rate, decay = settings.learning_rate, settings.weight_decay
    expect(0 < rate < math.inf, "--learning-rate", "a finite, positive number", rate)
    for option, factor in (
        ("--weight-decay", decay),
        ("--l1", settings.l1),
        ("--l2", settings.l2),
        ("--tol", settings.tol),
    ):
        expect(0 <= factor < math.inf, option, "a finite, non-negative number", factor)
    clip = settings.clip_norm
    expect(clip is None or 0 < clip < math.inf, "--clip-norm", "a finite, positive number", clip)
    if settings.l1 and settings.optimizer not in ("sgd", "momentum"):
        raise UsageError(
            f"--l1 {settings.l1}: {settings.optimizer} has no step for a penalty that has no "
            f"derivative at 0. Take --optimizer sgd or momentum, or --l2"
        )
    if settings.precision == "mixed" and settings.dtype != "float32":
        raise UsageError(
            f"--precision mixed: parameters and sums are float32, found --dtype {settings.dtype}. "
            f"Leave out one of them"
        )
    expect(
        settings.epochs is None or settings.rounds is None,
        "--epochs and --rounds",
        "only one of them",
        "both",
    )


def _check_used(settings: Settings) -> None:
    """Refuse what is chosen for another optimizer: it would have no effect."""
    named = "L-BFGS" if settings.optimizer == "lbfgs" else settings.optimizer
    for option, users in _USERS.items():
        name = option.split()[0].lstrip("-").replace("-", "_")
        is_chosen = getattr(settings, name) != getattr(Settings, name)
        if is_chosen and settings.optimizer not in users:
            raise UsageError(
                f"{option}: {named} has no such option. Leave it out, or take --optimizer "
                f"{' or '.join(users)}"
            )


def check_kind(kind: type[Model], name: str, data: Manifest, evaluation: Manifest | None) -> None:
    """Refuse data that a kind of model cannot be trained on.

    Raises
    ------
    DataError
        Labels of another kind, or none; sparse rows for a model that takes dense ones alone; or the
        data evaluated on do not fit those trained on.
    """
    if data.target is None:
        raise DataError("the training data have no labels. Import them with --labels or --label")
    wanted = "number" if kind.regression else "class"
    if data.target != wanted:
        found = "numbers" if data.target == "number" else "classes"
        other = "linear" if data.target == "number" else "logistic, softmax"
        raise DataError(
            f"{name} predicts a {wanted}, the labels of the training data are {found}: train "
            f"another model ({other}), or import the data with --task "
            f"{'regression' if kind.regression else 'classification'}"
        )
    classes = data.classes or ()
    if not kind.regression and len(classes) < 2:
        raise DataError(f"the training data have only one class, {classes[0]!r}")
    if kind.binary and len(classes) != 2:
        raise DataError(
            f"{name} knows two classes, the training data have {len(classes)}: "
            f"{', '.join(map(repr, classes[:5]))}{', …' if len(classes) > 5 else ''}. Train softmax"
        )
    if data.layout == "sparse" and not kind.takes_sparse:
        able = [other for other in models.MODELS if models.load(other).takes_sparse]
        raise DataError(
            f"{name} takes dense rows alone, the training data are sparse. Models that take them: "
            f"{', '.join(able)}"
        )
    if evaluation is not None:
        check_fits(evaluation, data.features, classes, _statistics(data), data.columns)
        if evaluation.target is None:
            raise DataError("the data to evaluate on have no labels")
        if evaluation.target != data.target:
            raise DataError("the data to evaluate on have labels of another kind")
        if evaluation.layout != data.layout:
            raise DataError(
                f"the data to evaluate on are {evaluation.layout}, those to train on {data.layout}"
            )


def _device(wanted: str) -> str:
    """The device of a plan: ``auto`` is what there is where the plan is made."""
    if wanted == "cuda" and (reason := dispatch.lacking()):
        raise UsageError(
            f"--device cuda: this machine has no CUDA device that can be used: {reason}"
        )
    return dispatch.choose(wanted)


def _class_weight(spec: str | None, data: Manifest) -> tuple[float, ...] | None:
    """The weight of each class: ``balanced``, or ``LABEL=WEIGHT`` separated by commas."""
    if spec is None:
        return None
    if data.classes is None or data.class_rows is None:
        raise UsageError("--class-weight: the labels of the training data are no classes")
    if spec == "balanced":
        return tuple(data.rows / (len(data.classes) * rows) for rows in data.class_rows)
    weights = dict.fromkeys(map(str, data.classes), 1.0)
    named: set[str] = set()
    for part in spec.split(","):
        label, separator, number = part.rpartition("=")
        if label in named:
            raise UsageError(f"--class-weight: {label!r} has two weights, the second in {part!r}")
        named.add(label)
        if not separator or label not in weights:
            known = ", ".join(list(weights)[:5])
            raise UsageError(
                f"--class-weight: {part!r} is neither 'balanced' nor LABEL=WEIGHT with a label of "
                f"the data: {known}{', …' if len(weights) > 5 else ''}"
            )
        try:
            weights[label] = float(number)
        except ValueError:
            weights[label] = -1.0
        if not 0 <= weights[label] < math.inf:
            raise UsageError(f"--class-weight: {part!r}: expected a finite, non-negative number")
    if not any(weights.values()):
        raise UsageError("--class-weight: at least one class must have a weight above 0")
    return tuple(weights.values())


def check_fits(
    data: Manifest,
    features: int,
    classes: tuple[int | str, ...],
    standardised: str | None,
    columns: Columns | None,
) -> None:
    """Refuse data that a model cannot take.

    Parameters
    ----------
    data : Manifest
    features, classes, standardised, columns
        Of the data that the model was trained on; see :class:`mapreduce.plan.DataReference` and
        :class:`mapreduce.data.manifest.Manifest`.

    Raises
    ------
    DataError
        Other features or columns than the model's, a class that was not among those trained on, or
        features that were not standardised as those were.
    """
    if wrong := misfit(data.columns, columns):
        raise DataError(
            f"the columns of the data do not fit those that the model was trained on: {wrong}. "
            f"Import the columns that it was trained on, in that order; with --like they have the "
            f"types of the training data"
        )
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
    if _statistics(data) != standardised:
        raise DataError(
            "the data were not standardised as those that the model was trained on. Use "
            "'gradreduce data standardise DATA OUT --like TRAIN'"
            if standardised
            else "the data are standardised, those that the model was trained on were not"
        )


def _statistics(data: Manifest) -> str | None:
    """Digest of what the features of a dataset were standardised by."""
    return data.standardised.sha256 if data.standardised else None


def _limit(shard_rows: tuple[int, ...], limit: int | None) -> tuple[int, ...]:
    """The rows of each shard, cut off after ``limit`` rows in all."""
    limited = []
    left = sum(shard_rows) if limit is None else limit
    for rows in shard_rows:
        if left > 0:
            limited.append(min(rows, left))
        left -= rows
    return tuple(limited)


def _full_batch_slice(data: Manifest) -> int:
    """Rows of a slice when a round takes all of them.

    The gradient of a slice of sparse rows should have more entries to add up than elements, or
    adding up gradients takes longer than computing them.
    """
    rows = FULL_BATCH_SLICE
    if data.layout == "sparse":
        while rows * data.nonzeros < 2 * data.features * data.rows and 4 * rows < data.rows:
            rows *= 2
    return rows


def _slice_rows(wanted: int | None, batch_size: int, full: bool, data: Manifest) -> int:
    if full:
        return wanted or _full_batch_slice(data)
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


def default_slice_rows(batch_size: int) -> int:
    """The largest divisor that gives at least 4 slices of at least 16 rows, else the batch.

    100 gives 25, 128 gives 32, 512 gives 128.
    """
    for count in range(LEAST_SLICES, batch_size // LEAST_SLICE_ROWS + 1):
        if batch_size % count == 0:
            return batch_size // count
    return batch_size
