"""``gradreduce evaluate`` and ``gradreduce predict``."""

from typing import TYPE_CHECKING, Any

import click

from hdfs_utils.paths import AnyPath
from mapreduce.cli.common import (
    LOCATION,
    interruptible,
    output_options,
    pin_profile,
    print_json,
    quiet_mrjob,
    runner_options,
    scores,
)

if TYPE_CHECKING:
    from mapreduce.executors.chain import Execution


@click.command()
@click.argument("run", type=LOCATION)
@click.argument("data", type=LOCATION)
@runner_options()
@output_options
def evaluate(run: AnyPath, data: AnyPath, as_json: bool, **values: Any) -> None:
    """Score the model of RUN on the dataset DATA: sums over all rows, divided once.

    The accuracy counts rows; the loss is the weighted mean, if rows have weights.
    """
    from mapreduce.executors import evaluate as job

    directory, completed, execution = _prepare(run, data, values, labelled=True)
    with interruptible("nothing was written"):
        score = job.evaluate(directory, completed, data.absolute(), execution)
    regression = directory.config.plan.create_model().regression
    accuracy = None if regression else score.correct / score.rows
    loss = score.loss / score.weight
    if as_json:
        print_json({"accuracy": accuracy, "loss": loss, "rows": score.rows})
    else:
        click.echo(f"{scores(accuracy, loss)} on {score.rows:,} rows")


@click.command()
@click.argument("run", type=LOCATION)
@click.argument("data", type=LOCATION)
@click.argument("out", type=LOCATION)
@runner_options()
@output_options
def predict(run: AnyPath, data: AnyPath, out: AnyPath, as_json: bool, **values: Any) -> None:
    """Predict the dataset DATA with the model of RUN, into Parquet files in the folder OUT.

    One row for each example, in the order of the files that DATA was imported from: row, label (if
    there is one), prediction, and for a classifier its probability, and the probabilities of all
    classes. The first example has the row 0; several files are counted as one, without headers. A
    prediction that was stopped goes on where it was.
    """
    from mapreduce.executors import predict as job

    directory, completed, execution = _prepare(run, data, {**values, "out": out}, labelled=False)
    with interruptible("the same command goes on where this one was"):
        rows = job.predict(directory, completed, data.absolute(), out.absolute(), execution)
    if as_json:
        print_json({"rows": rows, "out": str(out)})
    else:
        click.echo(f"{out}: {rows:,} predictions")


def _prepare(
    run: AnyPath, data: AnyPath, values: dict[str, Any], *, labelled: bool
) -> tuple[Any, int, "Execution"]:
    pin_profile(run)
    quiet_mrjob()
    from mapreduce import checkpoint, options
    from mapreduce.data.shards import Dataset
    from mapreduce.errors import DataError
    from mapreduce.rundir import RunDir
    from mapreduce.settings import check_fits

    directory = RunDir(run.absolute())
    config = directory.config
    manifest = Dataset(data).check_sizes()
    trained_on = config.plan.data
    fits = trained_on.features, config.classes, trained_on.standardised, config.columns
    check_fits(manifest, *fits)
    if labelled and manifest.target is None:
        raise DataError(f"{data} has no labels to compare predictions with")
    model = config.plan.create_model()
    wanted = "number" if model.regression else "class"
    if manifest.target not in (None, wanted):
        raise DataError(f"the model predicts a {wanted}, the labels of {data} are no such thing")
    if manifest.layout == "sparse" and not model.takes_sparse:
        raise DataError(f"{data} has sparse rows, {config.plan.model} takes dense ones alone")
    completed = checkpoint.latest(
        directory, lambda message: click.echo(f"warning: {message}", err=True)
    )
    defaults = {option.name: option.default for option in options.EXECUTION}
    execution = options.execution({**defaults, **values})
    execution.check_places(directory.path, data.absolute(), values.get("out"))
    return directory, completed, execution
