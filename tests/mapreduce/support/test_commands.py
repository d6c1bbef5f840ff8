"""Command lines in messages."""

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce.support.commands import command, or_remove, resume

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
    found = [path for path in files if wrong.search(path.read_text())]
    assert found == []


@pytest.mark.parametrize("name", ["part-00000", "part-m-00001.gz", "_SUCCESS", ".part-00000.crc"])
def test_the_output_of_a_job_may_be_removed(tmp_path, name, monkeypatch):
    out = tmp_path / "my out"
    out.mkdir()
    (out / name).touch()
    assert or_remove(out, "rm", "-r") == f", or remove it first: rm -r '{out}'"
    monkeypatch.chdir(out)
    assert or_remove(Path(), "rm", "-r") == or_remove(out, "rm", "-r") == ""


@pytest.mark.parametrize("name", ["x", "parts", "part-00000 (copy)", ".bashrc"])
def test_nothing_else_may(tmp_path, name):
    (tmp_path / "part-00000").touch()
    (tmp_path / name).touch()
    assert or_remove(tmp_path, "rm", "-r") == or_remove(tmp_path / name, "rm", "-r") == ""


@pytest.mark.parametrize("place", [Path("/"), Path.home(), ROOT])
def test_least_of_all(place):
    assert or_remove(place, "rm", "-r") == ""
