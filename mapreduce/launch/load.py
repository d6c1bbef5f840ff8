"""Finds the job class that a user names: in a file or in a module."""

import inspect
import sys
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import mapreduce.job  # noqa: F401  (makes mrjob import, and teaches it our runners)

from mrjob.job import MRJob  # isort: skip
from mrjob.step import StepFailedException  # isort: skip

from hdfs_utils.errors import ClusterError, StorageError
from mapreduce import compat
from mapreduce.errors import GradreduceError, MissingInputError, UsageError
from mapreduce.job.tracebacks import user_error
from mapreduce.support import own
from mapreduce.support.suggest import did_you_mean

#: Errors whose messages say everything.
TOLD = (GradreduceError, StorageError, ClusterError, StepFailedException)


def load_job(target: str) -> type[MRJob]:
    """The job class that the command line names; a script is run until it runs a job itself.

    Raises as :func:`start_script`, but a GradreduceError in the place of SystemExit.
    """
    found: list[type[MRJob]] = []

    def stop(one: Any) -> None:
        found.append(one if isinstance(one, type) else type(one))
        raise compat.main_block.Ended

    try:
        left = start_script(target, (stop, stop), found)
        found += [left] if left else []
    except (Exception, SystemExit) as error:
        # What follows a job was not to be run.
        if not found and isinstance(error, SystemExit):
            raise user_error(f"{target} cannot be imported", error) from error
        if not found:
            raise
    return found[0]


def start_script(
    target: str, calls: compat.main_block.Calls, called: list[Any]
) -> type[MRJob] | None:
    """Run a script as the main program, with others for ``MRJob.run`` and ``make_runner``.

    Returns the job that is left to run, if they have called neither, by adding to a list. The
    target is ``path/job.py``, ``package.module``, or one of them with ``:Class``: a class that is
    named, and one of a module, is only imported. Raises SystemExit and what the calls raise, too; a
    script that fails is a GradreduceError, whose message holds the traceback.
    """
    place, colon, name = target.rpartition(":")
    if not colon or Path(target).is_file():
        place, name = target, ""
    module = _import(place, None if name else calls, called)
    if called:
        return None
    if not name:
        return only_job(module, place)
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        found = None
    if not (inspect.isclass(found) and issubclass(found, MRJob)):
        what = "has no" if found is None else "has no job class"
        raise UsageError(f"{place} {what} {name}. {_candidates(_jobs(module), place, name)}")
    return found


def _import(place: str, calls: compat.main_block.Calls | None, called: list[Any]) -> ModuleType:
    path = Path(place)
    is_module = all(part.isidentifier() for part in place.split("."))
    is_file = path.is_file() or path.suffix == ".py" or not is_module
    if is_file and not path.is_file():
        wrong = "is not a file" if path.exists() else "does not exist"
        scripts = [other.name for other in path.parent.glob("*.py")]
        hint = did_you_mean(path.name, scripts, str(path.parent / "{}"))
        raise MissingInputError(f"{place} {wrong}.{hint or ' Expected a file with a job'}")
    if is_file and b"\0" in path.read_bytes()[:4096]:
        raise UsageError(
            f"{place} holds no Python: expected a file with a job, or the folder of a run, which "
            f"'gradreduce explain' takes, too"
        )
    try:
        if is_file:
            return compat.import_script(path, calls)
        sys.path.insert(0, str(Path.cwd()))
        with compat.main_block.diverted(partial(_refuse, place), MRJob.make_runner):
            return own.import_theirs(place)
    except (*TOLD, BrokenPipeError):
        raise
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if not is_file and missing and f"{place}.".startswith(f"{missing}."):
            raise MissingInputError(
                f"there is no module {missing!r}, and no file {place}. A job is named by its file, "
                f"path/job.py, or by a module that can be imported from here"
            ) from error
        what = "failed" if called else "cannot be imported"
        raise user_error(f"{place} {what}", error) from error


def _refuse(place: str, cls: type) -> None:
    """A module without a ``__main__`` guard would run its job as it is imported, and then again."""
    raise UsageError(
        f"{place} runs {cls.__name__} as it is imported. Guard the call: "
        f"if __name__ == '__main__': {cls.__name__}.run()"
    )


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


def import_file(place: str) -> ModuleType:
    """Import a file that may define jobs, and do not run them; raises as :func:`start_script`."""
    return _import(place, None, [])


def only_job(module: ModuleType, place: str) -> type[MRJob]:
    """The only job class that a module defines, or a UsageError that names what it has."""
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
