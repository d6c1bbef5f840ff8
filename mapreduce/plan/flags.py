"""The table of the options of a plan. ``--help`` needs it, so it imports nothing slow."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from mapreduce.errors import UsageError
from mapreduce.models import MODELS
from mapreduce.optim import OPTIMIZERS, SCHEDULES
from mapreduce.plan.strategies import STRATEGIES
from mapreduce.support.options import POSITIVE, Bound
from mapreduce.support.registry import Registry

#: Most steps that L-BFGS remembers: it keeps two vectors of each, and all their products.
MOST_STEPS = 1000

#: Most replicas: each may keep a state of its own.
MOST_REPLICAS = 4096
#: Most applications that a gradient may be late: a version of the model is kept for each.
MOST_STALENESS = 10_000
#: Most local steps of a round.
MOST_LOCAL_STEPS = 100_000


def is_count(number: int) -> bool:
    return number >= 0


_FROM_1 = Bound("a positive number", lambda number: number >= 1)
_FROM_0 = Bound("a finite, non-negative number", lambda number: 0 <= number < math.inf)


def up_to(most: int, text: str = "a positive number up to {:,}") -> Bound:
    return Bound(text.format(most), lambda number: 1 <= number <= most)


@dataclass(frozen=True)
class Option:
    """One option; its value may have to be one of some choices, or name a member of a family.

    ``default`` is None if it depends on other things, which ``help`` explains. An ``is_auto``
    option takes "auto" for that, too. ``group`` is its heading in the help.
    """

    flag: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    family: Registry | None = None
    bound: Bound | None = None
    is_auto: bool = False
    group: str = ""

    def parse(self, text: str) -> Any:
        """The value of a text; a ValueError if it is none."""
        return text if self.is_auto and text == "auto" else self.type(text)

    @property
    def name(self) -> str:
        return self.flag.lstrip("-").replace("-", "_")

    def check(self, value: Any) -> None:
        """Refuse a value with a UsageError: not a choice, out of bounds, or an unknown member."""
        if (value is None and self.default is None) or (self.is_auto and value == "auto"):
            return
        if self.choices:
            known = f"one of {', '.join(self.choices)}"
            expect(value in self.choices, self.flag, known, repr(value))
        if self.bound is not None:
            expect(self.bound.holds(value), self.flag, self.bound.text, value)
        self.members(value)

    def members(self, value: str) -> list[str]:
        """The code that a value names in the family; a schedule may be several members."""
        if self.is_auto and value == "auto":
            return []
        parts = value.split("+") if self.family is SCHEDULES else [value]
        return [self.family.code(part.strip()) for part in parts] if self.family else []


def grouped(group: str, *options: Option) -> tuple[Option, ...]:
    """Options under a heading."""
    return tuple(replace(option, group=group) for option in options)


def expect(condition: bool, option: str, expected: str, found: object) -> None:
    """Raise a UsageError unless a condition holds."""
    if not condition:
        raise UsageError(f"{option}: expected {expected}, found {found}")


def _set(default: Any, text: str, bound: Bound | None = None, **more: Any) -> Any:
    return field(default=default, metadata={"help": text, "bound": bound, **more})


@dataclass(frozen=True)
class _Learned:
    model: str = _set(
        "auto",
        "the model to train (default: softmax, or linear for labels that are numbers)",
        family=MODELS,
        is_auto=True,
    )
    init_from: str | None = _set(
        None, "RUN or FILE.safetensors whose parameters the training starts from"
    )
    features_from: str | None = _set(
        None,
        "RUN:LAYER; the model learns from what that layer of the run's model, or of the model in a "
        "file, gives for each row",
    )
    class_weight: str | None = _set(
        None, "how much the rows of each class count: balanced, or LABEL=WEIGHT[,LABEL=WEIGHT]"
    )
    augment: str | None = _set(
        None, "change the images of each gradient by chance: flip, crop:PIXELS, or flip,crop:PIXELS"
    )
    limit_rows: int | None = _set(None, "train on the first N rows only", _FROM_1)
    seed: int = _set(
        0,
        "seed of the initial parameters and of the order of the slices",
        Bound("a number from 0 to 2**63 - 1", lambda number: 0 <= number < 2**63),
    )
    dtype: str | None = _set(
        None,
        "dtype of the parameters (default: float32; lbfgs: float64)",
        choices=("float32", "float64"),
    )


@dataclass(frozen=True)
class _Learning:
    optimizer: str = _set(
        "auto",
        "how gradients update the model (default: sgd; lbfgs for softmax, linear, logistic and svm "
        "on a table, if no other option says how or how long to learn)",
        family=OPTIMIZERS,
        is_auto=True,
    )
    learning_rate: float = _set(0.1, "step size", POSITIVE)
    momentum: float = _set(
        0.9,
        "share of the velocity that each step keeps, for --optimizer momentum",
        Bound("a number in [0, 1)", lambda number: 0 <= number < 1),
    )
    schedule: str = _set(
        "constant", "how the learning rate changes; join several schedules by +", family=SCHEDULES
    )
    batch_size: int | None = _set(
        None,
        "number of rows in a round; 0 takes all rows (default: 128, more for more than 185,000 "
        "rows; lbfgs: all)",
        Bound("a number of rows", is_count),
    )
    slice_rows: int | None = _set(
        None,
        "number of rows for which a mapper computes one gradient; it must divide the batch size",
        _FROM_1,
    )
    l1: float = _set(
        0.0, "strength of the L1 penalty on the weights, for sgd and momentum", _FROM_0
    )
    l2: float | None = _set(
        None,
        "strength of the L2 penalty on the weights (default: 0; on a table, for lbfgs, one over "
        "the number of rows, which is scikit-learn's C = 1 or alpha = 1)",
        _FROM_0,
    )
    weight_decay: float = _set(
        0.0,
        "share of all parameters (weights and biases) that is added to the gradient; adamw "
        "subtracts it from the parameters instead",
        _FROM_0,
    )
    clip_norm: float | None = _set(None, "scale larger gradients down to this norm", POSITIVE)
    non_finite: str = _set(
        "error",
        "what to do when a gradient is not finite: end with an error, or skip the round",
        choices=("error", "skip"),
    )
    precision: str = _set(
        "full",
        "mixed computes gradients from float16 numbers; parameters and sums stay float32",
        choices=("full", "mixed"),
    )
    history_size: int = _set(
        10, "number of steps that lbfgs remembers", up_to(MOST_STEPS, "a number from 1 to {}")
    )
    tol: float = _set(
        1e-6, "end lbfgs when the gradient's norm, relative to the loss, is at most this", _FROM_0
    )


@dataclass(frozen=True)
class _Length:
    epochs: int | None = _set(
        None,
        "number of passes over the data (default: as many as make 200 rounds, at most 20; lbfgs: "
        "at most 1000)",
        _FROM_1,
    )
    rounds: int | None = _set(None, "number of updates of the model, instead of --epochs", _FROM_1)
    eval_every: int | None = _set(
        None, "number of rounds between evaluations (default: an epoch; lbfgs: at the end)", _FROM_1
    )
    patience: int = _set(
        0,
        "stop after this many evaluations without a lower loss; 0 never stops",
        Bound("a number of evaluations", is_count),
    )
    checkpoint_every: int | None = _set(
        None, "number of rounds between checkpoints (default: 500)", _FROM_1
    )


@dataclass(frozen=True)
class _Strategy:
    strategy: str = _set("sync", "what one round does", family=STRATEGIES)
    replicas: int = _set(
        1,
        "copies of the model that learn side by side, each from its own part of a round's rows",
        up_to(MOST_REPLICAS, "a number from 1 to {:,}"),
    )
    local_steps: int = _set(
        1,
        "steps that a replica takes in a round, of its part of --batch-size rows each",
        up_to(MOST_LOCAL_STEPS, "a number from 1 to {:,}"),
    )
    replica_state: str = _set(
        "average",
        "what becomes of the optimizer's state of the replicas after a round",
        choices=("average", "keep"),
    )
    elastic: float | None = _set(
        None,
        "share of the way that each replica and the model move towards each other after a round, "
        "instead of becoming equal (elastic averaging)",
        Bound("a number above 0, and at most 1 / --replicas", lambda number: 0 < number <= 1),
    )
    combine: str = _set(
        "mean",
        "how the updates of the replicas become one: their mean, or adasum, which adds the parts "
        "in which they differ",
        choices=("mean", "adasum"),
    )
    held_out: int | None = _set(
        None,
        "number of rows that are never trained on, on which replicas compete (default for "
        "tournament: 5 % of the rows)",
        Bound("a number of rows", is_count),
    )
    spread: float = _set(
        1.0,
        "the learning rates of the replicas of a tournament lie between --learning-rate / SPREAD "
        "and --learning-rate * SPREAD",
        Bound("a finite number from 1 on", lambda number: 1 <= number < math.inf),
    )
    compress: str | None = _set(
        None,
        "how replicas send their updates in fewer bytes: fp16, onebit, or topk:RATIO such as "
        "topk:0.001; what a round leaves out is sent later",
    )
    staleness: int | None = _set(
        None,
        "with --strategy downpour, most gradients that are applied after a replica has read the "
        "model and before its own gradient is (default: --replicas - 1, which is the least; with "
        "--asynchronous no limit, and the least is 0)",
        Bound(
            f"a number from 0 to {MOST_STALENESS:,}", lambda number: 0 <= number <= MOST_STALENESS
        ),
    )
    asynchronous: bool = _set(
        False,
        "with --strategy downpour, apply gradients in the order in which they arrive, so that no "
        "worker waits; gradreduce replay repeats such a run from its log",
    )


@dataclass(frozen=True)
class _Execution:
    device: str = _set(
        "cpu",
        "where gradients are computed; auto takes cuda if a GPU can be used",
        choices=("auto", "cpu", "cuda"),
    )


#: Options of how and how long it is learned that say nothing against L-BFGS.
_OF_ANY = {"optimizer", "l2", "history_size", "tol", "eval_every", "checkpoint_every"}

#: Models with one best point, which L-BFGS finds.
CONVEX = ("softmax", "linear", "logistic", "svm")

#: What the help calls the parts of the settings.
_GROUPS = {
    "What is learned": _Learned,
    "How it is learned": _Learning,
    "How long it is learned": _Length,
    "Strategy": _Strategy,
    "Execution": _Execution,
}


@dataclass(frozen=True)
class Settings(_Execution, _Strategy, _Length, _Learning, _Learned):
    """The user's choice of all that decides the result, from which a plan is made."""

    def decided(self, is_table: bool, target: str | None) -> "Settings":
        """Settings with a model and an optimizer that suit data: of a table, and of a target."""
        model, optimizer = self.model, self.optimizer
        if model == "auto":
            model = "linear" if target == "number" else "softmax"
        if optimizer == "auto":
            parts = (_Learning, _Length, _Strategy)
            names = {one.name for part in parts for one in fields(part)} - _OF_ANY | {"augment"}
            is_free = all(getattr(self, name) == getattr(Settings, name) for name in names)
            suits = is_table and is_free and model in CONVEX
            optimizer = "lbfgs" if suits else "sgd"
        return replace(self, model=model, optimizer=optimizer)


def _table() -> tuple[Option, ...]:
    options = []
    for group, part in _GROUPS.items():
        for one in fields(part):
            kind: Any = next(iter(get_args(one.type)), one.type)
            values = {**one.metadata, "group": group}
            if family := values.get("family"):
                text, _, default = values["help"].partition(" (default")
                values["help"] = f"{text}: {family.known}" + f" (default{default}" * bool(default)
            options.append(Option(f"--{one.name.replace('_', '-')}", kind, one.default, **values))
    return tuple(options)


#: Options that decide the result.
PLAN = _table()


def checked(given: Mapping[str, Any], *tables: tuple[Option, ...]) -> dict[str, Any]:
    """Values from Python or from a file, if they are right for the options of some tables."""
    from mapreduce.support.suggest import did_you_mean

    known = {option.name: option for table in tables for option in table}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"there is no keyword {name!r}.{did_you_mean(name, known)} Keywords are the "
                f"command's options, with underscores"
            )
        option = known[name]
        # NumPy's numbers are accepted too.
        value = value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value
        if option.type is float and type(value) is int:
            value = float(value)
        is_default = (value is None and option.default is None) or (
            option.is_auto and value == "auto"
        )
        if not is_default and type(value) is not option.type:
            expected = " or ".join(option.choices) or option.type.__name__
            expected += " or auto" if option.is_auto else ""
            raise UsageError(f"{option.flag}: expected {expected}, found {value!r:.60}")
        option.check(value)
        values[name] = value
    return values


def settings(values: Mapping[str, Any]) -> Settings:
    """The settings of a plan, from the values of :data:`PLAN` and ``evaluation``."""
    if values["eval_every"] is not None and values["evaluation"] is None:
        raise UsageError("--eval-every needs data to evaluate on. Add --eval DATA, or leave it out")
    return Settings(**{option.name: values[option.name] for option in PLAN})
