"""``gradreduce run``: runs any MRJob, on any runner."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import asdict
from pathlib import Path

import click

from hdfs_utils.paths import AnyPath
from mapreduce.cli.common import LOCATION, json_option, log_format_option, print_json
from mapreduce.errors import UsageError
from mapreduce.support import collector
from mapreduce.support.printable import drop_output, echo


class _Run(click.Command):
    """The command, with a hint if options of mrjob come too early."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"{error.option_name}: options of mrjob and of the job come after JOB: "
                f"gradreduce run JOB {error.option_name} ...",
                ctx,
            ) from error


@click.command(
    cls=_Run, context_settings={"allow_interspersed_args": False, "max_content_width": 100}
)
@click.argument("job")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
@click.option("-q", "--quiet", is_flag=True, help="Log nothing; also among ARGUMENTS.")
@click.option("-v", "--verbose", is_flag=True, help="Log more; also among ARGUMENTS.")
@json_option
@click.option(
    "--submit",
    is_flag=True,
    help="Print an identifier at once, and run on: `gradreduce jobs` follows the job.",
)
@log_format_option
@click.option(
    "--trace",
    type=LOCATION,
    metavar="FOLDER",
    help="Note in FOLDER where the time goes, for `gradreduce report FOLDER`.",
)
@click.option("--driver-of", hidden=True, type=click.Path(path_type=Path))
@click.pass_context
def run(
    context: click.Context,
    job: str,
    arguments: tuple[str, ...],
    quiet: bool,
    verbose: bool,
    as_json: bool,
    submit: bool,
    trace: AnyPath | None,
    driver_of: Path | None,
) -> None:
    """Run JOB, any mrjob job, without a change.

    JOB is a file or a module, with :Class if it has several classes. ARGUMENTS are the same as for
    the job's own script: input files, folders, globs or - (by default, standard input), -r RUNNER,
    -o FOLDER, -c mrjob.conf and so on. Without -r, the job runs on all cores of this machine
    (-r parallel), whereas mrjob's own default is -r inline. Arguments after -- are passed on as
    they are, even --debug.

    \b
    gradreduce run path/job.py input.txt
    gradreduce run path/job.py:Class --workers 2 -o out logs/ 'more/*.gz'
    gradreduce run mrjob.examples.mr_wc -r local input.txt
    gradreduce run --json path/job.py -o out input.txt
    gradreduce run path/job.py --help                 shows the options of the job
    gradreduce run path/job.py --help -r parallel     shows the options of a runner
    """
    options = [*["-q"] * quiet, *["-v"] * verbose, *arguments, *context.obj]
    if trace is not None:
        if submit:
            raise UsageError("--trace: expected a job that runs here, found --submit")
        if not isinstance(trace, Path):
            raise UsageError(f"--trace: expected a folder on a disk of this machine, found {trace}")
        context.with_resource(_tracing(trace))
    if submit:
        from mapreduce.launch.jobs import start

        found = start([job, *options])
        if as_json:
            print_json(asdict(found.status()))
        else:
            echo(found.id)
    elif driver_of:
        # Who has started it has recorded it, or was ended before.
        if os.read(0, 1):
            _report(job, options, driver_of)
    elif as_json:
        _report(job, options, None)
    else:
        with collector.resting():
            from mapreduce.launch import run as launch

        collector.keep()
        launch.start(job, options)


@contextmanager
def _tracing(folder: Path) -> Iterator[None]:
    """Note the tasks of jobs in a folder."""
    from mapreduce.support import tasks

    with tasks.tracing(folder) as trace:
        yield
    if trace.error:
        echo(f"warning: the trace is not whole: {trace.error}", err=True)
    elif not trace.count:
        runners = "-r parallel and -r hadoop"
        echo(f"warning: {folder} has no tasks: only {runners} tell of them", err=True)


def _report(job: str, options: Sequence[str], folder: Path | None) -> None:
    """Run a job that tells of its end by a report, on standard output or in a submitted job's."""
    from mapreduce.cli.main import exit_report
    from mapreduce.launch import report
    from mapreduce.launch import run as launch
    from mapreduce.support import jsonlog, signals

    found = report.Report(folder.name if folder else report.new_id(), job)
    path = folder / "report.json" if folder else None
    # What the job prints, and its tasks and programs, is not the report.
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    told_here = redirect_stdout(sys.stderr) if jsonlog.is_on() else nullcontext()
    once = signals.interrupting(once=True) if path else nullcontext()
    try:
        with report.of(found, path), once, told_here:
            launch.start(job, options)
        found.end()
    except BaseException as error:
        cause = error.__cause__ if isinstance(error, SystemExit) and error.__cause__ else error
        found.end(*exit_report(cause))
        raise
    finally:
        if path is not None:
            found.write(path)
        sys.stdout.flush()
        os.dup2(out, 1)
        os.close(out)
        if path is None:
            try:
                print_json(asdict(found))
            except BrokenPipeError:
                # An error is told on standard error, too, and is what comes of it.
                if not found.exit_code:
                    raise
                drop_output()
