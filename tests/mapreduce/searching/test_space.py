"""The grammar of ranges and alternatives, and what samplers draw from it."""

import collections

import numpy as np
import pytest

from mapreduce.errors import UsageError
from mapreduce.searching import samplers
from mapreduce.searching.space import Choice, Range, Space
from quick import cases

SPACE = Space(
    {
        "learning_rate": "log:0.001..1",
        "model": "mlp:16..64,{8|16}|softmax",
        "optimizer": "sgd|adam:beta1=0.8..0.99,beta2={0.9|0.999}",
        "seed": "3",
    }
)


def texts(space, sampler, count, seed=0):
    """The options of the first trials."""
    return [draw.options for draw in samplers.ask(sampler, space, seed, range(count))]


@cases(
    "text, expected",
    ("0.001..1", Range("x", 0.001, 1, False, False)),
    ("log:1e-4..1e-1", Range("x", 1e-4, 0.1, True, False)),
    ("-2..3", Range("x", -2, 3, False, True)),
    (".5..1", Range("x", 0.5, 1, False, False)),
    ("log:16..128", Range("x", 16, 128, True, True)),
)
def test_a_text_that_is_a_range(text, expected):
    ((found,),) = Space({"x": text}).texts.values()
    assert found == expected


def test_ranges_stand_anywhere_in_a_text():
    ((before, first, between, second, after),) = Space(
        {"model": "conv:4..8x3,dense:16..64,relu"}
    ).texts.values()
    assert (before, between, after) == ("conv:", "x3,dense:", ",relu")
    assert (first.high, second.low) == (8, 16) and first.label != second.label


@cases(
    "text",
    "0.5",
    "a..b",
    "0.001...1",
    "1.2.3",
    "topk:0.001",
    "residual(conv:8x3,relu)",
    "data/../other",
)
def test_other_texts_are_as_they_are(text):
    assert not Space({"x": text}).varying
    assert Space({"x": text}).fill(lambda each: 0) == {"x": text}


def test_paths_hold_no_ranges():
    space = Space({"init_from": "runs/1..2|3"}, frozenset({"init_from"}))
    assert space.fill(lambda each: 0) == {"init_from": "runs/1..2|3"}


@cases(
    "text, message",
    ("1..1", "LOW below HIGH in a range, found 1..1"),
    ("3..2", "LOW below HIGH in a range, found 3..2"),
    ("log:0..1", "ends above 0, found log:0..1"),
    ("log:-1..1", "ends above 0"),
    ("mlp:{8|16", "is not closed"),
    ("mlp:8}", "closes nothing"),
    ("sgd||adam", "an alternative is empty"),
    ("sgd|", "an alternative is empty"),
)
def test_malformed_texts(text, message):
    with pytest.raises(UsageError, match=message) as raised:
        Space({"learning_rate": text})
    assert "--learning-rate" in str(raised.value) and text in str(raised.value)


def test_a_random_trial_is_a_function_of_seed_and_number():
    found = texts(SPACE, "random", 200)
    assert found[:50] == texts(SPACE, "random", 50)
    later = samplers.ask("random", SPACE, 0, range(150, 200))
    assert found[150:] == [draw.options for draw in later]
    assert found != texts(SPACE, "random", 200, seed=1)
    kinds = collections.Counter(each["model"].partition(":")[0] for each in found)
    assert min(kinds.values()) > 60
    assert {each["seed"] for each in found} == {"3"}


def test_ranges_are_covered_up_to_both_ends():
    whole = Range("x", 3, 6, False, True)
    values = [whole.at(at / 128) for at in range(128)]
    assert collections.Counter(values) == dict.fromkeys(range(3, 7), 32)
    rate = Range("x", 0.001, 1, True, False)
    shares = np.arange(1000) / 1000
    values = [rate.at(share) for share in shares]
    # Each magnitude as often, and six digits at most.
    assert [sum(value < end for value in values) for end in (0.01, 0.1)] == [334, 667]
    assert all(float(f"{value:.6g}") == value for value in values)
    assert rate.at(0) == 0.001 and rate.at(1 - 2**-53) == 1


def test_a_grid_has_every_point_once_in_the_order_of_the_seed():
    space = Space({"model": "mlp:{8|16|32}|softmax", "l2": "0|0.1|1", "epochs": "3"})
    assert samplers.size("grid", space) == 12
    found = [tuple(each.values()) for each in texts(space, "grid", 12)]
    models = "mlp:8", "mlp:16", "mlp:32", "softmax"
    assert {*found} == {(model, l2, "3") for model in models for l2 in ("0", "0.1", "1")}
    assert len({*found}) == 12
    other = [tuple(each.values()) for each in texts(space, "grid", 12, seed=1)]
    assert {*other} == {*found} and other != found != sorted(found)


def test_what_a_grid_cannot_be():
    with pytest.raises(UsageError, match=r"found the range 0.1..0.5 in --learning-rate.* random"):
        samplers.size("grid", Space({"learning_rate": "0.1..0.5"}))
    many = Space({name: "|".join(map(str, range(10))) for name in "abcdefghi"})
    with pytest.raises(UsageError, match="at most 1,000,000 points, found 1,000,000,000"):
        samplers.size("grid", many)
    assert samplers.size("random", many) is None


def test_every_dimension_can_be_reached():
    for each in SPACE.dimensions():
        if isinstance(each, Choice):
            reached = [SPACE.holding(each, at) for at in range(len(each.alternatives))]
        else:
            reached = [SPACE.holding(each, end) for end in (each.low, each.high)]
        assert len({*map(str, reached)}) == len(reached)


def test_wide_ranges_get_a_note():
    notes = Space({"learning_rate": "0.001..1", "l2": "log:0.001..1", "epochs": "1..9"}).notes()
    (note,) = notes
    assert note.startswith("--learning-rate: 0.001..1 ") and "log:0.001..1" in note
