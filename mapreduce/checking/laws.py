"""Laws that a job ought to obey: what may change between runs, so that nothing may depend on it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mapreduce.checking.outcomes import Degree
from mapreduce.explaining.keeping import EVERY_STEP, FRESH, REVERSED
from mapreduce.explaining.tasks import Variation

#: The plainest run there is: one task of each kind, no combiner, values as they come.
REFERENCE = Variation(maps=1, reducers=1, passes=0)


@dataclass(frozen=True)
class Law:
    """A law, and runs that show whether a job obeys it.

    ``text``, ``why``, ``mend``: What a job has to do, why that varies on a cluster, and how to mend
      a job that does not.
    ``variations``: list of (str, Variation). Runs, with their names, that must give what the
      reference gives.
    ``harmless``, ``silent``: Up to which a difference is a warning, and up to which it is none.
    ``applies``: Takes the runner; returns why the law does not apply to its job, or "".
    ``shows_values``: Whether its outputs follow from values of the reducer that differ.
    """

    name: str
    text: str
    why: str
    mend: str
    variations: list[tuple[str, Variation]] = field(default_factory=list)
    reference: Variation = REFERENCE
    reference_name: str = "1 map task, 1 reducer, no combiner"
    harmless: Degree = Degree.DIGITS
    silent: Degree = Degree.ORDER
    applies: Callable[[Any], str] | None = field(default=None, compare=False)
    shows_values: bool = False


def _lacks(part: str, runner: Any) -> str:
    return "" if any(part in step for step in runner._get_steps()) else f"it has no {part}"


_combines, _reduces = partial(_lacks, "combiner"), partial(_lacks, "reducer")


def _gathers(runner: Any) -> str:
    return "it has its values sorted (SORT_VALUES)" if runner._sort_values else _reduces(runner)


def _knows_keys(runner: Any) -> str:
    steps = [step.get("reducer", {}) for step in runner._get_steps()]
    own = [runner.takes_keys_together(number) for number, step in enumerate(steps) if step]
    if own and all(own):
        return "keys may belong together: it divides or sorts them itself, or takes many at once"
    return _reduces(runner)


def _divides(runner: Any) -> str:
    numbers = [n for n, step in enumerate(runner._get_steps()) if "reducer" in step]
    if numbers and all(map(runner.own_reducers, numbers)):
        return "it sets the number of reducers itself"
    return _reduces(runner)


def _cuts(runner: Any) -> str:
    return "" if sum(map(len, runner.input[1])) > 1 else "the input is one line"


def _maps(number: int, **others: Any) -> tuple[str, Variation]:
    return f"{number} map tasks", replace(COMBINED, maps=number, **others)


#: Whether a combiner runs once in each of the tasks or never: sums agree, means of means do not.
COMBINED = replace(REFERENCE, passes=1)

_SHARED = replace(REFERENCE, together=True)
_TOGETHER = replace(REFERENCE, maps=3, together=True)

#: Laws that are tested by variations, in the order of their testing.
VARIED = [
    Law(
        "repeat",
        "The job gives the same output when it runs again.",
        "If a task fails or is slow, it runs again. Some of the output of the first attempt may "
        "already be in use, so both attempts must agree.",
        "Compute the seed of random numbers from the record, do not read the clock, and write "
        "output only by yield.",
        [("a second run", replace(REFERENCE, attempt=1))],
    ),
    Law(
        "types",
        "The reducer takes pairs that were written as text and read again.",
        "Between tasks a pair is a line of text. With JSON a tuple comes back as a list, the keys "
        "of a dict as strings, and a set cannot be written at all.",
        "Expect lists in the reducer, or turn them into tuples there. To keep Python's types, set "
        "INTERNAL_PROTOCOL = PickleProtocol.",
        [
            (
                "the very objects that the mapper yielded",
                replace(REFERENCE, wire=False, together=True),
            )
        ],
        _SHARED,
        "pairs as JSON text, as usual",
        applies=_reduces,
    ),
    Law(
        "processes",
        "Tasks know nothing of each other.",
        "Tasks are processes on different machines. They do not see what another task stores in a "
        "class or a module.",
        "Keep state in the instance, and create it in mapper_init or reducer_init. Send what other "
        "tasks need to know as pairs.",
        [("3 map tasks in one process", _TOGETHER)],
        replace(_TOGETHER, together=False),
        "3 map tasks, each in its own process",
    ),
    Law(
        "iteration",
        "The reducer reads the values of a key once.",
        "The values are a stream, which may be larger than memory. A second loop gets nothing.",
        "Compute everything in one pass, or keep the values if they are few: values = "
        "list(values).",
        [("values that can be read again", replace(REFERENCE, restart=True))],
        reference_name="values that can be read once, as usual",
        applies=_reduces,
    ),
    Law(
        "values",
        "The output does not depend on the order of a key's values.",
        "Values arrive in the order in which map tasks end. Hadoop promises no order, and the next "
        "run may have another order.",
        "Compute something that does not depend on the order, or tag the values and look at the "
        "tag, or sort them in the reducer, or set SORT_VALUES. Use math.fsum if sums of floats "
        "must agree to the last digit.",
        [
            ("values in the opposite order", replace(REFERENCE, order="reversed")),
            *(
                (f"values shuffled, seed {seed}", replace(REFERENCE, order="shuffled", seed=seed))
                for seed in (1, 2)
            ),
        ],
        reference_name="values in the order of arrival",
        applies=_gathers,
        shows_values=True,
    ),
    Law(
        "combiner",
        "The output is the same without the combiner, and however often the combiner runs.",
        "A combiner runs when a buffer is full, and again when buffers are merged. A task with few "
        "records may not run it at all. So its output must be able to replace its input.",
        "A combiner may get any part of a key's values, and its output must replace that part. "
        "Sums, counts and maxima can be combined again, means cannot: send (sum, count), and "
        "divide in the reducer.",
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
        "The output does not depend on where the input is cut.",
        "The input is cut at any byte, and each part has its own map task, which knows only its "
        "own records. A part may even be empty.",
        "If you need all records of a kind together, send them to a reducer under one key. A job "
        "that reads files itself must start after the first line feed, unless it is at the start "
        "of the file, and must read its last line to the end.",
        [
            _maps(2),
            _maps(3),
            _maps(7),
            # Means of equal parts have the mean of all.
            ("2 map tasks, one of a quarter of the input", replace(COMBINED, cut="uneven")),
            _maps(2, batch_bytes=1),
        ],
        COMBINED,
        "1 map task, 1 reducer",
        applies=_cuts,
        shows_values=True,
    ),
    Law(
        "state",
        "The pairs for a key do not depend on the keys before.",
        "Each reducer gets some of the keys. Which keys these are, and which of them come first, "
        "depends on the number of reducers.",
        "Reset the state of the reducer for each key. A result over all keys together belongs into "
        "a step of its own, under one key.",
        applies=_knows_keys,
    ),
    Law(
        "reducers",
        "The output does not depend on the number of reducers.",
        "Each reducer gets some of the keys, in order, or none. It does not see the other keys.",
        "If you need all keys together, send them under one key, or use a step with one reducer: "
        'jobconf={"mapreduce.job.reduces": 1}.',
        [(f"{number} reducers", replace(REFERENCE, reducers=number)) for number in (2, 3, 7)],
        applies=_divides,
    ),
    Law(
        "sorting",
        "The job expects records to be sorted as text, not as numbers.",
        'As text, "10" comes before "9", and capitals come before small letters.',
        'If the order of numbers matters, write them with leading zeros, f"{n:09}", or let the '
        "reducer sort them.",
        [("numbers sorted as numbers", replace(REFERENCE, keys="numbers", order="numbers"))],
        reference_name="sorted as text, as usual",
        applies=_reduces,
    ),
]

#: Where a step has one reducer, which gets all keys in order.
MEANT = (
    "If you want a rank or a running total over all keys, all is well: the job sets one reducer, "
    "which gets all keys in order. If not:"
)

#: A combiner whose pairs are of another form than the mapper's, or that are not of their keys.
OTHER_FORM = (
    "It yields {}, where it reads {}. Let it yield values of the kind that it reads: if the "
    "reducer is to get (sum, count), the mapper yields (value, 1)."
)
OTHER_KEYS = (
    "It yields {} that it has not read. Let it yield what it has of a key under that key; another "
    "key is for the mapper to choose, or for another step."
)
MORE_PAIRS = (
    "Of {} it makes {}. It is there to send less: let it yield one pair for a key, or at "
    "most what it read."
)

#: What JSON makes of a dictionary.
DICTS = (
    "The keys of a dict come back as text: {} as {}. Turn them back, int(key), or yield a list of "
    "pairs instead, [*counts.items()]."
)

#: Keys that are floats.
ROUNDED = (
    "Round what is a key, round(x, 2), or count in whole numbers: cents instead of euros. Else two "
    "ways to compute one amount make two keys of it."
)

#: What a step keeps of a key is found by two runs in which other keys are not known, or later.
ALONE = {FRESH: "each key in a reducer of its own", REVERSED: "the keys in the opposite order"}

#: Laws that a job which is different each time breaks by chance.
UNSTEADY = {law.name for law in VARIED[1:]} | {"seeds"}

#: Laws that may be broken since another one is: its name, and the variations with which that makes
#: no difference. What a reducer keeps of other keys always depends on the number of reducers.
_STATELESS, _SORTED = {"alone": (EVERY_STEP, FRESH)}, {"order": "sorted"}
FOLLOWING: dict[str, dict[str, dict[str, Any] | None]] = {
    "splits": {"values": _SORTED},
    "reducers": {"state": None, "values": _SORTED},
    "sorting": {"state": _STATELESS, "values": _SORTED},
}

#: Texts of digits that a reducer compares, and not only sorts.
NUMERALS = replace(
    VARIED[-1],
    mend="Make numbers of texts before you compare them: int(value), or float(value).",
    variations=[("texts of digits compared as numbers", replace(REFERENCE, numerals=True))],
    harmless=Degree.DIFFERENT,
    silent=Degree.DIGITS,
)

#: Of several that are equal, a reducer takes the one whose key comes first.
TIE = replace(
    VARIED[-1],
    why="Of several with the same rank, the one whose key comes first was taken: a tie.",
    mend="Let the key decide between equal ones: max(pairs, key=lambda pair: (pair[1], pair[0])).",
)

#: The output of the job is empty.
OUTPUT = Law(
    "output",
    "The job yields something.",
    "Empty outputs do not differ, so that every law would hold.",
    "Write: yield key, value. If these lines hold nothing for the job, choose other lines.",
)

#: The job fails on the plainest of all runs.
RUNS = Law(
    "runs",
    "The job runs.",
    "This run has one mapper, one reducer, no combiner, and only a few lines of input.",
    "Repair what the message names.",
)

SEEDS = Law(
    "seeds",
    "The output does not depend on Python's hash seed.",
    "Each Python process has its own seed for the hash of text. So two mappers get different "
    "numbers, and so does a task that runs again.",
    "Use a hash that is the same everywhere, such as zlib.crc32(text.encode()) or hashlib.blake2b. "
    "If the order of a set matters, sort it.",
    reference_name="PYTHONHASHSEED=1",
)

SKEW = Law(
    "skew",
    "No reducer has much more to do than the others.",
    "All records of a key go to one reducer. The job waits for it, and more machines do not help.",
    "Send fewer records with a combiner. Or divide the key: add a number from 0 to N - 1 to it, "
    "computed from the record (a salt), and bring the N parts together in another step.",
)

PRINTING = Law(
    "printing",
    "Tasks print nothing to standard output.",
    "On Hadoop, records go to standard output. So each line that a task prints becomes a record, "
    "with a wrong value or none.",
    "Print to sys.stderr, or count with increment_counter. The next task does not read these.",
)

NAMES = Law(
    "names",
    "The methods of the steps have names that mrjob knows.",
    "mrjob calls mapper, combiner and reducer, and each of these with _init and _final. It ignores "
    "a mistyped name: without a reducer, the mapper's pairs are the output.",
    "Correct the name, or return the method from steps(). check does not report a helper that "
    "other code of the class uses.",
)

#: Those that :mod:`mapreduce.exercises.answers` tests, by comparing with an answer that is right.
OF_ANSWERS = ("answer", "cost")

#: All that are tested, in their order: one that is broken breaks later ones too.
LAWS = [NAMES, VARIED[0], SEEDS, *VARIED[1:], PRINTING, SKEW]
