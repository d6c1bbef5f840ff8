"""A round as a play: scenes in the order in which things happen, with a question before some."""

from mapreduce.tracing.blocks import Question, Section, count
from mapreduce.tracing.training import report
from mapreduce.tracing.training.model import RoundTrace, span

#: Map tasks that have a scene.
_TASKS = 3


def scenes(trace: RoundTrace) -> list[Section]:
    """All scenes of a round."""
    found = [_scene("input", "the slices of the round", report.slices(trace), _ask_rows(trace))]
    found += [_map(trace, number) for number in range(min(_TASKS, len(trace.steps[0].maps)))]
    for step in trace.steps:
        place = f" of step {step.number + 1}" if len(trace.steps) > 1 else ""
        asked = None if step.number else _ASK_SHUFFLE
        section = report.shuffle(trace, step)
        found.append(_scene("shuffle", f"what goes to the reducers{place}", section, asked))
    if trace.nodes:
        found.append(_scene("tree", "the tree is completed", report.tree(trace), _ask_tree(trace)))
    title = "the owners of the blocks make their step"
    found.append(_scene("reduce", title, report.reducing(trace), _ask_mean(trace)))
    found.append(_scene("model", "the model, before and after", report.model(trace)))
    return found


def _scene(at: str, title: str, section: Section, question: Question | None = None) -> Section:
    return Section(at, title, section.text, section.blocks, question)


def _map(trace: RoundTrace, number: int) -> Section:
    own = [one for one in trace.slices if one.task == number]
    added = [node for node in trace.nodes if node.task == number]
    pairs = trace.steps[0].pairs
    sent = len({(pair.start, pair.stop) for pair in pairs if pair.task == number})
    text = (
        f"It computes {count(len(own), trace.summed)}, adds {count(len(added), 'time')} and sends "
        f"{count(sent, 'sum')}."
    )
    question = None
    if len(own) > 1:
        question = Question(
            f"It has slices {span(own[0].leaf, own[-1].leaf + 1)} of {len(trace.slices):,}, and "
            "adds up neighbours of the tree. How many sums does it send?",
            str(sent),
            "Only siblings are added: slices 0 and 1, 2 and 3, then those pairs, and so on.",
        )
    blocks = report.mapping(trace).blocks
    return Section(f"map-{number}", f"map task {number}", text, blocks, question)


_ASK_SHUFFLE = Question(
    "What decides the reducer that a partial sum goes to?",
    "the block",
    "The key is the block of the parameters: its owner must see all sums of it.",
    ("the map task", "the block", "the slice"),
)


def _ask_rows(trace: RoundTrace) -> Question:
    return Question(
        f"The round takes {count(len(trace.slices), 'slice')}. How many gradients are computed, "
        f"on {count(trace.tasks, 'map task')}?",
        str(len(trace.slices)),
        "One for each slice, whoever computes it: so the work can be divided in any way.",
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
