"""The common part of commands: options, opening a run, and output."""

import contextlib
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hdfs_utils.errors import StorageError
from hdfs_utils.paths import AnyPath, path_of
from kernels import QUIET
from mapreduce.cli.grouping import GroupedOption
from mapreduce.errors import DataError, UsageError
from mapreduce.support import jsonlog
from mapreduce.support.printable import echo
from mapreduce.support.suggest import did_you_mean
from mapreduce.support.traits import RUNNERS

if TYPE_CHECKING:
    from mapreduce.runs.directory import RunDir
    from mapreduce.support.options import Option

Command = TypeVar("Command", bound=Callable[..., Any])

FOLDER = click.Path(path_type=Path)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout."
)


def _format_log(context: click.Context, parameter: click.Parameter, name: str) -> None:
    """Have this process, and drivers that it starts, log in a format from now on."""
    if name == "json":
        os.environ[str(parameter.envvar)] = name
        jsonlog.install()


#: Takes effect at once: what is said of options that follow is in the format.
log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="GRADREDUCE_LOG_FORMAT",
    default="text",
    is_eager=True,
    expose_value=False,
    callback=_format_log,
    help="Write standard error as text, or as JSON: one object a line.  [default: text]",
)


class Seconds(click.FloatRange):
    """As click's range, which takes ``nan``."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"expected a number of seconds, found {value}", param, ctx)
        return found


#: A path of this machine, or a URI such as ``hdfs://host:port/path`` or ``s3://bucket/key``.
LOCATION = click.types.FuncParamType(path_of)
LOCATION.name = "path"

#: Data in other filesystems, for :func:`open_run`.
remote_data_option = click.option(
    "--remote-data",
    multiple=True,
    metavar="URI",
    help="Allow RUN to read this dataset in another filesystem than its own.",
)

#: Where the run's data lie now.
moved_data_option = click.option(
    "--data",
    type=LOCATION,
    help="Folder of the training data, if they have moved; their digest is checked.",
)

#: Code that :func:`open_run` may import.
trust_option = click.option(
    "--trust",
    multiple=True,
    metavar="MODULE:NAME",
    help="Allow RUN to import this model, optimizer or other code of your own.",
)


def _names(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    """Names of columns, joined by commas: all that an option is given with."""
    return tuple(name for one in given for name in re.split(r"\s*,\s*", one))


def sample_options(lines: int) -> Callable[[Command], Command]:
    """How much of its input a job that is followed reads, and how long its tasks may take."""

    def decorate(command: Command) -> Command:
        number = click.option(
            "--lines",
            type=click.IntRange(1, 100_000),
            default=lines,
            show_default=True,
            help="Read at most this many lines; of a longer input, take a sample.",
        )
        seconds = click.option(
            "--time-limit",
            type=Seconds(0.1, 3600),
            default=10.0,
            show_default=True,
            help="Stop a task that takes longer than this many seconds.",
        )
        return number(seconds(command))

    return decorate


class _Runner(click.Choice):  # type: ignore[type-arg]
    """A runner of the toolkit, or of a package, which is only looked for if it is named."""

    def convert(self, value: Any, param: Any, context: Any) -> Any:
        is_known = RUNNERS.has(value.partition(":")[0])
        return value if is_known else super().convert(value, param, context)


class Auto(click.ParamType):  # type: ignore[type-arg]
    """A number, or "auto"."""

    def __init__(self, option: "Option") -> None:
        self.name = "auto|integer"
        self._option = option

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """The number, or the text."""
        try:
            return self._option.parse(value)
        except ValueError:
            self.fail(f"{value!r} is neither an integer nor auto", param, context)


def _sentence(option: "Option", has_default: bool = True) -> str:
    """The help of an option, as click shows its own."""
    text, _, default = option.help.partition(" (default")
    if text.split()[0] not in option.choices:
        text = text[0].upper() + text[1:]
    return f"{text}.  [default{default[:-1]}]" if default and has_default else f"{text}."


def add_options(
    options: "tuple[Option, ...]", *, defaults: bool = True, resumes: bool = False
) -> Callable[[Command], Command]:
    """Give a command options of :mod:`mapreduce.plan.flags`.

    Without ``defaults`` an option that is not given is None. With ``resumes``, too: such an option
    keeps its value, so the help shows no default.
    """
    defaults = defaults and not resumes

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            default = option.default if defaults else None
            kind: Any = click.Choice(option.choices) if option.choices else option.type
            kind = LOCATION if kind is Path else kind
            kind = Auto(option) if option.is_auto and option.type is int else kind
            more: dict[str, Any] = {"type": kind, "show_default": default not in (None, "auto")}
            if option.type is bool:
                more = {} if "/" in option.flag else {"is_flag": True}
            if option.joint is not None:
                more |= {"multiple": True, "callback": _names if option.joint else None}
                default = ()
            if option.metavar:
                more["metavar"] = option.metavar
            more |= {"cls": GroupedOption, "declared": option}
            text = _sentence(option, not resumes)
            command = click.option(option.flag, default=default, help=text, **more)(command)
        return command

    return decorate


def runner_options(*, defaults: bool = True, resumes: bool = False) -> Callable[[Command], Command]:
    """Where to run, and on how many workers; see :func:`add_options`."""
    defaults = defaults and not resumes
    from mapreduce.runs import flags

    def decorate(command: Command) -> Command:
        runner, *others = flags.RUNNER
        return click.option(
            "-r",
            runner.flag,
            cls=GroupedOption,
            declared=runner,
            type=_Runner([*RUNNERS]),
            default=runner.default if defaults else None,
            show_default=defaults,
            help=_sentence(runner, not resumes),
        )(add_options(tuple(others), resumes=resumes)(command))

    return decorate


def output_options(command: Command) -> Command:
    """``--quiet`` and ``--json``."""
    quiet = click.option(
        "-q", "--quiet", is_flag=True, help="Show no progress, only warnings.", callback=_silence
    )
    return quiet(json_option(command))


def _silence(context: click.Context, parameter: click.Parameter, quiet: bool) -> bool:
    """Tell this process and those that it starts not to mention the compilation of kernels."""
    if quiet:
        os.environ[QUIET] = "1"
    return quiet


@contextlib.contextmanager
def own_options(context: click.Context) -> Iterator[None]:
    """Suggest an option of the command for an option that neither it nor its job knows."""
    try:
        yield
    except UsageError as error:
        message = str(error)
        wrong = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        known = {flag for option in context.command.params for flag in option.opts}
        # The job's parser, which does not know these options, may suggest one of its own.
        other = re.search(r" Did you mean (\S+?)\?", message)
        if other and other[1] in known:
            raise
        if not (wrong and (hint := did_you_mean(wrong[1], known))):
            raise
        raise UsageError(
            message.replace(other[0], f"{hint[:-1]} or {other[1]}?")
            if other
            else f"{message}.{hint}"
        ) from error


def quiet_mrjob() -> None:
    """Silence mrjob's own log, which is for debugging."""
    logging.getLogger("mrjob").setLevel(logging.ERROR)
    # It names the task's input, which is the toolkit's own.
    logging.getLogger("mrjob.inline").setLevel(logging.CRITICAL)


def pin_profile(run: AnyPath) -> None:
    """Set the numeric profile that a run, or a model, was trained with, before NumPy is loaded."""
    from mapreduce.support import jsonfiles, numeric, tensorfiles

    try:
        if run.is_file():
            text = tensorfiles.read_metadata(run).get("gradreduce.model", "{}")
            content = json.loads(text)
        else:
            names = "run.json", "fit.json"
            content = next(filter(None, (jsonfiles.read(run / name) for name in names)), {})
        profile = dict(content).get("numeric_profile", "native")
    except (StorageError, DataError, OSError, ValueError, TypeError):
        # The error is reported when the run is opened.
        return
    if profile in numeric.PROFILES:
        numeric.pin(profile)


def open_run(path: AnyPath, named: tuple[str, ...] | None, trusted: tuple[str, ...]) -> "RunDir":
    """A run that may be a stranger's; what it names that can do harm has to be named again.

    ``named`` are data in other filesystems, or None if the command does not open the run's data.
    ``trusted`` is code that may be imported.
    """
    from mapreduce.plan.settings import changed_sources
    from mapreduce.runs.directory import RunDir
    from mapreduce.support import trust
    from mapreduce.training.start import require_named

    trust.trust(*trusted)
    run = RunDir(path.absolute())
    warn_of_changes(changed_sources(run.config.plan), "the run began: the same rounds")
    if named is not None:
        require_named(run, named)
    return run


def warn_of_changes(names: list[str], since: str) -> None:
    """Warn of code of the user's own that has changed."""
    for name in names:
        echo(
            f"warning: the code of {name} is not what it was when {since} may now have other "
            f"results",
            err=True,
        )


def print_json(content: dict[str, Any]) -> None:
    """The one object that ``--json`` writes."""
    echo(json.dumps(content, indent=1, allow_nan=False))
