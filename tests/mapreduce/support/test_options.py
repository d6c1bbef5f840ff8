"""Options that members declare: how they are given, and what is said of wrong ones."""

import json
import os
import shutil
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

import datasets
import mapreduce
import programs
from mapreduce.errors import UsageError
from mapreduce.plan.settings import Settings, make
from mapreduce.support.options import POSITIVE, between, describe, option, parse, spelled
from programs import fails, gradreduce, succeed
from quick import cases


@dataclass(frozen=True)
class Own:
    share: float = option(0.5, "part of it", between(0, 1))
    count: int = option(3, "how many")
    name: str = option("x", "what it is called")
    is_fast: bool = option(False, "whether it hurries")
    limit: float | None = option(None, "the most", POSITIVE)


def test_values_have_the_types_of_the_fields():
    assert parse(Own, None, "--optimizer own") == Own()
    text = "share=0.25, count=7,name=a:b,is_fast=true,limit=1e3"
    assert parse(Own, text, "--optimizer own") == Own(0.25, 7, "a:b", True, 1000.0)
    assert parse(Own, "is_fast=False", "") == Own()
    assert parse(None, None, "--optimizer own") is None


@cases(
    "text, message",
    ("share=1", r"--optimizer own, option share: expected a number in \[0, 1\), found '1'"),
    ("share=nan", r"option share: expected a number in \[0, 1\), found 'nan'"),
    ("share=", r"option share: expected a number in \[0, 1\), found ''"),
    ("limit=inf", "option limit: expected a finite, positive number, found 'inf'"),
    ("count=2.5", "option count: expected a whole number, found '2.5'"),
    ("is_fast=1", "option is_fast: expected true or false, found '1'"),
    ("shares=0.1", r"no option 'shares': expected one of share, count, .* Did you mean .?share"),
    ("share=0.1,share=0.2", "the option share is given twice"),
    ("0.1", "expected options such as share=VALUE, found '0.1'"),
    ("", "expected options such as share=VALUE, found ''"),
)
def test_wrong_options_are_named(text, message):
    with pytest.raises(UsageError, match=message):
        parse(Own, text, "--optimizer own")


@cases(
    "text, expected",
    ("share=0.1", "share=0.1"),
    ("count=7, share=0.10", "share=0.1,count=7"),
    ("count=07,share=1e-1", "share=0.1,count=7"),
    ("limit=1e3", "limit=1000"),
    ("limit=1000.0", "limit=1000"),
    ("limit=1e-8", "limit=1e-8"),
    ("limit=1.0E+30", "limit=1e+30"),
    ("share=5e-324", "share=5e-324"),
    ("is_fast=TRUE,name= 0.10", "name=0.10,is_fast=true"),
    ("share=0.5", "share=0.5"),
)
def test_one_spelling(text, expected):
    found = spelled(Own, text, "--optimizer own")
    assert found == expected
    assert parse(Own, found, "") == parse(Own, text, "")
    assert spelled(Own, found, "") == found


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_a_spelling_says_the_same_number(limit):
    found = spelled(Own, f"limit={limit!r}", "")
    assert parse(Own, found, "").limit == limit
    assert spelled(Own, f"limit={limit:.17g}", "") == found


def test_who_declares_none_takes_none():
    with pytest.raises(UsageError, match="--strategy sync: expected no arguments, found 'a=1'"):
        parse(None, "a=1", "--strategy sync")


def test_an_option_without_a_default():
    @dataclass(frozen=True)
    class Needed:
        width: int

    with pytest.raises(UsageError, match="expected the option width=VALUE, which has no default"):
        parse(Needed, None, "--model own")
    assert parse(Needed, "width=3", "").width == 3
    assert describe(Needed) == [("width=VALUE", "")]


@dataclass(frozen=True)
class Many:
    sizes: tuple[int, ...] = option((1, 2), "how large")


@dataclass(frozen=True)
class Outside:
    share: float = option(2.0, "part of it", between(0, 1))


@dataclass(frozen=True)
class Whole:
    count: int = option(1.5, "how many")


@cases(
    "kind, message",
    (Many, "the options Many, sizes: expected int, float, str or bool, or one of"),
    (Outside, r"the options Outside, share: expected a number in \[0, 1\) as its default"),
    (Whole, "the options Whole, count: expected a whole number as its default, found 1.5"),
    (int, "the options int: expected a dataclass"),
    (Own(), "expected a dataclass"),
)
def test_a_wrong_declaration_is_named(kind, message):
    for look in (describe, lambda one: parse(one, None, "--optimizer own")):
        with pytest.raises(UsageError, match=message):
            look(kind)


def test_what_is_said_of_them():
    assert describe(Own)[0] == ("share=0.5", "part of it (a number in [0, 1))")
    assert describe(None) == []


OWN = """
from dataclasses import dataclass
import numpy as np
from mapreduce.optim import Transformation, elementwise
from mapreduce.support.options import between, option

@dataclass(frozen=True)
class Options:
    keep: float = option(0.9, "share that is kept", between(0, 1))
    times: int = option(1, "how often")

def heavy(keep, times):
    def update(updates, state, params, step):
        kept = keep * state["kept"] + updates
        return times * kept, {"kept": kept}
    return Transformation(lambda params: {"kept": np.zeros_like(params)}, update)

ball = elementwise(lambda given: [heavy(given.own.keep, given.own.times)], options=Options)
"""


def test_an_optimizer_of_ones_own(tmp_path, monkeypatch):
    """From the command, from Python and resumed; its options are in the help and in the report."""
    data = datasets.blobs(tmp_path / "data").folder
    (tmp_path / "balls.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    spec = "balls:ball:keep=0.8,times=2"
    plan = "--model", "softmax", "--rounds", 6, "--checkpoint-every", 2, "-q", "-r", "inline"
    succeed("train", data, "--run", "a", "--optimizer", spec, *plan)
    succeed("train", data, "--run", "b", "--optimizer", "balls:ball", *plan)
    found = [json.loads((tmp_path / run / "result.json").read_text()) for run in "ab"]
    assert found[0]["model_sha256"] != found[1]["model_sha256"]
    assert spec in succeed("runs", "show", "a")
    for asked in (
        ("optimizers", "balls:ball"),
        ("train", data, "--optimizer", "balls:ball", "--help"),
        ("train", "--help-all", "--optimizer", spec),
    ):
        told = " ".join(succeed(*asked).split())
        assert "keep=0.9" in told
        assert "share that is kept (a number in [0, 1))" in told
    assert "Options of adam" in succeed("train", "--optimizer", "adam", "--help")
    assert "Options of" not in succeed("train", "--optimizer", "nobody", "--help")
    text = (
        "import json, sys, mapreduce\n"
        f"run = mapreduce.train(sys.argv[1], 'softmax', run='c', optimizer={spec!r}, rounds=6,\n"
        "    checkpoint_every=2, runner='inline', progress=False)\n"
        "print(run.model_sha256)"
    )
    done = programs.ran(sys.executable, "-c", text, data, env={**os.environ, "PYTHONPATH": "."})
    assert done.stdout.split() == [found[0]["model_sha256"]]
    for path in [tmp_path / "a" / "result.json", *(tmp_path / "a" / "rounds").glob("*.block")]:
        path.unlink()
    shutil.rmtree(max((tmp_path / "a" / "checkpoints").iterdir()))
    succeed("resume", "a", "--trust", "balls:ball", "-q")
    again = json.loads((tmp_path / "a" / "result.json").read_text())
    assert again["model_sha256"] == found[0]["model_sha256"]
    said = fails(2, "train", data, "--run", "d", "--optimizer", "balls:ball:keep=1.5", *plan)
    assert "--optimizer balls:ball, option keep: expected a number in [0, 1), found" in said


def test_defaults_that_are_said_give_the_same_model(tmp_path):
    data = datasets.blobs(tmp_path / "data").folder
    found = {}
    for name, spec in {
        "plain": "adam",
        "said": "adam:beta1=0.9,beta2=0.999,epsilon=1e-8",
        "other": "adam:beta1=0.5",
    }.items():
        run = mapreduce.train(
            data,
            "softmax",
            run=tmp_path / name,
            optimizer=spec,
            rounds=5,
            runner="inline",
            progress=False,
        )
        found[name] = run.model_sha256
    assert found["plain"] == found["said"] != found["other"]


WRONG = """
import numpy as np
from mapreduce.optim import Transformation, elementwise

def wide(updates, state, params, step):
    return updates, {"mean": state["mean"].astype(np.float64)}

def lost(updates, state, params, step):
    return updates, {}

def more(updates, state, params, step):
    return updates, {**state, "other": updates}

def made(update):
    init = lambda params: {"mean": np.zeros_like(params)}

    def later(updates, state, params, step):
        # The first step is tried before the training.
        return update(updates, state, params, step) if step else (updates, state)

    return elementwise(lambda given: [Transformation(init, later)])

wide, lost, more = map(made, (wide, lost, more))
"""


@cases(
    "name, message",
    ("wide", r"block 0: expected the array 'mean' as float32 \(39,\), as before the"),
    ("lost", "expected the array 'mean' as .*, found none: does optimizer=\"wrong_steps:l"),
    ("more", "found other, too, which init has not made"),
)
def test_a_state_that_changes_its_kind(name, message, tmp_path, monkeypatch):
    data = datasets.blobs(tmp_path / "data").folder
    (tmp_path / "wrong_steps.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=message):
        mapreduce.train(
            data,
            "softmax",
            run="run",
            optimizer=f"wrong_steps:{name}",
            runner="inline",
            progress=False,
        )


def test_one_plan_for_all_spellings(tmp_path, monkeypatch):
    data = datasets.blobs(tmp_path / "data").manifest
    (tmp_path / "spelt.py").write_text(OWN + programs.WIDE)
    monkeypatch.chdir(tmp_path)
    plans = {
        make(Settings(model=model, optimizer=optimizer), data).sha256
        for model in ("spelt:Wide:width=4", "spelt:Wide:width=04")
        for optimizer in (
            "spelt:ball:keep=0.8,times=2",
            "spelt:ball:times=2,keep=0.80",
            "spelt:ball: keep = 8e-1 , times = 2",
        )
    }
    assert len(plans) == 1
    # As it was before there was one spelling.
    specs = "adam:beta1=0.8,epsilon=1e-8", "adam:epsilon=0.00000001,beta1=.8"
    found = [make(Settings(model="softmax", optimizer=spec), data) for spec in specs]
    assert found[0].optimizer == specs[0]
    assert found[0].sha256 == found[1].sha256


@pytest.mark.every_case
@cases(
    "old, new, optimizer, model",
    ("keep", "kept_share", "it has no option 'keep': expected one of kept_share, times", ""),
    (", options=Options", "", "expected no arguments, found 'keep=0.8'", ""),
    ("between(0, 1)", "between(0.85, 1)", "option keep: expected a number in [0.85, 1)", ""),
    ("width", "breadth", "", "it has no option 'width': expected one of breadth"),
    ("    Options = Options", "    pass", "", "expected no arguments, found 'width=4'"),
)
def test_options_that_are_gone_since(old, new, optimizer, model, tmp_path, monkeypatch):
    data = datasets.blobs(tmp_path / "data").folder
    source = tmp_path / "since.py"
    source.write_text(OWN + programs.WIDE if optimizer else programs.WIDE)
    monkeypatch.chdir(tmp_path)
    member = "since:ball" if optimizer else "since:Wide"
    parts = (
        ["--optimizer", "since:ball:keep=0.8"] if optimizer else ["--model", "since:Wide:width=4"]
    )
    succeed("train", data, "--run", "run", *parts, "--rounds", 2, "-q", "-r", "inline")
    before = source.read_text()
    source.write_text(before.replace(old, new))
    for command in (["resume", "run"], ["evaluate", "run", data]):
        done = gradreduce(*command, "--trust", member)
        assert done.returncode == 65
        assert f"run does not fit the code of {member}, which has changed since" in done.stderr
        assert "Put it back as it was then, or train a new run: --" in done.stderr
        assert f"{member}: {optimizer or model}" in done.stderr.replace(
            ", option keep", ": option keep"
        )
    # A list needs no code.
    assert "softmax" in succeed("runs", "list") or model
    source.write_text(before)
    succeed("evaluate", "run", data, "--trust", member)
    # What the code has never taken is damage.
    text = (tmp_path / "run" / "run.json").read_text()
    (tmp_path / "run" / "run.json").write_text(
        text.replace("keep=0.8", "keep=8").replace("width=4", "w=4")
    )
    done = gradreduce("evaluate", "run", data, "--trust", member)
    assert "run.json is damaged: UsageError" in done.stderr
