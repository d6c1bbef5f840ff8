"""``gradreduce check``: does a job obey the laws of MapReduce?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from mapreduce.cli.common import FOLDER, Seconds, own_options, print_json, sample_options
from mapreduce.cli.grouping import GroupedOption
from mapreduce.errors import UsageError
from mapreduce.support.suggest import did_you_mean

if TYPE_CHECKING:
    from mapreduce.checking.checker import Finding

#: What the answer is compared with.
_GROUP: dict[str, Any] = {"cls": GroupedOption, "group": "Is the answer right?"}


@click.command(context_settings={"ignore_unknown_options": True, "max_content_width": 100})
@click.argument("job", required=False, metavar="JOB")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[INPUT]...")
@sample_options(1000)
@click.option(
    "--total-limit",
    type=Seconds(0.1, 86400),
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
@click.option(
    "--exercise",
    metavar="NUMBER|FOLDER",
    help="Test the answer on the inputs of an exercise: of a lesson, or of your own.",
    **_GROUP,
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    help="Make other inputs of the exercise.  [default: 0]",
    **_GROUP,
)
@click.option(
    "--expect",
    type=FOLDER,
    metavar="FILE",
    help="Compare the output with the lines of FILE.",
    **_GROUP,
)
@click.option(
    "--reference", metavar="JOB", help="Compare the output with that of another job.", **_GROUP
)
@click.option("--strict", is_flag=True, help="Exit with code 1 for warnings too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.pass_context
def check(
    context: click.Context, /, job: str | None, arguments: tuple[str, ...], **options: Any
) -> int:
    """Run JOB in several ways that should make no difference, and compare the output.

    JOB and INPUT are the same as for gradreduce explain. These are the laws. A job may run again
    (repeat), and with another hash seed (seeds). It gets lists for tuples (types), and reads values
    once (iteration) and in any order (values). Tasks share nothing (processes). A combiner may run
    or not (combiner), and the input may be cut anywhere (splits). What is yielded for a key does
    not depend on the keys before (state). There may be any number of reducers (reducers). Records
    are sorted as text (sorting). Tasks print nothing (printing). No key has most of the records
    (skew). The methods of a step have names that mrjob knows (names).

    \b
    gradreduce check jobs/word_count.py README.md
    gradreduce check my_job.py:MyJob input.txt --my-option 3

    If the job breaks a law, the exit code is 1, and you see the lines of input that show it, the
    reason for the law, and how to mend the job. Differences that may be harmless are warnings, and
    leave the exit code 0.

    With --exercise, --expect or --reference, the answer is tested first: you see the smallest input
    on which it is wrong. The pairs and bytes that the job sends to its reducers are compared with
    those of the reference. Without JOB, --exercise describes the exercise.

    \b
    gradreduce check ranges.py --exercise 4
    gradreduce check --exercise 4
    gradreduce check my_job.py input.txt --reference right.py
    """
    from mapreduce.checking import checker, verdicts
    from mapreduce.exercises.verdicts import View
    from mapreduce.report import terminal

    if job is None:
        _describe(context, options["exercise"])
        return 0
    tested = _answer(context, job, [*arguments, *context.obj], options)
    checker.known_laws(options["laws"], tested is not None)
    findings = []
    view: verdicts.View | None = None
    if not options["as_json"]:
        view = (View if tested else verdicts.View)(terminal.new_console())
    with own_options(context):
        for finding in tested or checker.check(job, [*arguments, *context.obj], options):
            findings.append(finding)
            if view:
                view.add(finding)
    if view:
        view.close(findings)
    else:
        print_json(verdicts.as_json(findings))
    wrong = {"broken", "warning"} if options["strict"] else {"broken"}
    return int(any(finding.state in wrong for finding in findings))


def _describe(context: click.Context, name: str | None) -> None:
    """Print what an exercise asks for; without one, a job is missing."""
    if name is None or context.obj:
        (job,) = (param for param in context.command.params if param.name == "job")
        raise click.MissingParameter(ctx=context, param=job)
    from mapreduce.exercises.exercise import load
    from mapreduce.support.printable import echo

    exercise = load(name)
    echo(click.wrap_text(f"Exercise {exercise.id}: {exercise.text}", preserve_paragraphs=True))
    echo("\n" + "\n".join(f"Example of an input: {path}" for path in exercise.shown))


def _answer(
    context: click.Context, job: str, given: list[str], options: dict[str, Any]
) -> "Iterator[Finding] | None":
    """The test of an answer, if there is one to compare it with; options that do not fit raise."""
    exercise, seed, expect, reference = (
        options[name] for name in ("exercise", "seed", "expect", "reference")
    )
    named = [f"--{name}" for name in ("exercise", "expect", "reference") if options[name]]
    if named[1:]:
        raise UsageError(f"{' and '.join(named)}: give one of them, since each has an answer")
    if seed is not None and not exercise:
        raise UsageError(
            "--seed is for the inputs of --exercise. If it is the job's own, write it after --"
        )
    if not named:
        return None
    from mapreduce.exercises import answers
    from mapreduce.exercises.exercise import load

    if not exercise:
        return answers.compare_with(job, given, options, reference, expect)
    if given:
        known = [flag for option in context.command.params for flag in option.opts]
        raise UsageError(
            f"--exercise {exercise} has its own input and options: leave out {given[0]}."
            f"{did_you_mean(given[0].partition('=')[0], known)}"
        )
    return answers.check(job, load(exercise), seed or 0, options)
