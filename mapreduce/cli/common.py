"""What several commands need: shared options, the run's profile, and output."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from mapreduce.options import Option

Command = TypeVar("Command", bound=Callable[..., Any])

FOLDER = click.Path(path_type=Path)


def add_options(
    options: tuple[Option, ...], *, defaults: bool = True
) -> Callable[[Command], Command]:
    """Give a command options of :mod:`mapreduce.options`.

    Without ``defaults`` an option that is not given is None.
    """

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            default = option.default if defaults else None
            kind: Any = click.Choice(option.choices) if option.choices else option.type
            command = click.option(
                option.flag,
                type=kind,
                default=default,
                show_default=default is not None,
                help=option.help,
            )(command)
        return command

    return decorate


def runner_options(*, defaults: bool = True) -> Callable[[Command], Command]:
    """Where to run, and on how many workers."""

    def decorate(command: Command) -> Command:
        runner = "parallel" if defaults else None
        command = click.option(
            "--start-method",
            type=click.Choice(["fork", "forkserver"]),
            help="How -r parallel starts its workers. [default: fork on Linux]",
        )(command)
        command = click.option(
            "--workers", type=int, help="Map tasks at once. [default: one per core]"
        )(command)
        return click.option(
            "-r",
            "--runner",
            type=click.Choice(["inline", "parallel", "local"]),
            default=runner,
            show_default=defaults,
            help="Who runs the steps.",
        )(command)

    return decorate


def output_options(command: Command) -> Command:
    """``--quiet`` and ``--json``."""
    command = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")(
        command
    )
    return click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")(command)


def quiet_mrjob() -> None:
    """mrjob's own log is for those who debug it."""
    logging.getLogger("mrjob").setLevel(logging.ERROR)


def pin_profile(run: Path) -> None:
    """Set the numeric profile that a run was started with, before NumPy is loaded."""
    from mapreduce import numeric

    profile = "native"
    try:
        profile = json.loads((run / "run.json").read_bytes()).get("numeric_profile", profile)
    except (OSError, ValueError, AttributeError, RecursionError):
        # Whoever reads the run next says what is wrong with it.
        return
    if profile in numeric.PROFILES:
        numeric.pin(profile)


def print_json(content: dict[str, Any]) -> None:
    """The one object that ``--json`` writes."""
    click.echo(json.dumps(content, indent=1, allow_nan=False))


def scores(accuracy: float | None, loss: float) -> str:
    """An evaluation in words; there is no accuracy where numbers are predicted."""
    return f"loss {loss:.4f}" if accuracy is None else f"accuracy {accuracy:.4f}, loss {loss:.4f}"
