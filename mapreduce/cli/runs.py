"""``gradreduce runs``: lists, shows, compares, plots and prunes runs."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from hdfs_utils.errors import StorageError
from hdfs_utils.paths import AnyPath, ordered
from mapreduce.cli.common import FOLDER, LOCATION, json_option, print_json
from mapreduce.errors import DataError, MissingInputError, OutputError, UsageError
from mapreduce.report.text import aligned
from mapreduce.support.outputs import writing
from mapreduce.support.printable import echo, printable
from mapreduce.support.words import count


@click.group()
def runs() -> None:
    """List, show, compare, plot and prune runs."""


@runs.command("list")
@click.argument("folder", type=LOCATION, default=".")
@json_option
def list_(folder: AnyPath, as_json: bool) -> None:
    """List the runs in FOLDER and in the folders below it."""
    from mapreduce.runs.directory import FIT, RunDir
    from mapreduce.runs.fits import FitDir

    if not folder.is_dir():
        raise MissingInputError(f"{folder} is not a folder")
    summaries = []
    for path in ordered([*folder.rglob("run.json"), *folder.rglob(FIT)]):
        try:
            if path.name == FIT:
                summary = FitDir(path.parent).summary()
            else:
                summary = RunDir(path.parent).summary(_warn)
        except Exception as error:
            # A damaged run must not hide the others.
            summary = {"run": str(path.parent), "state": "damaged", "error": str(error)}
        summaries.append(summary)
    if as_json:
        print_json({"runs": summaries})
        return
    if not summaries:
        echo(f"no runs in {folder}")
        return
    widest = max(len(summary["run"]) for summary in summaries)
    for summary in summaries:
        if "error" in summary:
            echo(f"{summary['run']:{widest}}  damaged   {printable(summary['error'])}")
            continue
        begin = f"{summary['run']:{widest}}  {summary['state']:8}  {summary['model']:14}  "
        digest = (summary["model_sha256"] or "–")[:12]
        if "rounds" not in summary:
            echo(f"{begin}{count(summary['completed'], 'round'):>15}  {'':45}{digest}")
            continue
        name = "loss" if summary["accuracy"] is None else "accuracy"
        evaluated = summary["eval_loss" if name == "loss" else name]
        echo(
            f"{begin}{summary['completed']:>7,}/{summary['rounds']:<7,}  "
            f"train loss {_number(summary['pass_loss']):9}  "
            f"{'' if evaluated is None else f'eval {name} {_number(evaluated)}':21}  "
            f"{digest}"
        )
        for warning in summary["warnings"]:
            echo(f"{'':{widest}}  warning: {printable(warning)}")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


@runs.command()
@click.argument("run", type=LOCATION)
@click.option(
    "--html",
    type=FOLDER,
    metavar="FILE",
    help="Write a page for a browser into this file, for the folder of a search.",
)
@json_option
def show(run: AnyPath, html: Path | None, as_json: bool) -> None:
    """Show RUN: its model's digest, rounds, loss and plan, and the libraries that computed it.

    For a gang it also shows which share of the work was parallel, the serial fraction by Amdahl's
    law, and the speedup that this fraction allows for 2, 4 and 8 workers. For an asynchronous
    training it shows the staleness: how many gradients were applied after a replica read the model
    and before its own gradient was applied.
    """
    from mapreduce.runs import amdahl, events, pushes
    from mapreduce.runs.directory import SEARCH, RunDir
    from mapreduce.runs.fits import FitDir, is_fit

    if (run / SEARCH).exists():
        from mapreduce.searching.directory import SearchDir

        search = SearchDir(run.absolute())
        if html is not None:
            _write_page(html, search)
            return
        _show(search.summary() | {"config": asdict(search.config)}, as_json)
        return
    if html is not None:
        raise UsageError(
            f"--html is for searches, and {run} is a run. Explain one of its rounds: 'gradreduce "
            f"explain {run} --html {html}'"
        )
    if is_fit(run):
        fit = FitDir(run)
        execution = fit.folder.read_json("execution.json")
        _show(fit.summary() | vars(fit.config) | {"execution": execution}, as_json)
        return
    directory = RunDir(run)
    late = None
    if directory.config.plan.asynchronous:
        try:
            late = pushes.staleness(directory)
        except (DataError, StorageError) as error:
            _warn(error)
    content: dict[str, Any] = directory.summary() | {
        "data": directory.config.data,
        "data_sha256": directory.config.plan.data.sha256,
        "plan_sha256": directory.config.plan.sha256,
        "execution": directory.read_json("execution.json"),
        "scaling": amdahl.scaling(events.read(directory.path / "events.jsonl")),
        "staleness": late._asdict() if late else None,
        "plan": directory.config.plan.to_dict(),
        "numeric_profile": directory.config.numeric_profile,
        "profile": directory.read_json("profile.json"),
    }
    _show(content, as_json)


def _write_page(path: Path, search: Any) -> None:
    from mapreduce.searching.page import page_of

    content = page_of(search).encode()
    with writing(path):
        path.write_bytes(content)
    echo(f"{path}: {len(content):,} bytes")


def _show(content: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(content)
        return
    for name, value in content.items():
        if isinstance(value, dict):
            echo(f"{name}:")
            for key, entry in value.items():
                echo(f"  {printable(key):18}{_short(entry)}")
        # The others are what this run has not.
        elif value not in (None, []):
            echo(f"{name:20}{printable(str(value))}")


def _short(value: object) -> str:
    text = "–" if value is None else printable(str(value))
    return text if len(text) <= 100 else text[:99] + "…"


def _warn(message: object) -> None:
    echo(f"warning: {message}", err=True)


@runs.command()
@click.argument("folder", type=LOCATION, default=".")
@click.option(
    "--sort",
    type=click.Choice(["loss", "accuracy", "eval_loss", "seconds"]),
    help="Sort by this column, the best run first.  [default: by name]",
)
@json_option
def table(folder: AnyPath, sort: str | None, as_json: bool) -> None:
    """Show in a table the options in which the runs in FOLDER differ, and the results.

    Options of the plan come first, then options of the execution, which cannot change the result.
    The mean loss of the last pass over the training rows, the last evaluation, and the time follow.
    """
    from mapreduce.runs import comparing

    named = {str(run.path): comparing.facts(run) for run in comparing.find_runs(folder, _warn)}
    ranked = (
        sorted(named, key=lambda name: comparing.order(sort)(named[name])) if sort else [*named]
    )
    varied = comparing.differing([*named.values()]) if named else {}
    parts = {part: varied.get(part, []) for part in ("plan", "data", "execution")}
    parts["data"] = [name for name in parts["data"] if "sha256" in name]
    parts["results"] = [*comparing.METRICS]
    chosen = [
        {part: {n: named[run][part].get(n) for n in names} for part, names in parts.items()}
        for run in ranked
    ]
    if as_json:
        print_json({"runs": [{"run": run, **one} for run, one in zip(ranked, chosen, strict=True)]})
        return
    lines = [["run", *(cell for names in parts.values() for cell in ("|" * bool(names), *names))]]
    for run, one in zip(ranked, chosen, strict=True):
        cells = (["|" * bool(part), *map(_cell, part.values())] for part in one.values())
        lines.append([run, *(cell for part in cells for cell in part)])
    echo("\n".join(aligned(lines)) if chosen else f"no runs in {folder}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = _short(value)
    # A digest.
    return text[:12] if len(text) == 64 else text


@runs.command()
@click.argument("first", type=LOCATION)
@click.argument("second", type=LOCATION)
@json_option
def compare(first: AnyPath, second: AnyPath, as_json: bool) -> None:
    """Show what differs between the runs FIRST and SECOND.

    Plan, data, execution, results, and environment: the processor and libraries.
    """
    from mapreduce.runs import comparing

    both = [comparing.facts(comparing.open_run(path)) for path in (first, second)]
    differences = {
        part: {name: [one[part].get(name) for one in both] for name in names}
        for part, names in comparing.differing(both).items()
    }
    if as_json:
        print_json(differences)
        return
    for part, names in differences.items():
        echo(f"{part}:" if names else f"{part}: the same")
        for line in aligned([f"  {n}", *map(_cell, pair)] for n, pair in names.items()):
            echo(line)


@runs.command()
@click.argument("folder", type=LOCATION)
@click.option("--failed", is_flag=True, help="Remove runs that never completed a round, too.")
@click.option("--yes", is_flag=True, help="Remove the files; without --yes, they are only listed.")
@json_option
def prune(folder: AnyPath, failed: bool, yes: bool, as_json: bool) -> None:
    """Remove what the runs in FOLDER that have ended do not need: rounds and old checkpoints.

    The result of each run stays. Runs that a driver works on, or that can go on, are left alone.
    """
    from mapreduce.runs import comparing

    needless = {run: comparing.needless(run, failed) for run in comparing.find_runs(folder, _warn)}
    doomed = {run: paths for run, paths in needless.items() if paths}
    if yes:
        for run, paths in doomed.items():
            comparing.remove(run, paths)
    names = [str(path) for paths in doomed.values() for path in paths]
    if as_json:
        print_json({"removed": yes, "paths": names})
        return
    for run, paths in doomed.items():
        what = "the run" if paths == [run.path] else f"files and checkpoints: {len(paths):,}"
        echo(f"{printable(str(run.path))}: {what}")
    if not names:
        echo("nothing to remove")
    elif not yes:
        echo("nothing was removed: add --yes to remove this", err=True)


@runs.command()
@click.argument("paths", type=LOCATION, nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--out", type=FOLDER, default=Path("plot.svg"), show_default=True, help="File to write."
)
@click.option(
    "--against",
    type=click.Choice(["rounds", "rows"]),
    default="rounds",
    show_default=True,
    help="What the horizontal axis counts: rounds, or the rows that were trained on.",
)
def plot(paths: tuple[AnyPath, ...], out: Path, against: str) -> None:
    """Plot loss and evaluations of each RUN into one file: .svg, .png, .pdf, as its name ends.

    For the folder of a search, plot the best score so far, and the scores against each option.
    """
    from mapreduce.runs.directory import SEARCH, RunDir
    from mapreduce.runs.plotting import figure

    if len(paths) == 1 and (paths[0] / SEARCH).exists():
        from mapreduce.searching import plotting
        from mapreduce.searching.directory import SearchDir

        drawn = plotting.figure(SearchDir(paths[0].absolute()))
    else:
        runs = [RunDir(path.absolute()) for path in paths]
        for run in runs:
            _ = run.config
        drawn = figure(runs, against)
    try:
        drawn.savefig(out)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{out} cannot be written: {error}. Name another file by --out"
        ) from error
    echo(out)
