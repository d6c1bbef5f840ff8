"""``gradreduce search``."""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from mapreduce.cli.common import (
    LOCATION,
    add_options,
    output_options,
    print_json,
    quiet_mrjob,
    runner_options,
)
from mapreduce.cli.grouping import GroupedCommand
from mapreduce.data.readers import FILE_OPTIONS
from mapreduce.errors import Interrupted
from mapreduce.plan.flags import PLAN
from mapreduce.runs import flags
from mapreduce.searching.options import SEARCH, SearchOptions
from mapreduce.support import numeric
from mapreduce.support.commands import resume as again
from mapreduce.support.printable import echo

#: The options of a plan as texts, which may hold ranges.
_TEXTS = tuple(
    replace(
        row,
        type=str,
        choices=(),
        bound=None,
        is_auto=False,
        metavar="|".join(row.choices) or row.type.__name__.upper().replace("STR", "TEXT"),
    )
    for row in PLAN
    if row.name != "asynchronous"
)
_COMMON = "model optimizer learning_rate batch_size epochs rounds runner workers"


@click.command(cls=GroupedCommand, common=_COMMON, context_settings={"max_content_width": 100})
@click.argument("data", type=LOCATION)
@click.option("--run", "folder", type=LOCATION, required=True, help="Folder of the search.")
@click.option(
    "--eval",
    "evaluation",
    type=LOCATION,
    help="Data on which models are compared, a dataset or a table's file; keep other data to test "
    "the best model. Without --eval a fifth of the rows is held out, and the best model is trained "
    "again on all rows.",
)
@add_options(SEARCH)
@click.option(
    "--executor",
    type=click.Choice(["chain", "here"]),
    default="chain",
    show_default=True,
    help="chain gives trials to workers; here trains one after the other in this process.",
)
@add_options(_TEXTS, defaults=False)
@runner_options()
@add_options((flags.PROFILE,))
@add_options(FILE_OPTIONS, defaults=False)
@output_options
@click.pass_context
def search(context: click.Context, /, **values: Any) -> None:
    """Train on DATA with many values of options, and keep the best model.

    DATA is a dataset, or the CSV or Parquet file of a table, which is imported beside the folder.

    The value of an option may be a range LOW..HIGH, or log:LOW..HIGH, in which each order of
    magnitude is equally likely, or alternatives A|B, or {A|B} within a text. Ranges of whole
    numbers give whole numbers. Arguments after -- are passed to mrjob.

    \b
    gradreduce search demo/data/train --eval demo/data/test --run demo/search \\
        --model 'mlp:16..128|softmax' --learning-rate log:0.001..1 --trials 16

    Each trial is a training, and the table FOLDER/trials.csv has its command. To continue a search
    that was stopped, or to extend one to more --trials, give the same command again.
    """
    numeric.pin(values["numeric_profile"])
    from mapreduce.searching import driver
    from mapreduce.searching.directory import SearchDir
    from mapreduce.training.api.data import IMPORTED, import_files

    texts = {row.name: values.pop(row.name) for row in _TEXTS}
    wanted = SearchOptions(**{row.name: values.pop(row.name) for row in SEARCH})
    profile = {"numeric_profile": values.pop("numeric_profile")}
    options = {name: text for name, text in texts.items() if text is not None}
    paths = ("data", "evaluation", *(row.name for row in FILE_OPTIONS))
    folder, files = values.pop("folder").absolute(), {name: values.pop(name) for name in paths}
    output = {name: values.pop(name) for name in ("quiet", "as_json")}
    execution = {**values, "mrjob_arguments": context.obj}

    def run(say: Callable[[str], None]) -> None:
        settings, place = driver.first_settings(options), folder.parent / IMPORTED
        data = import_files(files, settings, place, lambda note: say(f"warning: {note}"))
        driver.start(folder, *data, options, execution, say, wanted, **profile)

    follow(SearchDir(folder), run, **output)


def follow(search: Any, run: Any, *, quiet: bool, as_json: bool) -> None:
    """Call ``run`` with what prints its progress, and print its result."""
    from mapreduce.runs.directory import RunDir

    quiet_mrjob()
    started = time.monotonic()
    try:
        # What a model of one's own prints is no result.
        with contextlib.redirect_stdout(sys.stderr):
            run(lambda text: None if quiet else echo(text, err=True))
    except Interrupted:
        if search.wanted:
            echo(f"finished trials are kept. Continue with: {again(search.path)}", err=True)
        raise
    summary = search.summary()
    if as_json:
        print_json({**summary, "seconds": round(time.monotonic() - started, 3)})
        return
    metric = search.config.metric
    spread = f" ± {summary[f'{metric}_std']:.2g}" if search.config.folds else ""
    echo(
        f"best: trial {summary['best']} of {summary['trials']:,}, {metric} {summary[metric]:.4g}"
        f"{spread}: {search.best}"
    )
    echo(summary["command"])
    echo(f"model_sha256 {summary['model_sha256']}")
    digest = RunDir(search.best).summary()["model_sha256"]
    if digest != summary["model_sha256"]:
        echo(f"trained again on all rows, model_sha256 {digest}: {search.best}")
    echo(f"table_sha256 {summary['table_sha256']}: {summary['table']}")
