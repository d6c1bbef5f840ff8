"""What is computed: rounds that map units and reduce by key. Who computes it is an executor.

A program is data: a frozen dataclass of what JSON can say. So a task anywhere builds the same one
from its description, and two that say the same are the same program.
"""

import json
import zlib
from abc import ABC, abstractmethod
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol

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
        "evaluate": "mapreduce.inference.evaluate:Evaluate",
        "find-blocks": "mapreduce.tables.tables:FindBlocks",
        "importance": "mapreduce.inference.importance:Permute",
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
    ``keys``: The first number of each key is below this. A strategy spells that number by
      :func:`~mapreduce.engine.leaf_ranges.block_key`.
    """

    name: str
    keys: int


class Line(Protocol):
    """The tasks that hold a model together, from the view of one of them."""

    def swap(self, step: int, given: Message | None, takes: bool) -> Message | None:
        """Send a message to the task of the stage before, -1, or after, 1; receive one; or both.

        It waits for the other task, which sends what is taken, and takes what is sent.
        """


class Stage(Protocol):
    """What one task does of each unit, after the task before it and before the next one.

    ``number``, ``count``: Which stage it is, from 0, and of how many.
    ``part``: Start and stop of the elements that it has of the vectors that are mapped.
    """

    @property
    def number(self) -> int: ...

    @property
    def count(self) -> int: ...

    @property
    def part(self) -> tuple[int, int]: ...


class Arriving(Protocol):
    """A task's part in rounds whose messages are applied to the state as they arrive."""

    def run(self, start: int) -> int:
        """Take part in some rounds after ``start``, and publish this task's blocks; returns the
        rounds completed then.
        """

    def ends(self, completed: int) -> bool:
        """Whether what follows is to be done in another number of blocks."""


class Program(ABC):
    """Rounds of map and reduce, each of which gives the blocks of a state: the last one's are its
    result.

    A subclass is a frozen dataclass. An instance belongs to one thread, and serves many tasks: what
    it has opened it keeps in cached properties.

    ``state``: What :meth:`map` and the reduces read, as :meth:`begin` was given it.
    ``layout``: How the rounds are divided.
    """

    #: Its name: that of :data:`PROGRAMS`, or by default ``MODULE:NAME``.
    name: ClassVar[str]
    #: Whether a round reads what the one before has made: then there is a state, see :meth:`first`.
    has_state: ClassVar[bool] = False
    #: The classes of what is run beside its rounds, of one's own: see :meth:`beside`.
    besides: ClassVar[tuple[type["Program"], ...]] = ()
    #: Whether it may be over before its last round.
    ends_early: ClassVar[bool] = False

    state: State
    layout: Layout = Layout(0, 0)

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"

    # As data

    def most_rounds(self) -> int:
        """Rounds at most."""
        return 1

    @abstractmethod
    def units(self, completed: int) -> int:
        """Units of the round after ``completed`` ones, at least 1."""

    @abstractmethod
    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        """The reduces of a round; if there are none, the maps give the blocks.

        They follow from the program and the layout alone, and never from what is read: executors
        lay them out beforehand.
        """

    def blocks_for(self, wanted: int) -> int:
        """How many blocks the state has, if as many are wanted."""
        return 1

    def first(self, blocks: int) -> Iterable[Mapping[str, Array]]:
        """The arrays of each block of the state before the first round, by name."""
        return ()

    def owners(self) -> int:
        """Units that own arrays, which are those of each round; 0 if none does."""
        return 0

    def first_own(self) -> Mapping[int, Mapping[str, Array]]:
        """The arrays that units own before the first round."""
        return {}

    def is_over(self, completed: int, arrays: Mapping[str, Array]) -> bool:
        """Whether no round follows, by any block after ``completed`` ones: all must agree.

        If there are vectors of :meth:`mapped`, ``arrays`` are those of :meth:`whole` alone.
        """
        return completed >= self.most_rounds()

    # What is read of a state; by default all tasks read all of it

    def mapped(self) -> tuple[str, ...]:
        """Names of the vectors of which maps read all blocks, by :meth:`State.vector`: each has the
        length and dtype of before, cut as :meth:`bounds` says. If there are any, tasks that do not
        reduce a block read only these and :meth:`whole`.
        """
        return ()

    def whole(self) -> tuple[str, ...]:
        """Names of the arrays that are equal in all blocks, and that all tasks read."""
        return ()

    def bounds(self, blocks: int) -> Sequence[tuple[int, int]]:
        """Start and stop of each block in the vectors of :meth:`mapped`."""
        return [(0, 0)] * blocks

    def most_bytes(self) -> int:
        """Bytes that a task sends to another in a round, at most."""
        return 1 << 40

    # Between rounds

    def next_due(self, completed: int) -> int:
        """The next round after which the state is to be on disk, and seen by the caller."""
        return self.most_rounds()

    def beside(self, completed: int, arrays: Mapping[str, Array]) -> "Program | None":
        """A program without a state of its own, which reads the state after some rounds, too, and
        is run before the next round; it has one block. Asked after rounds that are due, and the
        last one. ``arrays`` are those of :meth:`is_over`.
        """
        return None

    def is_concluded(self, completed: int) -> bool:
        """Whether :meth:`conclude` was called at a round; needed if there is :meth:`beside`."""
        return False

    def conclude(self, completed: int, block: Message) -> None:
        """Keep what the program beside has made; one task does that."""
        return

    def is_out(self, completed: int) -> bool:
        """Whether no round follows by what was concluded so far; one task asks, for all."""
        return False

    # What some executors can do, if the program can

    def libraries(self) -> Mapping[str, str]:
        """Versions of libraries that the bits depend on, beside the toolkit's own."""
        return {}

    def stages(self, count: int) -> Sequence[Stage]:
        """What each of ``count`` tasks does of every unit.

        Raises UsageError (there are none, or not as many).
        """
        raise UsageError(f"--stages {count}: the program {self.name} has none. Take --stages 1")

    def split(self, stage: Any, line: Line) -> None:
        """Compute by one of :meth:`stages` from now on, with the tasks before and after it."""
        return

    def arriving(self, gang: Any) -> Arriving | None:
        """A task's part in rounds whose messages are applied as they arrive, if these are such.

        ``gang``: A :class:`mapreduce.executors.gang.division.Together`.
        """
        return None

    # What tasks do

    def begin(self, state: State, layout: Layout) -> None:
        """Read this state, and be divided like this, from now on."""
        vars(self).update(state=state, layout=layout)

    @abstractmethod
    def map(self, part: LeafRange) -> Iterator[Pair]:
        """The messages of some units, whose arrays are valid until the next call of this method."""

    def method(self, phase: Phase) -> Callable[[int, Key, Iterable[Message]], Iterable[Pair]]:
        """What :meth:`reduce` calls in a phase: the method of its name."""
        found: Callable[[int, Key, Iterable[Message]], Iterable[Pair]] = getattr(self, phase.name)
        return found

    def reduce(
        self, completed: int, phase: Phase, key: Key, messages: Iterable[Message]
    ) -> Iterable[Pair]:
        """What a phase makes of all messages of a key.

        Messages come in any order, and twice with the same bytes if a task was repeated. The last
        phase gives each block once: ``(number,)`` and its message. Of a state, a message holds the
        arrays, and those that are the very arrays of the block before are not written again.

        Raises GradreduceError (the phase has no such key, or the method returned no pairs).
        """
        self.check_key(phase, key)
        found: Iterable[Pair] | None = self.method(phase)(completed, key, messages)
        if found is None:
            raise GradreduceError(
                f"the program {self.name}, phase {phase.name!r}: expected pairs, or () for none, "
                f"found None"
            )
        return found

    def check_key(self, phase: Phase, key: Key) -> None:
        """Raise GradreduceError if a phase has no such key."""
        if not 0 <= key[0] < phase.keys:
            raise GradreduceError(
                f"the program {self.name}, phase {phase.name!r}: expected keys that begin with a "
                f"number below {phase.keys}, found {key}"
            )

    def describe(self) -> str:
        """The program as an argument of a job, which :func:`built` takes.

        Tasks may import the class then: who has an instance trusts it.

        Raises MemberError (they cannot import it), UsageError (it is no frozen dataclass of what
        JSON can say).
        """
        for name in (self.name, *(kind.name for kind in self.besides)):
            if "<locals>" in name:
                raise UsageError(
                    f"the program {name} is defined within a function, where tasks do not find it: "
                    f"define it at the top of a module"
                )
            if ":" in name:
                trust.trust(name)
                PROGRAMS.load(name)
        return packed(self.to_json())

    def to_json(self) -> str:
        """The program's name and fields; errors are those of :meth:`describe`."""
        try:
            return json.dumps([self.name, asdict(self)], allow_nan=False)  # type: ignore[call-overload]
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the program {self.name} cannot be described to its tasks: {error}. Expected a "
                f"frozen dataclass, whose fields are texts, finite numbers and the like"
            ) from error


def packed(text: str) -> str:
    """A text as an argument of a job, which no shell changes, and no streaming of Hadoop's."""
    return urlsafe_b64encode(zlib.compress(text.encode())).decode().rstrip("=")


def unpacked(argument: str) -> Any:
    """The JSON of :func:`packed`; a ValueError or zlib.error if it is none."""
    coded = urlsafe_b64decode(argument + "=" * (-len(argument) % 4))
    return json.loads(zlib.decompress(coded))


def built(description: str, driver: str = "") -> Program:
    """The program of a description, which anybody may have written.

    ``driver``: Only tells programs apart that are kept.

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


_kept = lru_cache(maxsize=2)(built)


def kept(description: str, driver: str = "") -> Program:
    """The program of a description, as :func:`built`, which this process keeps for later tasks.

    ``driver``: A name that is unique to the driver, of programs whose folders may be made anew.
    """
    found = _kept(description, driver)
    if ":" in found.name and PROGRAMS.load(found.name) is not type(found):
        # Its class was defined again, as in a notebook.
        _kept.cache_clear()
        found = _kept(description, driver)
    return found
