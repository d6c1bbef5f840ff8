"""Scripts that were written for mrjob 0.4 to 0.6: what mrjob has since renamed, by its old name.

Options are those of ``optparse``, with its types, actions and callbacks: an action of mrjob's
parser hands each value to the ``optparse.Option`` that the job has asked for.
"""

import argparse
import logging
import optparse
from collections.abc import Iterator, Sequence
from functools import wraps
from types import FunctionType
from typing import Any
from weakref import WeakSet

import mrjob.compat
import mrjob.step
import mrjob.util
from mrjob.job import MRJob
from mrjob.runner import MRJobRunner
from mrjob.step import MRStep

#: What to write today, by the old name.
TODAY = {
    "configure_options": "configure_args",
    "load_options": "load_args",
    "add_passthrough_option": "add_passthru_arg (type=int, not 'int')",
    "add_file_option": "add_file_arg",
    "pass_through_option": "pass_arg_through",
    "option_parser": "arg_parser",
    "is_mapper_or_reducer": "is_task",
    "mr": "MRStep (from mrjob.step import MRStep)",
    "parse_output_line": "parse_output, which takes runner.cat_output()",
    "stream_output": "cat_output",
    "DEFAULT_INPUT_PROTOCOL": "INPUT_PROTOCOL, a class (the old name is ignored)",
    "DEFAULT_PROTOCOL": "INTERNAL_PROTOCOL, a class (the old name is ignored)",
    "DEFAULT_OUTPUT_PROTOCOL": "OUTPUT_PROTOCOL, a class (the old name is ignored)",
}

#: Classes of which the note was written.
_noted: "WeakSet[type[MRJob]]" = WeakSet()

log = logging.getLogger("mrjob.job")


def note(job_class: type[MRJob]) -> None:
    """Log a line, once for a class, if it uses old names: what to write today."""
    if job_class in _noted:
        return
    _noted.add(job_class)
    kinds = job_class.__mro__[: job_class.__mro__.index(MRJob)]
    functions = [
        value
        for kind in kinds
        for value in map(_function_of, vars(kind).values())
        if value is not None and value.__module__ == kind.__module__
    ]
    used = {name for one in functions for name in (one.__name__, *one.__code__.co_names)}
    used |= {name for kind in kinds for name in vars(kind) if name.isupper()}
    found = [f"{old} is {new}" for old, new in TODAY.items() if old in used]
    if found:
        names = "; ".join(found)
        log.warning(f"{job_class.__name__} is written for an older mrjob. Today {names}")


def _function_of(value: Any) -> FunctionType | None:
    value = getattr(value, "__func__", value)
    return value if isinstance(value, FunctionType) else None


class _Values(optparse.Values):
    """What optparse's actions write to: the namespace of argparse."""

    def __init__(self, namespace: argparse.Namespace) -> None:
        self.__dict__ = vars(namespace)


class _Parser:
    """What a job, or its callback, asks of an ``OptionParser``."""

    def __init__(self, job: Any, values: _Values | None = None) -> None:
        self._job, self.values = job, values

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"mrjob's parser is one of argparse today, and has no {name!r} of optparse's. Write "
            f"configure_args, and use self.arg_parser"
        )

    def add_option(self, *names: str, **settings: Any) -> optparse.Option:
        """Add an option that tasks do not get."""
        option, arguments = _option(self._job, *names, **settings)
        self._job.arg_parser.add_argument(*names, **arguments)
        return option

    def error(self, message: str) -> None:
        self._job.arg_parser.error(message)


def _option(job: Any, *names: str, **settings: Any) -> tuple[optparse.Option, dict[str, Any]]:
    """An option of optparse, and what argparse is asked for in its place."""
    settings.pop("opt_group", None)
    option = optparse.Option(*names, **settings)

    class Action(argparse.Action):
        def __call__(
            self,
            parser: argparse.ArgumentParser,
            namespace: argparse.Namespace,
            values: Any,
            option_string: str | None = None,
        ) -> None:
            given = values if option.takes_value() else None
            if isinstance(given, list):
                given = tuple(given)
            known = _Values(namespace)
            reader: Any = _Parser(job, known)
            try:
                option.process(option_string or names[-1], given, known, reader)
            except optparse.OptParseError as error:
                # Its message names the option.
                parser.error(str(error))

    default: Any = None if option.default == optparse.NO_DEFAULT else option.default
    if isinstance(default, str) and option.type:
        default = option.check_value(names[-1], default)
    arguments: dict[str, Any] = {
        "action": Action,
        "nargs": 0 if not option.takes_value() else None if option.nargs == 1 else option.nargs,
        "default": default,
        "metavar": option.metavar,
    }
    if option.dest:
        arguments["dest"] = option.dest
    if option.help:
        arguments["help"] = option.help.replace("%", "%%").replace("%%default", "%(default)s")
    if option.help == optparse.SUPPRESS_HELP:
        arguments["help"] = argparse.SUPPRESS
    return option, arguments


class _Arguments:
    """``self.args``, unless a job has set one of its own."""

    def __get__(self, job: Any, owner: type | None = None) -> Any:
        if job is None:
            return self
        return job.options.args


def _add_passthrough_option(self: Any, *names: str, **settings: Any) -> None:
    self.add_passthru_arg(*names, **_option(self, *names, **settings)[1])


def _add_file_option(self: Any, *names: str, **settings: Any) -> None:
    option, arguments = _option(self, *names, **settings)
    # mrjob looks at the action, and refuses all but these two.
    self.add_file_arg(*names, **{**arguments, "action": option.action})


def _mr(cls: type, /, mapper: Any = None, reducer: Any = None, **settings: Any) -> MRStep:
    given = {"mapper": mapper, "reducer": reducer}
    return MRStep(**{key: value for key, value in given.items() if value}, **settings)


def _parse_output_line(self: Any, line: bytes) -> Any:
    return self.output_protocol().read(line.rstrip(b"\r\n"))


def _stream_output(self: Any) -> Iterator[bytes]:
    lines: Iterator[bytes] = mrjob.util.to_lines(self.cat_output())
    return lines


def _nothing(self: Any, args: Sequence[str] | None = None) -> None:
    """What the methods that jobs extend have left to do."""


def install() -> None:
    """Give mrjob's classes the old names; calling it again changes nothing."""
    if hasattr(MRJob, "configure_options"):
        return
    configure_args, load_args = MRJob.configure_args, MRJob.load_args

    @wraps(configure_args)
    def configure(self: Any) -> None:
        configure_args(self)
        self.configure_options()

    @wraps(load_args)
    def load(self: Any, args: Any) -> None:
        load_args(self, args)
        self.load_options(args)

    MRJob.configure_args, MRJob.load_args = configure, load
    MRJob.configure_options = MRJob.load_options = _nothing
    MRJob.add_passthrough_option, MRJob.add_file_option = _add_passthrough_option, _add_file_option
    MRJob.pass_through_option = lambda self, name: self.pass_arg_through(name)
    MRJob.is_mapper_or_reducer = lambda self: self.is_task()
    MRJob.option_parser = property(_Parser)
    MRJob.args = _Arguments()
    MRJob.mr = classmethod(_mr)
    MRJob.parse_output_line = _parse_output_line
    MRJobRunner.stream_output = _stream_output
    mrjob.compat.get_jobconf_value = mrjob.compat.jobconf_from_env
    mrjob.step.MRJobStep = MRStep
    mrjob.util.buffer_iterator_to_line_iterator = mrjob.util.to_lines
