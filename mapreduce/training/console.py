"""A training for those who watch it: a bar on a terminal, an output in a notebook, else lines."""

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from mapreduce.errors import Interrupted
from mapreduce.runs.events import (
    Evaluated,
    Event,
    Events,
    RoundCompleted,
    RunEnded,
    RunStarted,
    Warned,
)
from mapreduce.support import numeric

if TYPE_CHECKING:
    from mapreduce.executors.chain import ChainJob
    from mapreduce.runs.directory import RunDir

#: Seconds between two plain lines, and between two that take the place of one another.
_LINE_SECONDS = 5.0
_CELL_SECONDS = 0.2


def start(values: Mapping[str, Any], job_class: "type[ChainJob] | None" = None) -> None:
    """Start a training from the values of all options, and print what comes of it.

    Parameters
    ----------
    values : mapping
        As :func:`mapreduce.training.start.start` takes them, and ``dry_run``, ``quiet`` and
        ``as_json``.
    job_class : type, optional
        The job whose steps are the rounds, if it is not the toolkit's own.
    """
    numeric.pin(values["numeric_profile"])
    from mapreduce.executors.chain import ChainJob
    from mapreduce.training import start as starting

    if values["dry_run"]:
        _show_plan(values)
        return
    follow(values, lambda events: starting.start(values, events, job_class or ChainJob))


def follow(values: Mapping[str, Any], train: "Callable[[Events], tuple[RunDir, RunEnded]]") -> None:
    """Show a training while it goes on, and print what came of it.

    Parameters
    ----------
    values : mapping
        ``run``, ``quiet`` and ``as_json``.
    train : callable
        Trains, and emits what happens.
    """
    # mrjob's own log is for those who debug it.
    logging.getLogger("mrjob").setLevel(logging.ERROR)
    display = subscriber(values["quiet"])
    started = time.monotonic()
    try:
        run, ended = train(Events(display))
    except Interrupted:
        display.close()
        click.echo(
            "interrupted; the last round is saved. Go on with: "
            f"gradreduce resume {values['run'].absolute()}",
            err=True,
        )
        raise
    finally:
        display.close()
    seconds = time.monotonic() - started
    summary = run.summary() | {"seconds": round(seconds, 3)}
    if values["as_json"]:
        click.echo(json.dumps(summary, indent=1, allow_nan=False))
        return
    if ended.search == "converged":
        click.echo(
            f"converged after {ended.completed:,} rounds: the gradient's norm is "
            f"{ended.gradient_norm:.3g}"
        )
    elif ended.stopped_early and ended.search != "stalled":
        click.echo(f"stopped early: the best evaluation was after {ended.completed:,} rounds")
    click.echo(f"trained in {seconds:.1f} s: {run.path}")
    if summary["eval_loss"] is not None:
        click.echo(scores(summary["accuracy"], summary["eval_loss"]))
    click.echo(f"model_sha256 {ended.model_sha256}")
    if summary["warning"]:
        click.echo(f"warning: {summary['warning']}", err=True)


def _show_plan(values: Mapping[str, Any]) -> None:
    from mapreduce.plan import flags as plan_flags
    from mapreduce.plan import strategies
    from mapreduce.runs import flags
    from mapreduce.runs.directory import block_bounds
    from mapreduce.strategies.base import Layout
    from mapreduce.strategies.leaf_ranges import ranges
    from mapreduce.training import driver

    settings, execution = plan_flags.settings(values), flags.execution(values)
    plan = driver.plan(settings, values["data"], values["evaluation"])
    model = plan.create_model()
    strategy = strategies.find(plan.strategy)
    units = strategy.units(plan, 0)
    blocks = len(block_bounds(model.size, execution.with_blocks_for(model).blocks))
    layout = Layout(execution.workers, blocks, execution.fan_in)
    phases = strategy.phases(plan, 0, layout)
    content: dict[str, Any] = {
        "rows": plan.rows,
        "rounds": plan.rounds,
        "rounds_per_epoch": plan.rounds_per_epoch,
        "batch_size": plan.batch_size,
        "slice_rows": plan.slice_rows,
        "slices_per_round": plan.leaves(0),
        "map_tasks": len(ranges(units, execution.workers)),
        "merge_steps": sum(phase.name == "merge" for phase in phases),
        "blocks": blocks,
        "parameters": model.size,
        "plan_sha256": plan.sha256,
    }
    if values["as_json"]:
        click.echo(json.dumps({**content, "plan": plan.to_dict()}, indent=1, allow_nan=False))
        return
    for name, value in content.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        click.echo(f"{name.replace('_', ' '):18}{shown}")


def scores(accuracy: float | None, loss: float) -> str:
    """An evaluation in words; there is no accuracy where numbers are predicted."""
    return f"loss {loss:.4f}" if accuracy is None else f"accuracy {accuracy:.4f}, loss {loss:.4f}"


def subscriber(quiet: bool) -> "Lines":
    """What shows the progress: nothing, a notebook's output, a bar, or lines."""
    if quiet:
        return Quiet()
    if _is_notebook():
        return Cell()
    return Bar() if sys.stderr.isatty() else Lines()


def _is_notebook() -> bool:
    # What has not been imported does not run this program.
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return getattr(shell, "kernel", None) is not None


class Lines:
    """A line now and then."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._last = 0.0
        self._first = 0
        self._rounds = 0
        self._rows = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, RoundCompleted):
            if event.completed > self._first:
                self._rows += event.rows
                self._round(event)
        elif isinstance(event, Evaluated):
            self.say(
                f"evaluation after {event.completed:,} rounds: {scores(event.accuracy, event.loss)}"
            )
        elif isinstance(event, Warned):
            self.say(f"warning: {event.message}")
        elif isinstance(event, RunEnded):
            self.close()

    def _start(self, event: RunStarted) -> None:
        self._started = self._last = time.monotonic()
        self._first, self._rounds = event.completed, event.rounds
        again = f", going on after {event.completed:,}" if event.completed else ""
        self.say(
            f"{event.rounds:,} rounds of {event.batch_size:,} rows{again}; runner {event.runner}, "
            f"{event.workers} worker{'s' if event.workers > 1 else ''}"
        )

    def _round(self, event: RoundCompleted) -> None:
        now = time.monotonic()
        if now - self._last >= _LINE_SECONDS or event.completed == self._rounds:
            self._last = now
            self.say(self._described(event))

    def _described(self, event: RoundCompleted) -> str:
        return (
            f"round {event.completed:,}/{self._rounds:,}  loss {event.loss:.4f}  "
            f"{self._rate():,.0f} rows/s  {self._left(event.completed)} left"
        )

    def _rate(self) -> float:
        return self._rows / max(1e-9, time.monotonic() - self._started)

    def _left(self, completed: int) -> str:
        done = max(1, completed - self._first)
        seconds = (time.monotonic() - self._started) * (self._rounds - completed) / done
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}:{rest:02d}"

    def say(self, text: str) -> None:
        click.echo(text, err=True)

    def close(self) -> None:
        """Leave the terminal as it was."""


class Quiet(Lines):
    """Warnings only."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Warned):
            super().__call__(event)


class Cell(Lines):
    """The output of a notebook's cell: the last round is a line that is drawn again."""

    def __init__(self) -> None:
        super().__init__()
        import IPython.display

        show: Any = IPython.display.display
        self._said: list[str] = []
        self._current = ""
        self._output = show({"text/plain": ""}, raw=True, display_id=True)

    def _round(self, event: RoundCompleted) -> None:
        self._current = self._described(event)
        now = time.monotonic()
        if now - self._last >= _CELL_SECONDS or event.completed == self._rounds:
            self._last = now
            self._draw()

    def say(self, text: str) -> None:
        self._said.append(text)
        self._draw()

    def _draw(self) -> None:
        lines = [*self._said, *([self._current] if self._current else [])]
        self._output.update({"text/plain": "\n".join(lines)}, raw=True)

    def close(self) -> None:
        self._draw()


class Bar(Lines):
    """A bar with round, loss, rows per second and time left."""

    def __init__(self) -> None:
        super().__init__()
        self._progress: Any = None
        self._task: Any = None

    def _start(self, event: RunStarted) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        super()._start(event)
        self._progress = Progress(
            TextColumn("round {task.completed:,.0f}/{task.total:,.0f}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[rate]} rows/s"),
            TextColumn("{task.fields[left]} left"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(
            "train", total=event.rounds, completed=event.completed, loss="–", rate="–", left="–"
        )
        self._progress.start()

    def _round(self, event: RoundCompleted) -> None:
        self._progress.update(
            self._task,
            completed=event.completed,
            loss=f"{event.loss:.4f}",
            rate=f"{self._rate():,.0f}",
            left=self._left(event.completed),
        )

    def say(self, text: str) -> None:
        if self._progress is None:
            super().say(text)
        else:
            self._progress.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
