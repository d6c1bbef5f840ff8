"""``gradreduce``: finds the command, runs it, and turns errors into messages and exit codes."""

import contextlib
import io
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from mapreduce import __version__
from mapreduce.errors import Interrupted, LeftOutWarning
from mapreduce.support import collector, jsonlog
from mapreduce.support.printable import Record, drop_output, echo
from mapreduce.support.suggest import did_you_mean

#: By the name of a command, its place and its line in the help, which imports no command.
COMMANDS = {
    "new": ("mapreduce.cli.new:new", "Write a job to begin with, and its test."),
    "run": ("mapreduce.cli.run:run", "Run any mrjob job, unchanged, on all cores."),
    "explain": ("mapreduce.cli.explain:explain", "Show what a job does between input and output."),
    "check": (
        "mapreduce.cli.check:check",
        "Find mistakes in a job, by running it in several ways.",
    ),
    "grade": ("mapreduce.cli.grade:grade", "Grade a folder of submissions of an exercise."),
    "data": ("mapreduce.cli.data:data", "Describe, split, import, show and verify data."),
    "train": ("mapreduce.cli.train:train", "Train a model as a chain of map/reduce rounds."),
    "search": ("mapreduce.cli.search:search", "Train with many values of options; keep the best."),
    "compare": ("mapreduce.cli.compare:compare", "Compare several models on one table."),
    "resume": ("mapreduce.cli.train:resume", "Continue a training that was stopped."),
    "replay": ("mapreduce.cli.replay:replay", "Repeat an asynchronous training from its log."),
    "evaluate": ("mapreduce.cli.inference:evaluate", "Report on a model: all its metrics."),
    "predict": ("mapreduce.cli.inference:predict", "Write a model's predictions into files."),
    "swarm": ("mapreduce.cli.inference:swarm", "Predict with workers that come and go."),
    "serve": ("mapreduce.cli.serve:serve", "Answer requests for predictions over HTTP."),
    "export": ("mapreduce.cli.inference:export", "Write a run's parameters for other programs."),
    "report": ("mapreduce.cli.report:report", "Say what held a run back, by its trace."),
    "runs": ("mapreduce.cli.runs:runs", "List, show, compare, plot and prune runs."),
    "cluster": ("mapreduce.cli.cluster:cluster", "Run a real Hadoop on this machine."),
    "spark": ("mapreduce.cli.spark:spark", "Run a standalone Spark on this machine."),
    "models": ("mapreduce.cli.models:models", "List models, or show the layers of a network."),
    "optimizers": ("mapreduce.cli.members:optimizers", "List optimizers, and their options."),
    "strategies": ("mapreduce.cli.members:strategies", "List ways to share a training's work."),
    "jobs": ("mapreduce.cli.jobs:jobs", "Follow and cancel jobs that run on by themselves."),
    "logs": ("mapreduce.cli.logs:logs", "Show what the tasks of a job on Hadoop wrote."),
    "doctor": ("mapreduce.cli.doctor:doctor", "Check that everything needed is in place."),
}


@contextlib.contextmanager
def _broken_pipes() -> Iterator[None]:
    """End as by SIGPIPE: click would make an exit with 1 of it, and Python one with 120."""
    try:
        yield
    except BrokenPipeError as error:
        drop_output()
        raise Interrupted(signal.SIGPIPE) from error


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        with collector.resting():
            command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            hint = did_you_mean(args[0], COMMANDS, "'{}'")
            ctx.fail(f"no such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def make_context(self, *given: Any, **options: Any) -> click.Context:
        with _broken_pipes():
            return super().make_context(*given, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _broken_pipes():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Add --debug anywhere to see the traceback of an error.",
)
@click.version_option(__version__, prog_name="gradreduce")
def cli() -> None:
    """Run, explain and check MapReduce jobs, and train models with them.

    A training gives the same model, to the last bit, for any number of workers, after a crash and
    after a retry.
    """


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # Closed ones are nobody's; another file would get their numbers.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    debug = "--debug" in arguments[: _end(arguments)]
    if debug:
        arguments.remove("--debug")
    end = _end(arguments)
    logging.setLogRecordFactory(Record)
    # A command may have it say the same in another format.
    with contextlib.redirect_stderr(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("default", LeftOutWarning)
        warnings.showwarning = partial(_show, warnings.showwarning)
        try:
            return _run(arguments, end, debug)
        finally:
            jsonlog.end()


def _run(arguments: list[str], end: int, debug: bool) -> int:
    try:
        result = cli.main(
            arguments[:end], prog_name="gradreduce", standalone_mode=False, obj=arguments[end + 1 :]
        )
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        with io.StringIO() as text:
            error.show(text)
            echo(text.getvalue(), nl=False, err=True)
        return error.exit_code
    except BaseException as error:
        if debug:
            # A script that has run its job exits when that fails.
            raise (isinstance(error, SystemExit) and error.__cause__) or error  # noqa: B904
        return _report(error)


def _show(
    otherwise: Callable[..., None], message: Warning, category: type[Warning], *place: Any
) -> None:
    """Show a warning of ours as a command's; those of libraries as Python does."""
    if category is LeftOutWarning:
        echo(f"warning: {message}", err=True)
    else:
        otherwise(message, category, *place)


def _end(arguments: list[str]) -> int:
    """Where ``--`` is, after which the arguments for mrjob begin."""
    return arguments.index("--") if "--" in arguments else len(arguments)


def exit_report(error: BaseException) -> tuple[int, str]:
    """The exit code of an error, and its message; empty if there is none."""
    code: Any = getattr(error, "exit_code", None)
    if isinstance(error, SystemExit):
        # As Python does.
        is_code = isinstance(error.code, int | None)
        return (error.code or 0, "") if is_code else (1, str(error.code))  # type: ignore[return-value]
    if code == 141:
        return 141, ""
    if isinstance(error, KeyboardInterrupt | click.Abort | Interrupted):
        return code or 130, "interrupted"
    if code is None and isinstance(error, OSError):
        code = 74
    if any(kind.__name__ == "StepFailedException" for kind in type(error).__mro__):
        code = code or 1
    if isinstance(code, int):
        return code, f"error: {error}"
    name = type(error).__name__
    if place := _own_place(error):
        return 1, f"error: {name}: {error}, at {place}. --debug shows how it came there"
    return 70, f"error: {name}: {error}. This should not happen; --debug shows where"


def _own_place(error: BaseException) -> str:
    """The last line of the user's own code that led to an error; "" if there is none."""
    from mapreduce.support.forked import LIBRARIES

    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = frame.f_code.co_filename
        if Path(path).is_file() and not path.startswith(LIBRARIES):
            found = f"{path}, line {line}"
    return found


def _report(error: BaseException) -> int:
    """Print an error as a message; returns the exit code."""
    code, message = exit_report(error)
    if message:
        echo(message, err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
