"""Where an output comes from: the keys, the pairs and the lines of input that made it."""

from collections.abc import Iterable, Iterator

from mapreduce.tracing.model import FROM_ALL, Line, Record, Step, Task, Trace
from mapreduce.tracing.sampling import part_name


def with_key(records: Iterable[Record], raw: str) -> Iterator[Record]:
    """Records whose key is written so."""
    for record in records:
        if record.line == raw or record.line.startswith(f"{raw}\t"):
            yield record


def lines_behind(trace: Trace, output: str) -> list[Line]:
    """Lines of input from which a line of output comes; none where that is not known.

    Parameters
    ----------
    trace : Trace
        Whose lines are wanted.
    output : str
        As latin-1.
    """
    wanted: set[tuple[str, int]] | None = None
    lines: list[tuple[str, Line]] = []
    for step in reversed(trace.steps):
        made = [
            (task, record)
            for task in step.last
            for number, record in enumerate(task.sent, 1)
            # The record itself, or in the steps before what the next one read of it.
            if (
                record.line == output
                if wanted is None
                else (part_name(task.number), number) in wanted
            )
        ]
        lines = [found for task, record in made for found in _lines_of(step, task, record)]
        wanted = {(path, line.number) for path, line in lines}
    return [line for _, line in lines]


def _lines_of(step: Step, task: Task, record: Record) -> Iterator[tuple[str, Line]]:
    """Lines of a step's input, with their files, that made one of its outputs."""
    group = task.groups[record.source] if task.kind == "reduce" and record.source >= 0 else None
    for each in [task] if task.kind == "map" else step.maps:
        sources = {record.source if task.kind == "map" else FROM_ALL}
        if group:
            sources = {one.source for one in with_key(each.outputs, group.raw)}
        whole = any(source < 0 for source in sources)
        for number in range(len(each.lines)) if whole else sorted(sources):
            yield each.path, each.lines[number]
