"""Sums over the slices of a dataset, as one job: any result that combines along the canonical tree.

A job says what one slice contributes; a :class:`Monoid` says how contributions combine and travel.
The result has the same bits for any number of map tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mapreduce.executors.jobs import WireJob, run_job
from mapreduce.job import MRStep
from mapreduce.reduction.message import Message
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.runs.execution import Execution
from mapreduce.strategies.leaf_ranges import ranges

Partial = TypeVar("Partial")
Pairs = Iterator[tuple[str, Message]]


@dataclass(frozen=True)
class Monoid(Generic[Partial]):
    """How the contributions of slices combine, and how they travel.

    ``what``: Names the sum in an error.
    ``combine``: ``combine(left, right)`` of siblings.
    ``to_message``, ``from_message``: A contribution as a message, and back without any loss.
    """

    what: str
    combine: Callable[[Partial, Partial], Partial]
    to_message: Callable[[Partial], Message]
    from_message: Callable[[Message], Partial]

    def fold(self, leaves: int) -> TreeFold[Partial]:
        """Combines the contributions of ``leaves`` slices."""
        return TreeFold(leaves, self.combine, self.what)

    def nodes(
        self, leaves: int, slices: Iterable[int], lift: Callable[[int], Partial]
    ) -> Iterator[tuple[Node, Partial]]:
        """The largest complete nodes over some of the slices, from left to right."""
        fold = self.fold(leaves)
        for leaf in slices:
            fold.add(Node(0, leaf), lift(leaf))
        return fold.nodes()


class FoldJob(WireJob):
    """Combines the contributions of all slices; a key names the slices of a map task."""

    #: How the job's contributions combine.
    MONOID: Monoid[Any]

    @property
    def leaves(self) -> int:
        """The number of slices."""
        raise NotImplementedError

    def lift(self, leaf: int) -> Any:
        """The contribution of a slice."""
        raise NotImplementedError

    def steps(self) -> list[MRStep]:
        return [MRStep(mapper=self.map_slices, reducer=self.combine_nodes)]

    def map_slices(self, key: str, _: Message) -> Pairs:
        start, stop = map(int, key.split("-"))
        for node, partial in self.MONOID.nodes(self.leaves, range(start, stop), self.lift):
            message = self.MONOID.to_message(partial)
            place = {"leaves": self.leaves, "node": [*node]}
            yield "sum", Message({**message.meta, **place}, message.arrays)

    def combine_nodes(self, key: str, messages: Iterable[Message]) -> Pairs:
        fold: TreeFold[Any] | None = None
        for message in messages:
            fold = fold or self.MONOID.fold(message.meta["leaves"])
            partial = self.MONOID.from_message(message)
            fold.receive(Node(*message.meta["node"]), partial, message.digest or 0)
        assert fold is not None, "a reducer gets at least one value"
        yield key, self.MONOID.to_message(fold.result())


def run_fold(
    job_class: type[FoldJob], options: Mapping[str, object], leaves: int, execution: Execution
) -> Any:
    """Run a job over ``leaves`` slices; returns what they contribute together.

    Raises StepFailedException, GradreduceError (as the runner does).
    """
    keys = [f"{start:08d}-{stop:08d}" for start, stop in ranges(leaves, execution.workers)]
    ((_, message),) = run_job(job_class, options, keys, execution)
    return job_class.MONOID.from_message(message)
