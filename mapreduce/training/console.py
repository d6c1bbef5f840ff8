"""The progress and the result of a training, as text on a terminal."""

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hdfs_utils.errors import KerberosError
from mapreduce.engine.registry import kind_of
from mapreduce.errors import Interrupted
from mapreduce.runs.events import (
    Evaluated,
    Event,
    Events,
    ExecutionChosen,
    RoundCompleted,
    RoundPublished,
    RunEnded,
    RunStarted,
    Warned,
)
from mapreduce.support import numeric
from mapreduce.support.commands import resume
from mapreduce.support.printable import echo
from mapreduce.support.words import count

if TYPE_CHECKING:
    from mapreduce.job import Job
    from mapreduce.runs.directory import RunDir
    from mapreduce.runs.fits import FitDir
    from mapreduce.training.request import TrainingRequest

#: Seconds between two lines, and on a terminal, where they replace each other.
_LINE_SECONDS, _TERMINAL_SECONDS = 5.0, 0.1

#: Seconds within which rounds that come after the first one were computed with it.
_BURST_SECONDS = 0.1


def start(
    values: Mapping[str, Any],
    job_class: "type[Job] | None" = None,
    prepare: "Callable[[TrainingRequest, Events], TrainingRequest]" = lambda request, _: request,
) -> None:
    """Start a training from the values of all options, and print its progress and its result.

    ``values`` are those of :meth:`mapreduce.training.request.TrainingRequest.of`, and ``dry_run``,
    ``quiet`` and ``as_json``. The steps of ``job_class`` are the rounds; by default it is the
    toolkit's own. ``prepare`` imports data.
    """
    numeric.pin(values["numeric_profile"])
    from mapreduce.training.request import TrainingRequest

    request = TrainingRequest.of(values)
    if values["dry_run"]:
        _show_plan(prepare(request, Events(Display(values["quiet"]))), values["as_json"])
    else:
        follow(values, lambda events: prepare(request, events).start(events, job_class))


def follow(
    values: Mapping[str, Any], train: "Callable[[Events], tuple[RunDir | FitDir, RunEnded]]"
) -> None:
    """Call ``train``, and print its progress and its result.

    ``values`` holds ``run``, ``quiet`` and ``as_json``.
    """
    from mapreduce.runs.directory import RunDir
    from mapreduce.runs.fits import FitDir

    # mrjob's own log is for debugging.
    logging.getLogger("mrjob").setLevel(logging.ERROR)
    display = Display(values["quiet"])
    started = time.monotonic()
    try:
        # What a model of one's own prints is no result.
        with contextlib.redirect_stdout(sys.stderr):
            run, ended = train(Events(display))
    except (Interrupted, KerberosError) as error:
        path = values["run"].absolute()
        # While data are imported there is no run yet.
        has_run = isinstance(error, Interrupted) and RunDir(path).is_there
        if display.has_begun or has_run:
            display.say(f"the last round is saved. Continue with: {resume(path)}")
        raise
    finally:
        display.close()
    seconds = time.monotonic() - started
    # The driver has told of lines of the log that are not events.
    summary = run.summary() if isinstance(run, FitDir) else run.summary(lambda message: None)
    summary["seconds"] = round(seconds, 3)
    if values["as_json"]:
        echo(json.dumps(summary, indent=1, allow_nan=False))
        return
    for line in _fitted(summary) if isinstance(run, FitDir) else _trained(run, ended, summary):
        echo(line)
    if summary.get("hardly_trained") and not values["quiet"]:
        echo(summary["hardly_trained"], err=True)
    for warning in summary.get("warnings", ()):
        echo(f"warning: {warning}", err=True)


def _fitted(summary: Mapping[str, Any]) -> Iterator[str]:
    """The result of a fit, in lines."""
    rounds = count(summary["completed"], "round")
    yield f"fitted in {summary['seconds']:.1f} s, {rounds}: {summary['run']}"
    yield f"model_sha256 {summary['model_sha256']}"


def _trained(run: "RunDir", ended: RunEnded, summary: Mapping[str, Any]) -> Iterator[str]:
    """The result of a training, in lines."""
    from mapreduce.runs import outcome
    from mapreduce.runs.directory import RunDir
    from mapreduce.training import doubts

    if ended.search == "converged":
        # Else a warning says that nothing was learned.
        if ended.completed > 1:
            norm = outcome.gradient_norm(run.config.plan, ended)
            yield f"converged after {ended.completed:,} rounds: {norm}"
    elif ended.stopped_early and ended.search != "stalled":
        yield f"stopped early: the best evaluation was after {ended.completed:,} rounds"
    yield f"trained in {summary['seconds']:.1f} s: {run.path}"
    if summary["eval_loss"] is not None:
        yield scores(summary["accuracy"], summary["eval_loss"])
    # The data may have moved since this object has read where they are.
    if (guessed := doubts.guessing(RunDir(run.path).config)) is not None:
        yield guessed
    if summary["bytes_pushed"] is not None:
        yield traffic(summary)
    yield f"model_sha256 {ended.model_sha256}"


def _show_plan(request: "TrainingRequest", as_json: bool) -> None:
    from mapreduce.executors.resumable import Resumable

    # One that is not the toolkit's is imported, and may refuse what is asked of it.
    Resumable.of(request.execution)
    plan = request.plan()
    content: dict[str, Any] = {
        "model": plan.model,
        "optimizer": plan.optimizer,
        "l2": plan.l2,
        "rows": plan.rows,
        "rounds": plan.rounds,
        "rounds_per_epoch": plan.rounds_per_epoch,
        "batch_size": plan.batch_size,
        "slice_rows": plan.slice_rows,
        "slices_per_round": plan.leaves(0),
        "parameters": plan.about.size,
        "plan_sha256": plan.sha256,
    }
    if as_json:
        echo(json.dumps({**content, "plan": plan.to_dict()}, indent=1, allow_nan=False))
        return
    for name, value in content.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        echo(f"{name.replace('_', ' '):18}{shown}")


def scores(accuracy: float | None, loss: float) -> str:
    """An evaluation in words. A model that predicts numbers has no accuracy."""
    return f"loss {loss:.4f}" if accuracy is None else f"accuracy {accuracy:.4f}, loss {loss:.4f}"


def way(event: RunStarted) -> str:
    """How the rounds are run, in words, as far as the user has chosen it."""
    words = kind_of(event.executor).words(event.workers, event.stages)
    return f", {words}" if words else ""


def traffic(summary: Mapping[str, Any]) -> str:
    """The bytes of compressed updates, in words."""
    pushed, plain, pulled = (
        summary[f"bytes_{name}"] / 1e6 for name in ("pushed", "plain", "pulled")
    )
    kept = summary["bytes_kept"] / 1e6
    return (
        f"updates {pushed:,.3g} MB instead of {plain:,.3g} MB ({plain / pushed:,.1f} times less), "
        f"parameters read {pulled:,.3g} MB; replicas keep {kept:,.3g} MB to themselves"
    )


class Pace:
    """How fast rounds are, and how long the rest takes.

    The clock starts at the first round that ends. Before that, processes start and kernels compile,
    which happens once, however many rounds follow.
    """

    def __init__(self) -> None:
        self._begin: float | None = None
        self._from = self._completed = self._rows = 0

    def add(self, now: float, event: RoundCompleted) -> None:
        """Count a round that has ended at ``now``, in seconds."""
        self._begin = now if self._begin is None else self._begin
        self._completed = event.completed
        if now - self._begin < _BURST_SECONDS:
            self._from, self._rows = event.completed, 0
        else:
            self._rows += event.rows

    def words(self, now: float, rounds: int) -> str:
        """Rows per second and the time left until ``rounds``; empty if that is not known yet."""
        done = self._completed - self._from
        if not done or self._begin is None:
            return ""
        seconds = now - self._begin
        minutes, rest = divmod(round(seconds * (rounds - self._completed) / done), 60)
        return f"  {self._rows / seconds:,.0f} rows/s  {minutes}:{rest:02d} left"


class Display:
    """Shows events by a line now and then, which replaces the one before on a terminal."""

    def __init__(self, quiet: bool, spell: Callable[[str], str] = str) -> None:
        #: How options are spelled.
        self._quiet, self._spell = quiet, spell
        self._redraws = sys.stderr.isatty()
        self._is_drawn = False
        self._last = time.monotonic()
        self._first = self._rounds = 0
        self._pace = Pace()
        #: Warnings that were shown; lasting ones of the result are left to who shows that.
        self.warned: set[str] = set()
        #: Whether a round has ended.
        self.has_begun = False

    def __call__(self, event: Event) -> None:
        self.has_begun |= isinstance(event, RoundCompleted | RoundPublished)
        if isinstance(event, Warned):
            if not (event.lasting and self.has_begun):
                self.warned.add(event.message)
                self.say(f"warning: {event.message}")
        elif self._quiet:
            pass
        elif isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, RoundCompleted):
            # Rounds that an earlier driver has made are reported again.
            if event.completed > self._first:
                self._round(event)
        elif isinstance(event, RoundPublished):
            if self._is_time(time.monotonic()):
                self.say(count(event.completed, "round"), stays=not self._redraws)
        elif isinstance(event, ExecutionChosen):
            self.say(f"{event.way}: {event.why}")
        elif isinstance(event, Evaluated):
            shown = scores(event.accuracy, event.loss)
            self.say(f"evaluation after {event.completed:,} rounds: {shown}")
        elif isinstance(event, RunEnded):
            self.close()

    def _start(self, event: RunStarted) -> None:
        self._last, self._pace = time.monotonic(), Pace()
        self._first, self._rounds = event.completed, event.rounds
        again = f", going on after {event.completed:,}" if event.completed else ""
        if not event.optimizer:
            is_alone = kind_of(event.executor).is_alone
            where = "in this process" if is_alone else f"runner {event.runner}"
            self.say(f"{event.model}: fits {count(event.batch_size, 'row')}, {where}{again}")
            return
        penalty = f", --l2 {event.l2:.3g}" if event.l2 else ""
        most = "at most " * (event.optimizer == "lbfgs")
        self.say(
            f"{event.model:.60} by {event.optimizer}{penalty}: {most}{event.rounds:,} rounds of "
            f"{event.batch_size:,} rows{again}; runner {event.runner}{way(event)}"
        )

    def _round(self, event: RoundCompleted) -> None:
        now = time.monotonic()
        self._pace.add(now, event)
        if not self._is_time(now) and event.completed < self._rounds:
            return
        self._last = now
        shown = f"round {event.completed:,}/{self._rounds:,}  loss {event.loss:.4f}"
        self.say(shown + self._pace.words(now, self._rounds), stays=not self._redraws)

    def _is_time(self, now: float) -> bool:
        """Whether a line of progress is due; it is the last one then."""
        pause = _TERMINAL_SECONDS if self._redraws else _LINE_SECONDS
        is_due = now - self._last >= pause
        self._last = now if is_due else self._last
        return is_due

    def say(self, text: str, *, stays: bool = True) -> None:
        """Print a line, which the next one replaces unless it ``stays``."""
        echo(self._spell(text), nl=stays, err=True, erase=self._is_drawn)
        self._is_drawn = not stays

    def close(self) -> None:
        """End a line that could still be replaced."""
        if self._is_drawn:
            echo(err=True)
        self._is_drawn = False
