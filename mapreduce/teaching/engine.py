"""Runs a job, task by task, and keeps a trace of it.

The job is prepared as for the runner ``parallel``, whose splits, partitions and order of records
are kept: the output is the same. Each task has a process of its own.
"""

import contextlib
import itertools
import math
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import mapreduce.job  # noqa: F401  (makes mrjob import, and teaches it our runners)

from mrjob.job import MRJob  # isort: skip

from mapreduce import launch
from mapreduce.errors import UsageError
from mapreduce.runners.parallel import ParallelMRJobRunner
from mapreduce.runners.partition import REDUCES, Partitioning, jobconf_number
from mapreduce.runners.records import Split
from mapreduce.teaching import plans
from mapreduce.teaching.apart import ProcessLost, run_apart, time_limit
from mapreduce.teaching.model import (
    Failure,
    Line,
    Source,
    Step,
    Task,
    Trace,
    from_data,
)
from mapreduce.teaching.sampling import divide, part_name, plain_name, read_lines
from mapreduce.teaching.tasks import Pair, Sent, Setup, TracedTask, Variation, failure_of

#: Lines of input that are remembered, if the user does not say.
LINES = 2000

#: Map tasks of a job that does not say how many it wants: enough to see several.
MAPS = 3

File = tuple[str, int]


class TracingRunner(ParallelMRJobRunner):
    """Prepares a job; :meth:`trace` runs it, as often as it is called."""

    #: Seconds for a task, and lines of input.
    seconds = 10.0
    most_lines = LINES

    def _run(self) -> None:
        """Nothing: to be prepared is enough."""
        for number, step in enumerate(self._get_steps()):
            self._check(step, number)
        self._prepare()

    def _check(self, step: dict[str, Any], number: int) -> None:
        name = f"step {number + 1} of {self._num_steps()}"
        advice = "It can be run, by gradreduce run, but its records cannot be followed"
        if step["type"] != "streaming":
            raise UsageError(f"{name} is a {step['type']} step, which has no map and reduce tasks")
        if step.get("input_manifest"):
            raise UsageError(f"{name} has a mapper_raw, which reads files by itself. {advice}")
        if self._opts["setup"]:
            raise UsageError(f"the job has a setup script. {advice}")
        if not self._is_ours(step):
            raise UsageError(f"{name} has programs around its combiner. {advice}")

    @cached_property
    def files(self) -> list[File]:
        """The job's input."""
        return self._inputs(0)

    @cached_property
    def input(self) -> tuple[list[Source], list[list[Line]]]:
        """The input's files, and the lines of each that are taken."""
        return read_lines(self.files, self.most_lines)

    def trace(self, how: Variation, lines: list[list[Line]] | None = None) -> Trace:
        """Run the job; a failure is part of the trace.

        Parameters
        ----------
        how : Variation
        lines : list of list of Line, optional
            Of each input file, those to run on; else :attr:`input`.
        """
        if not how.together:
            return self._trace(how, lines)
        limit = 4 * self.seconds

        def work() -> dict[str, Any]:
            with time_limit(limit):
                return {"trace": self._trace(how, lines)}

        try:
            return from_data(Trace, run_apart(work, limit)["trace"])
        except ProcessLost as error:
            trace = self._new_trace()
            trace.failure = failure_of(error, "the job")
            return trace

    def _new_trace(self) -> Trace:
        kind: Any = self._mrjob_cls
        text = plans.text_of(kind)
        if drives_jobs(kind):
            text = f"{text} One job of those that its run_job starts is shown.".strip()
        return Trace(kind.__name__, "", text)

    def _trace(self, how: Variation, lines: list[list[Line]] | None) -> Trace:
        start = perf_counter()
        trace = self._new_trace()
        trace.sources, taken = self.input
        if lines is None and not any(source.sampled for source in trace.sources):
            files, lines = self.files, taken
        else:
            files, lines = self._written(taken if lines is None else lines)
        for number in range(self._num_steps()):
            run = _StepRun(self, number, how)
            trace.steps.append(run.step)
            run.run(files, lines)
            if run.step.failure:
                trace.failure = run.step.failure
                break
            files, lines = _parts(run.step)
        trace.seconds = perf_counter() - start
        return trace

    def _written(self, lines: list[list[Line]]) -> tuple[list[File], list[list[Line]]]:
        """Files of their own for some of the input's lines: a job may look at its files."""
        folder = Path(self._get_local_tmp_dir()) / f"lines-{self._new_number()}"
        files, found = [], []
        for number, ((path, _), chosen) in enumerate(zip(self.files, lines, strict=True)):
            target = folder / str(number) / plain_name(path)
            target.parent.mkdir(parents=True)
            texts = [line.text.encode("latin-1") + b"\n" for line in chosen]
            target.write_bytes(b"".join(texts))
            offsets = itertools.accumulate(map(len, texts), initial=0)
            pairs = zip(chosen, offsets, strict=False)
            found.append([Line(line.text, offset, line.number) for line, offset in pairs])
            files.append((str(target), sum(map(len, texts))))
        return files, found

    # What a step needs

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Descriptions of the steps."""
        return self._get_steps()  # type: ignore[no-any-return]

    @cached_property
    def _job(self) -> Any:
        return self.new_job("mapper", 0)

    def new_job(self, mrc: str, step_num: int) -> Any:
        """An instance of the job, as a task has it."""
        kind: Any = self._mrjob_cls
        extra = [str(argument) for argument in self._mr_job_extra_args()]
        return kind([f"--step-num={step_num}", f"--{mrc}", *extra])

    def new_step(self, number: int, how: Variation) -> Step:
        """A step without its tasks."""
        found = self._get_step(number)
        return Step(
            number,
            plans.methods_of(self._job, number, found),
            self._reducers(number, how),
            plans.partitioner_name(self._partitioning(number, how)),
            plans.protocols_of(self._job, number, found),
        )

    def _reducers(self, number: int, how: Variation) -> int:
        if "reducer" not in self._get_step(number):
            return 0
        return jobconf_number(self._jobconf_for_step(number), *REDUCES) or how.reducers

    def fixed_reducers(self, number: int) -> bool:
        """Whether a step says itself how many reducers it wants."""
        return bool(jobconf_number(self._jobconf_for_step(number), *REDUCES))

    def maps(self, number: int, how: Variation) -> int:
        """Map tasks that a step shall have."""
        jobconf = self._jobconf_for_step(number)
        return how.maps or jobconf_number(jobconf, "mapreduce.job.maps", "mapred.map.tasks") or MAPS

    def _partitioning(self, number: int, how: Variation) -> Partitioning:
        reducers = max(1, self._reducers(number, how))
        return self._divided(self._jobconf_for_step(number), reducers, lambda message: None)

    @property
    def sorts_values(self) -> bool:
        """Whether the job wants the values of a key sorted."""
        return bool(self._sort_values)

    def new_setup(self, number: int, how: Variation) -> Setup:
        """What the tasks of a step need to know."""
        step = self._get_step(number)
        parts = ("mapper", "combiner", "reducer")
        partitioning = self._partitioning(number, how)
        return Setup(
            number,
            lambda mrc: self.new_job(mrc, number),
            frozenset(part for part in parts if part in step),
            partitioning,
            "reducer" in step,
            self.sorts_values and not partitioning.order,
            {part: self._programs(step[part]) for part in parts if part in step},
            None if how.together else self.seconds,
        )

    @cached_property
    def _folders(self) -> Iterator[int]:
        return itertools.count()

    def _new_number(self) -> int:
        """For the name of a folder; another one in each process."""
        return os.getpid() * 100_000 + next(self._folders)

    @cached_property
    def _with_files(self) -> set[int]:
        """Steps whose files lie ready."""
        return set()

    def folder_of(self, mrc: str, number: int) -> str:
        """A new working folder, with the files that the job brings."""
        if number not in self._with_files:
            self._create_dist_cache_dir(number)
            self._with_files.add(number)
        unique = self._new_number()
        self.fs.mkdir(self._task_dir(mrc, number, unique))
        return str(self._setup_working_dir(mrc, number, unique))

    def env_of(self, mrc: str, step: int, number: int, split: Split | None) -> dict[str, str]:
        """What a task finds in its environment."""
        return self._task_env(step, mrc, number, split)

    @property
    def module_paths(self) -> list[str]:
        """Where the job's own modules are."""
        return [str(Path(path).absolute()) for path in self._opts["py_files"] or ()]


@contextlib.contextmanager
def tracing(
    job_class: type[MRJob], arguments: Sequence[str], place: str, seconds: float, lines: int
) -> Iterator[TracingRunner]:
    """A runner that is ready to trace.

    Parameters
    ----------
    job_class : type
    arguments : sequence of str
        mrjob's and the job's own.
    place : str
        How the user named the job.
    seconds : float
        For each task.
    lines : int
        Of input, that are taken at most.

    Raises
    ------
    UsageError
        Options make no sense, there is no input, or the job's steps cannot be followed.
    MissingInputError
        An input cannot be read.
    """
    if math.isnan(seconds):
        # Which is in no range, but passes click's.
        raise UsageError("--time-limit: expected a number of seconds, found nan")
    if drives_jobs(job_class) and getattr(job_class, "WARM", False):
        raise UsageError(
            f"{place}: {job_class.__name__} drives jobs by itself, by a run_job of its own, and "
            f"what it does cannot be followed. Give a job that is one"
        )
    with launch.prepared(job_class, arguments, place, TracingRunner) as runner:
        if "-" in runner._input_paths and sys.stdin and sys.stdin.isatty():
            raise UsageError(
                f"{place}: no input. Name files, or give - and type it, with Ctrl-D at its end"
            )
        runner.seconds, runner.most_lines = seconds, lines
        runner.run()
        yield runner


def drives_jobs(job_class: type[MRJob]) -> bool:
    """Whether a class starts jobs in a way of its own, such as one for each round."""
    return job_class.run_job is not MRJob.run_job


class _StepRun:
    """One step in progress."""

    def __init__(self, runner: TracingRunner, number: int, how: Variation) -> None:
        self._runner = runner
        self._how = how
        self._number = number
        self._setup = runner.new_setup(number, how)
        self.step = runner.new_step(number, how)

    def run(self, files: Sequence[File], lines: Sequence[Sequence[Line]]) -> None:
        """Run the map tasks, divide what they send, and run the reduce tasks."""
        sent: list[list[Sent]] = [[] for _ in range(self.step.reducers)]
        maps = self._runner.maps(self._number, self._how)
        splits = divide(files, lines, maps, self._how.cut == "uneven")
        for number, (split, found) in enumerate(splits):
            task = Task("map", number, split.path, found)
            done, pairs = self._run(task, "mapper", split)
            self.step.maps.append(done)
            if self._failed(done):
                return
            if self.step.reducers:
                for record, pair in itertools.zip_longest(done.sent, pairs):
                    sent[record.part].append((record.line.encode("latin-1"), number, pair))
        for number, received in enumerate(sent):
            done, _ = self._run(Task("reduce", number), "reducer", None, received)
            self.step.reduces.append(done)
            if self._failed(done):
                return

    def _failed(self, task: Task) -> bool:
        if task.failure:
            task.failure.what = f"{task.kind} task {task.number} of step {self._number + 1}"
            self.step.failure = task.failure
        return task.failure is not None

    def _run(
        self, task: Task, mrc: str, split: Split | None, received: Sequence[Sent] = ()
    ) -> tuple[Task, list[Pair | None]]:
        env = self._runner.env_of(mrc, self._number, task.number, split)
        folder = self._runner.folder_of(mrc, self._number)

        def work() -> TracedTask:
            os.environ.update(env)
            os.chdir(folder)
            sys.path[:0] = [folder, *self._runner.module_paths]
            return TracedTask(self._setup, task, self._how, received).run()

        if self._how.together:
            done = work()
            return done.task, done.sent
        try:
            reply = run_apart(lambda: {"task": work().task}, self._runner.seconds)
        except ProcessLost as error:
            task.failure = Failure(task.kind, "ProcessLost", str(error))
            return task, []
        done_task = from_data(Task, reply["task"])
        done_task.counters, done_task.log = reply["counters"], reply["log"]
        done_task.printed = reply["printed"]
        return done_task, []


def _parts(step: Step) -> tuple[list[File], list[list[Line]]]:
    """A step's output, as the files that the next one reads."""
    files, lines = [], []
    for task in step.last:
        found = []
        offset = 0
        for number, record in enumerate(task.sent, 1):
            found.append(Line(record.line, offset, number))
            offset += len(record.line) + 1
        files.append((part_name(task.number), offset))
        lines.append(found)
    return files, lines
