"""The options of our runners, in the form of mrjob's own table."""

import argparse
from collections.abc import Iterator
from functools import wraps
from typing import Any

import mrjob.job
import mrjob.options
from mrjob.job import MRJob

from mapreduce.support.traits import START_METHODS

#: MiB for records of ``-r parallel``, by default.
DEFAULT_MEMORY = 400


def _option(flag: str, text: str, **settings: Any) -> dict[str, Any]:
    return {"switches": [([flag], {"help": text, **settings})]}


def _number(flag: str, text: str) -> dict[str, Any]:
    return _option(flag, text, type=int)


OPTIONS: dict[str, dict[str, Any]] = {
    "workers": _number("--workers", "Number of worker processes (default: one per core)"),
    "start_method": _option(
        "--start-method",
        "How worker processes start (default: fork on Linux)",
        choices=START_METHODS,
    ),
    "memory": _number(
        "--memory",
        "MiB of memory for the records of all workers together, at least 1 for each; more records "
        f"go to the disk (default: {DEFAULT_MEMORY})",
    ),
    "task_log": _option(
        "--task-log",
        "Add to this file what tasks write to standard error; -v shows it",
        metavar="FILE",
    ),
    "map_memory": _number(
        "--map-memory", "MiB of memory for a map task's container, half for Java"
    ),
    "reduce_memory": _number("--reduce-memory", "MiB of memory for a reduce task's container"),
    "gpus_per_task": _number("--gpus-per-task", "Number of GPUs of a map task's container"),
    "queue_wait": _option(
        "--queue-wait",
        "End the job if nothing of it has room on the cluster for so many seconds (default: wait "
        "for as long as it takes)",
        type=float,
        metavar="SECONDS",
    ),
    "uber": _option(
        "--uber",
        "Run steps with little input inside the application master (default: on a cluster of "
        "gradreduce cluster up)",
        action="store_true",
    ),
    "yes": _option("--yes", "Start a cluster without asking; it costs money", action="store_true"),
    "dry_run": _option(
        "--dry-run",
        "Show which cluster would start, without starting it; needs no AWS credentials",
        action="store_true",
    ),
    "price_per_hour": _option(
        "--price-per-hour",
        "US dollars that an instance of each type costs per hour, such as m5.xlarge=0.24, by "
        "https://aws.amazon.com/emr/pricing; the cluster's price is shown before it starts",
        metavar="TYPE=DOLLARS",
    ),
}


OPTIONS["uber"]["switches"] += _option(
    "--no-uber", "Give every step tasks in containers", action="store_false"
)["switches"]

#: Before the name of an option, the name of the attribute that holds its value.
_OURS = "gradreduce_"


def give_way() -> None:
    """Let jobs have options of their own that are called as ours, as they may without us.

    Ours are added when the job has named its own. Where it has taken a name, the runner's option is
    in ``mrjob.conf`` only.
    """
    configure, load, switches = MRJob.configure_args, MRJob.load_args, MRJob._kwargs_from_switches
    names_for_help, print_help = MRJob._runner_opt_names_for_help, MRJob._print_help

    @wraps(configure)
    def configure_args(self: Any) -> None:
        parser = self.arg_parser
        formatter, made = parser.formatter_class, parser.formatter_class(prog=parser.prog)
        # argparse has one look at each option, and makes it for that, of the terminal's size.
        parser.formatter_class = lambda **given: made
        try:
            configure(self)
        finally:
            parser.formatter_class = formatter
        for action in [action for action in parser._actions if action.dest in OPTIONS]:
            parser._handle_conflict_resolve(None, [(x, action) for x in action.option_strings])

    @wraps(load)
    def load_args(self: Any, args: Any) -> None:
        for name, flag, settings in _switches():
            if flag not in self.arg_parser._option_string_actions:
                ours = {"dest": _OURS + name, "default": None, "help": argparse.SUPPRESS}
                self.arg_parser.add_argument(flag, **settings | ours)
        load(self, args)

    @wraps(switches)
    def kwargs_from_switches(self: Any, keys: set[str]) -> dict[str, Any]:
        ours = {name: getattr(self.options, _OURS + name, None) for name in keys & OPTIONS.keys()}
        return {**switches(self, keys - ours.keys()), **ours}

    @wraps(names_for_help)
    def runner_opt_names_for_help(self: Any) -> set[str]:
        names: set[str] = names_for_help(self)
        return names - _own_flags(self).keys()

    @wraps(print_help)
    def print_all_help(self: Any, options: Any) -> None:
        table = mrjob.options._RUNNER_OPTS
        # mrjob leaves out of a job's options what is called as a runner's.
        hidden = {} if options.runner else {name: table.pop(name) for name in OPTIONS}
        try:
            print_help(self, options)
        finally:
            table.update(hidden)
        for name, flag in _own_flags(self).items():
            print(f"{flag} is the job's own; the runner's is {name} in mrjob.conf")

    _read_once()
    MRJob.configure_args, MRJob.load_args = configure_args, load_args
    MRJob._kwargs_from_switches = kwargs_from_switches
    MRJob._runner_opt_names_for_help = runner_opt_names_for_help
    MRJob._print_help = print_all_help


def _read_once() -> None:
    """mrjob reads all options twice more for those that tasks get, also of jobs that have none."""
    parse, non_option_kwargs = mrjob.job._parse_raw_args, MRJob._non_option_kwargs

    def parse_raw_args(parser: Any, args: Any) -> list[Any]:
        return parse(parser, args) if parser.has_task_options else []

    @wraps(non_option_kwargs)
    def kwargs(self: Any) -> dict[str, Any]:
        self.arg_parser.has_task_options = bool(self._passthru_arg_dests | self._file_arg_dests)
        found: dict[str, Any] = non_option_kwargs(self)
        return found

    mrjob.job._parse_raw_args, MRJob._non_option_kwargs = parse_raw_args, kwargs


def _switches() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, flag and settings of each switch."""
    for name, option in OPTIONS.items():
        for (flag,), settings in option["switches"]:
            yield name, flag, settings


def _own_flags(job: Any) -> dict[str, str]:
    """Our options whose flags are a job's own, by their names."""
    known = job.arg_parser._option_string_actions
    return {name: flag for name, flag, _ in _switches() if known[flag].dest != _OURS + name}
