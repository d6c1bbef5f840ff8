"""Every option that takes a number, with odd numbers; and the defaults that helps name."""

import dataclasses
import re
from importlib import import_module

import click
import pytest

from mapreduce.cli import main as commands
from mapreduce.cli.common import Auto
from mapreduce.cli.main import main
from mapreduce.explaining import engine
from mapreduce.mrjob_patches import options as runner_options
from mapreduce.optim.contract import Defaults
from mapreduce.optim.lbfgs import LBFGS
from mapreduce.plan import settings
from mapreduce.plan.flags import PLAN
from mapreduce.plan.settings import Settings
from mapreduce.runners.parallel import runner as parallel
from mapreduce.runs import flags as options
from mapreduce.runs.execution import Execution
from mapreduce.support import numeric
from programs import COUNT, fails, succeed
from quick import cases

ODD = ["-1", "0", "nan", "inf", "-inf", "1e400", "1e308", str(10**30), str(2**63), "x", ""]

#: Commands that take numbers, and what they need to be given besides.
COMMANDS = [
    ("train", ["data", "--run", "other", "--dry-run"]),
    ("search", ["data", "--eval", "data", "--run", "run"]),
    ("resume", ["run"]),
    ("replay", ["run"]),
    ("evaluate", ["run", "data", "-r", "inline"]),
    ("predict", ["run", "data", "predicted", "-r", "inline"]),
    ("swarm", ["run", "numbers.csv", "swarmed"]),
    ("data import", ["numbers.csv", "out", "--format", "csv"]),
    ("data describe", ["numbers.csv", "-r", "inline"]),
    ("data split", ["numbers.csv", "parts"]),
    ("compare", ["numbers.csv", "--run", "compared", "--models", "softmax", "--folds", "2"]),
    ("data digits", ["data"]),
    ("data standardise", ["data", "data"]),
    ("explain", ["job.py", "words.txt", "--json"]),
    ("explain", ["run", "--json"]),
    ("check", ["job.py", "words.txt", "--law", "names"]),
    ("grade", ["job.py", "--exercise", "4"]),
    ("cluster up", []),
    ("spark up", []),
    ("jobs wait", ["gone"]),
    ("serve", ["gone"]),
]


def command_of(name):
    first, _, second = name.partition(" ")
    module, _, attribute = commands.COMMANDS[first][0].partition(":")
    found = getattr(import_module(module), attribute)
    return found.commands[second] if second else found


def numbers_of(command):
    """Options of a number, as they are written."""
    return [
        option.opts[-1]
        for option in command.params
        if isinstance(option, click.Option)
        and isinstance(option.type, click.types.IntParamType | click.types.FloatParamType | Auto)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    rows = "".join(f"{number},2,x\n{number},4,y\n" for number in range(20))
    (folder / "numbers.csv").write_text(f"a,b,label\n{rows}")
    (folder / "words.txt").write_text("to be\nor not\n")
    (folder / "job.py").write_text(COUNT)
    succeed("data", "import", "numbers.csv", "data", "--format", "csv", cwd=folder)
    succeed("train", "data", "--run", "run", "--rounds", 2, "-r", "inline", cwd=folder)
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    # It would start pytest anew, with the profile's variables.
    monkeypatch.setattr(numeric, "pin", lambda profile: None)


@pytest.mark.parametrize(
    ("name", "given", "flag"),
    [(name, given, flag) for name, given in COMMANDS for flag in numbers_of(command_of(name))],
)
def test_no_number_is_a_bug(here, name, given, flag, capsys):
    for number in ODD:
        arguments = [*given, f"{flag}={number}"]
        if name.startswith(("cluster", "spark")):
            # One that is taken would start a cluster.
            try:
                command_of(name).make_context(name, arguments)
            except click.UsageError:
                continue
            assert (flag, number) == ("--gpus", "0")
            continue
        code = main([*name.split(), *arguments])
        _, said = capsys.readouterr()
        # The job that is waited for is gone, and so is the model.
        assert code in (0, 2, 66 if given == ["gone"] else 73), (number, said)
        assert code == 0 or "rror: " in said
        if number in ("x", ""):
            assert code == 2


def test_there_are_no_other_commands_that_take_numbers():
    found = set()
    for first in commands.COMMANDS:
        command = command_of(first)
        named = {"": command} if not hasattr(command, "commands") else command.commands
        found |= {f"{first} {second}".strip() for second, one in named.items() if numbers_of(one)}
    assert found == {name for name, _ in COMMANDS}


@cases("option", "--workers", "--memory", "-D mapreduce.job.maps", "-D mapreduce.job.reduces")
def test_a_job_of_too_many_tasks_is_refused(here, option):
    for number in (2**31, 10**30):
        arguments = f"{option}={number}".split()
        said = fails(2, "run", "job.py", "words.txt", *arguments)
        assert f"expected {'a number of ' if option[1] == '-' else ''}at most" in said


def test_seeds_of_data_are_those_of_a_training(here):
    make = ["data", "import", "numbers.csv", "seeded", "--format", "csv"]
    for command in (make, ["data", "digits", "out"]):
        for seed in (-1, 2**63):
            assert main([*command, f"--seed={seed}"]) == 2
    assert main([*make, f"--seed={2**63 - 1}"]) == 0


def test_defaults_are_what_the_options_say():
    plan = {field.name: field.default for field in dataclasses.fields(Settings)}
    for option in PLAN:
        if option.name != "model":
            assert option.default == plan[option.name], option.flag
    how = {field.name: field.default for field in dataclasses.fields(Execution)}
    for option in options.EXECUTION:
        if option.name in how and option.default not in (None, "auto"):
            assert option.default == how[option.name], option.flag
    said = {option.name: option.help for option in PLAN}
    assert f"(default: {Defaults().batch_size}, more for more" in said["batch_size"]
    assert f"lbfgs: at most {LBFGS.defaults.epochs})" in said["epochs"]
    assert f"(default: {settings.CHECKPOINT_EVERY})" in said["checkpoint_every"]


def test_defaults_that_helps_of_runners_name():
    said = " ".join(succeed("run", "mrjob.examples.mr_wc", "--help", "-r", "parallel").split())
    (memory,) = re.findall(r"more records go to the disk \(default: (\d+)\)", said)
    runner = parallel.ParallelMRJobRunner(conf_paths=[])
    assert runner._budget == int(memory) << 20
    lines = {option.name: option.default for option in command_of("explain").params}["lines"]
    assert lines == engine.LINES
    assert f"or {engine.MAPS};" in succeed("explain", "--help")
    assert int(memory) == runner_options.DEFAULT_MEMORY
