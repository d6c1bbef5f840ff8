"""Each option of the tables is declared once, and commands take flag and help from there."""

from collections import defaultdict
from dataclasses import fields

import click
import pytest

from mapreduce.cli.grouping import GroupedOption
from mapreduce.cli.main import cli
from mapreduce.data.readers import CSV_OPTIONS
from mapreduce.data.recipes.recipe import Lists, Recipe
from mapreduce.engine.registry import EXECUTORS
from mapreduce.executors.options import GangOptions
from mapreduce.plan.flags import Settings
from mapreduce.plan.strategies import OPTIMIZING, STRATEGIES
from mapreduce.support.options import Option, names, table


def commands(group: click.Group, path: str = ""):
    """All commands, by the words that call them."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


COMMANDS = dict(commands(cli))


def declared(command: click.Command) -> dict[str, Option]:
    """The declarations of a command's options, by their flags."""
    found = {}
    for param in command.params:
        if (row := getattr(param, "declared", None)) is not None:
            found[param.opts[-1]] = row
    return found


@pytest.mark.parametrize("name", [*COMMANDS])
def test_flags_and_help_are_those_of_the_declaration(name):
    for flag, row in declared(COMMANDS[name]).items():
        (one,) = [each for each in fields(row.owner) if each.name == row.field]
        (again,) = [each for each in table(row.owner) if each.field == row.field]
        assert flag == again.flag.partition("/")[0]
        assert row.default == one.default
        said = next(each for each in COMMANDS[name].params if each.opts[-1] == flag).help
        assert said.lower().startswith(again.help.partition(" (default")[0].lower())


def test_every_option_under_a_heading_is_declared():
    """Those without a heading are of a command itself: its files, and how it prints."""
    # How an answer is compared is of "check" alone.
    for name, command in COMMANDS.items() - {("check", COMMANDS["check"])}:
        for param in command.params:
            if isinstance(param, GroupedOption):
                assert param.declared is not None, f"{name} {param.opts}"


def test_an_option_of_a_member_has_one_declaration():
    """A flag of several commands is one option, unless it means something else there."""
    owners = defaultdict(set)
    for command in COMMANDS.values():
        for flag, row in declared(command).items():
            owners[flag].add((row.owner, row.field))
    several = {flag: len(found) for flag, found in owners.items() if len(found) > 1}
    # What is stored, and what is computed with; the device of a plan, and of a model in use; ids
    # of the training data, and of others; the seed of a plan, and of permutations; checkpoints, and
    # columns beside predictions.
    assert several == dict.fromkeys(["--dtype", "--device", "--id", "--seed", "--keep"], 2)


def test_commands_take_what_members_declare():
    for flag in ("--gang-wait", "--stages", "--interface"):
        assert declared(COMMANDS["train"])[flag].owner is GangOptions
        assert declared(COMMANDS["resume"])[flag].owner is GangOptions
    assert {row.owner for row in declared(COMMANDS["train"]).values()} >= {
        *(row.owner for rows in EXECUTORS.tables().values() for row in rows)
    }
    for name, kind in zip(STRATEGIES.declarations, STRATEGIES.classes, strict=True):
        assert {*names(kind)} == {*STRATEGIES.load(name).takes} - {*OPTIMIZING}
    imported = declared(COMMANDS["data import"])
    named = {one.name for kind in (Recipe, Lists) for one in fields(kind) if one.metadata}
    assert {row.field for row in imported.values()} >= named
    for name in ("predict", "evaluate", "swarm", "data describe"):
        rows = declared(COMMANDS[name])
        assert {row.owner for row in rows.values() if row.name in CSV_OPTIONS} == {Recipe}
    trained = declared(COMMANDS["train"]).values()
    assert sum(issubclass(Settings, row.owner) for row in trained) == len(fields(Settings))


def test_an_option_that_keeps_its_value_names_no_default():
    rows = [one for one in COMMANDS["resume"].params if getattr(one, "declared", None) is not None]
    assert len(rows) > 10
    assert not [one.opts[0] for one in rows if "[default" in (one.help or "") or one.show_default]
    assert {one.default for one in rows if not one.multiple} == {None}
