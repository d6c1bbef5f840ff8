"""Training and inference as chained map/reduce steps on mrjob.

Importing this package does no work; ``mapreduce.job`` holds the class that jobs inherit from,
``mapreduce.driver`` the loop that trains a model. ``mapreduce.run`` runs a job from a program or a
notebook, and ``mapreduce.explain`` shows what one did, or a round of a training.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapreduce.launch import Result as Result
    from mapreduce.launch import run as run
    from mapreduce.teaching.notebook import explain as explain

__version__ = "0.1.0"

_LAZY = {
    "run": "mapreduce.launch",
    "Result": "mapreduce.launch",
    "explain": "mapreduce.teaching.notebook",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
