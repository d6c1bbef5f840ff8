"""Command lines in messages."""

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from hdfs_utils.paths import RemotePath
from mapreduce.support.commands import command, or_remove, resume
from quick import cases

ROOT = Path(__file__).parents[3]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_a_shell_reads_the_words_as_they_were(words):
    assert shlex.split(command(*words)) == words


def test_a_path_is_no_option():
    assert command("rm", "-r", Path("-x"), Path("a b")) == "rm -r ./-x 'a b'"
    assert resume(Path("/my runs/a")) == "gradreduce resume '/my runs/a'"


def test_all_messages_quote_their_paths():
    wrong = re.compile(r"(gradreduce (resume|run|check|evaluate|predict)|\brm -[-a-z]+) \{")
    files = [path for name in ("mapreduce", "hdfs_utils") for path in (ROOT / name).rglob("*.py")]
    assert [path for path in files if wrong.search(path.read_text())] == []


@pytest.fixture
def out(tmp_path):
    """The folder of a job that has ended."""
    folder = tmp_path / "data" / "my out"
    folder.mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    (folder / "part-00000").write_text("a\t1\n")
    return folder


def advice(folder, *reads):
    return or_remove(folder, map(str, reads), "rm", "-r")


@pytest.mark.parametrize("name", ["part-00001", "part-100000.gz", ".part-00000.crc"])
def test_the_output_of_a_job_may_be_removed(out, name, monkeypatch):
    (out / name).touch()
    others = [out.parent.parent / "data2", out.parent / "other", "inline", "file.txt#name"]
    assert advice(out, *others) == f", or remove it first: rm -r '{out}'"
    monkeypatch.chdir(out)
    assert advice(Path()) == advice(out) == ""


@cases("name", "x", "parts", "part-00000 (copy)", ".bashrc", "part-00000-1d-c0.parquet", "part-m-1")
def test_nothing_else_may(out, name):
    (out / name).touch()
    assert advice(out) == advice(out / name) == ""


def test_no_folder_within_and_no_output_that_nobody_marked(out):
    (out / "_SUCCESS").unlink()
    assert advice(out) == ""
    (out / "_SUCCESS").touch()
    (out / "part-00001").mkdir()
    assert advice(out) == ""


@cases(
    "text", "{0}", "{0}/", "{0}/part-*", "{0}/../my out", "file://{0}", "{1}", "{1}/*/part-00000"
)
def test_least_of_all_what_the_command_reads(out, tmp_path, text):
    link = tmp_path / "link"
    link.symlink_to(out)
    for named in (text, f"{text}#name"):
        assert advice(out, named.format(out, out.parent)) == ""
        assert advice(link, named.format(out, out.parent)) == ""
    assert advice(out, link) == ""


def test_an_output_far_away(s3):
    far = RemotePath(f"{s3}/advice/out")
    for name in ("_SUCCESS", "part-00000"):
        (far / name).write_bytes(b"")
    assert or_remove(far, ["/x", "s3://other/x"], "rm") == f", or remove it first: rm {far}"
    assert or_remove(far / "part-00000", [], "rm") == ""
    assert or_remove(far, [f"{far}/part-*"], "rm") == or_remove(far, [str(far.parent)], "rm") == ""


@pytest.mark.parametrize("place", [Path("/"), Path.home(), ROOT])
def test_nor_a_folder_of_the_system(place):
    assert advice(place) == ""
