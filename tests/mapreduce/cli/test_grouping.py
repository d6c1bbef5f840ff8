"""The help of commands with many options."""

import re

import click
import pytest

from mapreduce.cli.grouping import GroupedCommand, GroupedOption
from mapreduce.cli.main import cli, main
from quick import cases


def helped(capsys, *arguments):
    assert main([*arguments]) == 0
    return capsys.readouterr().out


def headings(text):
    return re.findall(r"^(\S.*):$", text, re.MULTILINE)


def flags(text):
    """Of each line that begins with an option, its last name."""
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)


def commands(group=cli, names=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*names, name))
        elif name != "run":
            # Which gives the help of a job.
            yield (*names, name), command


ALL = dict(commands())


def test_train_shows_ten_options_and_what_concerns_the_command_itself(capsys):
    text = helped(capsys, "train", "--help")
    assert headings(text) == ["Options"]
    own = ["--run", "--eval", "--dry-run", "--quiet", "--json", "--help-all", "--help"]
    common = ["model", "seed", "optimizer", "learning-rate", "batch-size", "epochs", "strategy"]
    assert {*flags(text)} == {*own, *(f"--{n}" for n in (*common, "runner", "workers", "rounds"))}


@pytest.mark.every_case
@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_every_option_is_shown_once_and_fits_80_columns(names, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    command = ALL[names]
    common = getattr(command, "common", ())
    text = helped(capsys, *names, "--help-all" if common else "--help")
    options = [one for one in command.params if isinstance(one, click.Option)]
    named = [next(name for name in one.opts if name.startswith("--")) for one in options]
    assert sorted(flags(text)) == sorted([*named, "--help"])
    assert {*common} <= {one.name for one in options if isinstance(one, GroupedOption)}
    assert all((one.help or "")[-1:] in (".", "]") for one in options)
    assert max(map(len, text.splitlines())) <= 80


NAMES = ["--drop", "a", "--drop", "b , c", "--drop", " d"]


@cases(
    "names, arguments",
    ("data import", [*NAMES, "a.csv", "out"]),
    ("evaluate", ["run", "a.csv", *NAMES]),
    ("predict", ["run", "a.csv", *NAMES, "out"]),
)
def test_names_of_columns_add_up(names, arguments):
    """Blanks around a comma belong to no name; others may be a column's of a Parquet file."""
    context = ALL[*names.split()].make_context(names, arguments)
    assert context.params["drop"] == ("a", "b", "c", " d")


@pytest.mark.parametrize(
    "names", [name for name, one in ALL.items() if isinstance(one, GroupedCommand)], ids=" ".join
)
def test_an_option_of_one_value_is_refused_where_it_comes_twice(names, answer):
    for option in ALL[names].params:
        if isinstance(option, click.Option) and not (option.multiple or option.is_flag):
            flag = next(name for name in option.opts if name.startswith("--"))
            assert (
                f"{flag}: expected it once, found it 2 times"
                in answer(2, *names, flag, "1", "x", f"{flag}=2").err
            )


def test_a_mistyped_option_that_help_does_not_show_is_found(answer):
    assert "Did you mean" in (
        said := answer(2, "train", "data", "--run", "run", "--momentun", "1").err
    )
    assert "--momentum" in said
