"""``gradreduce report``: where the time of a run, or of a job, went, and what held it back."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapreduce.cli.common import FOLDER, json_option, print_json
from mapreduce.errors import MissingInputError
from mapreduce.support.commands import command
from mapreduce.support.outputs import writing
from mapreduce.support.printable import echo

if TYPE_CHECKING:
    from mapreduce.runs.directory import RunDir
    from mapreduce.timing.trace import Trace


def _file(name: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that names a file to write instead of printing."""
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(f"--{name}", type=kind, metavar="FILE", help=f"Write {what}.")


@click.command()
@click.argument("path", type=FOLDER, metavar="RUN|FOLDER")
@json_option
@_file("html", "a page for a browser")
@_file("chrome", "all events, for ui.perfetto.dev")
@_file("parquet", "all events and tasks, as a table")
@_file("csv", "the phases of rounds, for scripts in R: seven columns without a header")
def report(path: Path, as_json: bool, **files: Path | None) -> None:
    """Say what held a run back, and show where its time went.

    RUN is the folder of a training that was traced, FOLDER that of a traced job:

    \b
    gradreduce train data/train --run runs/a --trace
    gradreduce report runs/a
    gradreduce run --trace traces/a path/job.py input.txt
    gradreduce report traces/a

    The first sentence names the cause that cost most, and the seconds that the run would have saved
    without this cause; or it says that nothing stands out. Causes of less than a tenth of the time
    are not named. The last line is a command to try next. With an option that names a FILE, the
    command writes this file instead of printing.
    """
    from mapreduce.report import terminal
    from mapreduce.runs.directory import RunDir
    from mapreduce.runs.fits import is_fit
    from mapreduce.timing import reading, sections, summary

    run = RunDir(path.absolute()) if (path / "run.json").exists() else None
    if run is not None:
        _ = run.config
    try:
        trace = reading.read(path)
    except MissingInputError:
        if run is None or any(files.values()):
            raise
        _without_trace(run, as_json)
        return
    content = summary.summarise(trace, run)
    if is_fit(path):
        # What is known to help is for trainings by gradients, and for jobs.
        content["next"] = None
    line, name = command("gradreduce", "report", path), path.absolute().name
    wanted = {key: file for key, file in files.items() if file is not None}
    if wanted:
        page = partial(sections.page, content, line, name, run)
        _write(wanted, name, trace, run, page, as_json)
    if as_json:
        print_json(content)
    elif not wanted:
        view = sections.view(content, line, name)
        terminal.show(terminal.new_console(), [*view.first, *view.sections])
        if content["next"]:
            # In one line, so that it can be copied.
            echo(f"\nNext, {content['next']['text']}:\n\n  {content['next']['command']}")


def _write(
    files: Mapping[str, Path],
    case: str,
    trace: "Trace",
    run: "RunDir | None",
    page: Callable[[], str],
    is_quiet: bool,
) -> None:
    """Write a report, or a trace, into files by their formats."""
    from mapreduce.timing import exports

    epoch = run.config.plan.rounds_per_epoch if run else None
    writers = {"chrome": exports.write_chrome, "parquet": exports.write_parquet}
    writers["csv"] = exports.write_csv
    table = None
    if files.keys() & writers.keys():
        table = exports.operations(trace, case, epoch)
    for name, path in files.items():
        with writing(path):
            if name == "html":
                path.write_text(page(), encoding="utf-8")
            else:
                writers[name](table, path)
        if not is_quiet:
            echo(f"{path}: {path.stat().st_size:,} bytes")


def _without_trace(run: "RunDir", as_json: bool) -> None:
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
