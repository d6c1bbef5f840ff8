"""Laws that a job ought to obey: what may change between runs, so that nothing may depend on it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from mapreduce.tracing.outcomes import Degree
from mapreduce.tracing.tasks import Variation

#: The plainest run there is: one task of each kind, no combiner, values as they come.
REFERENCE = Variation(maps=1, reducers=1, passes=0)


@dataclass(frozen=True)
class Law:
    """A law, and runs that show whether a job obeys it.

    Attributes
    ----------
    name : str
    text, why, mend : str
        What must not matter, why it varies on a cluster, and how to mend a job.
    variations : list of (str, Variation)
        Runs, with their names, that must give what the reference gives.
    harmless, silent : Degree
        Up to which a difference is a warning, and up to which it is none.
    applies : callable, optional
        Takes the runner; returns why the law does not apply to its job, or "".
    shows_values : bool
        Whether its outputs follow from values of the reducer that differ.
    """

    name: str
    text: str
    why: str
    mend: str
    variations: list[tuple[str, Variation]]
    reference: Variation = REFERENCE
    reference_name: str = "1 map task, 1 reducer, no combiner"
    harmless: Degree = Degree.DIGITS
    silent: Degree = Degree.ORDER
    applies: Callable[[Any], str] | None = field(default=None, compare=False)
    shows_values: bool = False


def _combines(runner: Any) -> str:
    return "" if any("combiner" in step for step in runner._get_steps()) else "it has no combiner"


def _reduces(runner: Any) -> str:
    return "" if any("reducer" in step for step in runner._get_steps()) else "it has no reducer"


def _gathers(runner: Any) -> str:
    return "it has its values sorted (SORT_VALUES)" if runner._sort_values else _reduces(runner)


def _divides(runner: Any) -> str:
    numbers = [n for n, step in enumerate(runner._get_steps()) if "reducer" in step]
    if numbers and all(map(runner.own_reducers, numbers)):
        return "it says itself how many reducers it wants"
    return _reduces(runner)


def _cuts(runner: Any) -> str:
    return "" if sum(map(len, runner.input[1])) > 1 else "the input is one line"


def _maps(number: int, **others: Any) -> tuple[str, Variation]:
    return f"{number} map tasks", replace(_COMBINED, maps=number, **others)


#: Whether a combiner runs once in each of the tasks or never: sums agree, means of means do not.
_COMBINED = replace(REFERENCE, passes=1)

_SHARED = replace(REFERENCE, together=True)
_TOGETHER = replace(REFERENCE, maps=3, together=True)

#: Laws that are tested by variations, in the order of their testing.
VARIED = [
    Law(
        "repeat",
        "A job that runs again gives the same output.",
        "A task that fails, or is slow, is run again, and what the first attempt wrote may be "
        "there already. Both have to agree.",
        "Give random numbers a seed that follows from the record, do not read the clock, and write "
        "only by yield.",
        [("the same again", REFERENCE)],
    ),
    Law(
        "types",
        "What a reducer gets is what was written, which need not be what was yielded.",
        "Between tasks a pair is a line of text. With JSON a tuple comes back as a list, the keys "
        "of a dict as strings, and a set cannot be written at all.",
        "Expect lists in the reducer, or make tuples of them there. To keep Python's types, set "
        "INTERNAL_PROTOCOL = PickleProtocol.",
        [
            (
                "Python's objects, as the mapper yielded them",
                replace(REFERENCE, wire=False, together=True),
            )
        ],
        _SHARED,
        "pairs as they come from the wire, as it is run",
        applies=_reduces,
    ),
    Law(
        "processes",
        "A task starts from nothing: it knows only its own records.",
        "Tasks are processes on different machines. What one leaves in a class or a module, "
        "another one does not find.",
        "Keep state in the instance, made by mapper_init or reducer_init, and send what others "
        "need to know as pairs.",
        [("3 map tasks in one process", _TOGETHER)],
        replace(_TOGETHER, together=False),
        "3 map tasks, each a process",
    ),
    Law(
        "iteration",
        "The values of a key can be read once.",
        "They are a stream, which may be larger than memory. After its end there is nothing more.",
        "Compute everything in one pass, or keep the values if they are few: values = "
        "list(values).",
        [("values that can be read again", replace(REFERENCE, restart=True))],
        reference_name="values that can be read once, as they are",
        applies=_reduces,
    ),
    Law(
        "values",
        "The values of a key come in any order.",
        "They arrive as map tasks end and as the network brings them: Hadoop promises no order, "
        "and another run has another one.",
        "Compute what does not depend on the order; tag values and look at the tag; sort them in "
        "the reducer, or set SORT_VALUES. Floats that must agree to the last digit are added by "
        "math.fsum.",
        [
            ("values in the opposite order", replace(REFERENCE, order="reversed")),
            *(
                (f"values shuffled, seed {seed}", replace(REFERENCE, order="shuffled", seed=seed))
                for seed in (1, 2)
            ),
        ],
        reference_name="values in the order in which they came",
        applies=_gathers,
        shows_values=True,
    ),
    Law(
        "combiner",
        "A combiner may run never, once or several times, on any part of a key's values.",
        "It runs when a buffer is full, and again when buffers are merged; a task with little to "
        "say does without. What it yields goes where its input would have gone.",
        "Let it yield what it takes: sums and counts can be combined again, means cannot. Send "
        "(sum, count), and divide in the reducer.",
        [
            ("a combiner that runs once", replace(REFERENCE, passes=1)),
            ("a combiner that runs on 3 parts", replace(REFERENCE, passes=1, spills=3)),
            ("a combiner that runs on 3 parts, and again", replace(REFERENCE, passes=2, spills=3)),
        ],
        reference_name="no combiner",
        applies=_combines,
        shows_values=True,
    ),
    Law(
        "splits",
        "It does not matter how the input is cut.",
        "There are as many mappers as splits, which cut the input at any byte, and one of them may "
        "get nothing at all. Each remembers its own records only.",
        "What needs all records of a kind belongs in a reducer, under one key. A job that reads "
        "files itself begins after the first line feed, unless at the file's start, and reads "
        "its last line to the end, wherever that is.",
        [
            _maps(2),
            _maps(3),
            _maps(7),
            # Means of equal parts have the mean of all.
            ("2 map tasks, one of a quarter of the input", replace(_COMBINED, cut="uneven")),
            _maps(2, batch_bytes=1),
        ],
        _COMBINED,
        "1 map task, 1 reducer",
        applies=_cuts,
        shows_values=True,
    ),
    Law(
        "reducers",
        "It does not matter how many reducers there are.",
        "Each gets some of the keys, in order, or none, and does not see those of the others.",
        "What needs all keys belongs under one key, or in a step with one reducer: "
        'jobconf={"mapreduce.job.reduces": 1}.',
        [(f"{number} reducers", replace(REFERENCE, reducers=number)) for number in (2, 3, 7)],
        applies=_divides,
    ),
    Law(
        "sorting",
        "Records are sorted as text.",
        'In the alphabet "10" comes before "9", and capitals before small letters.',
        'Write numbers with leading zeros, f"{n:09}", where their order matters; or let the '
        "reducer sort.",
        [("numbers sorted as numbers", replace(REFERENCE, keys="numbers", order="numbers"))],
        reference_name="sorted as text, as it is",
        applies=_reduces,
    ),
]

#: The job fails on the plainest of all runs.
RUNS = Law(
    "runs",
    "The job runs.",
    "One mapper and one reducer on few lines are the least that a job meets.",
    "Repair what the message says.",
    [],
)

SEEDS = Law(
    "seeds",
    "hash() is not the same in two processes.",
    "Python gives the hash of text a seed that is another one in each process, so that mappers do "
    "not agree, and a task that runs again does not agree with itself.",
    "Use a hash that is the same everywhere: zlib.crc32(text.encode()), or hashlib.blake2b. Sort "
    "a set before its order matters.",
    [],
    reference_name="PYTHONHASHSEED=1",
)

SKEW = Law(
    "skew",
    "No reducer has much more to do than the others.",
    "All records of a key go to one reducer. The others wait for it, and more machines do not "
    "make the answer come sooner.",
    "Send less of it, by a combiner; or divide the key: add a number from 0 to N to it that "
    "follows from the record (a salt), and bring the N parts together in another step.",
    [],
)

PRINTING = Law(
    "printing",
    "Tasks print nothing to standard output.",
    "On Hadoop that is where records go: each line that is printed becomes one, with no value, or "
    "with a wrong one.",
    "Print to sys.stderr, or count with increment_counter; the next task then reads nothing of it.",
    [],
)

NAMES = Law(
    "names",
    "Every method of a step has the name that mrjob knows.",
    "mrjob calls mapper, combiner and reducer, and for each of them _init and _final, and does not "
    "notice a mistyped name: without a reducer the mapper's pairs are the output.",
    "Correct the name, or return the method from steps(). A helper is not reported if other code "
    "of the class uses it.",
    [],
)

#: All that are tested, in their order: one that is broken breaks later ones too.
LAWS = [NAMES, VARIED[0], SEEDS, *VARIED[1:], PRINTING, SKEW]
