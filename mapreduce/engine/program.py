"""What is computed: rounds that map units and reduce by key. Who computes it is an executor.

A program is data: a frozen dataclass of what JSON can say. So a task anywhere builds the same one
from its description, and two that say the same are the same program. It never changes: what its
methods read of a state they get as a :class:`Round`, from the :class:`Task` that runs it.

A program adds a base class for each thing that only some programs can do: ``class KMeans(Sum,
EndsEarly)`` has a state, and may be over before its last round.
"""

import json
import zlib
from abc import ABC, abstractmethod
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from mapreduce.engine import earlier
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.state import Array, State
from mapreduce.errors import DataError, GradreduceError, UsageError
from mapreduce.reduction.message import Message
from mapreduce.support import trust
from mapreduce.support.jsonfiles import build
from mapreduce.support.registry import Registry

#: Keys of different first numbers go to different reduce tasks, if there are enough. The other
#: numbers tell the keys of one task apart.
Key = tuple[int, ...]
Pair = tuple[Key, Message]

PROGRAMS = Registry(
    "program",
    "gradreduce.programs",
    {
        "boosting": "mapreduce.algorithms.boosting:Boosting",
        "evaluate": "mapreduce.inference.evaluate:Evaluate",
        "find-blocks": "mapreduce.tables.tables:FindBlocks",
        "float-gram": "mapreduce.algorithms.gram:FloatGram",
        "gram": "mapreduce.algorithms.gram:Gram",
        "importance": "mapreduce.inference.importance:Permute",
        "k-means": "mapreduce.algorithms.k_means:KMeans",
        "name-rows": "mapreduce.tables.shuffle:NameRows",
        "moments": "mapreduce.tables.standardise:SumMoments",
        "predict": "mapreduce.inference.predict:Predict",
        "predict-file": "mapreduce.inference.files:PredictFile",
        "report": "mapreduce.inference.report:Tallies",
        "report-groups": "mapreduce.inference.groups:GroupTallies",
        "shuffle": "mapreduce.tables.shuffle:Shuffle",
        "standardise": "mapreduce.tables.standardise:Standardise",
        "summarise": "mapreduce.tables.summarise:Summarise",
        "training": "mapreduce.strategies.program:Training",
        "trials": "mapreduce.searching.trials:Trials",
    },
    base="mapreduce.engine.program:Program",
)


class Layout(NamedTuple):
    """How a round is divided, which does not change the result.

    ``tasks``: Map tasks wanted for a round.
    ``blocks``: Blocks of the state.
    ``fan_in``: Most partial sums that one reducer merges, a power of two; 0 for no limit.
    ``threads``: Units that a task computes at once, if the program can.
    """

    tasks: int
    blocks: int
    fan_in: int = 0
    threads: int = 1


class Phase(NamedTuple):
    """A reduce of a round.

    ``name``: Name of the method that reduces one key.
    ``keys``: The first number of each key is below this.
    """

    name: str
    keys: int


class Round(NamedTuple):
    """A round, as the methods of a program see it: what they read is the state before it.

    ``completed``: Rounds before it.
    ``state``: That of the task.
    ``layout``: That of the task, with the numbers of tasks and blocks.
    """

    completed: int
    state: State
    layout: Layout

    def vector(self, name: str) -> Array:
        """An array of all blocks, joined."""
        return self.state.vector(self.completed, name)

    def scalar(self, name: str) -> Array:
        """An array that is the same in each block."""
        return self.state.scalar(self.completed, name)

    def scalars(self, names: Iterable[str]) -> Mapping[str, Array]:
        """Some arrays that are the same in each block, read at once."""
        return self.state.scalars(self.completed, names)

    def block(self, number: int) -> Mapping[str, Array]:
        """The arrays of a block, for a reduce of its key."""
        return self.state.block(self.completed, number).arrays

    def own(self, unit: int) -> Mapping[str, Array]:
        """The arrays that a unit owns."""
        return self.state.own(self.completed, unit)

    def keep(self, unit: int, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a unit for the next round; those that are the very arrays of
        :meth:`own` are not written again.
        """
        self.state.keep(self.completed, unit, arrays)


class Program(ABC):
    """A computation by map and reduce: one round, or several rounds if it is :class:`Stateful`.

    A subclass is a frozen dataclass. Its fields are values of JSON, from which each task builds the
    program. A task works in a folder of its own, so paths in the fields must be absolute. A program
    never changes: its methods get the state before the round as a :class:`Round`.

    Each reduce is a method that a :class:`Phase` names::

        def NAME(self, now: Round, key: Key, messages: Iterable[Message]) -> Iterable[Pair]

    Messages come in any order. If a task was repeated, a message comes twice, with the same bytes.
    The last phase yields each block once: ``(number,)`` and its message. The message of a block of
    the state holds the arrays of the block. Arrays that are the same objects as in the block before
    are not written again.

    An instance belongs to one thread, and may keep open files in cached properties.

    If an entry point of a package names the class, the class attribute ``name`` repeats the name of
    the entry point, since tasks look up the program by this name.

    Programs and executors in the form of the previous version still run, with a warning. The next
    version does not run them.
    """

    #: Its name: that of :data:`PROGRAMS`, or by default ``MODULE:NAME``.
    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"
        if earlier.is_earlier(cls):
            earlier.adapt(cls, (EndsEarly, InBlocks, Owning, Concluding, Stateful))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            functions = {each.__name__: each for each in (next_due, is_over)}
            return earlier.attribute(self, name, functions)

    @abstractmethod
    def units(self, completed: int) -> int:
        """Units of the round after ``completed`` ones, at least 1."""

    @abstractmethod
    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        """The reduces of a round; if there are none, the maps give the blocks.

        They follow from the program and the layout alone, and never from what is read: executors
        lay them out beforehand.
        """

    @abstractmethod
    def map(self, now: Round, units: range) -> Iterator[Pair]:
        """The messages of some units, whose arrays are valid until the next call of this method."""

    def task(self, state: State, layout: Layout) -> "Task":
        """The program at work, on a state and divided by a layout."""
        return Task(self, state, layout)

    def describe(self) -> str:
        """The program as an argument of a job, which :func:`built` takes.

        Tasks may import the class then: who has an instance trusts it.

        Raises MemberError (they cannot import it), UsageError (it is no frozen dataclass of what
        JSON can say).
        """
        besides = self.besides if isinstance(self, Concluding) else ()
        for name in (self.name, *(kind.name for kind in besides)):
            if "<locals>" in name:
                raise UsageError(
                    f"the program {name} is defined within a function, where tasks do not find it: "
                    f"define it at the top of a module"
                )
            if ":" in name:
                trust.trust(name)
                PROGRAMS.load(name)
        return packed(to_json(self))


class Task:
    """A program at work: an executor has one in each thread that maps or reduces.

    ``state``: What the program reads. ``layout``: How its rounds are divided.
    """

    def __init__(self, program: Program, state: State, layout: Layout) -> None:
        self.program, self.state, self.layout = program, state, layout

    def map(self, part: LeafRange) -> Iterator[Pair]:
        """The messages of some units, whose arrays are valid until the next call of this method."""
        now = Round(part.completed, self.state, self.layout)
        return self.program.map(now, range(part.start, part.stop))

    def reduce(
        self, completed: int, phase: Phase, key: Key, messages: Iterable[Message]
    ) -> Iterable[Pair]:
        """What a phase makes of all messages of a key.

        Raises GradreduceError (the phase has no such key, or the method returned no pairs).
        """
        self.check_key(phase, key)
        pairs = self._reduce(completed, phase, key, messages)
        if pairs is None:
            raise GradreduceError(
                f"the program {self.program.name}, phase {phase.name!r}: expected pairs, or () for "
                f"none, found None"
            )
        return pairs

    def _reduce(
        self, completed: int, phase: Phase, key: Key, messages: Iterable[Message]
    ) -> Iterable[Pair] | None:
        now = Round(completed, self.state, self.layout)
        pairs: Iterable[Pair] | None = getattr(self.program, phase.name)(now, key, messages)
        return pairs

    def check_key(self, phase: Phase, key: Key) -> None:
        """Raise GradreduceError if a phase has no such key."""
        if not 0 <= key[0] < phase.keys:
            raise GradreduceError(
                f"the program {self.program.name}, phase {phase.name!r}: expected keys that begin "
                f"with a number below {phase.keys}, found {key}"
            )

    def most_bytes(self) -> int:
        """Bytes that a task sends to another in a round, at most."""
        return 1 << 40


# What only some programs can do: executors ask by ``isinstance``


class Stateful(Program):
    """Each round reads the state that the one before has made, in one block."""

    @abstractmethod
    def most_rounds(self) -> int:
        """Rounds at most."""

    @abstractmethod
    def first(self, blocks: int) -> Iterable[Mapping[str, Array]]:
        """The arrays of each block of the state before the first round, by name."""


class EndsEarly(Stateful):
    """It may be over before its last round."""

    #: Whether the jobs of a chain have few rounds at first, where steps after the end would start
    #: tasks for nothing.
    starts_small: ClassVar[bool] = True

    @abstractmethod
    def is_over(self, completed: int, arrays: Mapping[str, Array]) -> bool:
        """Whether no round follows, by any block after ``completed`` ones: all must agree.

        So it may read only arrays that are equal in all blocks. If :meth:`InBlocks.mapped` or
        :meth:`InBlocks.whole` names any, ``arrays`` are those of ``whole`` alone.
        """


class InBlocks(Stateful):
    """The state has several blocks.

    By default, all tasks of a gang receive the whole state after each round. If the state is large,
    say which arrays need to travel: :meth:`mapped` and :meth:`whole` name them. If you write one of
    these methods, all other arrays stay with the task that reduces their block.
    """

    @abstractmethod
    def blocks_for(self, wanted: int) -> int:
        """How many blocks the state has, if as many are wanted."""

    def mapped(self) -> tuple[str, ...]:
        """Names of the vectors of which maps read all blocks, by :meth:`State.vector`: each has the
        length and dtype of before, cut as :meth:`bounds` says.
        """
        return ()

    def whole(self) -> tuple[str, ...]:
        """Names of the arrays that are equal in all blocks, and that all tasks read."""
        return ()

    def bounds(self, blocks: int) -> Sequence[tuple[int, int]]:
        """Start and stop of each block in the vectors of :meth:`mapped`."""
        return [(0, 0)] * blocks


class Owning(Stateful):
    """Units own arrays, which stay where the unit is mapped. All rounds have the same units.

    :meth:`Round.own` reads the arrays of a unit, and :meth:`Round.keep` keeps new ones.
    """

    @abstractmethod
    def owners(self) -> int:
        """Units that own arrays; 0 if none does."""

    @abstractmethod
    def first_own(self) -> Mapping[int, Mapping[str, Array]]:
        """The arrays that units own before the first round."""


class Concluding(Stateful):
    """Another program, such as an evaluation, is run beside some rounds.

    The other program has no state of its own, and one block.
    """

    #: The classes of what is run beside its rounds, of one's own.
    besides: ClassVar[tuple[type[Program], ...]] = ()

    @abstractmethod
    def next_due(self, completed: int) -> int:
        """The next round after which the state is to be on disk, and seen by the caller."""

    @abstractmethod
    def beside(self, completed: int, arrays: Mapping[str, Array]) -> Program | None:
        """A program that reads the state after some rounds, too, and is run before the next round.
        Asked after rounds that are due, and the last one. ``arrays`` are those of
        :meth:`EndsEarly.is_over`.
        """

    @abstractmethod
    def is_concluded(self, completed: int) -> bool:
        """Whether :meth:`conclude` was called at a round."""

    @abstractmethod
    def conclude(self, completed: int, block: Message) -> None:
        """Keep what the program beside has made; one task does that."""

    def is_out(self, completed: int) -> bool:
        """Whether no round follows by what was concluded so far; one task asks, for all."""
        return False


class Profiled(Program):
    """Its bits depend on libraries."""

    @abstractmethod
    def libraries(self) -> Mapping[str, str]:
        """Versions of the libraries, beside the toolkit's own."""


class Line(Protocol):
    """The tasks that hold a model together, from the view of one of them."""

    def swap(self, step: int, given: Message | None, takes: bool) -> Message | None:
        """Send a message to the task of the stage before, -1, or after, 1; receive one; or both.

        It waits for the other task, which sends what is taken, and takes what is sent.
        """


class Staged(Stateful):
    """Tasks can hold a model together, each a stage of it: its tasks are :class:`StagedTask`."""

    @abstractmethod
    def stages(self, count: int) -> Sequence[Any]:
        """What each of ``count`` tasks does of every unit.

        Raises UsageError (there are none, or not as many).
        """


class StagedTask(Task):
    """A task that can do a stage of each unit."""

    @abstractmethod
    def split(self, stage: Any, line: Line) -> None:
        """Compute by one of :meth:`Staged.stages` from now on, with the tasks before and after."""


class Arriving(Protocol):
    """A task's part in rounds whose messages are applied to the state as they arrive."""

    def run(self, start: int) -> int:
        """Take part in some rounds after ``start``, and publish this task's blocks; returns the
        rounds completed then.
        """

    def ends(self, completed: int) -> bool:
        """Whether what follows is to be done in another number of blocks."""


class ArrivingTask(Task):
    """A task whose messages may be applied as they arrive."""

    @abstractmethod
    def arriving(self, gang: Any) -> Arriving | None:
        """Its part in such rounds, if these are such.

        ``gang``: A :class:`mapreduce.executors.gang.division.Together`.
        """


def blocks_for(program: Program, wanted: int) -> int:
    """Blocks of a program's state, if as many are wanted: one, unless it says more."""
    return program.blocks_for(wanted) if isinstance(program, InBlocks) else 1


def owners(program: Program) -> int:
    """Units of a program that own arrays."""
    return program.owners() if isinstance(program, Owning) else 0


def is_over(program: Stateful, completed: int, arrays: Mapping[str, Array]) -> bool:
    """Whether no round follows, by the number of rounds or by a block's arrays."""
    is_last = completed >= program.most_rounds()
    return is_last or (isinstance(program, EndsEarly) and program.is_over(completed, arrays))


def next_due(program: Stateful, completed: int) -> int:
    """The next round after which the state is to be on disk: the last, unless it says another."""
    if isinstance(program, Concluding):
        return program.next_due(completed)
    return program.most_rounds()


# As data


def to_json(program: Program) -> str:
    """The program's name and fields; errors are those of :meth:`Program.describe`."""
    try:
        return json.dumps([program.name, asdict(program)], allow_nan=False)  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the program {program.name} cannot be described to its tasks: {error}. Expected a "
            f"frozen dataclass, whose fields are texts, finite numbers and the like"
        ) from error


def packed(text: str) -> str:
    """A text as an argument of a job, which no shell changes, and no streaming of Hadoop's."""
    return urlsafe_b64encode(zlib.compress(text.encode())).decode().rstrip("=")


def unpacked(argument: str) -> Any:
    """The JSON of :func:`packed`; a ValueError or zlib.error if it is none."""
    coded = urlsafe_b64decode(argument + "=" * (-len(argument) % 4))
    return json.loads(zlib.decompress(coded))


def built(description: str) -> Program:
    """The program of a description, which anybody may have written.

    Raises DataError (it is malformed, or a field is missing, unknown or of another type than the
    program's), UsageError, UntrustedError, MemberError (as :meth:`Registry.load` does).
    """
    try:
        name, content = unpacked(description)
        kind: type[Program] = PROGRAMS.load(str(name))
        return build(kind, content)
    except (ValueError, TypeError, RecursionError, zlib.error) as error:
        raise DataError(
            f"the description of a program is damaged: {error}. Found {description!r:.60}"
        ) from error


@dataclass
class Kept:
    """A program that this process keeps for later tasks, and the last of these."""

    program: Program
    task: Task | None = None


@lru_cache(maxsize=2)
def _cache(description: str, driver: str) -> Kept:
    return Kept(built(description))


def cache_program(description: str, driver: str = "") -> Kept:
    """The program of a description, as :func:`built`, which this process keeps.

    ``driver``: A name that is unique to the driver, of programs whose folders may be made anew.
    """
    found = _cache(description, driver)
    name = found.program.name
    if ":" in name and PROGRAMS.load(name) is not type(found.program):
        # Its class was defined again, as in a notebook.
        _cache.cache_clear()
        found = _cache(description, driver)
    return found
