"""A trace as one page."""

from html import escape

from mapreduce.errors import UsageError
from mapreduce.teaching import summary
from mapreduce.teaching.following import follow
from mapreduce.teaching.markup import Head, block_of, document, play, section_of
from mapreduce.teaching.model import Trace
from mapreduce.teaching.picture import picture
from mapreduce.teaching.report import flow, report
from mapreduce.teaching.scenes import scenes
from mapreduce.teaching.showing import text_of

#: Keys that can be followed.
_KEYS = 12


def page(trace: Trace, nodes: int, key: str | None = None) -> str:
    """The page.

    Parameters
    ----------
    trace : Trace
        Also of a run that failed.
    nodes : int
        Of the Hadoop whose cost is modelled.
    key : str, optional
        To be followed, first of all.
    """
    sections = report(trace, nodes)
    failure = [section_of(section) for section in sections if section.name == "failure"]
    rest = [one for one in sections if one.name not in ("failure", "short")]
    played = play(scenes(trace), {step.number: picture(step) for step in trace.steps})
    keys = _keys(trace, key)
    links = [("play", "Play it")] * bool(played) + [("follow", "Follow a key")] * bool(keys)
    links += [(section.name, section.title) for section in rest]
    head = Head(f"gradreduce explain {trace.place}", trace.job, trace.text, _flows(trace), links)
    return document(
        head,
        [*failure, played, keys, *map(section_of, rest)],
        "Times are of the run that was traced; what is modelled says so.",
    )


def _flows(trace: Trace) -> list[tuple[str, list[str]]]:
    steps = trace.steps
    return [
        (
            f"Step {step.number + 1}" if len(steps) > 1 else "The run",
            flow(step, step is steps[0], step is steps[-1]),
        )
        for step in steps
    ]


# Keys


def _keys(trace: Trace, wanted: str | None) -> str:
    step = next((one for one in trace.steps if one.reducers and one.reduces), None)
    if step is None:
        return ""
    words = [text_of(key.raw) for key in summary.keys_of(step)[:_KEYS]]
    if wanted is not None:
        words = [wanted, *(word for word in words if word != wanted)]
    options, parts = [], []
    for word in words:
        try:
            found = follow(trace, word)
        except UsageError:
            if word == wanted:
                raise
            continue
        name = escape(word)
        options.append(f"<option>{name}</option>")
        blocks = "".join(
            f"<h3>{escape(one.title)}</h3><p>{escape(one.text)}</p>"
            + "".join(map(block_of, one.blocks))
            for one in found
        )
        parts.append(f'<div data-key="{name}">{blocks}</div>')
    if not parts:
        return ""
    return (
        '<section id="follow"><h2>Follow a key</h2><p>From the lines in which it occurs to the '
        "output that it ends in. The hottest keys are here; for any other one, "
        "<code>--key KEY</code>.</p>"
        f'<p><label for="key">Key</label> <select id="key">{"".join(options)}</select></p>'
        f'<div aria-live="polite">{"".join(parts)}</div></section>'
    )
