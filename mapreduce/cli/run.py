"""``gradreduce run``: runs any MRJob, on any runner."""

import click


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
@click.pass_context
def run(
    context: click.Context, job: str, arguments: tuple[str, ...], quiet: bool, verbose: bool
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
    gradreduce run path/job.py --help                 shows the options of the job
    gradreduce run path/job.py --help -r parallel     shows the options of a runner
    """
    from mapreduce.launch import run as launch

    launch.start(job, [*["-q"] * quiet, *["-v"] * verbose, *arguments, *context.obj])
