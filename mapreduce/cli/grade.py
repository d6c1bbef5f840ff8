"""``gradreduce grade``: points for the submissions of an exercise."""

import json
import re
from pathlib import Path
from typing import Any

import click

from mapreduce.cli.common import FOLDER, Seconds, json_option, print_json
from mapreduce.errors import MissingInputError, OutputError, UsageError
from mapreduce.support.outputs import writing
from mapreduce.support.printable import echo

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _bytes(text: str) -> int:
    """A number of bytes, as ``512M``."""
    found = re.fullmatch(r"(\d+)([KMG]?)B?", text.strip().upper())
    if not found or not int(found[1]):
        raise ValueError(f"expected bytes, such as 512M or 1G; found {text!r}")
    return int(found[1]) * _UNITS[found[2]]


_BYTES = click.types.FuncParamType(_bytes)
_BYTES.name = "bytes"


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FOLDER|FILE...", type=FOLDER)
@click.option(
    "--exercise",
    required=True,
    metavar="NUMBER|FOLDER",
    help="A lesson's exercise, such as 4, or a folder with an exercise.py.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of the hidden inputs. Students know the inputs of seed 0.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Submissions at a time.",
)
@click.option(
    "--output-dir",
    type=FOLDER,
    default="grades",
    show_default=True,
    help="Folder for grades.csv, grades.json, and a page for each student.",
)
@click.option(
    "--again", is_flag=True, help="Grade only what has changed since --output-dir was written."
)
@click.option(
    "--points",
    default="answer=6,laws=3,cost=1",
    show_default=True,
    help="The rubric. Laws and cost count if the answer is right.",
)
@click.option(
    "--time-limit",
    type=Seconds(0.1, 3600),
    default=10.0,
    show_default=True,
    help="Seconds for a task.",
)
@click.option(
    "--total-limit",
    type=Seconds(1, 86400),
    default=60.0,
    show_default=True,
    help="Seconds for a submission.",
)
@click.option(
    "--memory", type=_BYTES, default="1G", show_default=True, help="Memory for a submission."
)
@click.option(
    "--trust-submissions",
    is_flag=True,
    help="Run them without namespaces: they can read and change all that you can.",
)
@json_option
def grade(paths: tuple[Path, ...], **options: Any) -> int:
    """Grade submissions of an exercise: a folder of Python files, or of folders with one each.

    Each submission runs on the input that the lesson shows and on hidden ones, which --seed draws.
    If its answers are right, the laws that the exercise names are tested on it, and its cost is
    compared with the reference's. Points follow from a rubric. The table shows the results;
    --output-dir has grades.csv for Moodle and Canvas, grades.json, and for each student a page with
    the smallest input on which the answer is wrong.

    \b
    gradreduce grade submissions --exercise 4 --seed 2718
    gradreduce grade submissions --exercise 4 --seed 2718 --again

    Submissions are programs of strangers: each runs as another user, without a network, with a copy
    of itself and of the input, and with limits of time, memory, files and processes.
    """
    from mapreduce.exercises import exercise, grades, grading
    from mapreduce.exercises.jail import Limits
    from mapreduce.exercises.submissions import submissions
    from mapreduce.report import terminal
    from mapreduce.support import signals

    for path in paths:
        if not (path.is_symlink() or path.exists()):
            raise MissingInputError(f"{path} does not exist. Expected a folder of submissions")
    rubric = grades.rubric_of(options["points"])
    found = submissions(paths)
    if not found:
        raise UsageError(
            f"{paths[0]} holds no submission. Expected Python files, or folders with one each"
        )
    meant = exercise.load(options["exercise"])
    folder: Path = options["output_dir"]
    known = _earlier_grades(folder, options["again"], meant.id)
    limits = Limits(seconds=options["total_limit"], memory=options["memory"])
    given = meant, options["seed"], rubric, limits, options["time_limit"]
    made, kept = [], 0
    grader = grading.Grader(*given, options["trust_submissions"], [folder, *paths])
    with signals.interrupting(), grader:
        if not options["trust_submissions"]:
            echo(grader.counting, err=True)
        for one in grader.grades(found, known, options["jobs"]):
            made.append(one.grade)
            student, points = one.grade.student, one.grade.points
            kept += one.page is None
            how = ", kept: nothing has changed" * (one.page is None)
            echo(f"{len(made)} of {len(found)}: {student}: {points:g}{how}", err=True)
            if one.page is not None:
                _write(folder / grades.file_name(student), one.page)
            # What is done is known, should this end now.
            _write(folder / "grades.json", json.dumps(grades.as_json(made, exercise=meant.id)))
    _write(folder / "grades.csv", grades.as_csv(made))
    if options["as_json"]:
        print_json(grades.as_json(made, exercise=meant.id))
    else:
        terminal.show(terminal.new_console(), [grades.as_table(made, sum(rubric.values()))])
        if options["again"]:
            echo(f"\n{len(made) - kept} graded, {kept} kept as they were.")
        echo(f"\n{folder}/grades.csv is for Moodle and Canvas; each student has a page beside it.")
    return 0


def _earlier_grades(folder: Path, is_again: bool, exercise: str) -> dict[str, Any]:
    """The grades of before, by student."""
    from mapreduce.exercises.grades import Grade
    from mapreduce.exercises.served import Lost, decoded

    file = folder / "grades.json"
    if not is_again:
        if file.exists():
            raise OutputError(
                f"{folder} holds grades, which are not overwritten. --again grades what has "
                f"changed, and another --output-dir keeps both"
            )
        return {}
    try:
        kept = json.loads(file.read_text("utf-8"))
        before, grades = kept["exercise"], decoded(list[Grade], kept["grades"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, Lost) as error:
        raise OutputError(f"{file} is not what grade wrote: {error}") from error
    if before != exercise:
        raise OutputError(
            f"{folder} holds grades of exercise {before}, which are not overwritten by those of "
            f"exercise {exercise}. Name another --output-dir"
        )
    return {one.student: one for one in grades}


def _write(path: Path, text: str) -> None:
    """Write a file as a whole, or not at all."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_text(text, "utf-8", errors="backslashreplace")
        part.replace(path)
