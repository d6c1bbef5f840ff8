"""What is noted of a round, as plain data."""

from dataclasses import dataclass, field


@dataclass
class SliceNote:
    """One leaf of the round's tree.

    Attributes
    ----------
    leaf : int
    task : int
        The map task that computes its gradient.
    shard, start, stop : int
        Its rows in the data.
    weight : float
        Sum of the weights of its rows; their number, if they have none.
    loss : float
        Sum over its rows.
    norm : float
        Euclidean norm of the sum of the gradients of its rows.
    """

    leaf: int
    task: int
    shard: int
    start: int
    stop: int
    weight: float
    loss: float
    norm: float

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def mean_loss(self) -> float:
        return self.loss / (self.weight or 1.0)

    @property
    def mean_norm(self) -> float:
        """Norm of the mean gradient of its rows."""
        return self.norm / (self.weight or 1.0)


@dataclass
class NodeNote:
    """One addition: the sum over the slices from ``start`` up to ``stop``, of two parts.

    Attributes
    ----------
    start, middle, stop : int
        The left part ends, and the right one starts, at ``middle``.
    level : int
        Level in the canonical tree.
    task : int
        The map task that adds, or -1 if a reducer does.
    reduce_step : int
        Which of the round's reduce steps adds, from 0; -1 in a map task.
    weight, norm : float
        The same as for a slice.
    """

    start: int
    middle: int
    stop: int
    level: int
    task: int
    reduce_step: int
    weight: float
    norm: float

    @property
    def mean_norm(self) -> float:
        return self.norm / (self.weight or 1.0)


@dataclass
class PairNote:
    """A pair that went from a task to a reducer.

    Attributes
    ----------
    key : str
    what : str
        ``gradients`` for a partial sum, ``mean`` or ``scalars`` in the steps after it.
    block : int
        Block of the parameters; -1 for a pair of all blocks.
    start, stop : int
        Slices, or pages of scalars, that it sums up; equal if it is not a sum of them.
    size : int
        Bytes as a line of Hadoop streaming.
    task, part : int
        Where it comes from, and the reducer that it goes to.
    """

    key: str
    what: str
    block: int
    start: int
    stop: int
    size: int
    task: int
    part: int


@dataclass
class TaskNote:
    """A task: what it was given and what it made, in records and bytes, and how long it took."""

    number: int
    inputs: list[str] = field(default_factory=list)
    input_bytes: int = 0
    outputs: int = 0
    output_bytes: int = 0
    seconds: float = 0.0


@dataclass
class StepNote:
    """One step of the job: map tasks, what went between, reduce tasks.

    Attributes
    ----------
    mapper, reducer : str
        The strategy's methods; the mapper is ``""`` where records pass as they are.
    mapper_does, reducer_does : str
        What they do, in a sentence.
    """

    number: int
    mapper: str
    reducer: str
    mapper_does: str = ""
    reducer_does: str = ""
    maps: list[TaskNote] = field(default_factory=list)
    pairs: list[PairNote] = field(default_factory=list)
    reduces: list[TaskNote] = field(default_factory=list)


@dataclass
class BlockNote:
    """A block of the parameters: elements from ``start`` up to ``stop``, and its file in bytes."""

    number: int
    start: int
    stop: int
    part: int
    published: int


@dataclass
class ParameterNote:
    """A named array of the model.

    Attributes
    ----------
    gradient : float
        Norm of the mean gradient of the round's rows, without penalties.
    before, after, change : float
        Norms.
    """

    name: str
    shape: list[int]
    gradient: float
    before: float
    after: float
    change: float


@dataclass
class Check:
    """Something that was compared with what the run left behind.

    Attributes
    ----------
    what, text : str
    is_equal : bool or None
        None if there was nothing to compare with.
    """

    what: str
    text: str
    is_equal: bool | None


@dataclass
class InRow:
    """What adding slices from left to right gives, beside the sum along the tree.

    Attributes
    ----------
    elements, differing : int
        Elements of the gradient, and those of them whose bits differ.
    largest : float
        Largest difference.
    """

    elements: int
    differing: int
    largest: float


@dataclass
class RoundTrace:
    """A round.

    Attributes
    ----------
    run, data, model, optimizer, strategy, summed, executor : str
    number, rounds : int
        The round, from 1, and how many the plan has.
    learning_rate, l1, l2 : float
    started_from : str
    replayed : int
        Rounds that were run again before this one.
    tasks, fan_in : int
        Map tasks, and most partial sums that a reducer merges, as the run has them or as asked for.
    size, itemsize : int
        Elements of the parameters, and bytes of each.
    row_bytes : int
        Read of the data in the round.
    loss, norm : float
        Mean over the round's rows, and the norm of their mean gradient.
    skipped : bool
        Whether the optimizer left the model as it was, since the gradient was not finite.
    sha256_before, sha256_after : str
        Digests of the model.
    """

    run: str
    data: str
    model: str
    optimizer: str
    strategy: str
    summed: str
    executor: str
    number: int
    rounds: int
    learning_rate: float
    l1: float
    l2: float
    started_from: str
    replayed: int
    tasks: int
    fan_in: int
    size: int
    itemsize: int
    row_bytes: int = 0
    loss: float = 0.0
    norm: float = 0.0
    skipped: bool = False
    sha256_before: str = ""
    sha256_after: str = ""
    slices: list[SliceNote] = field(default_factory=list)
    nodes: list[NodeNote] = field(default_factory=list)
    steps: list[StepNote] = field(default_factory=list)
    blocks: list[BlockNote] = field(default_factory=list)
    parameters: list[ParameterNote] = field(default_factory=list)
    in_row: InRow | None = None
    checks: list[Check] = field(default_factory=list)
    #: What differs between the processors and libraries of the run and those of now.
    profile: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.slices)

    @property
    def weight(self) -> float:
        return sum(one.weight for one in self.slices)

    @property
    def is_other(self) -> bool:
        """Whether something that was compared differs."""
        return any(check.is_equal is False for check in self.checks)


def span(start: int, stop: int) -> str:
    """Slices in a few characters."""
    return f"{start}" if stop == start + 1 else f"{start}–{stop - 1}"
