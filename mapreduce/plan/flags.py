"""The table of the options of a plan. ``--help`` needs it, so it imports nothing slow."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from mapreduce.errors import UsageError
from mapreduce.models import FITS, MODELS
from mapreduce.optim import OPTIMIZERS, SCHEDULES, about
from mapreduce.optim.options import LBFGSOptions
from mapreduce.plan.strategies import STRATEGIES
from mapreduce.support import trust
from mapreduce.support.options import POSITIVE, Bound, is_count, once, option, table
from mapreduce.support.registry import Registry

_FROM_1 = Bound("a positive number", lambda number: number >= 1)
_FROM_0 = Bound("a finite, non-negative number", lambda number: 0 <= number < math.inf)


@dataclass(frozen=True)
class _Learned:
    model: str = option(
        "auto",
        "the model to train (default: softmax, or linear for labels that are numbers)",
        family=MODELS,
        is_auto=True,
    )
    init_from: str | None = option(
        None, "RUN or FILE.safetensors whose parameters the training starts from"
    )
    features_from: str | None = option(
        None,
        "RUN:LAYER; the model learns from what that layer of the run's model, or of the model in a "
        "file, gives for each row",
    )
    class_weight: str | None = option(
        None, "how much the rows of each class count: balanced, or LABEL=WEIGHT[,LABEL=WEIGHT]"
    )
    augment: str | None = option(
        None, "change the images of each gradient by chance: flip, crop:PIXELS, or flip,crop:PIXELS"
    )
    limit_rows: int | None = option(None, "train on the first N rows only", _FROM_1)
    seed: int = option(
        0,
        "seed of the initial parameters and of the order of the slices",
        Bound("a number from 0 to 2**63 - 1", lambda number: 0 <= number < 2**63),
    )
    dtype: str | None = option(
        None,
        "dtype of the parameters (default: float32; lbfgs: float64)",
        choices=("float32", "float64"),
    )


@dataclass(frozen=True)
class _Learning:
    optimizer: str = option(
        "auto",
        "how gradients update the model (default: sgd; lbfgs for softmax, linear, logistic and svm "
        "on a table, unless --epochs, --batch-size or the like select sgd)",
        family=OPTIMIZERS,
        is_auto=True,
    )
    learning_rate: float = option(0.1, "step size", POSITIVE)
    momentum: float = option(
        0.9,
        "share of the velocity that each step keeps, for --optimizer momentum",
        Bound("a number in [0, 1)", lambda number: 0 <= number < 1),
    )
    schedule: str = option(
        "constant", "how the learning rate changes; join several schedules by +", family=SCHEDULES
    )
    batch_size: int | None = option(
        None,
        "number of rows in a round; 0 takes all rows (default: 128, more for more than 185,000 "
        "rows; lbfgs: all)",
        Bound("a number of rows", is_count),
    )
    slice_rows: int | None = option(
        None,
        "number of rows for which a mapper computes one gradient; it must divide the batch size",
        _FROM_1,
    )
    l1: float = option(
        0.0, "strength of the L1 penalty on the weights, for sgd and momentum", _FROM_0
    )
    l2: float | None = option(
        None,
        "strength of the L2 penalty on the weights (default: 0; on a table, for lbfgs, one over "
        "the number of rows, which is scikit-learn's C = 1 or alpha = 1)",
        _FROM_0,
    )
    weight_decay: float = option(
        0.0,
        "share of all parameters (weights and biases) that is added to the gradient; adamw "
        "subtracts it from the parameters instead",
        _FROM_0,
    )
    clip_norm: float | None = option(None, "scale larger gradients down to this norm", POSITIVE)
    non_finite: str = option(
        "error",
        "what to do when a gradient is not finite: end with an error, or skip the round",
        choices=("error", "skip"),
    )
    precision: str = option(
        "full",
        "mixed computes gradients from float16 numbers; parameters and sums stay float32",
        choices=("full", "mixed"),
    )


@dataclass(frozen=True)
class _Length:
    epochs: int | None = option(
        None,
        "number of passes over the data (default: as many as make 200 rounds, at most 20; lbfgs: "
        "at most 1000)",
        _FROM_1,
    )
    rounds: int | None = option(
        None, "number of updates of the model, instead of --epochs", _FROM_1
    )
    eval_every: int | None = option(
        None, "number of rounds between evaluations (default: an epoch; lbfgs: at the end)", _FROM_1
    )
    patience: int = option(
        0,
        "stop after this many evaluations without a lower loss; 0 never stops",
        Bound("a number of evaluations", is_count),
    )
    checkpoint_every: int | None = option(
        None, "number of rounds between checkpoints (default: 500)", _FROM_1
    )


@dataclass(frozen=True)
class _Strategy:
    strategy: str = option("sync", "what one round does", family=STRATEGIES)


@dataclass(frozen=True)
class _Execution:
    device: str = option(
        "cpu",
        "where gradients are computed; auto takes cuda if a GPU can be used",
        choices=("auto", "cpu", "cuda"),
    )


#: Options of how and how long it is learned that say nothing against L-BFGS.
_OF_ANY = {"optimizer", "l2", "eval_every", "checkpoint_every"}

#: Models with one best point, which L-BFGS finds.
CONVEX = ("softmax", "linear", "logistic", "svm")

#: The parts of the settings, and their headings in the help.
_PARTS = (
    (_Learned, "What is learned"),
    (_Learning, "How it is learned"),
    (LBFGSOptions, "How it is learned"),
    (_Length, "How long it is learned"),
    (_Strategy, "Strategy"),
    *((kind, "Strategy") for kind in STRATEGIES.classes),
    (_Execution, "Execution"),
)


@dataclass(frozen=True)
class Settings(
    _Execution,
    *STRATEGIES.classes,  # type: ignore[misc]
    _Strategy,
    _Length,
    LBFGSOptions,
    _Learning,
    _Learned,
):
    """The user's choice of all that decides the result, from which a plan is made."""

    def decided(self, is_table: bool, target: str | None) -> "Settings":
        """Settings with a model and an optimizer that suit data: of a table, and of a target."""
        model, optimizer = self.model, self.optimizer
        if model == "auto":
            model = "linear" if target == "number" else "softmax"
        if optimizer == "auto":
            parts = (_Learning, _Length, _Strategy, *STRATEGIES.classes)
            names = {one.name for part in parts for one in fields(part)} - _OF_ANY | {"augment"}
            is_free = all(getattr(self, name) == getattr(Settings, name) for name in names)
            suits = is_table and is_free and model in CONVEX
            optimizer = "lbfgs" if suits else "sgd"
        return replace(self, model=model, optimizer=optimizer)

    def dtype_for(self, is_table: bool) -> str:
        """The dtype of the parameters: the user's, the fit's, or the optimizer's default."""
        if FITS.fits(self.model):
            dtype: str = FITS.parse(self.model).dtype
            return dtype
        return self.dtype or about(self.decided(is_table, None).optimizer).defaults.dtype

    def trust_members(self) -> None:
        """Let the code be imported that these settings name, since they are the user's own."""
        trust.trust(*(name for _, name in members_of(self) if ":" in name))


#: Options that decide the result.
PLAN = once(row for part, group in _PARTS for row in table(part, group))
#: The options of trainings by gradients, which no fit takes.
OF_GRADIENTS = {row.name for row in PLAN} - {"model", "seed"} | {"evaluation", "keep", "dry_run"}


def members_of(chosen: Any) -> list[tuple[Registry, str]]:
    """The members of open families that settings or a plan name."""
    return [
        (option.family, name)
        for option in PLAN
        if option.family is not None
        for name in option.members(getattr(chosen, option.name))
    ]


def refuse(flag: str, model: str) -> None:
    """Raise a UsageError for an option of :data:`OF_GRADIENTS`."""
    raise UsageError(
        f"{flag} is for trainings by gradients, and {model} is fitted without any. Leave it out. "
        f"'gradreduce models list' has the model's own options"
    )


def settings(values: Mapping[str, Any]) -> Settings:
    """The settings of a plan, from the values of :data:`PLAN` and ``evaluation``.

    Options that follow the name of an optimizer are those of flags, if it has them there.
    """
    has_rows = values["evaluation"] is not None or values["held_out"] or values["fold"]
    if values["eval_every"] is not None and not has_rows:
        raise UsageError("--eval-every needs data to evaluate on. Add --eval DATA, or leave it out")
    known = OPTIMIZERS.expanded(values)
    return Settings(**{option.name: known[option.name] for option in PLAN})
