"""Grading: right, wrong and hostile submissions, and that nothing of them is left."""

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import strangers
from browser import require_accessible

from mapreduce.checking import laws
from mapreduce.checking.checker import Finding
from mapreduce.checking.outcomes import Degree, Difference
from mapreduce.cli.main import main
from mapreduce.exercises import grades, jail
from mapreduce.exercises.exercise import FOLDER
from mapreduce.exercises.jail import Jail, Limits
from mapreduce.exercises.served import Lost, Remote, decoded, plain
from mapreduce.explaining.model import Line
from mapreduce.runners.parallel.pool import owner
from programs import PATIENCE
from quick import cases

KINDS = {
    **dict.fromkeys(strangers.RIGHT, "right"),
    **dict.fromkeys(strangers.WRONG, "wrong"),
    **dict.fromkeys(strangers.LAWLESS, "right"),
    **dict.fromkeys(strangers.HOSTILE, ""),
}
SOURCES = strangers.RIGHT | strangers.WRONG | strangers.LAWLESS | strangers.HOSTILE

#: Seconds of a task and of a submission that comes to an end, where the machine may stand still.
LIMITS = ["--time-limit", str(PATIENCE), "--total-limit", str(PATIENCE)]
#: And where others never end, beside other tests.
BUSY = ["--time-limit", "20", "--total-limit", "90"]
QUIET = ["--time-limit", "5", "--total-limit", "20"]


@pytest.fixture(scope="session", autouse=True)
def _needs_a_jail(tmp_path_factory):
    """Hostile submissions start nowhere else."""
    visible = [name for name in ("/usr", "/bin", "/lib", "/lib64") if Path(name).exists()]
    made = Jail(str(tmp_path_factory.mktemp("jail")), visible, [], {}, Limits())
    if reason := jail.refusal(made):
        pytest.skip(reason)


@pytest.fixture
def grade(tmp_path, monkeypatch, capsys):
    """Grades some kinds of submissions by the command; returns its answer as JSON, by student."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    # One that was killed has left its folder.
    with subprocess.Popen(["true"]) as ended:
        pass
    (tmp_path / "tmp" / f"{owner(ended.pid)}-x" / "tmp1").mkdir(parents=True)

    def run(kinds, *options):
        folder = tmp_path / "submissions"
        folder.mkdir(exist_ok=True)
        for student, kind in kinds.items():
            (folder / f"{student}.py").write_text(SOURCES[kind])
        given = [str(folder), "--exercise", "4", "--seed", "3", "--json"]
        given += ["--output-dir", str(tmp_path / "grades"), *LIMITS, *options]
        assert main(["grade", *given]) == 0
        out, run.said = capsys.readouterr()
        found = json.loads(out)["grades"]
        return {one["student"]: one for one in found}

    yield run
    assert [*(tmp_path / "tmp").iterdir()] == []


def judged(found, kinds):
    """Checks that each grade is that of its kind."""
    assert found.keys() == kinds.keys()
    for student, kind in kinds.items():
        grade = found[student]
        if kind in strangers.HOSTILE:
            assert (grade["points"], grade["answer"] == "right") == (0, False), kind
            assert kind != "pries" or '"[]"' in grade["comment"], grade
        else:
            assert grade["answer"] == KINDS[kind], (kind, grade)
            assert (grade["points"] > 0) == (KINDS[kind] == "right")
        is_lawless = "broken" in grade["laws"].values()
        assert is_lawless or kind not in strangers.LAWLESS


def test_a_class(grade, tmp_path, capsys):
    kinds = {
        "Ada": "right",
        "=1+1": "right by lists",
        "\x1b[31mBea": "texts compared",
        "Cy <b>": "prints",
        "Di": "kills its parent",
        "Ed": "forges letters",
        "Flo": "forges a run without tasks",
        "Gil": "forges names of files",
    }
    found = grade(kinds)
    judged(found, kinds)
    assert [found[student]["points"] for student in kinds] == [10, 9, 0, 7, 0, 0, 0, 0]
    for student in ("Ed", "Gil"):
        assert "its process answered what is no answer: " in found[student]["comment"]
    # An empty input has no tasks, either.
    assert "and nothing comes out." in found["Flo"]["comment"]
    require_pages(tmp_path / "grades", len(kinds))
    # What has changed is graded again, and nothing else.
    ada = tmp_path / "grades" / "Ada.html"
    ada.write_text("kept")
    again = grade({"Di": "from zero"}, "--again")
    told = [line.partition(": ")[2] for line in grade.said.splitlines()[-len(kinds) :]]
    assert "Di: 0" in told
    assert told.count("Ada: 10, kept: nothing has changed") == 1
    assert sum(line.endswith(", kept: nothing has changed") for line in told) == len(kinds) - 1
    assert ada.read_text() == "kept"
    assert again == found | {"Di": again["Di"]}
    assert again["Di"]["answer"] == "wrong"
    given = [str(tmp_path / "submissions"), "--exercise", "4b", "--again"]
    assert main(["grade", *given, "--output-dir", str(tmp_path / "grades")]) == 73
    assert "holds grades of exercise 4, which are not" in capsys.readouterr().err
    # Other hidden inputs are another grade.
    for path in (tmp_path / "submissions").iterdir():
        if path.stem != "Ada":
            path.unlink()
    assert grade({}, "--again", "--seed", "4")["Ada"]["digest"] != found["Ada"]["digest"]


def require_pages(folder, students):
    """Checks the table and the pages of the class."""
    with (folder / "grades.csv").open(newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert rows["'=1+1"]["points"] == "9"
    assert rows["\\x1b[31mBea"]["points"] == "0"
    assert len(rows) == students
    # The page has the smallest input that shows it, and what the job made of it.
    page = (folder / grades.file_name("\x1b[31mBea")).read_text()
    assert "\x1b" not in page
    assert "Expected" in page or "expected" in page
    assert "map task 0" in page
    assert "<b>" not in (folder / grades.file_name("Cy <b>")).read_text().partition("<body>")[2]


@pytest.mark.slow
def test_every_hostile_kind(grade):
    # Which is stopped when does not matter here; who pries must come to an end.
    others = [kind for kind in strangers.HOSTILE if kind != "pries"]
    kinds = {f"{number:02}": kind for number, kind in enumerate(others)}
    judged(grade(kinds, "--time-limit", "2", "--total-limit", "6"), kinds)
    assert not Path(f"{strangers.__file__}.harm").exists()


@pytest.mark.slow
def test_who_pries_sees_no_other(grade):
    kinds = {"00": "right", "01": "pries"}
    judged(grade(kinds), kinds)


@pytest.mark.long
def test_two_hundred_submissions_twice(grade):
    order = [*KINDS] * (200 // len(KINDS) + 1)
    kinds = {f"{number:03}": kind for number, kind in enumerate(order[:200])}
    # Without others beside it, as a teacher grades: in eight minutes a time.
    limits = BUSY if "PYTEST_XDIST_WORKER" in os.environ else QUIET
    first = grade(kinds, *limits)
    judged(first, kinds)
    again = grade(kinds, "--output-dir", "again", *limits)
    for student, grade_of_it in first.items():
        # What is stopped may be stopped at another place.
        if kinds[student] not in strangers.HOSTILE:
            assert again[student] == grade_of_it


@pytest.mark.slow
def test_a_page_in_a_browser(grade, tmp_path, monkeypatch):
    grade({"Cleo": "the difference in the combiner"})
    # The names of Chromium's sockets may not be long.
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr("tempfile.tempdir", None)
    require_accessible((tmp_path / "grades" / "Cleo.html").read_text(), tmp_path)


@pytest.mark.slow
def test_a_folder_for_each_student(tmp_path, capsys, monkeypatch):
    # As in the command's own process.
    monkeypatch.setattr("__main__.__spec__", None)
    for name, files in {
        "one": ["job.py", "notes.txt"],
        "two": ["a.py", "b.py"],
        "main": ["__main__.py"],
        "none": [],
    }.items():
        (tmp_path / "all" / name).mkdir(parents=True)
        for file in files:
            (tmp_path / "all" / name / file).write_text(strangers.RIGHT["right"])
    (tmp_path / "all" / "spans.py").write_text("1 / 0")
    (tmp_path / "all" / "random.py").write_text("1 / 0")
    (tmp_path / "all" / "blank.py").write_text("\n")
    (tmp_path / "all" / "linked.py").symlink_to(FOLDER / "04_ranges" / "exercise.py")
    (tmp_path / "all" / "one" / "reference.txt").symlink_to(FOLDER / "04_ranges" / "exercise.py")
    with (tmp_path / "all" / "sparse.py").open("wb") as file:
        file.truncate(30 << 30)
    given = [str(tmp_path / "all"), "--exercise", "4", "--output-dir", str(tmp_path / "grades")]
    assert main(["grade", *given, *LIMITS, "--json"]) == 0
    found = {one["student"]: one for one in json.loads(capsys.readouterr().out)["grades"]}
    assert [found[name]["answer"] for name in ("one", "two", "main", "none")] == [
        *("right", "none", "right", "none")
    ]
    assert "found a.py, b.py" in found["two"]["comment"]
    assert "found none" in found["none"]["comment"]
    assert "spans.py cannot be imported: ZeroDivisionError" in found["spans"]["comment"]
    # It would hide the module of this name.
    assert "job.py cannot be imported" in found["random"]["comment"]
    assert found["blank"]["comment"] == "Its file blank.py is empty."
    assert found["linked"]["comment"].endswith("Not read: linked.py (a symbolic link).")
    assert found["one"]["comment"].endswith("Not read: reference.txt (a symbolic link).")
    assert found["sparse"]["comment"] == "It is too large: more than 32 MiB."


@cases(
    "arguments, words",
    (["missing"], "missing does not exist"),
    (["empty"], "holds no submission"),
    (["one", "--exercise", "99"], "there is no exercise 99"),
    (["one", "--points", "answer=x"], "--points"),
    (["one", "--memory", "much"], "expected bytes"),
    (["one", "one/a.py"], "two submissions are called 'a'"),
    (["one", "--output-dir", "full"], "full holds grades"),
    (["one", "--again", "--output-dir", "odd"], "is not what grade wrote"),
)
def test_bad_input(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "one", "full", "odd"):
        Path(name).mkdir()
    Path("one/a.py").write_text("")
    Path("full/grades.json").write_text("{}")
    Path("odd/grades.json").write_text('{"grades": [{}]}')
    if "--exercise" not in arguments:
        arguments = [*arguments, "--exercise", "4"]
    assert main(["grade", *arguments]) != 0
    assert words in capsys.readouterr().err
    assert not Path("grades").exists()


@pytest.mark.slow
def test_without_namespaces(grade, monkeypatch, capsys):
    monkeypatch.setattr(jail, "refusal", lambda made: "this machine gives no namespaces")
    with pytest.raises(AssertionError, match="== 0"):
        grade({"Ada": "right"})
    assert "--trust-submissions" in capsys.readouterr().err
    assert grade({}, "--trust-submissions")["Ada"]["points"] == 10


@pytest.mark.slow
def test_trusted_ones_are_stopped_too(grade):
    kinds = {"Ben": "closes all files and sleeps", "Cleo": "ends in a task"}
    found = grade(kinds, "--trust-submissions", "--time-limit", "2", "--total-limit", "5")
    assert [found[name]["points"] for name in kinds] == [0, 0]


@pytest.mark.slow
def test_a_reference_that_breaks_a_law(tmp_path, capsys):
    text = (FOLDER / "04_ranges" / "exercise.py").read_text()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "exercise.py").write_text(
        text.replace("yield section, widest(ranges)", "yield section, min(ranges)")
    )
    (tmp_path / "Ada.py").write_text(strangers.RIGHT["right"])
    given = [str(tmp_path / "Ada.py"), "--exercise", str(tmp_path / "own")]
    assert main(["grade", *given, "--output-dir", str(tmp_path / "grades")]) == 65
    assert "the reference itself breaks the law combiner" in capsys.readouterr().err
    assert not (tmp_path / "grades").exists()


def test_a_finding_is_the_same_from_another_process():
    line = "Ж\t1".encode().decode("latin-1")
    difference = Difference(Degree.DIGITS, ["0.1"], ["0.2"])
    finding = Finding(laws.SKEW, "broken", difference=difference, lines=[line], of=1)
    assert decoded(Finding, json.loads(json.dumps(plain(finding)))) == finding
    assert finding.input == ["Ж    1"]


@pytest.mark.parametrize("answer", [None, 1, [], {}, {"job": 1, "place": "", "text": ""}])
def test_an_answer_that_is_none(answer):
    from mapreduce.explaining.model import Trace

    with pytest.raises(Lost, match="no answer"):
        decoded(Trace, answer)


def test_a_process_that_does_not_read_what_it_is_asked_is_given_up():
    answer = 'import time; input(); print(\'{"error": ""}\', flush=True); time.sleep(600)'
    started = jail.start(
        Jail("/", [], [], {}, Limits(), is_open=True), [sys.executable, "-c", answer], None
    )
    try:
        remote = Remote(started, 60)
        remote.open("job.py", [], [], 1)
        remote._end = time.monotonic() + 0.2
        with pytest.raises(Lost, match="did not end within 60 seconds"):
            remote.laws([], [[Line("much " * 20, 0, n) for n in range(10_000)]], 1)
    finally:
        jail.stop(started)


@cases(
    "code, how",
    ("raise SystemExit(5)", "it exited with 5"),
    ("import os; os.kill(os.getpid(), 9)", "it was killed by signal 9"),
    ("import os; os._exit(256 - 9)", "it was killed by signal 9"),
)
def test_a_process_that_ends_is_lost_by_its_code(code, how):
    program = [sys.executable, "-c", code]
    started = jail.start(Jail("/", [], [], {}, Limits(), is_open=True), program, None)
    try:
        with pytest.raises(Lost, match=how):
            Remote(started, PATIENCE).open("job.py", [], [], 1)
    finally:
        jail.stop(started)
