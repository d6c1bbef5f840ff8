"""Finds the job class that a user names: in a file or in a module."""

import contextlib
import inspect
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import mapreduce.job  # noqa: F401  (makes mrjob import, and teaches it our runners)

from mrjob.job import MRJob  # isort: skip

from mapreduce import compat
from mapreduce.errors import Interrupted, MissingInputError, UsageError
from mapreduce.job.tracebacks import user_error
from mapreduce.support import own
from mapreduce.support.suggest import did_you_mean


def load_job(target: str) -> type[MRJob]:
    """The job class that the command line names.

    Parameters
    ----------
    target : str
        ``path/job.py``, ``package.module``, or one of them with ``:Class``.

    Raises MissingInputError (the file or module does not exist), UsageError (it defines no job, or
    several and none of them is named), GradreduceError (it cannot be imported; the message holds
    the traceback).
    """
    place, colon, name = target.rpartition(":")
    if not colon or Path(target).is_file():
        place, name = target, ""
    module = _import(place)
    if not name:
        return _only_job(module, place)
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        found = None
    if not (inspect.isclass(found) and issubclass(found, MRJob)):
        what = "has no" if found is None else "has no job class"
        raise UsageError(f"{place} {what} {name}. {_candidates(_jobs(module), place, name)}")
    return found


def _import(place: str) -> ModuleType:
    path = Path(place)
    is_module = all(part.isidentifier() for part in place.split("."))
    is_file = path.is_file() or path.suffix == ".py" or not is_module
    if is_file and not path.is_file():
        wrong = "is not a file" if path.exists() else "does not exist"
        scripts = [other.name for other in path.parent.glob("*.py")]
        hint = did_you_mean(path.name, scripts, str(path.parent / "{}"))
        raise MissingInputError(f"{place} {wrong}.{hint or ' Expected a file with a job'}")
    try:
        with _refused_runs(place):
            if is_file:
                return compat.import_script(path)
            sys.path.insert(0, str(Path.cwd()))
            return own.import_theirs(place)
    except (KeyboardInterrupt, Interrupted, UsageError):
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if not is_file and missing and f"{place}.".startswith(f"{missing}."):
            raise MissingInputError(
                f"there is no module {missing!r}, and no file {place}. A job is named by its file, "
                f"path/job.py, or by a module that can be imported from here"
            ) from error
        raise user_error(f"{place} cannot be imported", error) from error


@contextlib.contextmanager
def _refused_runs(place: str) -> Iterator[None]:
    """A script without a ``__main__`` guard would run its job as it is imported, and then again."""

    def refuse(cls: type) -> None:
        raise UsageError(
            f"{place} runs {cls.__name__} as it is imported. Guard the call: "
            f"if __name__ == '__main__': {cls.__name__}.run()"
        )

    theirs = MRJob.__dict__["run"]
    MRJob.run = classmethod(refuse)
    try:
        yield
    finally:
        MRJob.run = theirs


def _jobs(module: ModuleType) -> list[type[MRJob]]:
    """Job classes that a module defines, without those that others of them extend."""
    found = {
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, MRJob)
        and value.__module__ == module.__name__
    }
    bases = {base for job in found for base in job.__mro__[1:]}
    return sorted(found - bases, key=lambda job: job.__name__)


def _only_job(module: ModuleType, place: str) -> type[MRJob]:
    jobs = _jobs(module)
    if len(jobs) == 1:
        return jobs[0]
    if jobs:
        raise UsageError(f"{place} defines {len(jobs)} jobs. {_candidates(jobs, place)}")
    imported = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, MRJob) and value.__name__ != "Job"
    ]
    raise UsageError(
        f"{place} does not define a job, that is, a subclass of mrjob's MRJob. "
        f"{_candidates([job for job in imported if job is not MRJob], place)}"
    )


def _candidates(jobs: list[type[MRJob]], place: str, wanted: str = "") -> str:
    names = [job.__name__ for job in jobs]
    if hint := did_you_mean(wanted, names, f"{place}:{{}}"):
        return hint.lstrip()
    if not names:
        return "Expected path/job.py or path/job.py:Class"
    return f"Name one: {', '.join(f'{place}:{name}' for name in names)}"
