"""Remarks on a trace, which a teacher would make."""

import re
from collections.abc import Iterator
from itertools import pairwise

from mapreduce.explaining import summary
from mapreduce.explaining.model import Failure, From, Group, Record, Step, Task
from mapreduce.job.advice import ELSEWHERE
from mapreduce.report.blocks import Note

#: Records and keys from which their number says something.
_LEAST, KEYS = 20, 20

#: Times the mean at which a reducer's load is worth a remark, and a key's share.
_UNEVEN = 1.5
_HOT = 0.25

#: Share of the records up to which a combiner that leaves no more is worth a remark.
_SAVED = 0.7


def on_map(step: Step) -> Iterator[Note]:
    """What mappers did."""
    late = any(one.source == From.FINAL for task in step.maps for one in task.outputs)
    if late and step.reducers:
        yield Note(
            "The mappers remember, and yield after their last line: in-mapper combining. There is "
            "one memory for each map task, so a key may still come from several of them."
        )
    elif late:
        yield Note(
            f"{len(step.maps)} map tasks yielded something after their last line, and there is no "
            "reducer to bring it together: with more map tasks there would be more of it.",
            "warning",
        )
    yield from _printed(step.maps)
    yield from _wire_changes(step)


def _printed(tasks: list[Task]) -> Iterator[Note]:
    task = next((task for task in tasks if task.printed), None)
    if task:
        yield Note(
            f"{task.kind.capitalize()} task {task.number} printed to standard output, which on "
            f"Hadoop becomes records. It printed: {task.printed.strip()[:200]}",
            "warning",
        )


def _wire_changes(step: Step) -> Iterator[Note]:
    """What the wire makes of keys and values that mappers yield."""
    made = [one for task in step.maps for one in task.outputs]
    got = [group for task in step.reduces for group in task.groups]
    if not any(task.combined is not None for task in step.maps):
        yield from _between("mappers", made, "reducers", got)
        return
    combining = [group for task in step.maps for group in task.combining]
    yield from _between("mappers", made, "combiners", combining)
    sent = [one for task in step.maps for one in task.sent]
    yield from _between("combiners", sent, "reducers", got)


def _between(who: str, made: list[Record], whom: str, groups: list[Group]) -> Iterator[Note]:
    before = {item.kind for one in made for item in (one.key, one.value)}
    after = {item.kind for group in groups for item in (group.key, *group.values)}
    lost = sorted(kind for kind in before - after if not kind.startswith(("list", "dict[str")))
    if groups and any(kind.startswith("tuple") for kind in lost):
        yield Note(
            f"The {who} yield tuples; the {whom} get lists. JSON knows no tuples: what looks "
            "like one does not come back as one, and a list cannot be a dict's key."
        )
    elif groups and lost and after - before:
        keys = " JSON writes the keys of a dict as text." * any("dict[" in kind for kind in lost)
        yield Note(
            f"The {who} yield {' and '.join(lost[:3])}; the {whom} get "
            f"{' and '.join(sorted(after - before)[:3])}. Between them is a line of text.{keys}"
        )


def on_shuffle(step: Step) -> Iterator[Note]:
    """How keys and load were divided."""
    keys = summary.keys_of(step)
    total = sum(key.records for key in keys)
    most = sum(sum(map(bool, key.by_map)) for key in keys)
    ends = [one for task in (*step.maps, *step.reduces) for one in task.sent]
    are_numbers = {one.value.kind for one in ends} <= {"int", "float"}
    is_much = total >= _LEAST
    if is_much and not step.has("combiner") and are_numbers and most < _SAVED * total:
        yield Note(
            f"There is no combiner. If the values of a key can be brought together before the "
            f"reducer gets them, as sums can, one would send {most:,} records instead of "
            f"{total:,}.",
        )
    if is_much and len(keys) == 1 and step.reducers > 1:
        yield Note(
            "There is one key, so one reducer does all the work, and more of them would not help.",
        )
    elif is_much and len(keys) >= KEYS and keys[0].records > max(_HOT * total, len(step.maps)):
        yield Note(
            f"The key {keys[0].shown.text} has {keys[0].records / total:.0%} of all records, and "
            "one reducer gets them. A combiner would send less of them; a salted key would "
            "divide them.",
            "warning",
        )
    elif step.reducers > 1 and len(keys) >= KEYS and summary.skew(step) > _UNEVEN:
        yield Note(
            f"The busiest reducer gets {summary.skew(step):.1f} times as many records as the "
            "average. With few keys that is chance; with many it evens out.",
        )
    texts = sorted(key.raw.strip('"') for key in keys)
    if "Comparator" not in step.partitioner and all(text.lstrip("-").isdecimal() for text in texts):
        for first, second in pairwise(texts):
            if int(first) > int(second):
                yield Note(
                    f"Keys are sorted as text, not as numbers: {first} comes before {second}. "
                    "Where the order matters, write numbers with leading zeros.",
                    "warning",
                )
                return


def on_combine(step: Step) -> Iterator[Note]:
    """What combiners did."""
    if step.without_combiner:
        here, there = step.without_combiner
        yield Note(
            f"The combiner changes the answer: the output may have {here}; without "
            f"the combiner, {there}. "
            "It may run never, once or several times, on any part of a key's values, so it has to "
            "yield what it takes: sums and counts can be combined again, means cannot. "
            "gradreduce check finds the smallest input that shows it.",
            "warning",
        )


def on_reduce(step: Step) -> Iterator[Note]:
    """What reducers did."""
    task = next((task for task in step.reduces if task.again), None)
    if task:
        yield Note(
            f"For the key {task.again[0]} the reducer reads its values to their end, and then "
            f"wants to read them again, in {task.again_at}: the second time there are none. Write "
            "first: values = list(values).",
            "warning",
        )
    yield from _printed(step.reduces)


def advice(failure: Failure) -> str:
    """What to do about a failure of a well-known kind; else ""."""
    if failure.kind == "TimeLimitReached":
        places = re.findall(r'File "(?:.*/)?(.+)", line (\d+)', failure.traceback)
        look = f"It was stopped at {':'.join(places[-1])}" if places else "A method of yours yields"
        return f"{look}: does a loop there never end? --time-limit gives more seconds"
    # A message that goes on with its advice.
    return "".join(re.findall(rf"{ELSEWHERE}.*", failure.message))
