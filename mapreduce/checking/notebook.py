"""``mapreduce.explain`` and ``mapreduce.check``, for where Python is typed."""

import contextlib
import io
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.checking import checker, verdicts
from mapreduce.checking.checker import Finding
from mapreduce.errors import UsageError
from mapreduce.explaining import sections
from mapreduce.explaining.engine import LINES, tracing
from mapreduce.explaining.model import Trace
from mapreduce.explaining.tasks import Variation
from mapreduce.explaining.training.model import RoundTrace
from mapreduce.report import terminal
from mapreduce.report.blocks import View
from mapreduce.support.outputs import writing
from mapreduce.support.spelling import in_words_of_python

#: Height of the page within a notebook, in pixels.
_HEIGHT = 720


@dataclass(frozen=True, repr=False)
class Explained:
    """What happened, as plain data and as a view: a page in a notebook, tables by :meth:`show`."""

    trace: Trace | RoundTrace
    view: View

    @cached_property
    def page(self) -> str:
        """The page, which needs nothing else."""
        # Jinja is imported where there is a page to make.
        from mapreduce.report import page

        return page.page(self.view)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page into a file, and print its size.

        Raises
        ------
        OutputError
            It cannot be written.
        """
        with writing(path):
            Path(path).write_text(self.page, encoding="utf-8")
        print(f"{path}: {len(self.page.encode()):,} bytes")

    def show(self, key: str | None = None) -> None:
        """Print the tables, or those of one of the keys of the view."""
        view = self.view
        sections = view.keys[key] if key is not None else [*view.failure, view.short, *view.rest]
        terminal.show(terminal.new_console(), sections)

    def play(self, quiz: bool = False) -> None:
        """Show what happened, scene by scene; with ``quiz``, ask before each what will happen."""
        console = terminal.new_console()
        terminal.play(console, self.view.scenes, quiz)
        terminal.show(console, self.view.failure)

    def data(self) -> dict[str, Any]:
        """The whole trace, for JSON; what is not finite is None."""
        found: dict[str, Any] = _finite(asdict(self.trace))
        return found

    def __repr__(self) -> str:
        return f"<{self.view.command}: {len(self.page.encode()):,} bytes>"

    def _repr_html_(self) -> str:
        # A page of its own within the page: neither's styles change the other.
        name = "explained by gradreduce"
        return (
            f'<iframe srcdoc="{escape(self.page)}" title="{name}" sandbox="allow-scripts" '
            f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
        )


def _finite(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _finite(value) for key, value in item.items()}
    if isinstance(item, list):
        return [_finite(value) for value in item]
    return None if isinstance(item, float) and not math.isfinite(item) else item


@in_words_of_python({"maps", "reducers", "round_number", "runner", "time_limit"})
def explain(
    target: type | str | os.PathLike[str] | AnyPath,
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    *,
    lines: Iterable[str] | None = None,
    round_number: int | None = None,
    maps: int | None = None,
    reducers: int | None = None,
    arguments: Iterable[object] = (),
    time_limit: float = 10.0,
) -> Explained:
    """Run a job on a small input, or run a round of a training again, and show what happened.

    Parameters
    ----------
    target : type or path
        A subclass of ``MRJob``, which may be defined in a notebook; or the folder of a run.
    inputs : path or iterable of paths, optional
        Files, folders or globs, for a job.
    lines : iterable of str, optional
        The input of a job itself, instead of ``inputs``.
    round_number : int, optional
        The round of a run, from 1. Default: the last round with more than one slice.
    maps, reducers : int, optional
        Numbers of tasks. Default: the numbers of the run; for a job the job's own, or 3 and 2.
    arguments : iterable
        Options of a job, as on the command line.
    time_limit : float
        Seconds for each task of a job.

    Returns
    -------
    Explained
        For a job that failed, the trace up to the failure.

    Raises
    ------
    UsageError
        Parameters are invalid, or the job's steps cannot be followed.
    MissingInputError
        An input or a run does not exist.
    DataError
        A run, or its data, are damaged.
    """
    if not isinstance(target, type):
        if inputs is not None or lines is not None or [*arguments]:
            raise UsageError("explain: a run needs no input and no arguments")
        path = path_of(os.fspath(target)) if isinstance(target, str | os.PathLike) else target
        return explain_round(path, round_number, maps, reducers, None)
    if round_number is not None:
        raise UsageError("explain: round_number is for the folder of a run")
    with _job_arguments("explain", inputs, lines, arguments) as given:
        how = Variation(maps=maps, reducers=reducers or 2)
        return explain_job(target, given, how, time_limit)


@dataclass(frozen=True, repr=False)
class Checked:
    """What a check found, law by law; a notebook shows it as the command does."""

    findings: list[Finding]

    @property
    def broken(self) -> list[str]:
        """The names of laws that are broken."""
        return checker.law_names(self.findings, "broken")

    @property
    def warnings(self) -> list[str]:
        """The names of laws with differences that may be harmless."""
        return checker.law_names(self.findings, "warning")

    def show(self) -> None:
        """Print what ``gradreduce check`` prints."""
        self._print(terminal.new_console())

    def _print(self, console: Console) -> None:
        view = verdicts.View(console)
        for finding in self.findings:
            view.add(finding)
        view.close(self.findings)

    def _recorded(self) -> Console:
        console = Console(record=True, file=io.StringIO(), width=100, highlight=False)
        self._print(console)
        return console

    def __repr__(self) -> str:
        return self._recorded().export_text()

    def _repr_html_(self) -> str:
        form = "<pre style='line-height: 1.3'>{code}</pre>"
        return self._recorded().export_html(inline_styles=True, code_format=form)


@in_words_of_python({"laws", "runner", "time_limit"})
def check(
    target: type | str | os.PathLike[str],
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    *,
    lines: Iterable[str] | None = None,
    laws: Iterable[str] = (),
    arguments: Iterable[object] = (),
    time_limit: float = 10.0,
) -> Checked:
    """Run a job in several ways that should make no difference, and compare the outputs.

    Parameters
    ----------
    target : type or path
        A subclass of ``MRJob``, which may be defined in a notebook, or its file.
    inputs : path or iterable of paths, optional
        Files, folders or globs.
    lines : iterable of str, optional
        The input itself, instead of ``inputs``.
    laws : iterable of str
        Names of laws to test, such as ``combiner``. Default: all.
    arguments : iterable
        Options of the job, as on the command line.
    time_limit : float
        Seconds for each task of each run.

    Returns
    -------
    Checked
        ``broken`` and ``warnings`` are names of laws; ``findings`` has a finding for each law.

    Raises
    ------
    UsageError
        Parameters are invalid, or the job's steps cannot be followed.
    MissingInputError
        An input, or the job's file, does not exist.
    DataError
        The input is empty.

    Examples
    --------
    >>> from jobs.word_count import WordCount
    >>> check(WordCount, lines=["to be", "or not to be"], laws=["combiner"]).broken
    []
    """
    checker.known_laws(names := [*laws])
    with _job_arguments("check", inputs, lines, arguments) as given:
        options = {"time_limit": time_limit, "lines": 1000, "shrink": 60, "laws": names}
        job = target if isinstance(target, type) else os.fspath(target)
        return Checked([*checker.check(job, given, options)])


@contextlib.contextmanager
def _job_arguments(
    name: str, inputs: Any, lines: Any, arguments: Iterable[object]
) -> Iterator[list[str]]:
    """The arguments of a job whose input is given by paths or by its lines."""
    if (inputs is None) == (lines is None):
        raise UsageError(f"{name}: give either inputs, which are paths, or lines=[...]")
    with tempfile.TemporaryDirectory() as folder:
        if lines is not None:
            inputs = Path(folder) / "lines"
            inputs.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        paths = [inputs] if isinstance(inputs, str | os.PathLike) else [*inputs]
        yield [*map(str, arguments), *(os.fspath(path) for path in paths)]


def explain_job(
    job: type[Any] | str,
    arguments: Sequence[str],
    how: Variation,
    time_limit: float,
    lines: int = LINES,
    key: str | None = None,
) -> Explained:
    """Run a job, given by its class or named as on the command line, and show what happened."""
    with tracing(job, arguments, time_limit, lines) as runner:
        trace: Trace = runner.trace(how)
        checker.note_combiners(runner, trace, how)
    trace.place = runner.place
    return Explained(trace, sections.view(trace, key))


def explain_round(path: AnyPath, *arguments: Any) -> Explained:
    """Run a round again, and show what happened; takes what ``training.explaining.traced`` does."""
    # Jobs need nothing of what a training imports.
    from mapreduce.explaining.training import explaining
    from mapreduce.explaining.training import sections as rounds

    trace = explaining.traced(path, *arguments)
    return Explained(trace, rounds.view(trace))
