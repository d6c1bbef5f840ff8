"""``gradreduce evaluate`` and ``gradreduce predict``."""

from typing import TYPE_CHECKING, Any

import click

from hdfs_utils.paths import AnyPath
from mapreduce.cli.common import (
    LOCATION,
    open_run,
    output_options,
    pin_profile,
    print_json,
    quiet_mrjob,
    runner_options,
    trust_option,
)

if TYPE_CHECKING:
    from mapreduce.runs.directory import RunDir
    from mapreduce.runs.execution import Execution


DROP = click.option("--drop", help="Columns of the file DATA to leave out, joined by commas.")


@click.command()
@click.argument("run", type=LOCATION)
@click.argument("data", type=LOCATION)
@runner_options()
@DROP
@trust_option
@output_options
def evaluate(run: AnyPath, data: AnyPath, drop: str | None, as_json: bool, **values: Any) -> None:
    """Score the model of RUN on DATA, a dataset or a file of a table: sums over all rows.

    The accuracy counts rows; the loss is the weighted mean, if rows have weights.
    """
    pin_profile(run)
    from mapreduce.inference import evaluate as job
    from mapreduce.inference import raw
    from mapreduce.support import signals
    from mapreduce.training.console import scores

    directory = _opened(run, values)
    with (
        signals.interrupting(),
        raw.imported(directory, data, _warn, labelled=True, drop=_names(drop)) as folder,
    ):
        completed, execution = _prepare(directory, folder, values, labelled=True)
        score = job.evaluate(directory, completed, folder.absolute(), execution)
    found = score.evaluated(completed, directory.config.plan.create_model())
    if as_json:
        print_json({"accuracy": found.accuracy, "loss": found.loss, "rows": found.rows})
    else:
        click.echo(f"{scores(found.accuracy, found.loss)} on {found.rows:,} rows")


@click.command()
@click.argument("run", type=LOCATION)
@click.argument("data", type=LOCATION)
@click.argument("out", type=LOCATION)
@runner_options()
@click.option("--id", help="Column of the file DATA that identifies its rows.")
@DROP
@trust_option
@output_options
def predict(
    run: AnyPath,
    data: AnyPath,
    out: AnyPath,
    id: str | None,
    drop: str | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Predict DATA, a dataset or a file of a table, with the model of RUN, into OUT.

    OUT is a file, if its name ends in .parquet or .csv, else a folder of Parquet files. There is a
    row for each example, in the order of the files that DATA comes from: row, id and label (if
    there are any), prediction, and for a classifier its probability, and the probabilities of all
    classes. The first example has the row 0; several files are counted as one, without headers. The
    same command completes a prediction into a folder that was stopped.
    """
    pin_profile(run)
    from mapreduce.inference import predict as job
    from mapreduce.inference import raw
    from mapreduce.support import signals

    directory = _opened(run, values)
    given = {"id": id, "drop": _names(drop)}
    with (
        signals.interrupting(),
        raw.imported(directory, data, _warn, labelled=False, **given) as folder,
        job.parts_of(out) as parts,
    ):
        named = {**values, "out": parts}
        completed, execution = _prepare(directory, folder, named, labelled=False)
        rows = job.predict(directory, completed, folder.absolute(), parts.absolute(), execution)
    if as_json:
        print_json({"rows": rows, "out": str(out)})
    else:
        click.echo(f"{out}: {rows:,} predictions")


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(given.split(",")) if given else ()


def _warn(message: str) -> None:
    click.echo(f"warning: {message}", err=True)


def _opened(run: AnyPath, values: dict[str, Any]) -> "RunDir":
    quiet_mrjob()
    directory: RunDir = open_run(run, None, values.pop("trust"))
    return directory


def _prepare(
    run: "RunDir", data: AnyPath, values: dict[str, Any], *, labelled: bool
) -> tuple[int, "Execution"]:
    from mapreduce.inference.base import prepare
    from mapreduce.runs import flags as options

    execution = options.execution(values)
    return prepare(run, data, execution, labelled, values.get("out")), execution
