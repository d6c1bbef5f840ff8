"""Teaches mrjob the runners of this toolkit.

mrjob has no hook for runners. Its seams are a set of aliases, a table of options, and the function
that turns an alias into a class; :func:`install` adds to the first two and wraps the third, so that
stock ``MRJob`` classes accept the runners too.
"""

from functools import wraps
from importlib import import_module
from typing import Any

import mrjob.job
import mrjob.options
import mrjob.runner
from mrjob.job import MRJob

#: Alias, and where the class is.
RUNNERS = {"parallel": "mapreduce.runners.parallel:ParallelMRJobRunner"}

START_METHODS = ("fork", "forkserver")

#: Options of the runners, in the form of mrjob's own table.
OPTIONS: dict[str, dict[str, Any]] = {
    "workers": {
        "switches": [
            (["--workers"], {"type": int, "help": "Worker processes (default: one per core)"})
        ]
    },
    "start_method": {
        "switches": [
            (
                ["--start-method"],
                {
                    "choices": START_METHODS,
                    "help": "How worker processes start (default: fork on Linux)",
                },
            )
        ]
    },
}


def runner_class(alias: str) -> Any:
    """The class of one of our runners, imported when it is first asked for."""
    module, _, name = RUNNERS[alias].partition(":")
    return getattr(import_module(module), name)


def install() -> None:
    """Make the runners known to mrjob; calling it again changes nothing."""
    if RUNNERS.keys() <= mrjob.options._RUNNER_ALIASES:
        return
    mrjob.options._RUNNER_ALIASES.update(RUNNERS)
    mrjob.options._RUNNER_OPTS.update(OPTIONS)
    theirs = mrjob.runner._runner_class

    @wraps(theirs)
    def ours(alias: str) -> Any:
        return runner_class(alias) if alias in RUNNERS else theirs(alias)

    mrjob.runner._runner_class = mrjob.job._runner_class = ours
    runner_kwargs = MRJob._runner_kwargs

    @wraps(runner_kwargs)
    def with_class(self: Any) -> dict[str, Any]:
        kwargs: dict[str, Any] = runner_kwargs(self)
        if self._runner_class().alias in RUNNERS:
            # mrjob gives the class to its inline and Spark runners only.
            kwargs["mrjob_cls"] = type(self)
        return kwargs

    MRJob._runner_kwargs = with_class
