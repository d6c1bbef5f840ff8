"""Training and inference as chained map/reduce steps on mrjob.

Importing this package does no work; ``mapreduce.job`` holds the class that jobs inherit from,
``mapreduce.driver`` the loop that trains a model, and ``mapreduce.run`` runs a job from a program
or a notebook.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapreduce.launch import Result as Result
    from mapreduce.launch import run as run

__version__ = "0.1.0"

_LAZY = ("run", "Result")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from mapreduce import launch

        return getattr(launch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
