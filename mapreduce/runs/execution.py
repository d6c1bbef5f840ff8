"""How rounds and other jobs are run: on which runner, on how many workers."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce.engine.registry import EXECUTORS, kind_of
from mapreduce.errors import UsageError
from mapreduce.support import forked, numeric, traits
from mapreduce.support.traits import RUNNERS

Options = TypeVar("Options")

#: The options that runners and executors declare, by their names.
OWN = {row.name: row for family in (RUNNERS, EXECUTORS) for row in family.options}


def expanded(values: Mapping[str, Any]) -> dict[str, Any]:
    """See :meth:`mapreduce.support.registry.Registry.expanded`, for executor and runner."""
    return RUNNERS.expanded(EXECUTORS.expanded(values))


@dataclass(frozen=True, init=False)
class Execution:
    """How rounds are run; nothing in it changes the result.

    The attributes are the options of :data:`mapreduce.runs.flags.EXECUTION` and
    :data:`mapreduce.runs.flags.RUNNER`. Options that an executor or a runner declares are keywords
    and attributes, too. They are stored in ``own``: an instance of each class of options whose
    values differ from the defaults. ``blocks`` is 0 for the number that suits the executor, and
    ``mrjob_arguments`` are more arguments of mrjob for every job. If an executor without jobs is
    named, it computes evaluations and predictions, too; otherwise a chain does. ``auto`` lists the
    options that the driver of a training may change; other jobs take the values as they are. With
    ``stays``, rounds run in this process if no job would end sooner. With ``trace``, the folder
    ``timing`` of a run records the times of the phases.
    """

    runner: str
    workers: int
    threads: int
    blocks: int
    executor: str
    mrjob_arguments: tuple[str, ...]
    auto: tuple[str, ...]
    stays: bool
    own: tuple[Any, ...]
    trace: bool = False

    def __init__(
        self,
        runner: str = "parallel",
        workers: int = 1,
        threads: int = 1,
        blocks: int = 1,
        *,
        executor: str = "chain",
        mrjob_arguments: tuple[str, ...] = (),
        auto: tuple[str, ...] = (),
        stays: bool = False,
        trace: bool = False,
        own: tuple[Any, ...] = (),
        **options: Any,
    ) -> None:
        values = expanded({"runner": runner, "executor": executor, **options})
        runner, executor = values.pop("runner"), values.pop("executor")
        vars(self).update(
            runner=runner,
            workers=workers,
            threads=threads,
            blocks=blocks,
            executor=executor,
            mrjob_arguments=mrjob_arguments,
            auto=auto,
            stays=stays,
            trace=trace,
            own=_with(own, values),
        )

    def __getattr__(self, name: str) -> Any:
        """An option that an executor or a runner declares."""
        if name not in OWN:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.options(OWN[name].owner), OWN[name].field)

    def options(self, kind: type[Options]) -> Options:
        """The options of a class: those of the user, or else the defaults."""
        return next((each for each in self.own if type(each) is kind), None) or kind()

    def to_dict(self) -> dict[str, Any]:
        """The values of all options, by their names."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("own", "stays", "auto"):
            del values[name]
        own = {name: getattr(self, name) for name in OWN}
        return values | own | dict.fromkeys(self.auto, "auto")

    @property
    def traits(self) -> traits.Traits:
        """What the runner can do."""
        return traits.of(self.runner)

    @property
    def kind(self) -> Any:
        """The class of the executor, which says what the executor can do."""
        return kind_of(self.executor)

    @property
    def forks_here(self) -> bool:
        """Whether tasks are in this process, or forks of it."""
        if not self.traits.runs_at_once:
            return True
        return self.traits.forks and bool(self.start_method == "fork")

    def for_arrivals(self, run: AnyPath) -> "Execution":
        """The same for asynchronous rounds of a run; errors are those of the executor."""
        found: Execution = self.kind.for_arrivals(self, run)
        return found

    def with_blocks_for(self, model: Any) -> "Execution":
        """The same for a model, with a number of blocks if none is given."""
        found: Execution = self.kind.with_blocks_for(self, model)
        return found

    def for_paths(self, *paths: AnyPath) -> "Execution":
        """The same for data at these paths, without forks where this process cannot have any.

        Clients of remote paths have threads, and so has a GPU that was used here.
        """
        has_threads = any(isinstance(path, RemotePath) for path in paths)
        if self.traits.forks and (has_threads or forked.has_device_threads()):
            return replace(self, own=_with(self.own, {"start_method": "forkserver"}))
        return self

    def runner_arguments(self) -> list[str]:
        """mrjob's arguments for the runner; its tasks get this process's numeric profile."""
        arguments = ["--runner", self.runner]
        if self.traits.forks:
            arguments += ["--workers", str(self.workers), "--start-method", self.start_method]
        if self.traits.runs_at_once:
            for name, value in numeric.pinned().items():
                arguments += ["--cmdenv", f"{name}={value}"]
        return [*arguments, *self.mrjob_arguments]

    def check_trace(self, run: AnyPath) -> None:
        """Raise a UsageError if there is to be a trace, and the run is not on a disk."""
        if self.trace and isinstance(run, RemotePath):
            raise UsageError(
                f"--trace: expected a run on a disk of this machine or one that is mounted here, "
                f"found {run}. Leave out --trace"
            )

    def check_places(self, *places: object) -> None:
        """Raise a UsageError if a path is of this machine, and the runner's tasks run on others."""
        for place in places:
            if place is not None:
                self.traits.check_place(str(place))


def _with(own: tuple[Any, ...], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Options of executors and runners, of which some have other values."""
    found = {type(each): each for each in own}
    for name, value in values.items():
        if name not in OWN:
            raise TypeError(f"Execution() got an unexpected keyword argument {name!r}")
        option = OWN[name]
        before = found.get(option.owner) or option.owner()
        found[option.owner] = replace(before, **{option.field: value})
    kinds = dict.fromkeys(option.owner for option in OWN.values())
    ordered = [found.pop(kind) for kind in kinds if kind in found]
    return tuple(each for each in (*ordered, *found.values()) if each != type(each)())
