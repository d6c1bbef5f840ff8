"""A run as a play: scenes in the order in which things happen, with a question before some."""

from dataclasses import dataclass
from pathlib import Path

from mapreduce.teaching import summary
from mapreduce.teaching.blocks import Block, Cell, Section, Table, code, count, number
from mapreduce.teaching.model import Step, Task, Trace
from mapreduce.teaching.report import TASKS, output_section
from mapreduce.teaching.showing import text_of
from mapreduce.teaching.stages import combine_table, map_table, partition_words, reduce_table
from mapreduce.teaching.summary import raw_key


@dataclass(frozen=True)
class Question:
    """What to ask before a scene.

    Attributes
    ----------
    text : str
    answer : str
    because : str
    choices : list of str
        From which to choose; empty for a number or a text.
    """

    text: str
    answer: str
    because: str
    choices: tuple[str, ...] = ()

    def is_right(self, given: str) -> bool:
        """Whether an answer is right, however it is quoted."""
        return _bare(given) == _bare(self.answer)


def _bare(text: str) -> str:
    return text.strip().strip("\"'").replace(",", "").lower()


@dataclass(frozen=True)
class Scene:
    """A scene.

    Attributes
    ----------
    step : int
    at : str
        The station of the step's picture: ``input``, ``map-0``, ``combine``, ``shuffle``,
        ``reduce-0``, ``output``.
    section : Section
    question : Question, optional
    """

    step: int
    at: str
    section: Section
    question: Question | None = None


def scenes(trace: Trace) -> list[Scene]:
    """All scenes of a run."""
    found = []
    for step in trace.steps:
        name = f"Step {step.number + 1} of {len(trace.steps)}: " if len(trace.steps) > 1 else ""
        found += _of_step(step, name)
    if trace.steps and not trace.failure:
        found.append(Scene(len(trace.steps) - 1, "output", output_section(trace)))
    return found


def _of_step(step: Step, name: str) -> list[Scene]:
    found = [_input(step, name)]
    for task in step.maps[:TASKS]:
        title = f"{name}map task {task.number}"
        text = f"It reads {count(len(task.lines), 'line')}, and its mapper is called for each."
        blocks: list[Block] = [map_table(task, step)]
        section = Section("", title, text, blocks)
        found.append(Scene(step.number, f"map-{task.number}", section, _ask_map(task)))
    if any(task.combined is not None for task in step.maps):
        found.append(_combine(step, name))
    if step.reducers and step.reduces:
        found.append(_shuffle(step, name))
        for task in step.reduces[:TASKS]:
            title = f"{name}reduce task {task.number}"
            text = (
                f"It gets {count(len(task.groups), 'key')}, one after the other, sorted, each with "
                "all its values."
            )
            section = Section("", title, text, [reduce_table(task)])
            at = f"reduce-{task.number}"
            found.append(Scene(step.number, at, section, _ask_reduce(task)))
    return found


def _input(step: Step, name: str) -> Scene:
    rows = [
        [
            Cell(f"map task {task.number}"),
            code(Path(task.path).name),
            number(len(task.lines)),
            code(text_of(task.lines[0].text)[:80]) if task.lines else Cell("", note="no line"),
        ]
        for task in step.maps[:8]
    ]
    what = "The output of the step before" if step.number else "The input"
    text = f"{what} is cut into {count(len(step.maps), 'split')}, one for each map task."
    table = Table("", ["task", "file", "lines", "the first one"], rows, frozenset({2}))
    return Scene(step.number, "input", Section("", f"{name}the input is cut", text, [table]))


def _ask_map(task: Task) -> Question | None:
    if not task.lines or not task.outputs:
        return None
    first = text_of(task.lines[0].text)[:100]
    own = sum(1 for record in task.outputs if record.source == 0)
    if own:
        return Question(
            f"Its first line is: {first}\nHow many pairs will the mapper yield for it?",
            str(own),
            "See the first row.",
        )
    return Question(
        f"It has {count(len(task.lines), 'line')}. How many pairs will it yield in all?",
        str(len(task.outputs)),
        "See the last column.",
    )


def _combine(step: Step, name: str) -> Scene:
    tasks = [task for task in step.maps if task.outputs]
    question = None
    if tasks:
        task = max(tasks, key=lambda one: len(one.outputs))
        keys = len({raw_key(record) for record in task.outputs})
        question = Question(
            f"Map task {task.number} yielded {count(len(task.outputs), 'pair')} with "
            f"{count(keys, 'different key')}. How many pairs does the combiner leave?",
            str(len(task.sent)),
            "Most combiners leave one pair for each key.",
        )
    text = "Each map task brings together what it has for a key, before anything is sent."
    section = Section(
        "", f"{name}the combiner", text, [combine_table(task) for task in tasks[:TASKS]]
    )
    return Scene(step.number, "combine", section, question)


def _shuffle(step: Step, name: str) -> Scene:
    keys = summary.keys_of(step)
    rows = [
        [
            code(key.shown.text),
            number(key.records),
            Cell(f"reducer {key.part}"),
            Cell(partition_words(key.raw, step)),
        ]
        for key in keys[:8]
    ]
    shared = next((key for key in keys if sum(1 for n in key.by_map if n) > 1), None)
    question = None
    if shared is not None and step.reducers > 1:
        first, second, *_ = [n for n, value in enumerate(shared.by_map) if value]
        question = Question(
            f"Map tasks {first} and {second} both have pairs with the key {shared.shown.text}. "
            f"Do they go to the same reducer?",
            "yes",
            "The reducer follows from the key alone: equal keys meet, always.",
            ("yes", "no"),
        )
    text = "Each pair goes to the reducer that its key belongs to, whichever task it comes from."
    head = ["key", "pairs", "goes to", "since"]
    table = Table("", head, rows, frozenset({1}))
    return Scene(step.number, "shuffle", Section("", f"{name}the shuffle", text, [table]), question)


def _ask_reduce(task: Task) -> Question | None:
    for index, group in enumerate(task.groups):
        made = [record for record in task.outputs if record.source == index]
        if 2 <= len(group.values) <= 8 and len(made) == 1 and len(made[0].value.text) <= 20:
            values = ", ".join(value.text for value in group.values)
            return Question(
                f"The key {group.key.text} comes with the values {values}. With which value does "
                "the reducer yield it?",
                made[0].value.text,
                "See its row.",
            )
    return None
