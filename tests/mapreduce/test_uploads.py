"""Files that a job brings along, and that are not there: which option named them is said."""

from types import SimpleNamespace

import pytest

from mapreduce.uploads import check_uploads
from programs import gradreduce

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
@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (
            "--stop-words stosp.txt",
            66,
            "--stop-words stosp.txt does not exist. Did you mean stops.txt?",
        ),
        ("--stop-words some", 2, "--stop-words some: expected a file, found a folder"),
        ("--stop-words stops.txt --more none", 66, "--more none does not exist."),
        ("--file none", 66, "--file none does not exist."),
        ("--py-files none.zip", 66, "--py-files none.zip does not exist."),
        ("--archive none.tar", 66, "--archive none.tar does not exist."),
        ("--dir none", 66, "--dir none is not a directory!"),
    ],
)
def test_what_is_missing_is_said_with_its_option(folder, command, given, code, said):
    name, *runner = command.split()
    done = gradreduce(name, "job.py", "words.txt", *runner, *given.split(), cwd=folder)
    assert done.returncode == code, done.stderr
    # What is above is mrjob's, which has no py_files inline.
    assert done.stderr.splitlines()[-1].startswith(f"error: {said}")


@pytest.mark.parametrize("runner", ["parallel", "inline", "local"])
def test_what_is_there_is_taken(folder, runner):
    given = f"--stop-words stops.txt#other --file st*.txt --dir {folder}/some --py-files job.py"
    done = gradreduce("run", "job.py", "words.txt", "-r", runner, *given.split(), cwd=folder)
    assert done.stdout == '"be"\t1\n', done.stderr


@pytest.mark.parametrize("uri", ["hdfs:///words.txt", "s3://bucket/words.txt"])
def test_what_lies_on_another_filesystem_is_left_to_the_runner(uri):
    given = ["--stop-words", {"type": "file", "path": uri, "name": None}]
    check_uploads(SimpleNamespace(_extra_args=given, _opts={"upload_files": [f"{uri}#other"]}))
