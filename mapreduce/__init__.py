"""Training and inference as chained map/reduce steps on mrjob.

Importing this package loads what finds its modules, and notes from then on which random generators
have a seed. ``mapreduce.job`` holds the class that jobs inherit from, and
``mapreduce.training.driver`` the loop that trains a model.
``mapreduce.run`` runs a job from a program or a notebook, ``mapreduce.submit`` starts one that runs
on by itself, ``mapreduce.explain`` shows what a job did, or a round of a training, and
``mapreduce.check`` tests whether a job obeys the laws of MapReduce.
``mapreduce.train`` trains a model on arrays, tables or datasets, ``mapreduce.search`` with many
values of options, ``mapreduce.compare`` compares several models on a table, ``mapreduce.open_run``
opens a training, ``mapreduce.load`` the file of a model, and ``mapreduce.split`` divides a table.
``mapreduce.phase`` notes the time of a block in the trace of a training. ``mapreduce.parts`` is the
door for parts of one's own.
"""

from typing import TYPE_CHECKING, Any

from mapreduce.support import moved, own, seeds, turns  # noqa: F401

if TYPE_CHECKING:
    from mapreduce.checking.notebook import check as check
    from mapreduce.checking.notebook import explain as explain
    from mapreduce.comparing.python import compare as compare
    from mapreduce.data.splitting.python import split as split
    from mapreduce.launch.jobs import SubmittedJob as SubmittedJob
    from mapreduce.launch.jobs import submit as submit
    from mapreduce.launch.run import Result as Result
    from mapreduce.launch.run import run as run
    from mapreduce.searching.api import Search as Search
    from mapreduce.searching.api import search as search
    from mapreduce.support.phases import phase as phase
    from mapreduce.training.api import Run as Run
    from mapreduce.training.api import TrainedModel as TrainedModel
    from mapreduce.training.api import evaluate as evaluate
    from mapreduce.training.api import load as load
    from mapreduce.training.api import open_run as open_run
    from mapreduce.training.api import predict as predict
    from mapreduce.training.api import train as train

own.settle()
moved.install()
seeds.watch()

__version__ = "0.1.0"

_LAZY = {
    "compare": "mapreduce.comparing.python",
    "split": "mapreduce.data.splitting.python",
    "run": "mapreduce.launch.run",
    "Result": "mapreduce.launch.run",
    **dict.fromkeys(("submit", "SubmittedJob"), "mapreduce.launch.jobs"),
    **dict.fromkeys(("search", "Search"), "mapreduce.searching.api"),
    **dict.fromkeys(("check", "explain"), "mapreduce.checking.notebook"),
    "phase": "mapreduce.support.phases",
    **dict.fromkeys(
        ("train", "open_run", "load", "evaluate", "predict", "Run", "TrainedModel"),
        "mapreduce.training.api",
    ),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name == "errors":
        import mapreduce.errors as errors

        return errors
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
