"""``gradreduce report``: where the time of a run, or of a job, went, and what held it back."""

from pathlib import Path
from typing import Any

import click

from mapreduce.cli.common import FOLDER, json_option, print_json
from mapreduce.errors import MissingInputError
from mapreduce.support.commands import command
from mapreduce.support.printable import echo


@click.command()
@click.argument("path", type=FOLDER, metavar="RUN|FOLDER")
@json_option
def report(path: Path, as_json: bool) -> None:
    """Say what held a run back, and show where its time went.

    RUN is the folder of a training that was traced, FOLDER that of a traced job:

    \b
    gradreduce train data/train --run runs/a --trace
    gradreduce report runs/a
    gradreduce run --trace traces/a path/job.py input.txt
    gradreduce report traces/a

    The first sentence names the cause that cost most, with the seconds that the run would have
    saved without it; or it says that nothing stands out. Causes of less than a tenth of the time
    are not named. After the tables comes what to try next.
    """
    from mapreduce.runs.directory import RunDir
    from mapreduce.timing import reading, summary

    run = RunDir(path.absolute()) if (path / "run.json").exists() else None
    if run is not None:
        _ = run.config
    try:
        trace = reading.read(path)
    except MissingInputError:
        if run is None:
            raise
        _without_trace(run, as_json)
        return
    found = summary.summarise(trace, run)
    if as_json:
        print_json(found)
        return
    from mapreduce.report import terminal
    from mapreduce.timing.sections import view

    made = view(found, command("gradreduce", "report", path), path.absolute().name)
    console = terminal.new_console()
    terminal.show(console, [*made.first, *made.sections])
    if found["next"]:
        # In one line, so that it can be copied.
        echo(f"\nNext, {found['next']['text']}:\n\n  {found['next']['command']}")


def _without_trace(run: Any, as_json: bool) -> None:
    """Say what is known of a run that was not traced, and how to trace it."""
    from mapreduce.runs import amdahl, events
    from mapreduce.timing.advice import training

    scaling = amdahl.scaling(events.read(run.path / "events.jsonl"))
    again = training(run, {"trace": True})
    if as_json:
        print_json({"sentence": None, "scaling": scaling, "next": {"command": again}})
        return
    echo(f"{run.path} has no trace, so nobody knows what held it back.")
    if scaling:
        maps = f"{scaling['parallel_share']:.0%} was maps, by {scaling['workers']} workers"
        echo(f"Of its work {maps}, and {scaling['serial_fraction']:.0%} all else.")
    echo(f"Next, trace it:\n  {again}")
