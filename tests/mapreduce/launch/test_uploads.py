"""Files that a job brings along, and that are not there: they are named."""

import pytest

from programs import fails, gradreduce
from quick import cases

JOB = """\
from mrjob.job import MRJob


class Stops(MRJob):
    def configure_args(self):
        super().configure_args()
        self.add_file_arg("--stop-words")
        self.add_file_arg("--more", action="append")

    def mapper_init(self):
        with open(self.options.stop_words) as file:
            self.stops = file.read().split()

    def mapper(self, _, line):
        yield from ((word, 1) for word in line.split() if word not in self.stops)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "words.txt").write_text("to be\n")
    (tmp_path / "stops.txt").write_text("to\n")
    (tmp_path / "some").mkdir()
    return tmp_path


@pytest.mark.parametrize("command", ["run -r inline", "run -r local", "run", "explain", "check"])
@cases(
    "given, code, missing",
    (
        "--stop-words stosp.txt",
        66,
        "--stop-words: the file stosp.txt does not exist. Did you mean stops.txt?",
    ),
    ("--stop-words some", 74, "some"),
    ("--stop-words stops.txt --more none", 66, "none"),
    ("--file none", 74, "none"),
    ("--archive none.tar", 74, "none"),
    ("--dir none", 66, "none"),
)
def test_what_is_missing_is_named(folder, command, given, code, missing):
    name, *runner = command.split()
    said = fails(code, name, "job.py", "words.txt", *runner, *given.split(), cwd=folder)
    last = said.splitlines()[-1]
    assert last.startswith("error: ")
    assert missing in last


@pytest.mark.parametrize("runner", ["parallel", "inline", "local"])
def test_what_is_there_is_taken(folder, runner):
    given = f"--stop-words stops.txt#other --file st*.txt --dir {folder}/some --py-files job.py"
    done = gradreduce("run", "job.py", "words.txt", "-r", runner, *given.split(), cwd=folder)
    assert done.stdout == '"be"\t1\n', done.stderr
