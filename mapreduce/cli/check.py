"""``gradreduce check``: does a job obey the laws of MapReduce?"""

from typing import Any

import click

from mapreduce.cli.common import own_options, print_json, sample_options


@click.command(context_settings={"ignore_unknown_options": True, "max_content_width": 100})
@click.argument("job")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[INPUT]...")
@sample_options(1000)
@click.option(
    "--total-limit",
    type=click.FloatRange(0.1, 86400),
    default=300.0,
    show_default=True,
    help="Test no more laws, and make no example smaller, after this many seconds in all.",
)
@click.option(
    "--shrink",
    type=click.IntRange(0, 10_000),
    default=60,
    show_default=True,
    help="Run the job at most this often to make a counter-example smaller.",
)
@click.option(
    "--law", "laws", multiple=True, metavar="LAW", help="Test only this law. You can give several."
)
@click.option("--strict", is_flag=True, help="Exit with code 1 for warnings too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.pass_context
def check(context: click.Context, /, job: str, arguments: tuple[str, ...], **options: Any) -> int:
    """Run JOB in several ways that should make no difference, and compare the output.

    JOB and INPUT are the same as for gradreduce explain. These are the laws. A job may run again
    (repeat), and with another hash seed (seeds). It gets lists for tuples (types), and reads values
    once (iteration) and in any order (values). Tasks share nothing (processes). A combiner may run
    or not (combiner), the input may be cut anywhere (splits), and there may be any number of
    reducers (reducers). Records are sorted as text (sorting). Tasks print nothing (printing). No
    key has most of the records (skew). The methods of a step have names that mrjob knows (names).

    \b
    gradreduce check jobs/word_count.py README.md
    gradreduce check my_job.py:MyJob input.txt --my-option 3

    If the job breaks a law, the exit code is 1, and you see the lines of input that show it, the
    reason for the law, and how to mend the job. Differences that may be harmless are warnings, and
    leave the exit code 0.
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
