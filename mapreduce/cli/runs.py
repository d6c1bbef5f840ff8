"""``gradreduce runs``: lists and shows runs."""

from typing import Any

import click

from hdfs_utils.paths import AnyPath, ordered
from mapreduce.cli.common import LOCATION, json_option, print_json
from mapreduce.support.printable import printable


@click.group()
def runs() -> None:
    """List and show runs."""


@runs.command("list")
@click.argument("folder", type=LOCATION, default=".")
@json_option
def list_(folder: AnyPath, as_json: bool) -> None:
    """List the runs in FOLDER and in the folders below it."""
    from mapreduce.errors import MissingInputError
    from mapreduce.runs.directory import RunDir

    if not folder.is_dir():
        raise MissingInputError(f"{folder} is not a folder")
    summaries = []
    for path in ordered(folder.rglob("run.json")):
        try:
            summary = RunDir(path.parent).summary(
                lambda message: click.echo(f"warning: {message}", err=True)
            )
        except Exception as error:
            # A damaged run must not hide the others.
            summary = {"run": str(path.parent), "state": "damaged", "error": str(error)}
        summaries.append(summary)
    if as_json:
        print_json({"runs": summaries})
        return
    if not summaries:
        click.echo(f"no runs in {folder}")
        return
    widest = max(len(summary["run"]) for summary in summaries)
    for summary in summaries:
        if "error" in summary:
            click.echo(f"{summary['run']:{widest}}  damaged   {printable(summary['error'])}")
            continue
        name = "loss" if summary["accuracy"] is None else "accuracy"
        evaluated = summary["eval_loss" if name == "loss" else name]
        click.echo(
            f"{summary['run']:{widest}}  {summary['state']:8}  {summary['model']:14}  "
            f"{summary['completed']:>7,}/{summary['rounds']:<7,}  "
            f"train loss {_number(summary['pass_loss']):9}  "
            f"{'' if evaluated is None else f'eval {name} {_number(evaluated)}':21}  "
            f"{(summary['model_sha256'] or '–')[:12]}"
        )
        for warning in summary["warnings"]:
            click.echo(f"{'':{widest}}  warning: {printable(warning)}")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


@runs.command()
@click.argument("run", type=LOCATION)
@json_option
def show(run: AnyPath, as_json: bool) -> None:
    """Show RUN: its model's digest, rounds, loss and plan, and the libraries that computed it."""
    from mapreduce.runs.directory import RunDir

    directory = RunDir(run)
    content: dict[str, Any] = directory.summary() | {
        "data": directory.config.data,
        "data_sha256": directory.config.plan.data.sha256,
        "plan_sha256": directory.config.plan.sha256,
        "execution": directory.read_json("execution.json"),
        "plan": directory.config.plan.to_dict(),
        "numeric_profile": directory.config.numeric_profile,
        "profile": directory.read_json("profile.json"),
    }
    if as_json:
        print_json(content)
        return
    for name, value in content.items():
        if isinstance(value, dict):
            click.echo(f"{name}:")
            for key, entry in value.items():
                click.echo(f"  {printable(key):18}{_short(entry)}")
        else:
            click.echo(f"{name:20}{_shown(value)}")


def _shown(value: object) -> str:
    return "–" if value is None else printable(str(value))


def _short(value: object) -> str:
    text = _shown(value)
    return text if len(text) <= 100 else text[:99] + "…"
