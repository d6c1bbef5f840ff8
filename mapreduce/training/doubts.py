"""What can go wrong in a training without an error, looked for in a few rows of its data.

Whether the losses went well is in :mod:`mapreduce.runs.outcome`.
"""

import contextlib
import math
from dataclasses import replace

import numpy as np

from hdfs_utils.paths import path_of
from mapreduce.data.batch import Array, Batch, Csr
from mapreduce.data.shards import Dataset
from mapreduce.errors import UsageError
from mapreduce.inference.base import Inference
from mapreduce.models import MODELS
from mapreduce.models.base import Model
from mapreduce.models.context import Context
from mapreduce.optim import OPTIMIZERS
from mapreduce.optim.contract import PAGE, Transformation
from mapreduce.plan.plan import Plan, Slice
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunConfig, RunDir
from mapreduce.strategies.task_context import TaskContext
from mapreduce.training import slopes

#: Rows of which a model of one's own is tried.
_CONTRACT_ROWS = 64
#: Features whose scales differ more than this many times are warned of.
MOST_RATIO = 100
#: Rows, and elements of rows, whose scales are looked at.
_ROWS, _ELEMENTS = 4096, 1 << 22
#: The least share of the rows in which a feature is not 0, or it has no scale.
_LEAST_SHARE = 0.01
#: The size of labels, as a root of the mean square, from which on networks are seen to diverge.
_MOST_LABEL = 30
#: Shards, of about 16 MiB each, of whose rows the mean label is taken.
_SHARDS = 16
#: Slices of evaluation data whose predictions are looked at.
_SLICES = 64


def contract(context: TaskContext) -> str | None:
    """Refuse a model of one's own that breaks the contract, by a few of its rows.

    Returns a warning if its gradient may be wrong, and may be meant so.

    Raises UsageError (its gradient changes the parameters, leaves an element unwritten or has
    another loss than ``score``, so that evaluations would tell of another one; it is a multiple of
    the loss's derivative, or a mean; or a result is of another type).
    """
    plan, model = context.plan, context.model
    name, _ = MODELS.split(plan.model)
    if name in MODELS or model.device != "cpu" or not model.forks_after_gradient:
        return None
    where = Slice(0, 0, min(plan.slice_rows, _CONTRACT_ROWS, plan.data.shard_rows[0]))
    batch, params = context.batch(where), model.init(plan.seed)
    kept, out = params.copy(), np.zeros(model.size, model.dtype)

    def gradient(fill: float, training: bool) -> tuple[float, Array]:
        out[:] = fill
        loss = model.gradient(params, batch, out, Context(context.workspace, training=training))
        if not isinstance(loss, float | int | np.floating):
            raise _broken(plan, "gradient returns the loss, a number", f"{loss!r:.60}")
        return float(loss), out.copy()

    with context.errors(where):
        first, again, other = (gradient(fill, True)[1] for fill in (0.0, 0.0, 1.0))
        loss = gradient(0.0, False)[0]
        scored = model.score(params, batch, Context(context.workspace))
    if params.tobytes() != kept.tobytes():
        raise _broken(plan, "gradient and score leave the parameters as they are", "changed ones")
    if not np.array_equal(first, again, equal_nan=True):
        what = "two calls of gradient give the same: random numbers come from context.key"
        raise _broken(plan, what, "different ones")
    wrong = np.flatnonzero(~((first == other) | (np.isnan(first) & np.isnan(other))))
    if len(wrong):
        raise _broken(
            plan,
            "gradient writes all of out, 0 where there is no slope",
            f"{len(wrong):,} of {model.size:,} elements that depend on what out had before, the "
            f"first in the place of {model.parameter_at(int(wrong[0]))}",
        )
    if not isinstance(scored, tuple) or len(scored) != 2:
        raise _broken(
            plan, "score returns the loss and the number of right rows", f"{scored!r:.60}"
        )
    is_same = not (model.is_random or model.mixes_rows or plan.is_mixed) and model.steps is None
    if is_same and (wrong_score := slopes.other_score(scored[0], loss, batch.rows)):
        raise _broken(plan, wrong_score.expected, wrong_score.found)
    if model.size > slopes.MOST:
        return None
    # At points that a training may never reach, a right model may fail.
    wrong_slope = None
    with contextlib.suppress(Exception), context.errors(where):
        wrong_slope = slopes.first_wrong(_double(plan, model, batch), batch, plan.seed)
    if wrong_slope is None:
        return None
    is_certain, expected, found = wrong_slope
    broken = _broken(plan, expected, found)
    if is_certain:
        raise broken
    return str(broken)


def step(context: TaskContext) -> None:
    """Refuse an optimizer of one's own whose step breaks the contract, by a page of parameters.

    Raises UsageError (the arrays of its state, or its updates, are not like the parameters, or a
    step changes their names), MemberError (a step returns something else).
    """
    plan = context.plan
    if OPTIMIZERS.split(plan.optimizer)[0] in OPTIMIZERS:
        return
    optimizer, params = plan.create_optimizer(), context.model.init(plan.seed)[:PAGE]
    params.flags.writeable = False
    state = optimizer.init(params)
    _check_arrays(plan, "init", params, state, [*state])
    if isinstance(optimizer, Transformation):
        with np.errstate(all="ignore"):
            updates, later = optimizer.update(np.zeros_like(params), state, params, 0)
        _check_arrays(plan, "update", params, {"updates": updates, **later}, ["updates", *state])


def _check_arrays(
    plan: Plan, method: str, params: Array, arrays: dict[str, Array], names: list[str]
) -> None:
    expected = dict.fromkeys(names, f"{params.dtype} {params.shape}")
    found = {name: f"{array.dtype} {array.shape}" for name, array in arrays.items()}
    if found != expected:
        raise UsageError(
            f"--optimizer {plan.optimizer}: expected that {method} returns {expected} for "
            f"parameters of {params.shape}; found {found}"
        )


def _double(plan: Plan, model: Model, batch: Batch) -> Model:
    """The model with parameters of float64, if it can compute with them."""
    try:
        double = replace(plan, dtype="float64").create_model()
        double.gradient(double.init(plan.seed), batch, np.empty(double.size), Context())
    except Exception:
        return model
    return double


def _broken(plan: Plan, expected: str, found: str) -> UsageError:
    return UsageError(f"--model {plan.model}: expected that {expected}; found {found}")


def scales(context: TaskContext) -> str | None:
    """A warning if the features of the first rows have very different scales, or None.

    A feature's scale is the mean magnitude of what is not 0, so that categories that are rare do
    not count as small.
    """
    config, dataset = context.config, context.data
    if config.plan.data.standardised:
        return None
    rows = min(_ROWS, max(64, _ELEMENTS // dataset.manifest.features))
    batch = dataset.shard(0).rows(0, min(rows, config.plan.data.shard_rows[0]))
    sums, counts = _magnitudes(batch.features)
    has_scale = counts >= max(1, _LEAST_SHARE * batch.rows)
    found = np.flatnonzero(has_scale)
    if not len(found):
        return None
    means = sums[found] / counts[found] * batch.scale
    small, large = int(means.argmin()), int(means.argmax())
    ratio = means[large] / means[small]
    if not ratio > MOST_RATIO:
        return None
    least, most = (f"{_name(config, int(found[at]))} is {means[at]:.3g}" for at in (small, large))
    return (
        f"the scales of the features differ by {ratio:,.3g} times: on average {most} and {least}, "
        f"so that steps which suit one do nothing for the other. Standardise them: 'gradreduce "
        f"data import' does it by default, 'gradreduce data standardise' for other datasets"
    )


def _magnitudes(features: Array | Csr) -> tuple[Array, Array]:
    """For each feature, the sum of the magnitudes, and the number of elements that are not 0."""
    with np.errstate(over="ignore"):
        if isinstance(features, Csr):
            used = slice(features.indptr[0], features.indptr[-1])
            indices, values = features.indices[used], abs(features.values[used].astype(np.float64))
            columns = features.columns
            return (
                np.bincount(indices, values, columns),
                np.bincount(indices, values != 0, columns),
            )
        magnitudes = abs(features.astype(np.float64))
        return magnitudes.sum(axis=0), np.count_nonzero(magnitudes, axis=0)


def _name(config: RunConfig, feature: int) -> str:
    columns = config.columns or ()
    if columns:
        return repr(columns[feature])
    return f"feature {feature}, counted from 0,"


def width(run: RunDir) -> str | None:
    """A warning if the columns of a table have become more features than it has rows, or None."""
    plan, recipe = run.config.plan, run.recipe
    if recipe is None or recipe.recipe.hash_bits is not None or plan.data.features <= plan.rows:
        return None
    widest = max(recipe.columns, key=lambda column: column.width)
    is_much = 10 * widest.width > plan.data.features
    most = f"; {widest.width:,} are those of {widest.name!r}" * is_much
    return (
        f"there are {plan.data.features:,} features for {plan.rows:,} rows{most}. They can fit any "
        f"labels, and other rows worse. Import the table without the columns that are only names "
        f"(--drop), or take --l2 {max(10 * plan.l2, 1 / plan.rows):.2g}; --eval shows what helps"
    )


def labels(context: TaskContext) -> str | None:
    """A warning if the numbers that a network is to predict are far from 1, or None."""
    config = context.config
    if config.classes or config.plan.model == "linear":
        return None
    own, weights = _labels(context.data)
    mean = float(np.average(own, weights=weights))
    deviation = float(np.average((own - mean) ** 2, weights=weights) ** 0.5)
    if not math.hypot(mean, deviation) > _MOST_LABEL:
        return None
    return (
        f"the labels have the mean {mean:.3g} and the standard deviation {deviation:.3g}, and "
        f"steps of {config.plan.optimizer:.40} are for labels near 1: a network diverges, or "
        f"hardly learns. Import (label - {mean:.3g}) / {deviation or 1:.3g} as the label instead, "
        f"and turn the predictions back"
    )


def guessing(config: RunConfig) -> str | None:
    """What is right by always guessing: a line for people, or None if rows have several labels."""
    place = config.evaluation or config.data
    training, data = (Dataset(path_of(each)) for each in (config.data, place))
    where = " on the training data" * (config.evaluation is None)
    if not config.classes:
        (own, weights), (labels, others) = _labels(training), _labels(data)
        loss = np.average((labels - np.average(own, weights=weights)) ** 2, weights=others) / 2
        parts = [
            f"the first {known:,} of {rows:,} rows of {name}"
            for name, (known, rows) in {
                config.data: (len(own), training.manifest.rows),
                place: (len(labels), data.manifest.rows),
            }.items()
            if known < rows
        ]
        about, by = "about " * bool(parts), f", by {' and '.join(parts)}" * bool(parts)
        return f"always guessing the mean would have loss {about}{loss:.4f}{where}{by}"
    counts, found = training.manifest.class_rows, data.manifest
    if config.plan.about.steps is not None or not counts or not found.class_rows:
        return None
    label = config.classes[int(np.argmax(counts))]
    hits = dict(zip(found.classes or (), found.class_rows, strict=True)).get(label, 0)
    what = f"always guessing {label!r}, the commonest class"
    return f"{what}, would have accuracy {hits / found.rows:.4f}{where}"


def _labels(data: Dataset) -> tuple[Array, Array | None]:
    """Labels and weights of all rows, or of those in the first shards."""
    count = min(_SHARDS, len(data.manifest.shards))
    found = [data.shard(n).rows(0, data.manifest.shards[n].rows) for n in range(count)]
    labels = [batch.labels for batch in found if batch.labels is not None]
    weights = [batch.weights for batch in found if batch.weights is not None]
    return np.concatenate(labels), np.concatenate(weights) if weights else None


def never_predicted(run: RunDir, params: Array) -> str | None:
    """A warning if a class occurs in the evaluation data that parameters never predict, or None.

    Looks at slices of the data until all of their classes were predicted.
    """
    config = run.config
    # A process that has started CUDA cannot be forked.
    if config.evaluation is None or not config.classes or config.plan.device != "cpu":
        return None
    inference = Inference(checkpoint.fitted_with(run, params), path_of(config.evaluation))
    count = len(inference.dataset.manifest.classes or ())
    occurring = np.zeros(len(config.classes), np.int64)
    predicted = np.zeros(len(config.classes), bool)
    for leaf in range(min(inference.leaves, _SLICES)):
        batch = inference.leaf(leaf)
        assert batch.labels is not None
        occurring += np.bincount(batch.labels, minlength=len(occurring))
        with np.errstate(all="ignore"), inference.errors():
            logits = inference.estimator.logits(batch)
        predicted[logits.argmax(axis=1)] = True
        if predicted.sum() >= count and not (occurring > 0)[~predicted].any():
            return None
    missing = np.flatnonzero((occurring > 0) & ~predicted)
    if not len(missing):
        return None
    names = ", ".join(repr(config.classes[at]) for at in missing[:5])
    return (
        f"{len(missing):,} of {len(config.classes):,} classes are never predicted in the first "
        f"{occurring.sum():,} rows of the evaluation data: {names}{', …' * (len(missing) > 5)} "
        f"({occurring[missing].sum():,} rows). If they are rare, take --class-weight balanced; "
        f"else train longer, by more --epochs"
    )
