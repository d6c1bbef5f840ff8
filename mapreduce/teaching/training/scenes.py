"""A round as a play: scenes in the order in which things happen, with a question before some."""

from mapreduce.teaching.blocks import Section, count
from mapreduce.teaching.scenes import Question, Scene
from mapreduce.teaching.training import report
from mapreduce.teaching.training.model import RoundTrace

#: Map tasks that have a scene.
_TASKS = 3


def scenes(trace: RoundTrace) -> list[Scene]:
    """All scenes of a round."""
    found = [
        _scene("input", _named(report.slices(trace), "the slices of the round"), _ask_rows(trace))
    ]
    found += [_map(trace, number) for number in range(min(_TASKS, len(trace.steps[0].maps)))]
    for step in trace.steps:
        place = f" of step {step.number + 1}" if len(trace.steps) > 1 else ""
        section = _named(report.shuffle(trace, step), f"what goes to the reducers{place}")
        found.append(_scene("shuffle", section, _ask_shuffle(trace) if not step.number else None))
    if trace.nodes:
        section = _named(report.tree(trace), "the tree is completed")
        found.append(_scene("tree", section, _ask_tree(trace)))
    section = _named(report.reducing(trace), "the owners of the blocks make their step")
    found.append(_scene("reduce", section, _ask_mean(trace)))
    found.append(_scene("model", _named(report.model(trace), "the model, before and after")))
    return found


def _scene(at: str, section: Section, question: Question | None = None) -> Scene:
    return Scene(0, at, section, question)


def _named(section: Section, title: str) -> Section:
    return Section("", title, section.text, section.blocks)


def _map(trace: RoundTrace, number: int) -> Scene:
    step = trace.steps[0]
    own = [one for one in trace.slices if one.task == number]
    added = [node for node in trace.nodes if node.task == number]
    sent = len({(pair.start, pair.stop) for pair in step.pairs if pair.task == number})
    text = (
        f"It computes {count(len(own), 'gradient')}, adds {count(len(added), 'time')} and sends "
        f"{count(sent, 'sum')}."
    )
    section = Section("", f"map task {number}", text, report.mapping(trace).blocks)
    if len(own) < 2:
        return _scene(f"map-{number}", section)
    question = Question(
        f"It has slices {report.span(own[0].leaf, own[-1].leaf + 1)} of {len(trace.slices):,}, and "
        "adds up neighbours of the tree. How many sums does it send?",
        str(sent),
        "Only siblings are added: slices 0 and 1, 2 and 3, then those pairs, and so on.",
    )
    return _scene(f"map-{number}", section, question)


def _ask_rows(trace: RoundTrace) -> Question:
    return Question(
        f"The round takes {count(len(trace.slices), 'slice')}. How many gradients are computed, "
        f"on {count(trace.tasks, 'map task')}?",
        str(len(trace.slices)),
        "One for each slice, whoever computes it: so the work can be divided in any way.",
    )


def _ask_shuffle(trace: RoundTrace) -> Question:
    return Question(
        "What decides the reducer that a partial sum goes to?",
        "the block",
        "The key is the block of the parameters: its owner must see all sums of it.",
        ("the map task", "the block", "the slice"),
    )


def _ask_tree(trace: RoundTrace) -> Question | None:
    if not trace.in_row:
        return None
    return Question(
        "Would the sum have the same bits if the slices were added from left to right?",
        "no" if trace.in_row.differing else "yes",
        "Floats are rounded after each addition, so the order matters: the tree fixes it.",
        ("yes", "no"),
    )


def _ask_mean(trace: RoundTrace) -> Question:
    weights = "rows" if trace.weight == trace.rows else "weights of the rows"
    return Question(
        "The gradients are sums over rows. By what is their sum divided?",
        f"{trace.weight:.0f}" if trace.weight == trace.rows else f"{trace.weight:.6g}",
        f"By all {weights} of the round, once and at the end: a mean of means would be wrong "
        "where slices differ in length.",
    )
