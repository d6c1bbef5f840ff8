"""``gradreduce check``: does a job obey the laws of MapReduce?"""

from typing import Any

import click

from mapreduce.cli.common import own_options, print_json


@click.command(context_settings={"ignore_unknown_options": True, "max_content_width": 100})
@click.argument("job")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[INPUT]...")
@click.option(
    "--lines",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Most lines of input to read; a longer input is sampled.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0.1, 3600),
    default=10.0,
    show_default=True,
    help="Seconds for each task of each run.",
)
@click.option(
    "--shrink",
    type=click.IntRange(0, 10_000),
    default=60,
    show_default=True,
    help="Most runs to make a counter-example small.",
)
@click.option("--law", "laws", multiple=True, metavar="LAW", help="Test this law; also several.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def check(context: click.Context, /, job: str, arguments: tuple[str, ...], **options: Any) -> int:
    """Run JOB differently, where nothing may depend on it, and compare what comes out.

    JOB and INPUT are as for gradreduce explain. The laws: a job may run again (repeat), with
    another hash seed (seeds); it gets lists for tuples (types), reads values once (iteration) and
    in any order (values); tasks share nothing (processes); a combiner may run or not (combiner);
    input is cut anywhere (splits); there are any number of reducers (reducers); records are sorted
    as text (sorting); tasks print nothing (printing); no key has most of them (skew); the methods
    of a step have the names that mrjob knows (names).

    \b
    gradreduce check jobs/word_count.py README.md
    gradreduce check my_job.py:MyJob input.txt --my-option 3

    Exit code 1 if a law is broken, with the lines of input that show it, why it is a law, and how
    to mend the job. Differences that may be harmless are warnings, and do not count.
    """
    from mapreduce.tracing import checking, terminal, verdicts

    checking.known_laws(options["laws"])
    findings = []
    view = None if options["as_json"] else verdicts.View(terminal.new_console())
    with own_options(context):
        for finding in checking.check(job, [*arguments, *context.obj], options):
            findings.append(finding)
            if view:
                view.add(finding)
    if view:
        view.close(findings)
    else:
        print_json(verdicts.as_json(findings))
    wrong = {"broken", "warning"} if options["strict"] else {"broken"}
    return int(any(finding.state in wrong for finding in findings))
