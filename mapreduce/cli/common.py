"""What several commands need: shared options, the run's profile, and output."""

import contextlib
import difflib
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hdfs_utils.errors import StorageError
from hdfs_utils.filesystem import is_remote
from hdfs_utils.paths import AnyPath, path_of
from mapreduce.errors import DataError, UsageError
from mapreduce.options import Option

if TYPE_CHECKING:
    from mapreduce.rundir import RunDir

Command = TypeVar("Command", bound=Callable[..., Any])

FOLDER = click.Path(path_type=Path)


class Location(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has none
    """A path of this machine, or a URI such as ``hdfs://host:port/path`` or ``s3://bucket/key``."""

    name = "path"

    def convert(self, value: Any, param: Any, context: Any) -> AnyPath:
        return path_of(value) if isinstance(value, str) else value


LOCATION = Location()


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
            "--workers",
            type=int,
            help="Map tasks at once. [default: one per core, hadoop: of the cluster; emr: 4]",
        )(command)
        return click.option(
            "-r",
            "--runner",
            type=click.Choice(["inline", "parallel", "local", "hadoop", "emr"]),
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


@contextlib.contextmanager
def own_options(context: click.Context) -> Iterator[None]:
    """Name the command's option that was meant by one that neither it nor its job knows."""
    try:
        yield
    except UsageError as error:
        wrong = re.search(r"unrecognized arguments: (--[\w-]+)", str(error))
        known = [flag for option in context.command.params for flag in option.opts]
        close = difflib.get_close_matches(wrong[1], known, n=1) if wrong else []
        theirs = re.search(r" Did you mean (\S+)\?", str(error))
        if wrong is None or not close or (theirs and _nearer(wrong[1], theirs[1], close[0])):
            raise
        told = str(error).replace(theirs[0], "") if theirs else str(error)
        raise UsageError(f"{told}. Did you mean {close[0]}?") from error


def _nearer(word: str, first: str, second: str) -> bool:
    """Whether the first is more like a word than the second."""
    first_ratio, second_ratio = (
        difflib.SequenceMatcher(None, other, word).ratio() for other in (first, second)
    )
    return first_ratio > second_ratio


@contextlib.contextmanager
def interruptible(what_is_left: str) -> Iterator[None]:
    """SIGINT and SIGTERM end a command with a message, and with nothing half-written."""
    from mapreduce import signals
    from mapreduce.errors import Interrupted

    with signals.interrupting():
        try:
            yield
        except Interrupted:
            click.echo(f"interrupted; {what_is_left}", err=True)
            raise


def quiet_mrjob() -> None:
    """mrjob's own log is for those who debug it."""
    logging.getLogger("mrjob").setLevel(logging.ERROR)


def pin_profile(run: AnyPath) -> None:
    """Set the numeric profile that a run was started with, before NumPy is loaded."""
    from mapreduce import jsonfiles, numeric

    try:
        profile = (jsonfiles.read(run / "run.json") or {}).get("numeric_profile", "native")
    except (StorageError, DataError):
        # Whoever reads the run next says what is wrong with it.
        return
    if profile in numeric.PROFILES:
        numeric.pin(profile)


def remote_data_option(command: Command) -> Command:
    """What :func:`require_named` asks for."""
    return click.option(
        "--remote-data",
        multiple=True,
        metavar="URI",
        help="A dataset that RUN names in another filesystem than its own, named again.",
    )(command)


def require_named(run: "RunDir", named: tuple[str, ...]) -> None:
    """Ask no other machine for data only since a run says so, which may be a stranger's."""
    for place in (run.config.data, run.config.evaluation or ""):
        is_beside = place.split("/")[:3] == str(run.path).split("/")[:3]
        if is_remote(place) and place not in named and not is_beside:
            raise UsageError(
                f"{run.path} names data in another filesystem: {printable(place)}. If the run is "
                f"yours, name them again: --remote-data {printable(place)}"
            )


def printable(text: str) -> str:
    """A text that may be a stranger's, without what a terminal would obey."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def print_json(content: dict[str, Any]) -> None:
    """The one object that ``--json`` writes."""
    click.echo(json.dumps(content, indent=1, allow_nan=False))


def scores(accuracy: float | None, loss: float) -> str:
    """An evaluation in words; there is no accuracy where numbers are predicted."""
    return f"loss {loss:.4f}" if accuracy is None else f"accuracy {accuracy:.4f}, loss {loss:.4f}"
