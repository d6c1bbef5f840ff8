"""Executors that compute in this process, without mrjob: for small data."""

import time
from dataclasses import replace
from functools import partial

from hdfs_utils.paths import path_of
from mapreduce.engine.executor import (
    PUBLISH_SECONDS,
    PUBLISH_SHARE,
    QUIET,
    WHOLE,
    Hooks,
    Limit,
    Progress,
    Times,
    computed,
    conclude_beside,
    over,
    publish_first,
    run_round,
)
from mapreduce.engine.program import Layout, Pair, Program, Stateful, blocks_for, is_over, owners
from mapreduce.engine.rounds import UNIT, RoundFiles
from mapreduce.engine.state import InMemory, State
from mapreduce.executors.resumable import Resumable
from mapreduce.reduction.message import Message
from mapreduce.runs import lease
from mapreduce.runs.execution import Execution
from mapreduce.runs.flags import ALONE, EXECUTION, RUNNER
from mapreduce.support import blas, phases, signals, traits
from mapreduce.support.options import expect


class Here:
    """Maps all units as one range. See :class:`mapreduce.engine.executor.Executor`.

    ``state``: Where a state is kept; by default in memory, in one block.
    """

    def __init__(self, state: State | None = None) -> None:
        self._state = state

    def advance(self, program: Program, start: int = 0, until: int = 0) -> Progress:
        """See :meth:`mapreduce.engine.executor.Executor.advance`.

        ``start``: Rounds that are completed; the state after them has been published.
        ``until``: Rounds to stop after, if that is before the end of the program; 0 if not.
        """
        with blas.in_one_thread():
            return self._advance(program, start, until)

    def _advance(self, program: Program, start: int, until: int) -> Progress:
        state = self._state or InMemory(blocks_for(program, 1))
        task, completed = program.task(state, Layout(1, state.count)), start
        if not isinstance(program, Stateful):
            return Progress(start + 1, run_round(task, start))
        if not start:
            publish_first(program, state)
        blocks = [state.block(start, number) for number in range(state.count)]
        while not (
            (until and completed >= until)
            or conclude_beside(
                program, completed, blocks[0].arrays, partial(over, state, completed)
            )
        ):
            blocks = run_round(task, completed)
            completed += 1
        return Progress(completed, blocks)


class _Recent(InMemory):
    """The last rounds in memory, of a state in a folder: only :meth:`save` publishes there."""

    def __init__(self, program: Program, beneath: State, completed: int) -> None:
        super().__init__(beneath.count)
        self._beneath, self._files = beneath, RoundFiles(path_of(beneath.place))
        self._units = range(owners(program))
        #: The last round that is whole, and the last one in the folder.
        self.completed = self.saved = completed
        for unit in self._units:
            self._publish_own(completed, unit, beneath.own(completed, unit))
        for number in range(self.count):
            self.publish(completed, number, beneath.block(completed, number))

    def save(self) -> None:
        """Publish the last whole round in the folder, which does not have it yet."""
        completed = self.completed
        for unit in self._units:
            self._beneath.keep(completed - 1, unit, self._read_own(completed, unit))
        for number in range(self.count):
            block = Message({}, dict(self._read(completed, number)))
            self._beneath.publish(completed, number, block)
        for unit in self._units:
            place = unit, len(self._units), UNIT
            self._files.remove({self.saved} - self._files.needed(completed, *place), *place)
        self.saved = completed


class InProcess(Resumable):
    """Runs rounds in this process. The folder receives those that are due, the last one before an
    error, and now and then another, so that little is lost with the process.
    """

    name = "here"
    is_alone = True
    usual_runner = "inline"

    @classmethod
    def usual_workers(cls, runner: traits.Traits) -> int:
        """This process."""
        return 1

    @classmethod
    def settle(cls, how: Execution, runner: traits.Traits) -> Execution:
        """Refuse options of jobs and of other processes."""
        usual = Execution(cls.usual_runner)
        others = [each for each in (*RUNNER, *EXECUTION) if each.name not in ALONE]
        chosen = [
            (each.flag.partition("/")[0], getattr(how, each.name), getattr(usual, each.name))
            for each in others
        ]
        wrong = [f"{flag} {value}" for flag, value, default in chosen if value != default]
        if how.mrjob_arguments:
            wrong.append(f"-- {' '.join(how.mrjob_arguments)}")
        wanted = "no option of jobs and workers, since this process computes alone"
        expect(not wrong, f"--executor {cls.name}", wanted, ", ".join(wrong))
        return replace(how, auto=())

    @classmethod
    def words(cls, workers: int | None, stages: int) -> str:
        return "in this process"

    def once(self, program: Program) -> list[Pair]:
        with blas.in_one_thread():
            layout = Layout(1, 1, threads=self._execution.threads)
            return [*computed(program.task(InMemory(1), layout), 0)]

    def go_on(
        self,
        program: Stateful,
        state: State,
        completed: int,
        limit: Limit = WHOLE,
        hooks: Hooks = QUIET,
    ) -> Times:
        """Run the rounds up to the next one that is due."""
        stop = self.stop(program, completed, limit)
        recent, started = _Recent(program, state, completed), time.monotonic()
        task = program.task(recent, Layout(1, state.count, threads=self._execution.threads))
        publish_at, ends = started + PUBLISH_SECONDS, False
        # What the program needs has been imported by now, perhaps with a BLAS of its own.
        with blas.in_one_thread():
            try:
                phases.mark_between()
                while recent.completed < stop and not ends:
                    phases.next_round(recent.completed + 1)
                    blocks = run_round(task, recent.completed)
                    recent.completed += 1
                    ends = is_over(program, recent.completed, blocks[0].arrays)
                    if (now := time.monotonic()) >= publish_at:
                        self._save(recent)
                        hooks.news(recent.completed, state.count)
                        took = time.monotonic() - now
                        publish_at = now + took + max(PUBLISH_SECONDS, PUBLISH_SHARE * took)
            finally:
                with signals.deferred():
                    self._save(recent)
        rounds = recent.completed - completed
        return Times((time.monotonic() - started) / max(rounds, 1), completed=recent.completed)

    def _save(self, recent: _Recent) -> None:
        if recent.completed == recent.saved:
            return
        phases.skip()
        phases.sample()
        if self._home is not None:
            lease.check(self._home)
        recent.save()
        phases.sample()
        phases.mark(phases.PUBLISH)
