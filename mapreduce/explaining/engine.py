"""Runs a job, task by task, and keeps a trace of it.

The job is prepared as for the runner ``parallel``, whose splits, partitions and order of records
are kept: the output is the same. Each task runs in its own process.
"""

import contextlib
import itertools
import math
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import mapreduce.job
import mapreduce.mrjob_patches.bin  # noqa: F401

from mrjob.job import MRJob  # isort: skip

from mapreduce.errors import UsageError
from mapreduce.explaining import plans
from mapreduce.explaining.apart import ProcessLost, TimeOver, run_apart, time_limit
from mapreduce.explaining.model import Failure, Lines, Method, Shown, Source, Step, Task, Trace
from mapreduce.explaining.sampling import File, divide, numbered, part_name, read_lines
from mapreduce.explaining.showing import show
from mapreduce.explaining.tasks import Pair, Sent, TracedTask, Variation, failure_of
from mapreduce.job.calls import is_overridden
from mapreduce.launch import run as launch
from mapreduce.runners.parallel import worker
from mapreduce.runners.parallel.partition import REDUCES, Partitioning, jobconf_number
from mapreduce.runners.parallel.planning import divided
from mapreduce.runners.parallel.records import Split, is_compressed
from mapreduce.runners.parallel.runner import ParallelMRJobRunner
from mapreduce.support import turns

#: Lines of input that are remembered, if the user does not say.
LINES = 2000

#: Map tasks of a job that does not say how many it wants, if there is a line for each: enough to
#: see several.
MAPS = 3

T = TypeVar("T")

#: Parts of a step that are programs or methods.
PARTS = ("mapper", "combiner", "reducer")


class TracingRunner(ParallelMRJobRunner):
    """Prepares a job; :meth:`trace` runs it, as often as it is called."""

    #: How the user named the job, seconds for a task, and lines of input.
    place = ""
    seconds = 10.0

    #: When no task runs any more, by the monotonic clock.
    end = math.inf
    most_lines = LINES

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        #: What is kept from task to task, and from run to run: objects of lines, files of lines,
        #: the plans of steps, tasks that were done, steps with files, and folders that were made.
        self.objects: dict[bytes, Pair] = {}
        self._written_files: dict[str, list[File]] = {}
        self._plans: dict[int, tuple[list[Method], dict[str, str]]] = {}
        self._tasks: dict[Any, Task] = {}
        self._steps_with_files: set[int] = set()
        self._folders = itertools.count()

    def _run(self) -> None:
        """Do nothing: a prepared runner is enough."""
        for number, step in enumerate(self._get_steps()):
            self._check(step, number)
        self._prepare()
        # Made by a fork it would be left: this process removes what it knows of.
        self._get_local_tmp_dir()

    def _check(self, step: dict[str, Any], number: int) -> None:
        name = f"step {number + 1} of {self._num_steps()}"
        advice = "It can be run, by gradreduce run, but its records cannot be followed"
        if step["type"] != "streaming":
            raise UsageError(f"{name} is a {step['type']} step, which has no map and reduce tasks")
        if step.get("input_manifest"):
            raise UsageError(f"{name} has a mapper_raw, which reads files itself. {advice}")
        if self._opts["setup"]:
            raise UsageError(f"the job has a setup script. {advice}")
        if any({"command", "pre_filter"} & step.get(part, {}).keys() for part in PARTS):
            raise UsageError(f"{name} has commands instead of methods. {advice}")

    @cached_property
    def files(self) -> list[File]:
        """The job's input."""
        return self._inputs(0)

    @cached_property
    def input(self) -> tuple[list[Source], Lines]:
        """The input's files, and the lines of each that are taken."""
        return read_lines(self.files, self.most_lines)

    def trace(self, how: Variation, lines: Lines | None = None) -> Trace:
        """Run the job on some lines of each input file; a failure is part of the trace."""
        if not how.together:
            return self.trace_here(how, lines)
        limit = self.seconds_left(4 * self.seconds)

        def work() -> Trace:
            with time_limit(limit):
                return self.trace_here(how, lines)

        try:
            trace: Trace = run_apart(work, limit)[0]
        except ProcessLost as error:
            trace = self._new_trace()
            trace.failure = failure_of(error, "the job")
        if trace.failure:
            self.seconds_left(0)
        return trace

    def seconds_left(self, most: float) -> float:
        """Seconds for a run that may take so many. Raises TimeOver."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeOver("the job takes longer than --total-limit allows, which can be raised")
        return min(most, left)

    def look_at_each(
        self, how: Variation, inputs: Sequence[Lines], look: Callable[[Trace], T]
    ) -> list[T]:
        """What ``look`` returns for the trace of each input, in one process. Raises ProcessLost."""

        def work() -> list[T]:
            return [look(self.trace_here(how, lines)) for lines in inputs]

        limit = self.seconds_left(4 * self.seconds + len(inputs))
        return run_apart(work, limit)[0]  # type: ignore[no-any-return]

    def _new_trace(self) -> Trace:
        kind: Any = self._mrjob_cls
        text = plans.text_of(kind)
        if drives_jobs(kind):
            text = f"{text} One job of those that its run_job starts is shown.".strip()
        return Trace(kind.__name__, "", text)

    def trace_here(self, how: Variation, lines: Lines | None = None) -> Trace:
        """As :meth:`trace`, without a process for all tasks."""
        trace = self._new_trace()
        trace.sources, taken = self.input
        lines = taken if lines is None else lines
        files = self.files
        if lines != taken or any(source.sampled for source in trace.sources):
            files, lines = self._written(lines)
        for number in range(self._num_steps()):
            step = self._new_step(number, how)
            trace.steps.append(step)
            self._trace_step(step, how, files, lines)
            trace.failure = step.failure
            if step.failure:
                break
            files, lines = _parts(step)
        return trace

    def _written(self, lines: Lines) -> tuple[list[File], Lines]:
        """Files of their own for some of the input's lines: a job may look at its files.

        Their paths end as the input's do: a job that asks for the name of its file, or of the
        folder, finds it. One that is compressed is the input's: nobody reads a part of it.
        """
        key = str([[(line.number, line.text) for line in chosen] for chosen in lines])
        files = self._written_files.setdefault(key, [])
        if not files:
            folder = Path(tempfile.mkdtemp(prefix="lines-", dir=self._get_local_tmp_dir()))
            for number, ((path, size), chosen) in enumerate(zip(self.files, lines, strict=True)):
                target = folder / str(number) / os.path.normpath(path).lstrip("/")
                target.parent.mkdir(parents=True)
                if is_compressed(path):
                    target.symlink_to(path)
                    files.append((str(target), size))
                    continue
                content = b"".join(line.text.encode("latin-1") + b"\n" for line in chosen)
                files.append((str(target), target.write_bytes(content)))
        return files, [
            numbered((line.text for line in chosen), (line.number for line in chosen))
            for chosen in lines
        ]

    # Steps

    def new_job(self, mrc: str, number: int) -> Any:
        """An instance of the job, as a task of a step has it."""
        kind: Any = self._mrjob_cls
        extra = [str(argument) for argument in self._mr_job_extra_args()]
        job = kind([f"--step-num={number}", f"--{mrc}", *extra])
        job._stderr = worker.files[1]
        return job

    def _new_step(self, number: int, how: Variation) -> Step:
        """A step without its tasks."""
        if number not in self._plans:
            # A job may read its files when it is made.
            with contextlib.chdir(self._folder_of("mapper", number)):
                job, found = self.new_job("mapper", number), self._get_step(number)
            given = job, number, found
            self._plans[number] = plans.methods_of(*given), plans.protocols_of(*given)
        methods, protocols = self._plans[number]
        return Step(
            number,
            methods,
            self._reducers(number, how),
            plans.partitioner_name(self.partitioning(number, how)),
            protocols,
        )

    def _reducers(self, number: int, how: Variation) -> int:
        if "reducer" not in self._get_step(number):
            return 0
        return self.own_reducers(number) or how.reducers

    def own_reducers(self, number: int) -> int:
        """The reducers that a step itself asks for; 0 if it does not say."""
        return jobconf_number(self._jobconf_for_step(number), *REDUCES) or 0

    def takes_keys_together(self, number: int) -> bool:
        """Whether a step divides or sorts keys itself, or takes a batch of them at a time."""
        found = self.partitioning(number, Variation())
        is_own = found.fields is not None and not self._sort_values
        is_batch = "batch" in self._get_step(number).get("reducer", {})
        is_batch = is_batch or is_overridden(self._mrjob_cls, "reducer")
        return is_batch or is_own or bool(found.order) or found.key_fields > 1

    def partitioning(self, number: int, how: Variation) -> Partitioning:
        """How a step divides its keys; into one partition without a reducer."""
        reducers = max(1, self._reducers(number, how))
        return divided(self, self._jobconf_for_step(number), reducers, lambda message: None)

    def _trace_step(self, step: Step, how: Variation, files: list[File], lines: Lines) -> None:
        """Run the map tasks, divide what they send, and run the reduce tasks."""
        conf = self._jobconf_for_step(step.number)
        asked = how.maps or jobconf_number(conf, "mapreduce.job.maps", "mapred.map.tasks")
        sent: list[list[Sent]] = [[] for _ in range(step.reducers)]
        for maps in [asked] if asked else range(MAPS, 0, -1):
            splits = divide(files, lines, maps, how.cut == "uneven")
            # Only an empty file needs a task without lines.
            if all(found or not split.stop for split, found in splits):
                break
        for number, (split, found) in enumerate(splits):
            done = self._trace_task(step, how, Task("map", number, split.path, found), split, ())
            step.maps.append(done)
            if step.failure:
                return
            if step.reducers:
                for record in done.sent:
                    sent[record.part].append((record.line.encode("latin-1"), number))
        for number, received in enumerate(sent):
            done = self._trace_task(step, how, Task("reduce", number), None, received)
            step.reduces.append(done)
            if step.failure:
                return

    def show(self, item: Any) -> Shown:
        """An object that the job reads or yields, in words."""
        return show(item)

    def parts(self, number: int) -> Set[str]:
        """Which of ``mapper``, ``combiner`` and ``reducer`` a step has."""
        return {part for part in PARTS if part in self._get_step(number)}

    @property
    def sort_values(self) -> bool:
        """Whether the job wants its values sorted."""
        return bool(self._sort_values)

    def _trace_task(
        self, step: Step, how: Variation, task: Task, split: Split | None, received: Sequence[Sent]
    ) -> Task:
        number, mrc = step.number, "mapper" if split else "reducer"
        # What a task sees of a variation: without a combiner, a mapper has no values.
        found = self._get_step(number)
        size = how.batch_bytes if found.get("mapper", {}).get("batch") else None
        seen: Any = replace(how, maps=None, cut="", batch_bytes=size)
        if split is None:
            alone = how.alone if how.apart(number) else None
            seen = replace(seen, passes=0, spills=0, batch_bytes=None, alone=alone)
        elif not how.passes or "combiner" not in found:
            seen = how.reducers, how.attempt, size
        texts = [(line.number, line.text) for line in task.lines] + [line for line, _ in received]
        key = number, task.number, split, seen, tuple(texts)
        if key in self._tasks and not how.together:
            step.failure = self._tasks[key].failure
            return self._tasks[key]
        env = self.environments.of(number, mrc, task.number, split)
        folder = self._folder_of(mrc, number)
        modules = [str(Path(path).absolute()) for path in self._opts["py_files"] or ()]

        def work() -> Task:
            os.environ.update(env)
            os.chdir(folder)
            sys.path[:0] = [folder, *modules]
            return TracedTask(self, number, how, task, received).run()

        if how.together:
            work()
        else:
            try:
                task, noted = run_apart(work, self.seconds_left(self.seconds))
                task.counters, task.log = noted["counters"], noted["log"]
                task.printed = noted["printed"]
            except ProcessLost as error:
                task.failure = Failure(task.kind, "ProcessLost", str(error))
            if task.failure:
                # It may have had less time than others.
                self.seconds_left(0)
            self._tasks[key] = task
        if task.failure:
            task.failure.what = f"{task.kind} task {task.number} of step {number + 1}"
            step.failure = task.failure
        return task

    def _folder_of(self, mrc: str, number: int) -> str:
        """A new working folder, with the files that the job brings."""
        if number not in self._steps_with_files:
            # One of another trace's process cannot be written to, except by a root.
            shutil.rmtree(self._dist_cache_dir(number), ignore_errors=True)
            self._create_dist_cache_dir(number)
            self._steps_with_files.add(number)
        # Different in each process.
        unique = os.getpid() * 100_000 + next(self._folders)
        self.fs.mkdir(self._task_dir(mrc, number, unique))
        return str(self._setup_working_dir(mrc, number, unique))


@contextlib.contextmanager
def tracing(
    job: type[MRJob] | str, arguments: Sequence[str], seconds: float, lines: int
) -> Iterator[TracingRunner]:
    """A runner that is ready to trace a job, given by its class or as on the command line.

    ``arguments`` are mrjob's and the job's own, ``seconds`` the time limit of each task, and
    ``lines`` the most lines of input that are taken.
    """
    if isinstance(job, str):
        place, command = job, shlex.join([job, *arguments])
        # What a script prints is not reported.
        aside = redirect_stdout(sys.stderr)
        given = launch.argv([job, *arguments])
        with turns.turn(alone=True), given, aside, launch.keeping_stderr():
            job_class, arguments = launch.load_job(job), sys.argv[1:]
    else:
        place = command = job.__name__
        job_class = job
    if drives_jobs(job_class) and getattr(job_class, "WARM", False):
        raise UsageError(
            f"{place}: {job_class.__name__} starts jobs itself, by its own run_job, which cannot "
            f"be followed. Give a job that leaves run_job as it is"
        )
    with launch.prepared(job_class, arguments, place, TracingRunner) as runner:
        if "-" in runner._input_paths and sys.stdin and sys.stdin.isatty():
            raise UsageError(
                f"{place}: no input. Name files, or give - and type it, with Ctrl-D at its end"
            )
        runner.place, runner.seconds, runner.most_lines = command, seconds, lines
        runner.run()
        yield runner


def drives_jobs(job_class: type[MRJob]) -> bool:
    """Whether a class starts jobs by its own run_job, such as one for each round."""
    return job_class.run_job is not MRJob.run_job


def _parts(step: Step) -> tuple[list[File], Lines]:
    """A step's output, as the files that the next one reads."""
    tasks = [task for task in step.last if task.sent] or step.last[:1]
    parts = [numbered((record.line for record in task.sent), itertools.count(1)) for task in tasks]
    sizes = [sum(line.size for line in part) for part in parts]
    names = [part_name(task.number) for task in tasks]
    return [*zip(names, sizes, strict=True)], parts
