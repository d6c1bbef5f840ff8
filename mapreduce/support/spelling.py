"""Options in messages, as Python spells them: ``--learning-rate 0.1`` is ``learning_rate=0.1``."""

import contextlib
import json
import re
import shlex
from collections.abc import Collection
from types import TracebackType

#: A command that Python has a method for; one that it has not, which stays; an option, and the word
#: behind it, which may be its value; and the runner's short name.
_FORM = re.compile(
    r"(?P<mark>'?)gradreduce resume (?P<run>'[^']*'|[^\s']+)"
    r"(?P<more>(?: (?:--[a-z][a-z-]*|-r)(?: [^\s',;-][^\s',;]*)?)*)(?P=mark)"
    r"|the features with 'gradreduce data standardise'"
    r"|'gradreduce [^']*'"
    r"|(?<![\w-])(?:--(?P<no>no-)?(?P<name>[a-z][a-z0-9-]*[a-z0-9])|(?<!rm )-(?P<short>r)\b)"
    r"(?:[ =](?P<value>'[^']*'(?:\"'\"'[^']*')*"
    r"|(?![(*]|[-/]\s|--)[^\s']\S*?(?=[,.;:)?']*(?:\s|$))))?"
)
#: Commands that Python has a function for.
_CALL = re.compile(r"'gradreduce (?:train|export (?P<run>[^\s']+) --to (?P<path>[^\s']+))'")
#: Words of a sentence that come behind an option, and are no value of it.
_WORDS = re.compile(
    "after|and|are|as|cannot|contradict|for|gives|has|have|if|in|is|needs?|no|not|of|on|or|out|"
    "rows|runs|says|shows|steps|takes|that|to|was|which|with"
)
#: What stands for a value that the user knows.
_STANDS = frozenset(("DATA", "FOLDER", "MODULE:NAME", "N", "NAME", "RUN", "RUNNER", "WORD"))
_LISTS = {"category", "drop", "keep", "laws", "na", "number", "only", "text"}
_LISTS |= {"remote_data", "trust"}
_FLAGS = {"asynchronous", "header", "importance", "labelled", "standardise", "take_over"}
_RENAMED = {"columns": "only", "eval": "evaluation", "law": "laws", "r": "runner", "to": "path"}
_RENAMED |= {"round": "round_number", "unlabelled": "labelled"}


def in_python(text: str, known: Collection[str] | None = None) -> str:
    """A message with its options as keywords; others than the ``known`` ones stay as they are."""

    def spell(match: "re.Match[str]") -> str:
        if run := match["run"]:
            more = ", ".join(re.split(r" (?=\w+=)", in_python(match["more"].strip(), known)))
            return f"mapreduce.open_run({_text(run)}).resume({more})"
        if match[0].startswith("the features"):
            # The command reads datasets, not arrays.
            return match[0].replace("with", "with NumPy, or those of a dataset with")
        if call := _CALL.fullmatch(match[0]):
            run, path = call["run"], call["path"]
            return (
                f"mapreduce.open_run({_text(run)}).export({_text(path)})"
                if run
                else "mapreduce.train"
            )
        name = (match["name"] or match["short"] or "").replace("-", "_")
        name = _RENAMED.get(name, name)
        if not name or (known is not None and name not in known):
            return match[0]
        value = match["value"]
        if value is None or name in _FLAGS or _WORDS.fullmatch(value):
            behind = match[0].partition(match["name"] or "-r")[2] if value else ""
            is_on = not match["no"] and match["name"] != "unlabelled"
            return name + (f"={is_on}" if name in _FLAGS else "") + behind
        if name == "date_format":
            column, _, form = value.rpartition("=")
            return f"columns={json.dumps({column: {'kind': 'date', 'format': form}})}"
        if name in _LISTS:
            return f"{name}=[{', '.join(map(_text, value.split(',')))}]"
        is_number = re.fullmatch(r"-?\d[\d.]*(e-?\d+)?|None", value) and name not in ("id", "label")
        return f"{name}={value if is_number else _text(value)}"

    return _FORM.sub(spell, text)


def _text(value: str) -> str:
    """A word of a command line as a string of Python."""
    (value,) = shlex.split(value) or [""] if value[:1] == "'" else [value]
    return value if value in _STANDS else json.dumps(value, ensure_ascii=False)


class in_words_of_python(contextlib.ContextDecorator):
    """Has the errors of a function that Python calls name options as keywords."""

    def __init__(self, known: Collection[str] | None = None) -> None:
        self._known = known

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        text = error.args[0] if error is not None and error.args else None
        if error is not None and hasattr(error, "exit_code") and isinstance(text, str):
            error.args = (in_python(text, self._known), *error.args[1:])
