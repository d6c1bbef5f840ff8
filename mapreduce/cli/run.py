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
@click.pass_context
def run(context: click.Context, job: str, arguments: tuple[str, ...]) -> None:
    """Run JOB, any unchanged mrjob job: a file or a module, with :Class if it has several.

    ARGUMENTS are those of the job's script and of mrjob: input files, folders, globs or - (default:
    standard input), -r RUNNER, -o FOLDER, -c mrjob.conf, ... The runner is parallel, on all cores,
    unless -r names another (mrjob's own default is inline). Arguments after -- are passed on too,
    even --debug.

    \b
    gradreduce run path/job.py input.txt
    gradreduce run path/job.py:Class --workers 2 -o out logs/ 'more/*.gz'
    gradreduce run mrjob.examples.mr_wc -r local input.txt
    gradreduce run path/job.py --help                 options of the job
    gradreduce run path/job.py --help -r parallel     options of a runner
    """
    from mapreduce.launch import run as launch

    given = [*arguments, *context.obj]
    with launch.argv([job, *given]):
        job_class = launch.load_job(job)
    launch.execute(job_class, given, job)
