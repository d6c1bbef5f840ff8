"""A round as one page."""

from html import escape

from mapreduce.teaching.markup import Head, document, play, section_of
from mapreduce.teaching.training.model import RoundTrace
from mapreduce.teaching.training.picture import legend, picture
from mapreduce.teaching.training.report import flow, report
from mapreduce.teaching.training.scenes import scenes


def page(trace: RoundTrace) -> str:
    """The page."""
    sections = [section for section in report(trace) if section.name != "short"]
    drawing = f'{picture(trace)}<p class="small">{escape(legend(trace))}</p>'
    head = Head(
        f"gradreduce explain {trace.run} --round {trace.number}",
        f"Round {trace.number:,} of {trace.rounds:,}",
        f"{trace.model}, trained by {trace.optimizer}: one map/reduce makes one step.",
        [("The round", flow(trace))],
        [("play", "Play it"), *((section.name, section.title) for section in sections)],
    )
    foot = "All figures are of this round, run again; what was compared with the run says so."
    return document(head, [play(scenes(trace), {0: drawing}), *map(section_of, sections)], foot)
