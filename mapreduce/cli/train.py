"""``gradreduce train`` and ``gradreduce resume``."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mapreduce.cli.common import (
    LOCATION,
    add_options,
    moved_data_option,
    open_run,
    output_options,
    pin_profile,
    quiet_mrjob,
    remote_data_option,
    runner_options,
    trust_option,
)
from mapreduce.cli.grouping import GroupedCommand
from mapreduce.data.readers import FILE_OPTIONS
from mapreduce.errors import UsageError
from mapreduce.models import FITS
from mapreduce.plan.flags import OF_GRADIENTS, PLAN, refuse
from mapreduce.runs import flags as options
from mapreduce.searching.options import SEARCH
from mapreduce.support.options import pick
from mapreduce.support.printable import echo

if TYPE_CHECKING:
    from hdfs_utils.paths import AnyPath
    from mapreduce.runs.events import Events
    from mapreduce.training.request import TrainingRequest

#: Options that ``--help`` shows; ``--help-all`` shows all.
_COMMON = "model seed optimizer learning_rate batch_size epochs rounds strategy runner workers"


@click.command(cls=GroupedCommand, common=_COMMON, context_settings={"max_content_width": 100})
@click.argument("data", type=LOCATION)
@click.option("--run", type=LOCATION, required=True, help="Folder of the run. It must not exist.")
@click.option(
    "--eval",
    "evaluation",
    type=LOCATION,
    help="Data on which the model is evaluated during the training: a dataset, or a table's file.",
)
@add_options(PLAN)
@runner_options()
@add_options(options.EXECUTION)
@add_options((options.PROFILE,))
@add_options(FILE_OPTIONS, defaults=False)
@click.option("--dry-run", is_flag=True, help="Show the plan without training.")
@output_options
@click.pass_context
def train(context: click.Context, /, **values: Any) -> None:
    """Train a model on DATA: a dataset, or the CSV or Parquet file of a table.

    A file is imported beside the run, by the defaults of "gradreduce data import", in the dtype of
    the model.

    Arguments after -- are passed to mrjob for every job of the training.

    \b
    gradreduce train demo/data/train --run demo/run --model mlp:64 \\
        --eval demo/data/test
    """
    values["mrjob_arguments"] = context.obj
    from mapreduce.training import console

    if FITS.fits(values["model"]):
        quiet_mrjob()
        for each in context.command.params:
            is_given = context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
            if is_given and each.name in OF_GRADIENTS:
                refuse(each.opts[0], values["model"])

    def prepare(request: "TrainingRequest", events: "Events") -> "TrainingRequest":
        from mapreduce.runs.directory import RunDir
        from mapreduce.runs.events import Warned
        from mapreduce.training.api.data import IMPORTED, import_files

        run = RunDir(request.run.absolute())
        place: AnyPath = run.path.parent / IMPORTED
        if values["dry_run"]:
            place = Path(context.with_resource(TemporaryDirectory(prefix="gradreduce-")))
        else:
            run.require_new()
        data, evaluation = import_files(
            values, request.settings, place, lambda note: events.emit(Warned(note))
        )
        return replace(request, data=data, evaluation=evaluation)

    console.start(values, prepare=prepare)


@click.command(cls=GroupedCommand, context_settings={"max_content_width": 100})
@click.argument("run", type=LOCATION)
@runner_options(resumes=True)
@add_options(options.EXECUTION, resumes=True)
@moved_data_option
@click.option(
    "--eval", "evaluation", type=LOCATION, help="Folder of the evaluation data, if they have moved."
)
@remote_data_option
@trust_option
@add_options(pick(SEARCH, "trials"), resumes=True)
@click.option(
    "--take-over",
    is_flag=True,
    help="Take the run over from a driver on another host, which you know has ended.",
)
@output_options
@click.pass_context
def resume(context: click.Context, /, **values: Any) -> None:
    """Continue RUN from its last round, to the same bits as if it had never stopped.

    Options that you leave out keep their values. For safety, since somebody else may have made the
    run, you must repeat what can run programs: a runner other than inline, parallel, local and
    spark, arguments for mrjob after --, and with --trust any model of your own.
    """
    pin_profile(values["run"])
    given = {name: value for name, value in values.items() if value is not None}
    if context.obj:
        given["mrjob_arguments"] = context.obj

    def warn(message: str) -> None:
        echo(f"warning: {message}", err=True)

    from mapreduce.runs.fits import FitDir, is_fit
    from mapreduce.training import console

    if is_fit(values["run"]):
        from mapreduce.training import fitting

        fit = FitDir(values["run"].absolute())
        quiet_mrjob()
        console.follow(values, lambda events: (fit, fitting.resume(fit, given, events, warn)))
        return
    if (values["run"] / "search.json").exists():
        from mapreduce.cli import search
        from mapreduce.searching import driver
        from mapreduce.searching.directory import SearchDir
        from mapreduce.support import trust

        trust.trust(*values["trust"])
        folder = SearchDir(values["run"].absolute())
        output = {name: values[name] for name in ("quiet", "as_json")}
        search.follow(folder, lambda say: driver.resume(folder, given, say, warn), **output)
        return
    if values["trials"] is not None:
        raise UsageError(f"--trials is for searches, and {values['run']} is a run. Leave it out")
    from mapreduce.training import start as starting

    run = open_run(values["run"], None, values["trust"])
    console.follow(values, lambda events: (run, starting.resume(run, given, events, warn)))
