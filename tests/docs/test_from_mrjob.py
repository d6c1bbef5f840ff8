"""Every command and program of docs/from_mrjob.md works as it stands there."""

import re
import subprocess
import sys
from collections import Counter

import pytest
from test_readme import ROOT, blocks, shell

import programs

TEXT = (ROOT / "docs" / "from_mrjob.md").read_text()
SCRIPT, ONE_LINE, NOTEBOOK, THIRTY, AROUND = blocks("python", TEXT)


@pytest.fixture
def folder(tmp_path):
    """The files that the page speaks of."""
    (tmp_path / "mr_count.py").write_text(SCRIPT)
    return tmp_path


COUNTED = Counter(['"to"\t2', '"be"\t2', '"or"\t1', '"not"\t1'])


@pytest.mark.slow
def test_shell_commands_in_order(folder):
    (block,) = blocks("sh", TEXT)
    outputs = [shell(line, folder) for line in block.splitlines()]
    made, first, into_folder, one_class, module, options, piped = outputs
    assert made == ""
    for out in (first, one_class, piped):
        assert Counter(out.splitlines()) == COUNTED
    assert into_folder == ""
    parts = [path.read_text() for path in (folder / "counted").glob("part-*")]
    assert len(parts) == 2
    assert Counter("".join(parts).splitlines()) == COUNTED
    assert '"lines"\t3' in module
    assert "--start-method" in options


def test_the_line_that_is_changed(folder):
    script = SCRIPT.replace("from mrjob.job import MRJob\n", ONE_LINE)
    assert script != SCRIPT
    (folder / "mr_count.py").write_text(script)
    (folder / "input.txt").write_text("to be\nor not\nto be\n")
    (command,) = re.findall(r"`(python [^`]*)`", TEXT)
    assert Counter(shell(command, folder).splitlines()) == COUNTED


def test_what_stands_around_run(folder):
    script, text = folder / "mr_count.py", folder / "input.txt"
    script.write_text(SCRIPT.partition("if __name__")[0] + AROUND)
    text.write_text("to be\nor not\nto be\n")
    done = programs.gradreduce("run", script, "-q", "-o", folder / "out", text)
    assert re.fullmatch(r"\d+\.\d seconds\n", done.stderr)
    assert len([*(folder / "out").glob("part-*")]) == 1


@pytest.mark.slow
def test_the_notebook(folder):
    done = programs.ran(sys.executable, "-", input=NOTEBOOK, cwd=folder)
    assert done.stdout == "[('be', 2), ('not', 1), ('or', 1), ('to', 2)]\n[{}]\n"


@pytest.mark.slow
def test_thirty_jobs(folder):
    (folder / "input.txt").write_text("to be\nor not\nto be\nto and to\n")
    jobs = folder / "handed_in"
    jobs.mkdir()
    means = "\n    def combiner(self, word, counts):\n        yield word, len([*counts]) / 2\n"
    main = "\n\nif __name__"
    (jobs / "clara.py").write_text(SCRIPT)
    (jobs / "david.py").write_text(SCRIPT.replace(main, means + main))
    (jobs / "emma.py").write_text(SCRIPT.replace("yield word, 1", "yield word"))
    (jobs / "felix.py").write_text("from mrjob.job import MRJob\n\nclass Felix(MRJob)\n    pass\n")
    command = [sys.executable, "-c", THIRTY]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    (expected,) = blocks("text", TEXT)
    assert done.stdout == expected
