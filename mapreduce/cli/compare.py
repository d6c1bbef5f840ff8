"""``gradreduce compare``: several models on one table."""

from dataclasses import replace
from typing import Any

import click

from hdfs_utils.paths import AnyPath
from mapreduce.cli.common import (
    LOCATION,
    add_options,
    output_options,
    print_json,
    quiet_mrjob,
    runner_options,
)
from mapreduce.cli.grouping import GroupedCommand
from mapreduce.data.readers import CSV_OPTIONS, TABLE_OPTIONS
from mapreduce.data.recipes.recipe import RECIPE
from mapreduce.runs import flags
from mapreduce.support import numeric, unfinished
from mapreduce.support.options import pick
from mapreduce.support.printable import echo

#: Options that ``--help`` shows; ``--help-all`` shows all.
_COMMON = "label id task drop missing runner workers"


@click.command(cls=GroupedCommand, common=_COMMON, context_settings={"max_content_width": 100})
@click.argument("sources", metavar="TABLE...", nargs=-1, required=True, type=LOCATION)
@click.option("--run", "path", type=LOCATION, required=True, help="Folder of the comparison.")
@click.option(
    "--models",
    multiple=True,
    metavar="MODEL[,MODEL...]",
    help="Models to compare, named as for gradreduce train --model.  [default: softmax,mlp:64,"
    "boosting; for numbers linear,ridge,boosting]",
)
@click.option(
    "--folds", type=click.IntRange(2, 1000), default=5, show_default=True, help="Number of folds."
)
@click.option("--group", metavar="COLUMN", help="Keep rows of equal COLUMN in one fold.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Seed of the folds, and of models with random numbers.",
)
@add_options((*TABLE_OPTIONS, *pick(RECIPE, *CSV_OPTIONS)), defaults=False)
@runner_options(defaults=False)
@add_options(
    tuple(row for row in flags.EXECUTION if row.name not in ("keep", "trace")), defaults=False
)
@add_options((flags.PROFILE,))
@output_options
@click.pass_context
def compare(
    context: click.Context,
    /,
    sources: tuple[AnyPath, ...],
    path: AnyPath,
    models: tuple[str, ...],
    folds: int,
    group: str | None,
    seed: int,
    quiet: bool,
    as_json: bool,
    **values: Any,
) -> int:
    """Compare models on TABLE..., files or folders of them, and print their scores, best first.

    The content of a row, or its --group or --id, decides its fold; the place of the row does not
    matter. The rows of each class are divided by themselves. For each fold, each model is trained
    on the other folds, with a recipe that is fitted to the other folds, and scored on the fold, as
    by gradreduce evaluate. The table shows for each model the mean and the standard deviation of
    the scores, the processor time of the trainings, the bytes of the largest model, and the folder
    of the runs, one run for each fold.

    Scores are the same to the last bit for any order of the rows, any runner and any number of
    workers. If you stop the command, run it again to go on.

    \b
    gradreduce compare penguins.csv --label species --run runs/penguins \\
        --models softmax,mlp:64,boosting:trees=50
    """
    numeric.pin(values["numeric_profile"])
    quiet_mrjob()
    from mapreduce.comparing import driver
    from mapreduce.comparing.models import split

    running = {row.name for row in (*flags.RUNNER, *flags.EXECUTION, flags.PROFILE)}
    reading = {name: value for name, value in values.items() if name not in running}
    given = {n: value for n, value in values.items() if n in running and value is not None}

    def say(text: str) -> None:
        if not quiet:
            echo(text, err=True)

    found = driver.compare(
        unfinished.files_of(sources),
        path.absolute(),
        models=split(models),
        folds=folds,
        seed=seed,
        group=group,
        reading={**reading, "only": reading.pop("columns")},
        execution={**given, "mrjob_arguments": context.obj},
        say=say,
        warn=lambda text: echo(f"warning: {text}", err=True),
    )
    if as_json:
        print_json(
            {
                "run": str(found.path),
                "task": found.task,
                "best": found.best,
                "models": found.table.to_pylist(),
            }
        )
    else:
        echo(replace(found, path=path))
    return 0 if found.best else 1
