"""From a user's settings to a plan: defaults, and settings that do not fit together."""

import contextlib
import math
from collections.abc import Collection
from dataclasses import fields
from itertools import accumulate
from typing import Any

from kernels import dispatch
from mapreduce import models, optim
from mapreduce.data.manifest import Manifest
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, MemberError, UntrustedError, UsageError
from mapreduce.models.base import Model
from mapreduce.models.specification import Specification, Trunk
from mapreduce.optim.contract import GlobalTransformation, Transformation
from mapreduce.plan import augmentation, strategies
from mapreduce.plan.fitting import digest, listing
from mapreduce.plan.flags import CONVEX, PLAN, members_of
from mapreduce.plan.flags import Settings as Settings
from mapreduce.plan.plan import DataReference, Plan, Sizes, weighted
from mapreduce.support.jsonfiles import MEMORY
from mapreduce.support.options import expect
from mapreduce.support.suggest import did_you_mean

#: Rows of a slice when a round takes the whole data.
FULL_BATCH_SLICE = 2048
#: Bytes that the layers of a network may take then, or the slice has fewer rows.
FULL_BATCH_BYTES = 512 << 20
#: The least number of slices of a batch, and of rows of a slice, if there is such a divisor.
LEAST_SLICES = 4
LEAST_SLICE_ROWS = 16
#: Default of the rounds between checkpoints.
CHECKPOINT_EVERY = 500
#: Rows whose weights are added up at once.
_PART_ROWS = 1 << 16
#: By default there are so many rounds, in whole epochs, unless these would be too many.
LEAST_UPDATES, MOST_EPOCHS = 200, 20
#: Share of the rows that a strategy whose replicas compete holds out by default.
HELD_OUT = 0.05


def make(
    settings: Settings,
    data: Manifest,
    evaluation: Manifest | None = None,
    trunk: Trunk | None = None,
    shape: tuple[int, ...] | None = None,
    source: Dataset | None = None,
) -> Plan:
    """The plan of a training. Data and evaluation data are not compared here.

    ``trunk`` turns rows of the ``shape``, by default that of the data, into features. ``source``
    has the rows of weighted data, which a default penalty depends on; without it all rows are
    alike.
    """
    _check_settings(settings)
    settings.trust_members()
    settings = settings.decided(data.recipe is not None, data.target)
    takes, optimizer = optim.find(settings.optimizer).takes, optim.about(settings.optimizer)
    strategy = strategies.find(settings.strategy)
    _check_l1(settings, takes)
    _check_used(settings, takes, optimizer.title)
    _check_strategy(settings, strategy.takes)
    kind = models.find(settings.model, data.target or "class")
    _check_kind(kind, settings.model, data)
    _check_inputs(settings, kind, data)
    reference = DataReference(
        sha256=data.sha256,
        shard_rows=_limit(tuple(shard.rows for shard in data.shards), settings.limit_rows),
        features=data.features,
        classes=len(data.classes or ()),
        standardised=digest(data.standardised),
        shape=shape or (data.shape if kind.takes_shape or settings.augment or trunk else None),
        recipe=digest(data.recipe),
    )
    specification = Specification(
        model=models.MODELS.spelled(settings.model),
        shape=reference.shape or (reference.features,),
        classes=reference.classes,
        dtype=settings.dtype or optimizer.defaults.dtype,
        device=device_of(settings.device),
        batch_invariant=True,
        trunk=trunk,
    )
    competes = "held_out" in strategy.takes and not strategy.evaluates_held_out
    sizes = _sizes(settings, reference, optimizer, competes, data, specification)
    least = min(MOST_EPOCHS, -(-LEAST_UPDATES // sizes.rounds_per_epoch))
    epochs = settings.epochs or optimizer.defaults.epochs or least
    rounds = settings.rounds or epochs * sizes.rounds_per_epoch
    evaluated = optimizer.defaults.eval_epochs * sizes.rounds_per_epoch
    class_weight = _class_weight(settings.class_weight, data)
    plan = Plan(
        **{
            **_shared(settings),
            "data": reference,
            "batch_size": sizes.batch_size,
            "slice_rows": sizes.slice_rows,
            "held_out": sizes.held_out,
            "model": specification.model,
            "optimizer": optim.OPTIMIZERS.spelled(settings.optimizer),
            "strategy": strategies.STRATEGIES.spelled(settings.strategy),
            "l2": _l2(settings, data, reference.shard_rows, class_weight, source),
            "class_weight": class_weight,
            "dtype": specification.dtype,
            "staleness": _staleness(settings, strategy.takes),
            "rounds": rounds,
            "device": specification.device,
            "eval_every": settings.eval_every or evaluated or rounds,
            "checkpoint_every": settings.checkpoint_every or CHECKPOINT_EVERY,
            "eval_sha256": evaluation.sha256 if evaluation else None,
            "sources": _sources(settings),
            "relative_tol": "tol" in takes,
            "batch_invariant": True,
            "trunk": trunk,
        }
    )
    if evaluation is not None and plan.held_out_slices and strategy.evaluates_held_out:
        raise UsageError(
            f"{_held_out_flag(plan)}: the model is evaluated on the data of --eval. Leave out one "
            f"of them"
        )
    if plan.patience and (not plan.is_evaluated or plan.eval_every >= plan.rounds):
        found = f"only the last of {plan.rounds} rounds" if plan.is_evaluated else "nothing"
        advice = "--eval-every" if plan.is_evaluated else "--eval DATA"
        raise UsageError(
            f"--patience {plan.patience}: {found} is evaluated. Leave it out, or add {advice}"
        )
    _check_plan(plan)
    strategy.check_phases(plan)
    _check_elements(plan, data.classes or ())
    _check_memory(plan)
    return plan


def _sizes(
    settings: Settings,
    reference: DataReference,
    optimizer: Transformation | GlobalTransformation,
    competes: bool,
    data: Manifest,
    specification: Specification,
) -> Sizes:
    """The rows of a round and of a slice, and those that are held out.

    ``competes``: Whether replicas compete on some of them.
    """
    rows, batch_size = sum(reference.shard_rows), settings.batch_size
    if batch_size is None:
        batch_size = optimizer.defaults.batch_size and default_batch_size(rows)
    is_full = batch_size == 0 or batch_size >= rows
    if optimizer.needs_all_rows and not is_full:
        raise UsageError(
            f"--batch-size {batch_size}: {optimizer.title or settings.optimizer} takes all {rows} "
            f"rows in every round. Leave it out"
        )
    batch_size, slice_rows, held_out = rows if is_full else batch_size, settings.slice_rows, 0
    if slice_rows is None and is_full:
        slice_rows = _bounded(_full_batch_slice(data), specification.create())
    elif slice_rows is None:
        slice_rows = default_slice_rows(batch_size, settings.replicas)
    elif not is_full and batch_size % slice_rows:
        raise UsageError(
            f"--slice-rows {slice_rows}: expected a divisor of the batch size {batch_size}"
        )
    if settings.held_out is not None:
        held_out = settings.held_out
    elif competes and settings.fold is None:
        held_out = max(1, round(HELD_OUT * rows / slice_rows)) * slice_rows
    sizes = Sizes(reference, batch_size, slice_rows, settings.local_steps, held_out, settings.fold)
    _check_held_out(sizes, settings.replicas)
    return sizes


def check(plan: Plan) -> None:
    """Refuse a plan that :func:`make` cannot have made, since anybody may have written it."""
    settings = Settings(**{**_shared(plan), "class_weight": None})
    _check_settings(settings)
    with contextlib.suppress(UntrustedError):
        takes, optimizer = optim.find(plan.optimizer).takes, optim.about(plan.optimizer)
        _check_l1(settings, takes)
        # Other optimizers ignore settings that are not theirs, which earlier versions accepted.
        if optimizer.needs_all_rows:
            _check_used(settings, takes, optimizer.title)
    data, size, weights = plan.data, plan.batch_size, plan.class_weight or ()
    shape = data.shape or (data.features,)
    expect(math.prod(shape) == data.features, "data", f"{data.features} elements in a row", shape)
    if plan.augment is not None:
        augmentation.check(plan.augment, shape)
    numbers = (*data.shard_rows, *shape, data.features, data.classes + 1, *(w + 1 for w in weights))
    expect(min(numbers) >= 1, "data", "positive numbers", numbers[:9])
    expect(len(weights) in (0, data.classes), "--class-weight", "one of each class", len(weights))
    parts = size == plan.rows or (size < plan.rows and size % plan.slice_rows == 0)
    expect(parts, "--batch-size", f"slices of {plan.slice_rows} of {plan.rows} rows", size)
    _check_held_out(plan, plan.replicas)
    _check_plan(plan)


def _check_plan(plan: Plan) -> None:
    for option, count in (("--rounds", plan.rounds), ("slices in a round", plan.leaves(0))):
        # Names of files and ranges have eight digits for them.
        expect(count < 10**8, option, "less than 100,000,000", f"{count:,}")
    # Malformed specifications are errors now, and not in a reducer.
    for part in ("transformation", "about"):
        # A list of runs needs no code of the user's; other commands ask for it later.
        with contextlib.suppress(UntrustedError):
            getattr(plan, part)
    with contextlib.suppress(UntrustedError):
        strategies.find(plan.strategy).check(plan)
    with contextlib.suppress(UntrustedError):
        _check_same_losses(plan)


def _check_held_out(plan: Sizes | Plan, replicas: int) -> None:
    """Refuse to hold out rows without which there would not be one step of training."""
    slices, flag = plan.slices_per_epoch + plan.held_out_slices, _held_out_flag(plan)
    if plan.fold is not None and int(plan.fold.split("/")[1]) > slices:
        raise UsageError(
            f"{flag}: expected at most {slices} parts, since there are {slices} slices of "
            f"{plan.slice_rows} rows. Take a smaller --batch-size or --slice-rows"
        )
    # A step of all rows has a slice for each replica, at least.
    least = replicas if plan.batch_size >= plan.rows else plan.slices_per_step
    if plan.held_out_slices and slices - plan.held_out_slices < least:
        most = max(slices - least, 0) * plan.slice_rows
        is_less = most and plan.fold is None
        advice = f"Hold out at most {most} rows, or take" if is_less else "Take"
        raise UsageError(
            f"{flag}: {plan.held_out_slices} of {slices} slices of "
            f"{plan.slice_rows} rows are held out, and a step of training takes {least}. {advice} "
            f"a smaller --batch-size or --slice-rows"
        )


def _held_out_flag(plan: Sizes | Plan) -> str:
    """The option by which rows are held out."""
    return f"--held-out {plan.held_out}" if plan.fold is None else f"--fold {plan.fold}"


def _check_memory(plan: Plan) -> None:
    """Refuse slices whose gradient this machine could not compute."""
    rows = min(plan.slice_rows, plan.rows)
    needed = rows * plan.about.row_bytes
    if needed > MEMORY:
        raise UsageError(
            f"--slice-rows {rows}: a slice takes about {needed / 2**30:,.0f} GiB in the layers of "
            f"--model {plan.model:.60}, and this machine has {MEMORY >> 30}. Take fewer rows, or "
            f"smaller layers"
        )


def _shared(chosen: Settings | Plan) -> dict[str, Any]:
    """The values of the fields that settings and plans have in common."""
    names = {field.name for field in fields(Settings)} & {field.name for field in fields(Plan)}
    return {name: getattr(chosen, name) for name in names}


def _sources(chosen: Settings | Plan) -> tuple[str, ...]:
    members = [(family, name) for family, name in members_of(chosen) if name not in family.builtin]
    return tuple(sorted({f"{name}={family.digest(name)}" for family, name in members}))


def changed_sources(plan: Plan) -> list[str]:
    """Members that are not the toolkit's, and whose code has changed since the plan was made."""
    return [one.partition("=")[0] for one in _sources(plan) if one not in plan.sources]


def _check_settings(settings: Settings) -> None:
    for option in PLAN:
        option.check(getattr(settings, option.name))
    if settings.precision == "mixed" and settings.dtype == "float64":
        raise UsageError(
            f"--precision mixed: parameters and sums are float32, found --dtype {settings.dtype}. "
            f"Leave out one of them"
        )
    is_one = settings.epochs is None or settings.rounds is None
    expect(is_one, "--epochs and --rounds", "only one of them", "both")
    is_one = settings.fold is None or not settings.held_out
    expect(is_one, "--held-out and --fold", "only one of them", "both")


def _check_used(settings: Settings, takes: Collection[str], title: str) -> None:
    """Refuse settings that have no effect on the chosen optimizer."""
    users: dict[str, list[str]] = {}
    for name in optim.OPTIMIZERS:
        for taken in optim.find(name).takes:
            users.setdefault(taken, []).append(name)
    _check_takes(f"--optimizer {settings.optimizer}", takes, users)
    for option in PLAN:
        value = getattr(settings, option.name)
        unused = option.name in users and option.name not in takes
        if unused and value != option.default and option.name != "l1":
            shown = f"{option.flag} {value}" if option.choices else option.flag
            raise UsageError(
                f"{shown}: {title or settings.optimizer} has no such option. Leave it "
                f"out, or take --optimizer {' or '.join(users[option.name])}"
            )


def _check_strategy(settings: Settings, takes: Collection[str]) -> None:
    """Refuse settings that the chosen strategy does not use."""
    defaults = Settings().decided(False, None)
    _check_takes(f"--strategy {settings.strategy}", takes, strategies.OPTIONAL)
    for option in PLAN:
        value = getattr(settings, option.name)
        if option.name in strategies.OPTIONAL and option.name not in takes:
            users = [x for x in strategies.STRATEGIES if option.name in strategies.find(x).takes]
            advice = f". Add --strategy {' or '.join(users)}" if settings.strategy == "sync" else ""
            expected = f"the default, since --strategy {settings.strategy} does not use it"
            is_default = value == getattr(defaults, option.name)
            expect(is_default, option.flag, expected, f"{value}{advice}")


def _check_takes(member: str, takes: object, known: Collection[str]) -> None:
    """Refuse names of settings that a member takes, and that no setting has."""
    if isinstance(takes, str) or not isinstance(takes, Collection):
        raise MemberError(f"{member}: expected its takes as a tuple of names, found {takes!r:.80}")
    for name in takes:
        if name not in {option.name for option in PLAN}:
            raise MemberError(
                f"{member}: its takes name {name!r:.40}, which is no setting: expected some of "
                f"{', '.join(known)}.{did_you_mean(str(name), known)}"
            )


def _check_l1(settings: Settings, takes: Collection[str]) -> None:
    if settings.l1 and "l1" not in takes:
        raise UsageError(
            f"--l1 {settings.l1}: {settings.optimizer} has no step for a penalty that has no "
            f"derivative at 0. Take --optimizer sgd or momentum, or --l2"
        )


def _check_same_losses(plan: Plan) -> None:
    """Refuse losses that differ from round to round where rounds are compared."""
    optimizer = optim.about(plan.optimizer)
    if not optimizer.needs_all_rows:
        return
    drawn = f"--augment {plan.augment}" if plan.augment is not None else ""
    if plan.about.is_random:
        drawn = f"--model {plan.model:.60}: its dropout"
    if drawn:
        raise UsageError(
            f"{drawn} changes from round to round, and {optimizer.title or plan.optimizer} "
            f"compares the losses of rounds. Leave it out, or take --optimizer sgd, momentum or "
            f"adam"
        )


def _check_elements(plan: Plan, classes: tuple[int | str, ...]) -> None:
    """Refuse to predict the elements of rows if classes are not their values."""
    if plan.about.steps is None:
        return
    wrong = next((label for place, label in enumerate(classes) if label != place), None)
    if wrong is not None:
        raise DataError(
            f"--model {plan.model:.60} predicts the elements of a row, so that the classes must be "
            f"the whole numbers from 0 on; found {wrong!r}. Import text by --format text, or end "
            f"the layers by last to predict the label alone"
        )


def _check_inputs(settings: Settings, kind: type[Model], data: Manifest) -> None:
    """Refuse mixed precision and changed images, where a model or data are not for them."""
    is_mixed = settings.precision == "mixed"
    if is_mixed and not kind.takes_mixed:
        raise UsageError(
            f"--precision mixed: the layers of --model {settings.model:.60} compute in full "
            f"precision. Take --precision full"
        )
    if settings.augment is not None:
        augmentation.check(settings.augment, data.shape, data.layout)
    if is_mixed and data.layout == "sparse":
        raise UsageError(
            "--precision mixed: the training data are sparse, and mixed precision is for dense "
            "rows. Take --precision full"
        )


def _check_kind(kind: type[Model], name: str, data: Manifest) -> None:
    """Refuse data that a kind of model cannot be trained on."""
    if data.is_for_trees:
        raise DataError(
            f"{name}: expected data without missing numbers, and categories as features of 0 and "
            f"1; these were imported with --trees. Import the table without it, or train "
            f"--model boosting"
        )
    if data.target is None:
        raise DataError("the training data have no labels. Import them with --labels or --label")
    wanted = "number" if kind.regression else "class"
    if data.target != wanted:
        found, task, other = "numbers", "classification", "linear"
        if kind.regression:
            found, task, other = "classes", "regression", "logistic, softmax"
        raise DataError(
            f"{name} predicts a {wanted}, but the labels of the training data are {found}: train "
            f"another model ({other}), or import the data with --task {task}"
        )
    classes = data.classes or ()
    if not kind.regression and len(classes) < 2:
        raise DataError(f"the training data have only one class, {classes[0]!r}")
    if kind.binary and len(classes) != 2:
        raise DataError(
            f"{name} is for two classes, but the training data have {len(classes)}: "
            f"{listing(map(repr, classes))}. Train softmax"
        )
    if data.layout == "sparse" and not kind.takes_sparse:
        own = [name for name in models.MODELS if name not in models.MODELS.carriers]
        able = [name for name in own if models.MODELS.find(name).takes_sparse]
        raise DataError(
            f"{name} takes only dense rows, the training data are sparse. Models that take them: "
            f"{', '.join(able)}" + "; or import the table with --layout dense" * bool(data.recipe)
        )


def device_of(wanted: str) -> str:
    """The device of a plan or a prediction; ``auto`` chooses one on the machine that asks."""
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
        raise UsageError("--class-weight: the labels of the training data are not classes")
    if spec == "balanced":
        sums = data.class_weights if data.weighted else data.class_rows
        if sums is None:
            raise DataError(
                "--class-weight balanced: an earlier version has imported the training data, and "
                "did not add up the weights of each class. Import them again, or give the weights "
                "as LABEL=WEIGHT"
            )
        present, total = sum(one > 0 for one in sums), sum(sums)
        return tuple(total / (present * one) if one else 0.0 for one in sums)
    weights = dict.fromkeys(map(str, data.classes), 1.0)
    named: set[str] = set()
    for part in spec.split(","):
        label, separator, number = part.rpartition("=")
        if label in named:
            raise UsageError(f"--class-weight: {label!r} has two weights, the second in {part!r}")
        named.add(label)
        if not separator or label not in weights:
            raise UsageError(
                f"--class-weight: {part!r} is neither 'balanced' nor LABEL=WEIGHT with a label of "
                f"the data: {listing(weights)}"
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


def _l2(
    settings: Settings,
    data: Manifest,
    shard_rows: tuple[int, ...],
    class_weight: tuple[float, ...] | None,
    source: Dataset | None,
) -> float:
    """The L2 penalty: that of the settings, else scikit-learn's for L-BFGS on a table.

    Its classifiers have weights for one of two classes, and softmax for both. So the penalty of
    softmax must be twice as large for the same model. Weighted rows count as rows that are repeated
    as often as their weights say.
    """
    if settings.l2 is not None:
        return settings.l2
    if data.recipe is None or settings.optimizer != "lbfgs" or settings.model not in CONVEX:
        return 0.0
    rows, is_double = sum(shard_rows), settings.model == "softmax" and len(data.classes or ()) == 2
    l2 = (2.0 if is_double else 1.0) / rows
    if source is None or not (data.weighted or class_weight):
        return l2
    parts = (
        weighted(source.shard(number).rows(start, min(start + _PART_ROWS, count)), class_weight)
        for number, count in enumerate(shard_rows)
        for start in range(0, count, _PART_ROWS)
    )
    return l2 * rows / math.fsum(part.weights.sum() for part in parts if part.weights is not None)


def _limit(shard_rows: tuple[int, ...], limit: int | None) -> tuple[int, ...]:
    """The rows of each shard, cut off after ``limit`` rows in all."""
    starts = accumulate(shard_rows, initial=0)
    most = sum(shard_rows) if limit is None else limit
    limited = (min(rows, most - start) for rows, start in zip(shard_rows, starts, strict=False))
    return tuple(rows for rows in limited if rows > 0)


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


def _bounded(rows: int, model: Model) -> int:
    """Fewer rows for a slice, if those of a default would take too much memory."""
    while rows > LEAST_SLICE_ROWS and rows * model.row_bytes > FULL_BATCH_BYTES:
        rows //= 2
    return rows


def _staleness(settings: Settings, takes: Collection[str]) -> int | None:
    """The staleness; None if the strategy has none, or sets no limit to it."""
    chosen: int | None = settings.staleness
    is_least = chosen is None and "staleness" in takes and not settings.asynchronous
    return settings.replicas - 1 if is_least else chosen


def default_batch_size(rows: int) -> int:
    """The rows of a round for a training on so many: a power of two, about a 1,024th of them.

    Not fewer than 128, as for up to 185,000 rows, and not more than 1,024: a round costs nearly the
    same for both, and larger batches learn less in an epoch.
    """
    return min(1024, max(128, 1 << round(math.log2(max(rows, 1) / 1024)))) if rows > 1024 else 128


def default_slice_rows(batch_size: int, replicas: int = 1) -> int:
    """The largest divisor that gives at least 4 slices of at least 16 rows, else the batch.

    100 gives 25, 128 gives 32, 512 gives 128. There are at least as many slices as replicas, if
    the batch has as many rows, though slices may be smaller then.
    """
    most = batch_size if replicas > 1 else batch_size // LEAST_SLICE_ROWS
    least = LEAST_SLICES if batch_size >= LEAST_SLICES * LEAST_SLICE_ROWS else 1
    for count in range(max(least, replicas) if replicas > 1 else LEAST_SLICES, most + 1):
        if batch_size % count == 0:
            return batch_size // count
    return batch_size
