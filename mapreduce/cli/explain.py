"""``gradreduce explain``: what a job did between its input and its output."""

import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.cli.common import (
    moved_data_option,
    open_run,
    own_options,
    pin_profile,
    print_json,
    quiet_mrjob,
    remote_data_option,
    sample_options,
    trust_option,
)
from mapreduce.errors import MissingInputError, UsageError
from mapreduce.support import signals
from mapreduce.support.printable import echo

_OPTIONS: dict[str, Any] = {"ignore_unknown_options": True, "max_content_width": 100}


@click.command(context_settings=_OPTIONS)
@click.argument("job", metavar="JOB|RUN")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[INPUT]...")
@click.option(
    "--round",
    "round_number",
    type=click.IntRange(1),
    metavar="N",
    help="The round of a run to explain.  [default: the last of several slices]",
)
@click.option("--key", metavar="KEY", help="Follow one key from the input to the output.")
@click.option("--step", "play", is_flag=True, help="Show what happened step by step.")
@click.option(
    "--quiz", is_flag=True, help="Show it step by step, and ask before each step what will happen."
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a page for a browser into this file, instead of printing.",
)
@click.option(
    "--maps",
    type=click.IntRange(1, 64),
    help="Number of map tasks.  [default: the job's, or 3; the run's]",
)
@click.option(
    "--reducers",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Number of reduce tasks, for steps that do not set it. For a run, the number of blocks of "
    "the parameters, which is by default that of the run.",
)
@click.option(
    "--fan-in",
    type=click.IntRange(0),
    metavar="N",
    help="For a run: the largest number of partial sums that one reducer merges, a power of 2; 0 "
    "merges all.  [default: the run's]",
)
@sample_options(2000)
@moved_data_option
@remote_data_option
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole trace as one JSON object.")
@click.pass_context
def explain(context: click.Context, /, job: str, arguments: tuple[str, ...], **options: Any) -> int:
    """Run JOB on a small INPUT and show what happens to every record, or explain a round of RUN.

    JOB is any job for mrjob: a file or a module, with :Class if it has several classes. INPUT is
    any number of files, folders or globs, or - for standard input. All options that are not listed
    here go to the job. If the job has an option of the same name as one of these, write the job's
    after --.

    \b
    gradreduce explain jobs/word_count.py README.md
    gradreduce explain jobs/word_count.py README.md --key the
    gradreduce explain jobs/word_count.py README.md --step
    gradreduce explain jobs/word_count.py README.md --html page.html

    RUN is the folder of a training. One of its rounds runs again, and you see the gradients, how
    they are added up, and the model before and after. The result is compared with what the run has
    stored.

    \b
    gradreduce explain runs/a
    gradreduce explain runs/a --round 5 --maps 4 --html round.html

    The job runs on this machine, divided into tasks as on a cluster, each in its own process. If it
    fails, you see what happened until then, and the exit code is 1.
    """
    if options["quiz"] and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("--quiz needs a terminal, on which it asks questions. Use --step instead")
    run = _run_of(job)
    found = (
        _job(context, job, arguments, options)
        if run is None
        else _round(context, run, arguments, options)
    )
    if options["as_json"]:
        print_json(found.data())
    elif options["html"]:
        found.save(options["html"])
    elif options["play"] or options["quiz"]:
        found.play(options["quiz"])
    else:
        found.show(options["key"])
    if run is not None:
        return int(found.trace.is_other and not found.trace.profile)
    if failure := found.trace.failure:
        # The report begins with it, and a terminal shows the end.
        echo(f"error: the {failure.what} failed: {failure.error}", err=True)
    return int(failure is not None)


def _job(
    context: click.Context, job: str, arguments: tuple[str, ...], options: dict[str, Any]
) -> Any:
    flags = {"round_number": "--round", "fan_in": "--fan-in", "data": "--data"}
    for name, flag in flags.items():
        if options[name] is not None:
            raise UsageError(
                f"{flag} is for the folder of a run, and {job} is a job. If it is the job's own, "
                f"write it after --"
            )
    from mapreduce.checking.notebook import explain_job
    from mapreduce.explaining.tasks import Variation

    how = Variation(maps=options["maps"], reducers=options["reducers"])
    names = ("time_limit", "lines", "key")
    with own_options(context):
        given = [*arguments, *context.obj]
        return explain_job(job, given, how, **{name: options[name] for name in names})


def _run_of(target: str) -> AnyPath | None:
    """The run that is meant, or None if it is a job."""
    path = path_of(target)
    if isinstance(path, Path) and not path.is_dir():
        return None
    if not any((path / name).is_file() for name in ("run.json", "fit.json")):
        raise MissingInputError(
            f"{target} is neither a job nor a run: it holds no run.json. Expected path/job.py, or "
            f"the folder of a run; 'gradreduce runs list' finds runs"
        )
    return path


def _round(
    context: click.Context, run: AnyPath, arguments: tuple[str, ...], options: dict[str, Any]
) -> Any:
    if extra := [*arguments, *context.obj]:
        raise UsageError(f"{run} is a run, which has its own data. Leave out {extra[0]}")
    for name in ("key", "lines", "time_limit"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is for jobs, and {run} is a run")
    is_given = context.get_parameter_source("reducers") is ParameterSource.COMMANDLINE
    pin_profile(run)
    quiet_mrjob()
    from mapreduce.checking.notebook import explain_round

    named = None if options["data"] else options["remote_data"]
    open_run(run, named, options["trust"])
    with signals.interrupting():
        return explain_round(
            run,
            options["round_number"],
            options["maps"],
            options["reducers"] if is_given else None,
            options["fan_in"],
            lambda message: echo(message, err=True),
            options["data"],
        )
