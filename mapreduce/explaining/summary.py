"""Figures of a trace: counters under Hadoop's names, what went where, skew."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mapreduce.explaining.model import Record, Shown, Step
from mapreduce.job.doubts import GROUP
from mapreduce.runners.parallel.gathered import key_of


def raw_key(record: Record, fields: int = 1) -> str:
    """The bytes of a record's key, as latin-1."""
    return key_of(record.line.encode("latin-1"), fields).decode("latin-1")


def with_key(records: Iterable[Record], raw: str) -> Iterator[Record]:
    """Records whose key is written so."""
    for record in records:
        if record.line == raw or record.line.startswith(f"{raw}\t"):
            yield record


def size_of(records: Iterable[Record]) -> int:
    """Bytes of records as lines."""
    return sum(record.size for record in records)


def counters(step: Step) -> dict[str, int]:
    """What was measured, under the names that Hadoop gives it."""
    found = {
        "MAP_INPUT_RECORDS": sum(len(task.lines) for task in step.maps),
        "MAP_INPUT_BYTES": sum(line.size for task in step.maps for line in task.lines),
        "MAP_OUTPUT_RECORDS": sum(len(task.outputs) for task in step.maps),
        "MAP_OUTPUT_BYTES": sum(size_of(task.outputs) for task in step.maps),
    }
    combining = [task for task in step.maps if task.combined is not None]
    if combining:
        found["COMBINE_INPUT_RECORDS"] = sum(len(task.outputs) for task in combining)
        found["COMBINE_OUTPUT_RECORDS"] = sum(len(task.sent) for task in combining)
    if step.reducers:
        groups = [group for task in step.reduces for group in task.groups]
        found |= {
            "SPILLED_RECORDS": sum(len(task.sent) for task in step.maps),
            "SHUFFLED_MAPS": len(step.maps) * len(step.reduces),
            "REDUCE_SHUFFLE_BYTES": sum(size_of(task.sent) for task in step.maps),
            "REDUCE_INPUT_GROUPS": len(groups),
            "REDUCE_INPUT_RECORDS": sum(len(group.values) for group in groups),
            "REDUCE_OUTPUT_RECORDS": sum(len(task.outputs) for task in step.reduces),
            "REDUCE_OUTPUT_BYTES": sum(size_of(task.outputs) for task in step.reduces),
        }
    return found


#: What each counter counts, in a few words.
MEANING = {
    "MAP_INPUT_RECORDS": "lines that the mappers read",
    "MAP_INPUT_BYTES": "their bytes",
    "MAP_OUTPUT_RECORDS": "pairs that the mappers yielded",
    "MAP_OUTPUT_BYTES": "their bytes, as lines",
    "COMBINE_INPUT_RECORDS": "pairs that went into combiners",
    "COMBINE_OUTPUT_RECORDS": "pairs that came out of them",
    "SPILLED_RECORDS": "pairs that the map tasks wrote for the reducers",
    "SHUFFLED_MAPS": "times that a reducer fetched its part from a map task",
    "REDUCE_SHUFFLE_BYTES": "bytes that went from map tasks to reducers",
    "REDUCE_INPUT_GROUPS": "different keys",
    "REDUCE_INPUT_RECORDS": "values that the reducers got",
    "REDUCE_OUTPUT_RECORDS": "pairs that the reducers yielded",
    "REDUCE_OUTPUT_BYTES": "their bytes, as lines",
}


def job_counters(step: Step, told: bool = False) -> dict[tuple[str, str], int]:
    """Counters that the job itself has incremented, or else what its tasks have told of doubts."""
    total: Counter[tuple[str, str]] = Counter()
    for task in (*step.maps, *step.reduces):
        for group, names in task.counters.items():
            for name, amount in names.items() if told == (group == GROUP) else ():
                total[group, name] += amount
    return dict(sorted(total.items()))


@dataclass(frozen=True)
class Key:
    """A key: the records that each map task sent, the reducer that got them (``part``), and the
    records that mappers yielded, before a combiner (``made``).
    """

    shown: Shown
    raw: str
    by_map: list[int]
    part: int
    made: int

    @property
    def records(self) -> int:
        return sum(self.by_map)


def keys_of(step: Step) -> list[Key]:
    """All keys that went to reducers, those with the most records first."""
    found: dict[str, Key] = {}
    made = Counter(raw_key(record) for task in step.maps for record in task.outputs)
    for number, task in enumerate(step.maps):
        for record in task.sent:
            raw = raw_key(record)
            if raw not in found:
                found[raw] = Key(record.key, raw, [0] * len(step.maps), record.part, made[raw])
            found[raw].by_map[number] += 1
    return sorted(found.values(), key=lambda key: (-key.records, -key.made, key.raw))


def traffic(step: Step) -> list[list[int]]:
    """Records from each map task to each reducer."""
    table = [[0] * step.reducers for _ in step.maps]
    for row, task in zip(table, step.maps, strict=True):
        for record in task.sent:
            row[record.part] += 1
    return table


def reducer_records(step: Step) -> list[int]:
    """Records that each reducer gets."""
    return [sum(column) for column in zip(*traffic(step), strict=True)] or [0] * step.reducers


def skew(step: Step) -> float:
    """Records of the busiest reducer, as a multiple of the mean; 1 is even."""
    counts = reducer_records(step)
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0
