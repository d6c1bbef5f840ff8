"""What comes from data, files and jobs commands no terminal, whichever command shows it."""

import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

import programs
from mapreduce.report.blocks import Cell, Note, Section, Table
from mapreduce.report.terminal import show
from mapreduce.support.printable import visible
from quick import cases

#: A window's title, an end of what is shown, and another direction of writing.
EVIL = "\x1b]0;owned\x07\x9b2J\u202e"

WRONG = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

JOB = f"""\
import logging, sys
from mrjob.job import MRJob


class Owned(MRJob):
    def mapper(self, _, line):
        self.increment_counter("group {EVIL}", "counter", 1)
        logging.getLogger("own").warning("log %s", {EVIL!r})
        yield "key {EVIL}", line

    def reducer(self, key, values):
        for value in values:
            if value.startswith("fail"):
                raise ValueError("because of {EVIL}")
            yield key, value
"""


@given(st.text())
def test_only_what_a_terminal_would_obey_is_changed(text):
    assert not WRONG.search(visible(text))
    if not WRONG.search(text):
        assert visible(text) == text
    visible(text).encode()


def test_no_message_goes_another_way():
    wrong = re.compile(r"click\.s?echo\(|sys\.stderr\.write|(?<![\w.])print\(.*stderr")
    root = Path(__file__).parents[2] / "mapreduce"
    found = {path.name for path in root.rglob("*.py") if wrong.search(path.read_text())}
    # The one place, tasks on a node, and what is read by the process that started it.
    assert found == {"printable.py", "bootstrap.py", "task.py", "jail.py"}


def test_a_table_keeps_its_colours_alone():
    text, code = f"cell {EVIL}", Cell(EVIL, is_code=True, note=EVIL)
    table = Table(EVIL, [f"head {EVIL}", EVIL], [[Cell(text), code]], note=EVIL)
    console = Console(force_terminal=True, width=200)
    with console.capture() as captured:
        show(console, [Section("", f"title {EVIL}", EVIL, [table, Note(EVIL, "error", EVIL)])])
    shown = captured.get()
    assert shown.count("owned") == 11
    assert not WRONG.search(re.sub(r"\x1b\[[0-9;]*m", "", shown))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terminal")
    rows = [f'{number},"{"ab"[number % 2]}{EVIL}"' for number in range(40)]
    (folder / "table.csv").write_text("\n".join([f'"x{EVIL}",label', *rows, ""]))
    (folder / "job.py").write_text(JOB)
    (folder / f"text{EVIL}").write_text("good\nfail\n")
    programs.succeed("data", "import", "-q", "table.csv", "data", cwd=folder)
    train = ["train", "data", "--run", f"run{EVIL}", "--rounds", 1, "-q", "-r", "inline"]
    programs.succeed(*train, cwd=folder)
    return folder


@pytest.mark.every_case
@cases(
    "command",
    *("data describe table.csv", "data import table.csv data2", "data show data"),
    *("data import text{} data3", "evaluate run{} data"),
    "train data --run run2{} --rounds 1 -r inline",
    "resume run{}",
    "runs list .",
    "runs show run{}",
    "run job.py text{} -r inline",
    "run job.py text{} -r parallel --workers 1",
    "run job.py missing{}",
    "run job.py --missing{}",
    "run job.py:Owned{} text{}",
    "explain job.py text{}",
    "check job.py text{} --law repeat",
    "explain run{} --round 1",
    "new {}.py",
    "runs {}",
)
def test_every_command(place, command):
    done = programs.gradreduce(*command.replace("{}", EVIL).split(), cwd=place)
    shown = done.stdout + done.stderr
    print(shown)
    assert shown
    assert not WRONG.search(shown), shown
