"""``mapreduce.explain``: a job, or a round of a training, explained where Python is typed."""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.errors import UsageError
from mapreduce.teaching import explaining
from mapreduce.teaching import page as job_page
from mapreduce.teaching.engine import tracing
from mapreduce.teaching.model import Trace
from mapreduce.teaching.tasks import Variation
from mapreduce.teaching.training import explaining as rounds
from mapreduce.teaching.training import page as round_page
from mapreduce.teaching.training.model import RoundTrace

#: Of the Hadoop whose time is modelled.
_NODES = 4

#: Of the page within a notebook, in pixels.
_HEIGHT = 720


@dataclass(frozen=True, repr=False)
class Explained:
    """What happened: a page in a notebook, tables by :meth:`show`.

    Attributes
    ----------
    trace : Trace or RoundTrace
        All that was noted, as plain data.
    page : str
        The page, which needs nothing else.
    """

    trace: Trace | RoundTrace
    page: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page into a file.

        Raises
        ------
        OutputError
            It cannot be written.
        """
        explaining.write(Path(path), self.page)

    def show(self) -> None:
        """Print the tables."""
        if isinstance(self.trace, RoundTrace):
            rounds.show(self.trace, play=False, quiz=False)
        else:
            options = {"play": False, "quiz": False, "key": None, "nodes": _NODES}
            explaining.show(self.trace, options)

    def __repr__(self) -> str:
        trace = self.trace
        what = trace.job if isinstance(trace, Trace) else f"round {trace.number} of {trace.run}"
        return f"<{what}, explained: {len(self.page.encode()):,} bytes>"

    def _repr_html_(self) -> str:
        # A page of its own within the page: neither's styles change the other.
        name = "explained by gradreduce"
        return (
            f'<iframe srcdoc="{escape(self.page)}" title="{name}" sandbox="allow-scripts" '
            f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
        )


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
    """Run a job on a small input, or a round of a training again, and show what happened.

    Parameters
    ----------
    target : type or path
        A subclass of ``MRJob``, which may be defined in a notebook; or the folder of a run.
    inputs : path or iterable of paths, optional
        Of a job: files, folders or globs.
    lines : iterable of str, optional
        Of a job: the input itself, instead of ``inputs``.
    round_number : int, optional
        Of a run, from 1. Default: the last with more than one slice.
    maps, reducers : int, optional
        Tasks. Default: the job's, or 3 and 2; the run's.
    arguments : iterable
        Of a job: options as on the command line.
    time_limit : float
        Of a job: seconds for each task.

    Returns
    -------
    Explained
        Also of a job that failed: what is known until then.

    Raises
    ------
    UsageError
        Parameters make no sense, or the job's steps cannot be followed.
    MissingInputError
        An input or a run does not exist.
    DataError
        A run, or its data, are damaged.
    """
    if not isinstance(target, type):
        if inputs is not None or lines is not None or [*arguments]:
            raise UsageError("explain: a run needs no input and no arguments")
        path = path_of(os.fspath(target)) if isinstance(target, str | os.PathLike) else target
        round_trace = rounds.traced(path, round_number, maps, reducers, None)
        return Explained(round_trace, round_page.page(round_trace))
    if (inputs is None) == (lines is None):
        raise UsageError("explain: give either inputs, which are paths, or lines=[...]")
    if round_number is not None:
        raise UsageError("explain: round_number is for the folder of a run")
    if lines is None:
        assert inputs is not None
        paths = [inputs] if isinstance(inputs, str | os.PathLike) else [*inputs]
        return _job(
            target, [os.fspath(path) for path in paths], arguments, maps, reducers, time_limit
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lines"
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return _job(target, [str(file)], arguments, maps, reducers, time_limit)


def _job(
    job: type[Any],
    paths: list[str],
    arguments: Iterable[object],
    maps: int | None,
    reducers: int | None,
    time_limit: float,
) -> Explained:
    given = [*map(str, arguments), *paths]
    with tracing(job, given, job.__name__, time_limit, 2000) as runner:
        trace: Trace = runner.trace(Variation(maps=maps, reducers=reducers or 2))
    trace.place = job.__name__
    return Explained(trace, job_page.page(trace, _NODES))
