"""A class with thirty hostile submissions: each is contained and named, and the others are graded.

For an ordinary user: run this file as one. A root also has devices and control groups.
"""

import json
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest
import strangers

from mapreduce.cli.main import main
from mapreduce.exercises import jail
from mapreduce.exercises.exercise import FOLDER
from mapreduce.exercises.groups import Groups
from mapreduce.exercises.jail import Jail, Limits

HONEST = {
    "Ada": strangers.RIGHT["right"],
    "Ben": strangers.WRONG["from zero"],
    "Cleo": strangers.LAWLESS["a combiner that takes half"],
}

#: Prints what it reads of its folder.
PEEK = """
import os
TEXTS = {}
for folder, _, names in os.walk("."):
    for name in names:
        if name.endswith(".txt"):
            TEXTS[name] = open(os.path.join(folder, name), "rb").read(99)
is_secret = any(b"secret" in text for text in TEXTS.values())
raise SystemExit(f"SECRET {TEXTS}" if is_secret else "nothing")
from mapreduce.job import Job
class Ranges(Job): pass
"""


def in_folder(place, student):
    """The folder of a student with a job that peeks."""
    (place / "class" / student).mkdir()
    (place / "class" / student / "job.py").write_text(PEEK)
    return place / "class" / student


def make_links(place):
    """Links of every kind; returns the students, with words of their comments."""
    students = place / "class"
    targets = {
        "note": "../../teacher/secret.txt",
        "absolute": str(place / "teacher" / "secret.txt"),
        "reference": "../../teacher/exercise.py",
        "neighbour": "../Ada.py",
        "table": "/etc/passwd",
        "environment": "/proc/self/environ",
        "endless": "/dev/zero",
        "nothing": "gone",
        "loop": "loop.txt",
        "folder": "../../teacher",
        "root": "/",
    }
    for name, target in targets.items():
        (in_folder(place, f"link to {name}") / f"{name}.txt").symlink_to(target)
    chain = in_folder(place, "chain of links")
    (chain / "more").mkdir()
    (chain / "more" / "a.txt").symlink_to("../b.txt")
    (chain / "b.txt").symlink_to("../../teacher/secret.txt")
    os.link(place / "teacher" / "secret.txt", in_folder(place, "hard link") / "hard.txt")
    (students / "linked reference.py").symlink_to("../teacher/exercise.py")
    (students / "linked folder").symlink_to("../teacher")
    os.link(place / "teacher" / "exercise.py", students / "hard reference.py")
    os.mkfifo(students / "pipe.py")
    os.mkfifo(in_folder(place, "pipe in a folder") / "p.txt")
    one = socket.socket(socket.AF_UNIX)
    with one:
        one.bind(str(Path("class/socket.py")))
    return {
        path.stem if path.suffix == ".py" else path.name: "Not read: "
        for path in students.iterdir()
    }


def make_sizes(place):
    """Files that are too large or closed, and folders that are too full or deep."""
    students = place / "class"
    for path in (students / "sparse.py", in_folder(place, "sparse in a folder") / "data"):
        with path.open("wb") as file:
            file.truncate(30 << 30)
    (in_folder(place, "deep") / ("x/" * 60)).mkdir(parents=True)
    wide = in_folder(place, "wide")
    for number in range(2100):
        (wide / f"{number}.csv").write_text("")
    return dict.fromkeys(["sparse", "sparse in a folder", "deep", "wide"], "It is too large: ")


def traces(place):
    """What submissions could leave on this machine; others work on it, too."""
    own = f"gradreduce-*-{os.getpid()}-*"
    found = {"mounts": Path("/proc/self/mountinfo").read_text()}
    found["segments"] = Path("/proc/sysvipc/shm").read_text().count("\n")
    found["memory"] = [*Path("/dev/shm").glob(own)]
    parent = Groups().parent
    found["groups"] = [*parent.glob(own)] if parent else []
    found["processes"] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # Of a jail, whose first process ends all others, and of the reference.
        with suppress(OSError):
            words = path.read_text().split("\0")
            is_jail = any(str(place) in word and word.startswith("{") for word in words)
            if is_jail or words[-3:-1] == ["mapreduce.exercises.served", str(os.getpid())]:
                found["processes"].append(words)
    return found


@pytest.fixture
def place(tmp_path, monkeypatch):
    visible = [name for name in ("/usr", "/bin", "/lib", "/lib64") if Path(name).exists()]
    (tmp_path / "jail").mkdir()
    if reason := jail.refusal(Jail(str(tmp_path / "jail"), visible, [], {}, Limits())):
        pytest.skip(reason)
    for name in ("class", "teacher", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "teacher" / "secret.txt").write_text("secret")
    (tmp_path / "teacher" / "exercise.py").write_text(
        (FOLDER / "04_ranges" / "exercise.py").read_text() + "# secret\n"
    )
    for name, text in HONEST.items():
        (tmp_path / "class" / f"{name}.py").write_text(text)
    # The names of sockets may not be long.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def graded(capsys, output, *more):
    given = ["class", "--exercise", "teacher", "--seed", "3", "--json", "--output-dir", output]
    limits = ["--memory", "256M", "--time-limit", "20", "--total-limit", "90", *more]
    assert main(["grade", *given, *limits]) == 0
    return {one["student"]: one for one in json.loads(capsys.readouterr().out)["grades"]}


@pytest.mark.long
def test_thirty_hostile_submissions(place, capsys):
    before = traces(place)
    alone = graded(capsys, "alone")
    assert [alone[name]["answer"] for name in HONEST] == ["right", "wrong", "right"]
    words = make_links(place) | make_sizes(place)
    for name in HONEST:
        del words[name]
    for name, text in strangers.MEMORY.items():
        (place / "class" / f"{name}.py").write_text(text)
        words[name] = ""
    with suppress(PermissionError):
        os.mknod(place / "class" / "device.py", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        words["device"] = "Not read: "
    if os.geteuid():
        for name in ("closed.py", "closed folder"):
            path = place / "class" / name
            path.write_text(PEEK) if path.suffix else path.mkdir()
            path.chmod(0)
            words[path.name.removesuffix(".py")] = "(Permission denied)"
    assert len(words) >= 30
    found = graded(capsys, "grades")
    assert found.keys() == {*HONEST, *words}
    assert {name: found[name] for name in HONEST} == alone
    for name, text in words.items():
        assert found[name]["points"] == 0, found[name]
        assert text in found[name]["comment"], found[name]
        assert not {"SECRET", "ALIVE"} & {*found[name]["comment"].split()}, found[name]
    assert list((place / "tmp").iterdir()) == []
    assert traces(place) == before
    with suppress(OSError):
        (place / "class" / "closed folder").chmod(0o700)
