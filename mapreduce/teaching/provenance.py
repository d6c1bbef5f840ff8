"""Where an output comes from: the keys, the pairs and the lines of input that made it."""

from collections.abc import Iterable, Iterator

from mapreduce.teaching.model import Line, Record, Step, Task, Trace
from mapreduce.teaching.sampling import part_name


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
    steps = trace.steps
    wanted = [
        (task, record) for task in steps[-1].last for record in task.sent if record.line == output
    ]
    for step in reversed(steps):
        lines = [line for task, record in wanted for line in _lines_of(step, task, record)]
        if step.number == 0:
            return lines
        before = steps[step.number - 1]
        wanted = [
            pair
            for path, line in lines_with_paths(step, lines)
            for pair in [_written(before, path, line)]
        ]
    return []


def _lines_of(step: Step, task: Task, record: Record) -> list[Line]:
    """Lines of a step's input that made one of its outputs."""
    if task.kind == "map":
        return [task.lines[record.source]] if record.source >= 0 else list(task.lines)
    if record.source < 0:
        return [line for each in step.maps for line in each.lines]
    return lines_with(step, task.groups[record.source].raw)


def lines_with(step: Step, raw: str) -> list[Line]:
    """Lines of a step's input for which its mapper yielded a key."""
    found = []
    for task in step.maps:
        sources = {record.source for record in with_key(task.outputs, raw)}
        if any(source < 0 for source in sources):
            found += task.lines
        else:
            found += [task.lines[source] for source in sorted(sources)]
    return found


def lines_with_paths(step: Step, lines: list[Line]) -> list[tuple[str, Line]]:
    """Lines of a step's input with the files that they are in."""
    wanted = {id(line) for line in lines}
    return [(task.path, line) for task in step.maps for line in task.lines if id(line) in wanted]


def _written(before: Step, path: str, line: Line) -> tuple[Task, Record]:
    """The task of the step before that wrote a line, and the record that it is."""
    for task in before.last:
        if part_name(task.number) == path:
            return task, task.sent[line.number - 1]
    raise LookupError(path)
