"""When a training is said to have diverged: of the losses of its rounds alone."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mapreduce.plan.plan import DataReference, Plan
from mapreduce.runs import outcome
from mapreduce.runs.events import RunEnded
from quick import cases

DATA = DataReference("0" * 64, (1000,), 4, 2)
PLAN = Plan(
    **dict.fromkeys(Plan.__dataclass_fields__, 0)
    | {"data": DATA, "model": "logistic"}
    | {"optimizer": "sgd", "schedule": "constant", "clip_norm": None, "fold": None, "sources": ()}
    | {"batch_size": 100, "slice_rows": 100, "local_steps": 1, "rounds": 30, "dtype": "float32"}
)
REGRESSION = replace(PLAN, model="linear", data=replace(DATA, classes=0))
GUESS = math.log(2)


def says(plan, losses):
    rounds = enumerate(losses, 1)
    return outcome.warning(plan, None, {completed: (100, loss) for completed, loss in rounds})


def noisy(*means, spread=0.1, seed=0):
    """Ten rounds about each of some mean losses."""
    generator = np.random.default_rng(seed)
    return [mean * generator.uniform(1 - spread, 1 + spread) for mean in means for _ in range(10)]


@cases(
    "model, losses",
    ("logistic", [GUESS, *noisy(5, 13_023_777, 9_000_000)]),
    ("logistic", [GUESS, *noisy(0.9, 0.9, 0.9)]),
    ("mlp:8", [12_000.0, *noisy(900, 400, 90)]),
    ("mlp:8", [0.8, 5e9, *noisy(GUESS, GUESS, spread=0.01)]),
    ("svm", [1.0, *noisy(2.0, 3.0)]),
    ("softmax", [GUESS, None, None]),
)
def test_of_classifiers(model, losses):
    assert says(replace(PLAN, model=model), losses)


@cases(
    "model, losses",
    ("logistic", noisy(0.5, 0.4, 0.35)),
    ("logistic", [GUESS, *noisy(GUESS * 1.03, GUESS * 1.03)]),
    ("logistic", [GUESS, 50.0, 9.0, *noisy(0.5, 0.4)]),
    ("mlp:8", [1.0, 0.95]),
    ("mlp:8", [2.0, 40.0, 3.0, *noisy(0.6, 0.5)]),
    ("hinge-svm", [1.0, *noisy(0.99, 0.9)]),
    ("logistic", []),
    ("logistic", [GUESS]),
    ("logistic", [None, 0.4, 0.3]),
)
def test_never_of_ordinary_ones(model, losses):
    assert says(replace(PLAN, model=model), losses) is None


@pytest.mark.parametrize("seed", range(20))
def test_targets_with_a_long_tail_are_no_divergence(seed):
    """A model that explains nothing of incomes: rounds differ by the few that are very large."""
    generator = np.random.default_rng(seed)
    losses = (np.exp(generator.standard_normal((30, 100)) * 1.2) ** 2).mean(axis=1)
    assert says(REGRESSION, losses.tolist()) is None
    assert says(REGRESSION, [*losses[:10].tolist(), *(losses * 1e9).tolist()])


def test_all_rows_in_every_round_are_compared_exactly():
    full = replace(REGRESSION, batch_size=1000, slice_rows=1000)
    assert says(full, [4.0, 3.0, 5.5])
    assert says(full, [4.0, 7.0, 3.9]) is None


def test_a_search_that_patience_ends_is_not_told_to_take_more_rounds():
    plan = replace(PLAN, optimizer="lbfgs", patience=2)
    stopped = RunEnded(17, "", True, "unfinished", 0.05)
    assert outcome.warning(plan, stopped, {}) is None
    said = outcome.warning(plan, replace(stopped, stopped_early=False), {})
    assert said is not None
    assert said.startswith("not converged within 30 rounds")


@cases(
    "plan, last, said",
    (PLAN, 0.0, "the loss fell to 0"),
    (PLAN, 1e-3, "stalled at float32 precision after 17 rounds"),
    (replace(PLAN, dtype="float64"), 1e-10, "stalled at float64"),
    (REGRESSION, 1e-9, None),
    (REGRESSION, 1e-3, "stalled at float32"),
)
def test_a_search_that_nothing_is_left_for(plan, last, said):
    ended = RunEnded(17, "", True, "stalled", 0.05)
    losses = {1: (1000, GUESS), 2: (1000, last), 3: (1000, None), 4: (1000, 2.5)}
    found = outcome.warning(replace(plan, optimizer="lbfgs"), ended, losses)
    assert (found or "None").startswith(str(said))


def test_tables_are_standardised_already():
    plan = replace(PLAN, optimizer="lbfgs", dtype="float64")
    assert plan.cures.startswith("standardise the features with 'gradreduce data standardise'")
    table = replace(plan, data=replace(DATA, recipe="0" * 64))
    assert table.cures == "look for extreme features"


def test_large_labels_are_to_be_standardised():
    network = replace(REGRESSION, model="dense:3,relu")
    assert "standardise the labels, if they are far from 1, or try a smaller" in network.cures
    for other in (PLAN, REGRESSION, replace(network, optimizer="lbfgs")):
        assert "labels" not in other.cures


def test_the_loss_of_a_pass_is_that_of_all_rows():
    losses = {
        completed: (100 if completed % 10 else 50, float(completed)) for completed in range(1, 31)
    }
    expected = (sum(range(21, 30)) * 100 + 30 * 50) / 950
    assert outcome.pass_loss(PLAN, losses) == pytest.approx(expected)
    assert outcome.pass_loss(PLAN, {}) is None
    assert outcome.pass_loss(PLAN, {1: (100, None)}) is None


ENDED = RunEnded(30, "0" * 64, False)


def says_at_the_end(plan, losses):
    found = {completed: (100, loss) for completed, loss in enumerate(losses, 1)}
    return outcome.warning(plan, ENDED, found)


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, batch_size=1000, slice_rows=1000)])
def test_a_loss_that_ended_above_where_it_began(plan):
    text = says_at_the_end(plan, [0.5] * 15 + [0.6] * 15)
    assert text.startswith("the loss ended above where it began: 0.6 in the last pass")
    assert "0.5 in the first; " in text
    assert "--learning-rate" in text
    assert says_at_the_end(plan, [0.5] * 15 + [0.49] * 15) is None
    assert says_at_the_end(plan, [0.5]) is None


def test_batches_differ_by_what_is_in_them():
    assert says_at_the_end(PLAN, noisy(0.5, 0.5, 0.5)) is None
    # Less than two passes, and numbers, whose squares differ much, tell nothing.
    assert says_at_the_end(PLAN, [0.5] * 10 + [0.6] * 9) is None
    assert says_at_the_end(REGRESSION, [0.5] * 15 + [0.6] * 15) is None


def test_lasting_warnings_are_kept_once_and_after_that_of_the_losses():
    events = [
        {"event": "Warned", "message": "of a moment"},
        *[{"event": "Warned", "message": "lasting", "lasting": True}] * 2,
        {"event": "RunEnded", "message": "another", "lasting": True},
    ]
    losses = {completed: (1000, float(completed)) for completed in range(1, 31)}
    full = replace(PLAN, batch_size=1000, slice_rows=1000)
    first, *others = outcome.warnings(full, ENDED, losses, events)
    assert first.startswith("the training diverged")
    assert others == ["lasting"]
    assert outcome.warnings(full, ENDED, {}, events[:1]) == []
