"""What each runner can do: asked in the place of its name.

Imports nothing that is slow to load: ``--help`` needs this module.
"""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from mapreduce.errors import UsageError
from mapreduce.support.cores import available_cores
from mapreduce.support.registry import Registry

#: Processes of one machine.
MOST_HERE = 1024

#: Tasks of a cluster: names of files have five digits for a block and for a gang's task.
MOST_FILES = 99_999

#: How processes of this machine may start, and usually do.
START_METHODS = ("fork", "forkserver")
DEFAULT_START_METHOD = START_METHODS[sys.platform != "linux"]

#: Why tasks on this machine make no gang; "" if they do.
NO_GANGS_HERE = (
    ""
    if sys.platform == "linux"
    else "a gang of tasks, which --executor gang, --stages and --asynchronous need, runs on Linux "
    f"only, and this is {sys.platform}. Leave them out: the training is then a chain"
)

#: How tasks on several machines reach each other without a server that all know: each announces
#: the address of an interface of its machine.
BY_INTERFACE = "interface"

#: How tasks reach each other, where only the job's runner knows it: by a variable that it sets.
BY_RUNNER, REACH = "runner", "GRADREDUCE_REACH"

Kept = AbstractContextManager[Any]


class Costs(NamedTuple):
    """Seconds that a training's driver expects on a runner before the driver has measured.

    Attributes
    ----------
    job : float
        Until the first round of a new job begins.
    worker : float
        More for each new worker of the job.
    step : float
        A step of a chain that does nothing.
    task : float
        More for each task of the step but the first.
    """

    job: float
    worker: float
    step: float
    task: float


class Step(NamedTuple):
    """A step that was begun: its application, "" until that is known, and where it writes."""

    application: str
    output: str


class Keeper:
    """Is told what a job begins, and knows what a killed driver has begun of it.

    Attributes
    ----------
    taken : dict
        Steps, by their numbers, that are not begun again.
    is_published : bool
        Whether their output has its name already.
    """

    def __init__(self) -> None:
        self.taken: dict[int, Step] = {}
        self.is_published = False

    def begins(self, number: int, output: str) -> None:
        """A step is about to be submitted, which writes to a URI."""

    def publishes(self) -> None:
        """The output is about to get its name."""


@dataclass(frozen=True)
class Traits:
    """What a runner can do. A runner of your own names what differs from the defaults.

    The defaults suit an unknown cluster. A runner with an engine of its own extends
    ``mrjob.runner.MRJobRunner``: ``parallel``, ``hadoop`` and ``emr`` in ``mapreduce/runners/`` are
    examples.

    mrjob needs a runner's options before it reads any code of a job. So an entry point of a package
    names the traits, and not ``MODULE:NAME``. To test a runner, train with it and with
    ``-r inline``: the models' hashes must be equal.

    Attributes
    ----------
    runner : str
        ``module:Class`` of the runner, which is imported at its first use; "" for a runner that
        mrjob finds by itself.
    tells_causes : bool
        Whether the driver receives the exception itself that a task has raised.
    is_here : bool
        Whether tasks run on this machine alone.
    shares_files : bool
        Whether tasks open the files of this machine by the same paths, as all tasks on this machine
        do.
    reads_far_files : bool
        Whether tasks on this machine also read input of other filesystems, such as ``hdfs://`` and
        ``s3://``.
    runs_at_once : bool
        Whether tasks run at once, in processes of their own. Otherwise tasks run one after the
        other in this process.
    forks : bool
        Whether the runner starts worker processes itself, by ``--workers`` and
        ``--start-method``.
    why_no_gangs : str
        Why the tasks of a gang cannot meet on the runner, and what to do instead; "" if the tasks
        can meet.
    gang_option : str
        mrjob's option for the number of tasks at once, which a gang has to set.
    names_applications : str
        Prefix of the identifiers of the runner's applications, if applications outlive a killed
        driver.
    can_adopt : bool
        Whether the runner has a :class:`Keeper`, and can continue a job of a killed driver.
    most_workers : int
    warm_runner : str
        The runner, as ``module:Class``, for jobs that are ``WARM``; "" if it is the same.
    joins_rounds : bool
        Whether a task takes long to start, so that a round of one map task has no reducer.
    notes_tasks : bool
        Whether the driver notes tasks of jobs in a trace: when each ran, what it read and wrote.
    costs : Costs or None
        Expected costs, from which a training chooses its executor and number of workers. Without
        costs, a training is a chain, with as many workers as :meth:`default_workers` returns.
    """

    runner: str = ""
    tells_causes: bool = True
    is_here: bool = False
    shares_files: bool = False
    reads_far_files: bool = False
    runs_at_once: bool = True
    forks: bool = False
    why_no_gangs: str = ""
    gang_option: str = ""
    names_applications: str = ""
    can_adopt: bool = False
    most_workers: int = MOST_FILES
    warm_runner: str = ""
    joins_rounds: bool = False
    notes_tasks: bool = False
    costs: Costs | None = None

    def default_workers(self) -> int:
        """Map tasks at once, if the user does not say."""
        return available_cores()

    def tasks_at_once(self) -> int:
        """Map tasks that can run at once now, beside what the job itself needs."""
        return self.default_workers()

    def check_place(self, place: str) -> None:
        """Raise a UsageError if tasks cannot open a path."""

    def reach(self, home: str) -> str:
        """How the tasks of a gang reach each other, which meet in a folder.

        "" on this machine alone; :data:`BY_INTERFACE`, if they share the folder as a disk;
        ``HOST:PORT`` of a server that all know, as the name node that serves the folder; or
        :data:`BY_RUNNER`, if the variable :data:`REACH` of each task says one of these.

        Raises UsageError (none of these).
        """
        from hdfs_utils.filesystem import name_nodes

        scheme, remote, place = home.partition("://")
        if self.is_here or not remote:
            return "" if self.is_here else BY_INTERFACE
        host = place.partition("/")[0]
        found = name_nodes(host) if scheme == "hdfs" else [host]
        if not found or scheme == "s3" or ":" not in found[0]:
            raise UsageError(
                f"{home}: the ranks of a gang choose their addresses by the name node that serves "
                f"the run's directory. Name one as hdfs://HOST:PORT/PATH, name the network by "
                f"--interface, or train with --executor chain"
            )
        return found[0]

    def kept(self, workers: int, start_method: str, jobs: Sequence[type]) -> Kept:
        """What several jobs of some classes share: processes, or a cluster."""
        return nullcontext()

    def end_left_behind(self, run: str, before: str | None) -> list[str]:
        """End what a killed driver has left of a run, given by its folder; returns its identifiers.

        ``before`` is the last application that the driver has named.
        """
        return []


INLINE = Traits(
    is_here=True,
    shares_files=True,
    runs_at_once=False,
    most_workers=MOST_HERE,
    warm_runner="mapreduce.mrjob_patches.inline:WarmInlineMRJobRunner",
)
LOCAL = Traits(
    tells_causes=False,
    is_here=True,
    shares_files=True,
    why_no_gangs=NO_GANGS_HERE,
    gang_option="--num-cores",
    most_workers=MOST_HERE,
)

RUNNERS = Registry(
    "runner",
    "gradreduce.runners",
    {
        "inline": "mapreduce.support.traits:INLINE",
        "parallel": "mapreduce.runners.parallel.traits:PARALLEL",
        "local": "mapreduce.support.traits:LOCAL",
        "hadoop": "mapreduce.runners.hadoop.traits:HADOOP",
        "emr": "mapreduce.runners.emr.traits:EMR",
        "spark": "mapreduce.runners.spark.traits:SPARK",
    },
    base="mapreduce.support.traits:Traits",
    declarations={"parallel": "mapreduce.runners.parallel.traits:ParallelOptions"},
)


def of(name: str) -> Traits:
    """The traits of a runner, after whose name options may follow; none if it is not in the list,
    as mrjob's ``dataproc``.
    """
    name = name.partition(":")[0]
    found: Traits = RUNNERS.find(name) if RUNNERS.has(name) else Traits()
    return found


def is_harmless(name: str) -> bool:
    """Whether a stranger may name a runner: it is the toolkit's and needs this machine alone."""
    return name in RUNNERS.builtin and of(name).is_here


def end_left_behind(name: str, run: str, before: str | None) -> list[str]:
    """As :meth:`Traits.end_left_behind`, by the runner of ``before`` or else a named one."""
    for each in map(of, RUNNERS.names if before else ()):
        if each.names_applications and str(before).startswith(each.names_applications):
            return each.end_left_behind(run, before)
    return of(name).end_left_behind(run, before)


def require_gangs(runner: Traits, name: str, option: str) -> None:
    """Refuse a runner without gangs, which an option needs.

    Raises
    ------
    UsageError
    """
    if runner.why_no_gangs:
        raise UsageError(runner.why_no_gangs)
    if not runner.runs_at_once:
        raise UsageError(
            f"{option} needs tasks that run at once, and -r {name} runs one after the other: "
            f"choose another runner"
        )
