"""Remarks on a trace, which a teacher would make."""

from collections.abc import Iterator

from mapreduce.tracing import summary
from mapreduce.tracing.blocks import Note
from mapreduce.tracing.model import FROM_FINAL, Failure, Shown, Step, Task

#: Times the mean at which a reducer's load is worth a remark, and a key's share.
_UNEVEN = 1.5
_HOT = 0.25

#: Share of the records up to which a combiner that leaves no more is worth a remark.
_SAVED = 0.7


def on_map(step: Step) -> Iterator[Note]:
    """What mappers did."""
    late = [task for task in step.maps if any(one.source == FROM_FINAL for one in task.outputs)]
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
    if text := _changed([one.key for task in step.maps for one in task.outputs], step):
        yield Note(text)


def _printed(tasks: list[Task]) -> Iterator[Note]:
    task = next((task for task in tasks if task.printed), None)
    if task:
        yield Note(
            f"{task.kind.capitalize()} task {task.number} printed to standard output, which on "
            f"Hadoop becomes records. It printed: {task.printed.strip()[:200]}",
            "warning",
        )


def _changed(keys: list[Shown], step: Step) -> str:
    """What the wire makes of keys and values that mappers yield."""
    if not step.reducers or not step.reduces:
        return ""
    before = {one.value.kind for task in step.maps for one in task.sent}
    before |= {key.kind for key in keys}
    groups = [group for task in step.reduces for group in task.groups]
    after = {value.kind for group in groups for value in group.values}
    after |= {group.key.kind for group in groups}
    lost = sorted(kind for kind in before - after if kind.partition("[")[0] not in ("list", "dict"))
    if any(kind.startswith("tuple") for kind in lost):
        return (
            "The mappers yield tuples; the reducers get lists. JSON knows no tuples: what looks "
            "like one does not come back as one, and a list cannot be a dict's key."
        )
    if lost and after - before:
        return (
            f"The mappers yield {' and '.join(lost[:3])}; the reducers get "
            f"{' and '.join(sorted(after - before)[:3])}. Between them is a line of text."
        )
    return ""


def on_shuffle(step: Step) -> Iterator[Note]:
    """How keys and load were divided."""
    keys = summary.keys_of(step)
    total = sum(key.records for key in keys)
    most = sum(sum(map(bool, key.by_map)) for key in keys)
    are_numbers = {one.value.kind for task in step.maps for one in task.sent} <= {"int", "float"}
    if not step.has("combiner") and are_numbers and most < _SAVED * total:
        yield Note(
            f"There is no combiner. If the values of a key can be brought together before the "
            f"reducer gets them, as sums can, one would send {most:,} records in the place of "
            f"{total:,}.",
        )
    if len(keys) == 1 and step.reducers > 1:
        yield Note(
            "There is one key, so one reducer does all the work, and more of them would not help.",
        )
        return
    if (
        keys
        and keys[0].records > _HOT * total
        and len(keys) > 2
        and keys[0].records > len(step.maps)
    ):
        yield Note(
            f"The key {keys[0].shown.text} has {keys[0].records / total:.0%} of all records, and "
            "one reducer gets them. A combiner would send less of them; a salted key would "
            "divide them.",
            "warning",
        )
    elif step.reducers > 1 and total > 20 and summary.skew(step) > _UNEVEN:
        yield Note(
            f"The busiest reducer has {summary.skew(step):.1f} times the mean. With few keys that "
            "is chance; with many it evens out.",
        )
    texts = [key.raw.strip('"') for key in keys]
    numbers = sorted((text for text in texts if text.lstrip("-").isdecimal()), key=int)
    is_text = "Comparator" not in step.partitioner
    if is_text and len(numbers) > 1 and len(numbers) == len(texts) and sorted(numbers) != numbers:
        first, second = _misplaced(numbers)
        yield Note(
            f"Keys are sorted as text, not as numbers: {first} comes before {second}. Where the "
            "order matters, write numbers with leading zeros.",
            "warning",
        )


def _misplaced(numbers: list[str]) -> tuple[str, str]:
    """Two numbers of which the larger one is the smaller text."""
    for small in numbers:
        for large in numbers:
            if int(large) > int(small) and large < small:
                return large, small
    return numbers[0], numbers[-1]


def on_reduce(step: Step) -> Iterator[Note]:
    """What reducers did."""
    again = next((task.again[0] for task in step.reduces if task.again), None)
    if again is not None:
        yield Note(
            f"For the key {again} the reducer reads its values to their end, and then wants to "
            "read them again: the second time there are none. list(values) keeps them.",
            "warning",
        )
    silent = sum(
        1
        for task in step.reduces
        for number, _ in enumerate(task.groups)
        if not any(one.source == number for one in task.outputs)
    )
    groups = sum(len(task.groups) for task in step.reduces)
    if (
        silent
        and silent < groups
        and not any(one.source < 0 for task in step.reduces for one in task.outputs)
    ):
        yield Note(f"The reducers yielded nothing for {silent:,} of {groups:,} keys.")
    yield from _printed(step.reduces)


def advice(failure: Failure) -> Iterator[str]:
    """What to do about a failure of a well-known kind."""
    text = f"{failure.kind}: {failure.message}"
    if "not JSON serializable" in text:
        yield (
            "Between tasks everything is a line of JSON: strings, numbers, booleans, None, lists "
            "and dicts with strings as keys. Turn a set into a sorted list, and a NumPy number "
            "into a Python one by .item()"
        )
    elif failure.kind == "TimeLimitReached":
        if failure.traceback:
            yield "The place where it was is the last one above. --time-limit gives more seconds"
        else:
            yield (
                "It was between two lines of yours: a method that yields without end? Else "
                "--time-limit gives more seconds"
            )
    elif failure.kind == "TypeError" and "unhashable" in text:
        yield "A tuple that was yielded comes back as a list, which cannot be a dict key: tuple(it)"
    elif failure.kind == "TypeError" and "expected a pair" in text:
        yield "A mapper or reducer yields a key and a value: yield key, value"
