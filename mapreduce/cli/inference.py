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
    from mapreduce.runs.execution import Execution


@click.command()
@click.argument("run", type=LOCATION)
@click.argument("data", type=LOCATION)
@runner_options()
@trust_option
@output_options
def evaluate(run: AnyPath, data: AnyPath, as_json: bool, **values: Any) -> None:
    """Show accuracy and loss of the model of RUN on the dataset DATA.

    If the rows have weights, the loss is their weighted mean. The accuracy counts every row alike.
    """
    pin_profile(run)
    from mapreduce.inference import evaluate as job
    from mapreduce.support import signals
    from mapreduce.training.console import scores

    directory, completed, execution = _prepare(run, data, values, labelled=True)
    with signals.interrupting():
        score = job.evaluate(directory, completed, data.absolute(), execution)
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
@trust_option
@output_options
def predict(run: AnyPath, data: AnyPath, out: AnyPath, as_json: bool, **values: Any) -> None:
    """Predict the dataset DATA with the model of RUN, and write Parquet files into the folder OUT.

    The files have a row for each example, in the order of the files that DATA was imported from.
    The columns are row (the number of the example, from 0), label (if DATA has labels), prediction,
    and for a classifier probability and probabilities. If you stop the command, run it again to
    complete the predictions.
    """
    pin_profile(run)
    from mapreduce.inference import predict as job
    from mapreduce.support import signals

    directory, completed, execution = _prepare(run, data, {**values, "out": out}, labelled=False)
    with signals.interrupting():
        rows = job.predict(directory, completed, data.absolute(), out.absolute(), execution)
    if as_json:
        print_json({"rows": rows, "out": str(out)})
    else:
        click.echo(f"{out}: {rows:,} predictions")


def _prepare(
    run: AnyPath, data: AnyPath, values: dict[str, Any], *, labelled: bool
) -> tuple[Any, int, "Execution"]:
    quiet_mrjob()
    from mapreduce.inference.base import prepare
    from mapreduce.runs import flags as options

    directory = open_run(run, None, values.pop("trust"))
    execution = options.execution(values)
    completed = prepare(directory, data, execution, labelled, values.get("out"))
    return directory, completed, execution
