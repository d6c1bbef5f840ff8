"""Progress of a training on standard error: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any

import click

from mapreduce.cli.common import scores
from mapreduce.events import (
    CheckpointSaved,
    Evaluated,
    Event,
    RoundCompleted,
    RunEnded,
    RunStarted,
    Warned,
)

#: Seconds between two plain lines.
_LINE_SECONDS = 5.0


def subscriber(quiet: bool) -> "Lines":
    """Who shows the progress: nobody, a bar, or lines."""
    if quiet:
        return Quiet()
    return Bar() if sys.stderr.isatty() else Lines()


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
            self._say(
                f"evaluation after {event.completed:,} rounds: {scores(event.accuracy, event.loss)}"
            )
        elif isinstance(event, Warned):
            self._say(f"warning: {event.message}")
        elif isinstance(event, CheckpointSaved):
            self._checkpoint(event)
        elif isinstance(event, RunEnded):
            self.close()

    def _start(self, event: RunStarted) -> None:
        self._started = self._last = time.monotonic()
        self._first, self._rounds = event.completed, event.rounds
        again = f", going on after {event.completed:,}" if event.completed else ""
        self._say(
            f"{event.rounds:,} rounds of {event.batch_size:,} rows{again}; runner {event.runner}, "
            f"{event.workers} worker{'s' if event.workers > 1 else ''}"
        )

    def _round(self, event: RoundCompleted) -> None:
        now = time.monotonic()
        if now - self._last >= _LINE_SECONDS or event.completed == self._rounds:
            self._last = now
            self._say(
                f"round {event.completed:,}/{self._rounds:,}  loss {event.loss:.4f}  "
                f"{self._rate():,.0f} rows/s  {self._left(event.completed)} left"
            )

    def _checkpoint(self, event: CheckpointSaved) -> None:
        pass

    def _rate(self) -> float:
        return self._rows / max(1e-9, time.monotonic() - self._started)

    def _left(self, completed: int) -> str:
        done = max(1, completed - self._first)
        seconds = (time.monotonic() - self._started) * (self._rounds - completed) / done
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}:{rest:02d}"

    def _say(self, text: str) -> None:
        click.echo(text, err=True)

    def close(self) -> None:
        """Leave the terminal as it was."""


class Quiet(Lines):
    """Warnings only."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Warned):
            super().__call__(event)


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

    def _say(self, text: str) -> None:
        if self._progress is None:
            super()._say(text)
        else:
            self._progress.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
