"""What submissions are worth: points by a rubric, a table for people, files for machines.

What comes from a submission, its name too, is escaped wherever it is shown.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mapreduce.checking.checker import Finding
from mapreduce.errors import UsageError
from mapreduce.exercises.verdicts import section, verdict
from mapreduce.explaining.model import Trace
from mapreduce.explaining.sections import view
from mapreduce.report import page
from mapreduce.report.blocks import Section, Table, View, code
from mapreduce.support.printable import printable
from mapreduce.support.words import count

#: Points for a right answer, for the laws that it obeys, and for what it costs.
RUBRIC = {"answer": 6.0, "laws": 3.0, "cost": 1.0}

#: With these a spreadsheet begins a formula.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Grade:
    """What was found about a submission.

    ``answer``: ``right``, ``wrong``, or ``none`` if it is no job, or was stopped.
    ``laws``: The state of each law: ``obeyed``, ``broken``, ``warning`` or ``skipped``; and of
      ``cost``.
    ``digest``: Of all that the grade follows from.
    """

    student: str
    answer: str = "none"
    laws: dict[str, str] = field(default_factory=dict)
    points: float = 0.0
    comment: str = ""
    digest: str = ""

    @property
    def broken(self) -> list[str]:
        """The names of the laws that it breaks."""
        return [name for name, state in self.laws.items() if state == "broken"]


def grade_of(student: str, findings: Sequence[Finding], rubric: Mapping[str, float]) -> Grade:
    """The grade that follows from what was found: laws and cost count if the answer is right."""
    answer, *others = findings
    laws = {one.law.name: one.state for one in others}
    if answer.state != "obeyed":
        return Grade(student, "wrong", laws, 0.0, verdict(findings))
    points = rubric["answer"] + rubric["laws"] * ("broken" not in laws.values())
    points += rubric["cost"] * (laws.get("cost") != "warning")
    return Grade(student, "right", laws, round(points, 2), verdict(findings))


def rubric_of(text: str) -> dict[str, float]:
    """Points as ``answer=6,laws=3,cost=1``; what is not named gives none. Raises UsageError."""
    points = dict.fromkeys(RUBRIC, 0.0)
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if name.strip() not in points or not 0 <= value < 1e6:
            raise UsageError(
                f"--points: expected numbers for some of {', '.join(RUBRIC)}, such as "
                f"answer=6,laws=3,cost=1; found {part!r}"
            )
        points[name.strip()] = value
    return points


def as_csv(grades: Sequence[Grade]) -> str:
    """Student, points and comment, as Moodle and Canvas import them."""
    with io.StringIO(newline="") as text:
        rows = csv.writer(text)
        rows.writerow(["student", "points", "comment"])
        for one in grades:
            rows.writerow([_cell(one.student), f"{one.points:g}", _cell(one.comment)])
        return text.getvalue()


def _cell(text: str) -> str:
    """A text that no spreadsheet computes."""
    text = printable(text)
    return f"'{text}" if text.startswith(_FORMULAS) else text


def as_table(grades: Sequence[Grade], most: float) -> Section:
    """The table for people."""
    rows = [
        [code(one.student), f"{one.points:g}", one.answer, ", ".join(one.broken), one.comment]
        for one in grades
    ]
    mean = sum(one.points for one in grades) / len(grades)
    text = f"{count(len(grades), 'submission')}, {mean:.2f} of {most:g} points in the mean."
    head = ["student", "points", "answer", "breaks", "comment"]
    return Section("grades", "Grades", text, [Table("", head, rows)])


def as_page(
    grade: Grade, text: str, most: float, findings: Sequence[Finding], trace: Trace | None
) -> str:
    """A student's page: what the grade is made of, and the run on the input that shows it."""
    rows = [[one.law.name, one.state, one.text] for one in findings]
    blocks = [Table("What was tested", ["", "found", ""], rows)] if rows else []
    sections = [Section("grade", f"{grade.points:g} of {most:g} points", grade.comment, blocks)]
    sections += [section(one) for one in findings if one.state == "broken"]
    made = view(trace) if trace else View("", "", "", {}, [], [], "")
    title = printable(grade.student)
    made = replace(made, command="gradreduce grade", title=title, text=text)
    return page.page(replace(made, first=sections))


def file_name(student: str) -> str:
    """The name of a student's page, which is no path."""
    kept = "".join(one if one.isalnum() or one in "-_." else "_" for one in student)
    return f"{kept.lstrip('.')[:100] or '_'}.html"


def as_json(grades: Iterable[Grade], **told: Any) -> dict[str, Any]:
    """All grades as plain data."""
    return {**told, "grades": [asdict(one) for one in grades]}
