"""Submissions are copied without a link followed, a device opened, or more read than may be."""

import os
import socket
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from mapreduce.exercises import submissions
from mapreduce.exercises.submissions import Copy

MOST = 1 << 20


@pytest.fixture
def place(tmp_path, monkeypatch):
    return with_class(tmp_path, monkeypatch)


def with_class(folder, monkeypatch):
    (folder / "class" / "eve").mkdir(parents=True)
    (folder / "teacher").mkdir()
    (folder / "teacher" / "exercise.py").write_text("secret")
    (folder / "class" / "eve" / "job.py").write_text("own")
    # Names of sockets may not be long.
    monkeypatch.chdir(folder / "class")
    return folder


def copied(place, student="eve"):
    (place / "copy").mkdir(exist_ok=True)
    secrets = submissions.identities([place / "teacher" / "exercise.py"])
    made = Copy(place / "copy", MOST, secrets)
    made.take(place / "class" / student)
    texts = {str(file.relative_to(place / "copy")): file.read_text() for file in made.files}
    return texts, made.left_out, made.problem


def make_pipe(at):
    os.mkfifo(at)


def make_socket(at):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(at)


def make_device(at):
    try:
        os.mknod(at, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only a root makes devices")


SPECIAL = {
    "a link to a file": (
        lambda at: Path(at).symlink_to("../../teacher/exercise.py"),
        "symbolic link",
    ),
    "a link to a folder": (lambda at: Path(at).symlink_to("../../teacher"), "symbolic link"),
    "a link to a neighbour": (lambda at: Path(at).symlink_to("../eve/job.py"), "symbolic link"),
    "a link to itself": (lambda at: Path(at).symlink_to(Path(at).name), "symbolic link"),
    "a link to nothing": (lambda at: Path(at).symlink_to("nothing"), "symbolic link"),
    "an absolute link": (lambda at: Path(at).symlink_to("/etc/passwd"), "symbolic link"),
    "a link to a device": (lambda at: Path(at).symlink_to("/dev/zero"), "symbolic link"),
    "a hard link": (lambda at: os.link("../teacher/exercise.py", at), "a hard link"),
    "a pipe": (make_pipe, "a pipe"),
    "a socket": (make_socket, "a device or a socket"),
    "a device": (make_device, "a device or a socket"),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_not_a_file_is_named_and_not_opened(place, kind):
    make, words = SPECIAL[kind]
    make("eve/notes.txt")
    make("mallory.py")
    texts, (left_out,), problem = copied(place)
    assert (texts, problem) == ({"job.py": "own"}, "")
    assert left_out.startswith("notes.txt (")
    assert words in left_out
    assert [*submissions.submissions([place / "class"])] == ["eve", "mallory"]
    texts, (left_out,), problem = copied(place, "mallory.py")
    assert (texts, problem) == ({}, "")
    assert words in left_out


def test_a_file_that_a_neighbour_links_to_is_copied_and_the_link_is_not(place):
    (place / "class" / "ada.py").write_text("right")
    os.link("ada.py", "eve/hers.txt")
    assert copied(place, "ada.py") == ({"ada.py": "right"}, [], "")
    assert copied(place) == ({"job.py": "own"}, ["hers.txt (a hard link)"], "")


def test_a_link_within_a_folder_within_leads_nowhere(place):
    Path("eve/data/more").mkdir(parents=True)
    Path("eve/data/more/link").symlink_to("../../../../teacher")
    (place / "class/eve/data/more/own.txt").write_text("mine")
    texts, left_out, _ = copied(place)
    assert texts == {"job.py": "own", "data/more/own.txt": "mine"}
    assert left_out == ["data/more/link (a symbolic link)"]


@pytest.mark.parametrize("kind", ["a link to a file", "a pipe"])
def test_what_takes_the_place_of_a_file_meanwhile_is_not_read(place, monkeypatch, kind):
    opens = os.open

    def swap(name, *others, **options):
        if name == "job.py":
            Path("eve/job.py").unlink()
            SPECIAL[kind][0]("eve/job.py")
        return opens(name, *others, **options)

    monkeypatch.setattr(os, "open", swap)
    texts, (left_out,), _ = copied(place)
    assert texts == {}
    assert left_out.startswith("job.py (")


def test_a_large_file_is_not_read(place, monkeypatch):
    with Path("eve/sparse").open("wb") as file:
        file.truncate(30 << 30)
    monkeypatch.setattr(os, "read", None)
    (place / "class/eve/job.py").unlink()
    assert copied(place)[2] == "more than 1 MiB"


def test_many_files_that_are_large_together(place):
    for number in range(3):
        (place / f"class/eve/{number}").write_bytes(bytes(MOST // 2))
    assert copied(place)[2] == "more than 1 MiB"


def test_a_file_that_grows_while_it_is_read(place, monkeypatch):
    monkeypatch.setattr(os, "read", lambda file, size: bytes(1000))
    assert copied(place)[2] == "more than 1 MiB"


def test_many_files_and_deep_folders(place, monkeypatch):
    monkeypatch.setattr(submissions, "_MOST", 5)
    Path("deep" + "/x" * 30).mkdir(parents=True)
    Path("wide").mkdir()
    for number in range(9):
        (place / f"class/wide/{number}").write_text("")
    monkeypatch.setattr(submissions, "_DEEPEST", 3)
    for student in ("wide", "deep"):
        assert copied(place, student)[2] == "more than 5 files, or 3 folders within each other"


@contextmanager
def ordinary_user():
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        yield


@pytest.fixture
def open_place(monkeypatch):
    """One that every user may enter, unlike a folder of pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield with_class(Path(folder), monkeypatch)


def test_unreadable_files_and_folders_are_named(open_place):
    place = open_place
    for name in ("eve/closed", "sealed"):
        Path(name).mkdir()
    (place / "class/eve/notes.txt").write_text("")
    (place / "copy").mkdir()
    (place / "copy").chmod(0o777)
    for name in ("eve/closed", "eve/notes.txt", "sealed"):
        Path(name).chmod(0)
    with ordinary_user():
        denied = "(Permission denied)"
        texts, left_out, _ = copied(place)
        assert texts == {"job.py": "own"}
        assert left_out == [f"closed {denied}", f"notes.txt {denied}"]
        assert copied(place, "sealed") == ({}, [f"sealed {denied}"], "")
    for name in ("eve/closed", "sealed"):
        Path(name).chmod(0o755)


def test_a_submission_that_is_gone(place):
    assert copied(place, "late.py") == ({}, ["late.py (No such file or directory)"], "")
