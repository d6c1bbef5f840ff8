"""What a run would take on a Hadoop of some nodes: a model, with what it assumes.

Nothing here is measured but the seconds that the job's own methods took. A step costs its start,
then waves of map tasks, then the shuffle over the network, then waves of reduce tasks, the busiest
of which is the last.
"""

import math
from dataclasses import dataclass

from mapreduce.tracing.model import Step, Trace
from mapreduce.tracing.summary import counters, input_bytes, phases, received

#: Seconds until a step's first task is asked for, and after its last. Together with two tasks this
#: makes the 19 seconds that a step with nothing to do takes on a Hadoop 3 as it comes.
STEP_SECONDS = 13.0

#: Seconds until a container with Java and Python has its first record.
TASK_SECONDS = 3.0

#: Tasks that a node runs at once.
TASKS_PER_NODE = 4

#: Bytes of a split, and bytes that a node takes from the network in a second.
SPLIT_BYTES = 128 << 20
NETWORK_BYTES = 100e6


@dataclass(frozen=True)
class Cost:
    """Modelled seconds of a run on input of some size.

    Attributes
    ----------
    size : int
        Bytes of input.
    start, map, shuffle, reduce : float
        Seconds; ``start`` is that of steps and tasks.
    """

    size: int
    start: float
    map: float
    shuffle: float
    reduce: float

    @property
    def total(self) -> float:
        return self.start + self.map + self.shuffle + self.reduce


def costs(trace: Trace, nodes: int, sizes: list[int]) -> list[Cost]:
    """Costs for input of some sizes, whose records are like those of the trace."""
    own = input_bytes(trace)
    if not own or trace.failure:
        return []
    return [_cost(trace, nodes, size, size / own) for size in sizes]


def _cost(trace: Trace, nodes: int, size: int, scale: float) -> Cost:
    parts = [_step_cost(step, nodes, scale) for step in trace.steps]
    start, mapped, shuffled, reduced = (sum(part) for part in zip(*parts, strict=True))
    return Cost(size, start, mapped, shuffled, reduced)


def _step_cost(step: Step, nodes: int, scale: float) -> tuple[float, float, float, float]:
    slots = nodes * TASKS_PER_NODE
    found = counters(step)
    maps = max(1, math.ceil(found["MAP_INPUT_BYTES"] * scale / SPLIT_BYTES))
    map_waves = math.ceil(maps / slots)
    mapping = sum(phases(step.maps).values()) * scale / min(maps, slots)
    start = STEP_SECONDS + TASK_SECONDS * map_waves
    if not step.reducers:
        return start, mapping, 0.0, 0.0
    counts = received(step)
    # The busiest reducer is waited for; where they share slots, all of them.
    share = max(max(counts) / (sum(counts) or 1), 1 / slots)
    shuffled = found["REDUCE_SHUFFLE_BYTES"] * scale
    shuffling = max(shuffled / nodes, shuffled * share) / NETWORK_BYTES
    reducing = sum(phases(step.reduces).values()) * scale * share
    start += TASK_SECONDS * math.ceil(step.reducers / slots)
    return start, mapping, shuffling, reducing


def assumptions(nodes: int) -> str:
    """The assumptions of the model, in a sentence."""
    return (
        f"{nodes} nodes with {TASKS_PER_NODE} tasks at once each, on processors like this one; "
        f"{STEP_SECONDS:g} s for a step to start and to end and {TASK_SECONDS:g} s for each wave "
        f"of tasks; splits of {SPLIT_BYTES >> 20} MiB; a network of "
        f"{NETWORK_BYTES / 1e6:g} MB a second and node. Time, shares of the reducers and what the "
        f"combiner saves are taken to be as in this run, in proportion to the input."
    )
