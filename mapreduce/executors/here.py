"""The executor that computes in this process, without mrjob."""

from functools import partial

from mapreduce.engine.executor import (
    Progress,
    blocks_of,
    computed,
    conclude_beside,
    over,
    publish_first,
)
from mapreduce.engine.program import Layout, Program
from mapreduce.engine.state import InMemory, State
from mapreduce.support import blas


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
        state = self._state or InMemory(program.blocks_for(1))
        program.begin(state, Layout(1, state.count))
        if program.has_state and not start:
            publish_first(program, state)
        completed, blocks = start, []
        if program.has_state:
            blocks = [state.block(start, number) for number in range(state.count)]
        while not blocks or not (
            (until and completed >= until)
            or conclude_beside(
                program, completed, blocks[0].arrays, partial(over, state, completed)
            )
        ):
            blocks = blocks_of(program, computed(program, completed), state.count)
            completed += 1
            for number, block in enumerate(blocks):
                state.publish(completed, number, block)
        return Progress(completed, blocks)
