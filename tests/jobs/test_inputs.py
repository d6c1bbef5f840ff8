"""Input for the jobs: made of what a machine has, or a sample."""

import gzip
import subprocess
import sys

import pytest
from ladder import ROOT

from jobs import inputs
from quick import cases

TABLES = [table.__name__ for table in inputs.TABLES]


def rows(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine with nothing on it."""
    for name in ("LICENCES", "STATUS", "DOCUMENTATION", "ZONEINFO", "LIBRARY"):
        monkeypatch.setattr(inputs, name, tmp_path / "missing")
    for name in ("sklearn.datasets", "networkx"):
        monkeypatch.setitem(sys.modules, name, None)
    return tmp_path


@pytest.mark.parametrize("name", TABLES)
def test_a_sample_where_the_source_is_missing(bare, name):
    (path,) = inputs.find(name, bare / "inputs")
    assert path == inputs.SAMPLES / f"{name}.tsv"
    assert len({len(row) for row in rows(path)}) == 1
    assert path.stat().st_size < 25_000
    assert name in (inputs.SAMPLES / "README.md").read_text()
    assert not (bare / "inputs").exists()


def test_poems_where_there_are_no_licences(bare):
    assert inputs.find("licences") == inputs.find("poems")
    assert all(path.is_file() for path in inputs.find("poems"))


@pytest.fixture
def machine(bare, monkeypatch):
    """A machine with a little of everything."""
    (bare / "status").write_text(
        "Package: bash\nSection: shells\nInstalled-Size: 7164\nDescription: a shell\n"
        " Installed-Size: 1\nDepends: base-files (>= 2.1.12), debianutils | x (>= 5)\n\n"
        "Package: gone\nStatus: deinstall\n\n"
        "Package: alone\nInstalled-Size: 3\n"
    )
    (bare / "doc/bash").mkdir(parents=True)
    changelog = (
        "bash (5.2-1) unstable; urgency=low\n\n  * New.\n\n"
        " -- A <a@b>  Mon, 03 Oct 2022 14:01:13 +0200\n\n"
        "bash (5.1-6) unstable; urgency=low\n\n -- A <a@b>  no day at all\n"
    )
    (bare / "doc/bash/changelog.Debian.gz").write_bytes(gzip.compress(changelog.encode()))
    (bare / "doc/empty").mkdir()
    (bare / "zoneinfo").mkdir()
    (bare / "zoneinfo/zone.tab").write_text("# comment\nAD\t+4230+00131\tEurope/Andorra\tmore\n")
    (bare / "zoneinfo/iso3166.tab").write_text("#code\tname\nAD\tAndorra\n")
    (bare / "library/test").mkdir(parents=True)
    (bare / "library/test/x.py").write_text("import a")
    (bare / "library/a.py").write_text('import b, sys\ndef f():\n    """One\n\n    two."""\n')
    (bare / "library/b.py").write_text("from a import f\ndef _g():\n    '''Hidden.'''\n")
    (bare / "library/broken.py").write_text("print 1")
    (bare / "licences").mkdir()
    (bare / "licences/GPL-3").write_text("text")
    (bare / "licences/GPL").symlink_to("GPL-3")
    places = {
        "STATUS": "status",
        "DOCUMENTATION": "doc",
        "ZONEINFO": "zoneinfo",
        "LIBRARY": "library",
        "LICENCES": "licences",
    }
    for name, place in places.items():
        monkeypatch.setattr(inputs, name, bare / place)
    return bare


@cases(
    "name, expected",
    (
        "packages",
        [["bash", "shells", "7164", "base-files,debianutils"], ["alone", "unknown", "3", ""]],
    ),
    ("releases", [["bash", "5.2-1", "2022-10-03"]]),
    ("zones", [["AD", "+4230+00131", "Europe/Andorra"]]),
    ("countries", [["AD", "Andorra"]]),
    ("imports", [["a", "b"], ["b", "a"]]),
    ("functions", [["a.f", "One two."]]),
)
def test_what_is_there(machine, name, expected):
    (path,) = inputs.find(name, machine / "inputs")
    assert rows(path) == expected
    assert path.parent == machine / "inputs"


def test_licences_are_named_where_they_lie(machine):
    assert inputs.find("licences") == [machine / "licences/GPL-3"]


def test_a_table_is_made_once(machine):
    (path,) = inputs.find("zones", machine / "inputs")
    path.write_text("kept\n")
    assert inputs.find("zones", machine / "inputs") == [path]
    assert path.read_text() == "kept\n"


def test_tables_of_scikit_learn(tmp_path):
    pytest.importorskip("sklearn")
    (flowers,) = inputs.find("flowers", tmp_path)
    assert flowers.parent == tmp_path
    assert flowers.read_text() == (inputs.SAMPLES / "flowers.tsv").read_text()
    (tumours,) = inputs.find("tumours", tmp_path)
    assert rows(tumours)[::7] == rows(inputs.SAMPLES / "tumours.tsv")
    (digits,) = inputs.find("digits", tmp_path)
    assert rows(digits)[::30] == rows(inputs.SAMPLES / "digits.tsv")


def command(*arguments):
    program = [sys.executable, "-m", "jobs.inputs", *map(str, arguments)]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command(tmp_path):
    assert [line.split()[0] for line in command().stdout.splitlines()] == inputs.NAMES
    out = command("-o", tmp_path, "zones", "poems").stdout.splitlines()
    assert out == list(map(str, [*inputs.find("zones", tmp_path), *inputs.find("poems")]))
    wrong = command("-o", tmp_path, "zones", "zonse")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "there is no input 'zonse'" in wrong.stderr
