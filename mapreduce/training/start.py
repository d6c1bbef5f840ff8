"""Resuming a training: the part that commands, scripts and Python share."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hdfs_utils.filesystem import is_remote
from hdfs_utils.paths import AnyPath
from mapreduce.engine.registry import kind_of
from mapreduce.errors import UsageError
from mapreduce.runs import flags
from mapreduce.runs.directory import Moved, RunDir
from mapreduce.runs.events import Events, RunEnded
from mapreduce.runs.execution import Execution, expanded
from mapreduce.support import traits
from mapreduce.support.commands import command
from mapreduce.support.options import Option
from mapreduce.support.printable import printable
from mapreduce.training import driver

#: Options that say where the data of a run lie.
MOVING = ("data", "evaluation", "remote_data")


def resume(
    run: RunDir, given: Mapping[str, Any], events: Events, warn: Callable[[str], None]
) -> RunEnded:
    """Continue a run with the options of its last execution, except those that are given.

    ``given`` has options of execution and runner that are not None, ``mrjob_arguments``,
    ``take_over``, and ``remote_data``, a sequence of URIs; ``data`` and ``evaluation`` where these
    have moved. ``warn`` receives a message about arguments that are left out. The runner and remote
    data must be repeated, because the run may be somebody else's.
    """
    # Raises an error where there is no run.
    _ = run.config
    moved = moved_data(run, given)
    how, values = execution_again(run, given, warn)
    take_over = bool(given.get("take_over"))
    return driver.train(run, how, values["keep"], events, take_over=take_over, moved=moved)


def execution_again(
    run: RunDir, given: Mapping[str, Any], warn: Callable[[str], None]
) -> tuple[Execution, dict[str, Any]]:
    """The execution of a run that goes on, and the values of its options; see :func:`resume`."""
    before, arguments = flags.recorded(run)
    flags.trust_executor(given)
    given = expanded(given)
    executor = before.get("executor", "chain")
    if given.get("executor") not in (None, executor):
        # The other executor has defaults of its own.
        before = flags.for_another(before, given["executor"])
    runner = given.get("runner") or before.get("runner", "parallel")
    if given.get("mrjob_arguments"):
        arguments = []
    is_elsewhere = not traits.is_harmless(runner)
    words = [*(["-r", runner] if is_elsewhere else []), *(["--", *arguments] if arguments else [])]
    again = printable(command("gradreduce", "resume", run.path, *words))
    if is_elsewhere and not given.get("runner"):
        raise UsageError(
            f"{run.path} was last run with -r {printable(runner)}, which may run programs or cost "
            f"money. If you want that, run: {again}"
        )
    if arguments:
        warn(
            "the run's arguments for mrjob are left out, because they can run programs. If you "
            f"want them, run: {again}"
        )
    values = {**defaults(flags.EXECUTION, flags.RUNNER), **before, **given}
    try:
        return flags.execution(values), values
    except UsageError as error:
        if given.get("executor") or not kind_of(executor).is_alone:
            raise
        raise UsageError(
            f"{error}. The run was trained by the executor {executor}: add --executor chain or gang"
        ) from error


def moved_data(run: RunDir, given: Mapping[str, Any]) -> Moved | None:
    """Where the data of a run lie now, by the paths ``data`` and ``evaluation`` that are given.

    ``remote_data`` are URIs that the user has named.
    """
    places = {name: given[name].absolute() for name in ("data", "evaluation") if given.get(name)}
    moved = Moved(**{name: str(path) for name, path in places.items()}) if places else None
    require_named(run, given.get("remote_data", ()), moved)
    return moved


def defaults(*tables: tuple[Option, ...]) -> dict[str, Any]:
    """The defaults of options, by their names."""
    return {option.name: option.default for table in tables for option in table}


def require_named(run: RunDir, named: tuple[str, ...], moved: Moved | None = None) -> None:
    """Refuse to open remote data that only the run names, which may be a stranger's.

    Data that have ``moved`` are named by the user.
    """
    moved = moved or Moved()
    config, named = run.config, (*named, moved.data or "", moved.evaluation or "")
    places = moved.data or config.data, moved.evaluation or config.evaluation or ""
    require_named_places(run.path, places, named)


def require_named_places(run: AnyPath, places: Iterable[str], named: Iterable[str]) -> None:
    """Refuse places in another filesystem than that of the run's folder, unless they are named."""
    for place in places:
        is_beside = place.split("/")[:3] == str(run).split("/")[:3]
        if is_remote(place) and place not in named and not is_beside:
            raise UsageError(
                f"{run} names data in another filesystem: {printable(place)}. If you trust "
                f"it, add {printable(command('--remote-data', place))}"
            )
