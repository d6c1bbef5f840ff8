"""Input on other filesystems: the output of the same files here, in whatever splits, and errors."""

import bz2
import gzip
import secrets
from collections import Counter
from pathlib import Path

import pytest
import stock_jobs
from mrjob.compat import jobconf_from_env
from mrjob.job import MRJob

import mapreduce.job  # noqa: F401  (so that stock jobs know the runner)
import programs
from hdfs_utils.paths import path_of
from mapreduce.errors import UsageError
from mapreduce.runners.parallel import fetching
from programs import fails
from quick import cases

LINES = [f"{'word ' * (number % 5)}{number % 13}\n" for number in range(900)]


class Files(MRJob):
    """The names of a job's input files, as its tasks know them."""

    def mapper(self, _, line):
        yield jobconf_from_env("mapreduce.map.input.file"), 1

    def reducer(self, name, ones):
        yield name, sum(ones)


@pytest.fixture
def text(root):
    """A folder as jobs leave it: parts, one that is packed, and what is hidden."""
    content = "".join(LINES).encode()
    parts = {
        "part-00000": content,
        "part-00001.gz": gzip.compress(content),
        "part-00002.bz2": bz2.compress(b"packed\n" * 7),
        "part-00003": b"",
        "_SUCCESS": b"",
        "_logs": b"hidden\n",
    }
    root.mkdir(parents=True, exist_ok=True)
    for name, found in parts.items():
        (root / "in" / name).write_bytes(found)
    return root / "in"


def run(job_class, *arguments):
    job = job_class(["--no-conf", "-r", "parallel", *map(str, arguments)])
    with job.make_runner() as made:
        made.run()
        return b"".join(made.cat_output()).splitlines()


@pytest.mark.parametrize("maps", [7, 1])
def test_the_output_is_that_of_the_files_here(text, tmp_path, maps):
    near = tmp_path / "near.txt"
    near.write_text("here\n" * 3)
    words = Counter(" ".join(LINES * 2).split()) + Counter(packed=7, here=3)
    tasks = ["--workers", 2, "-D", f"mapreduce.job.maps={maps}"]
    found = run(stock_jobs.WordCount, *tasks, text, near)
    assert sorted(found) == sorted(f'"{word}"\t{count}'.encode() for word, count in words.items())


def test_lines_keep_their_order_and_tasks_know_their_files(text):
    pattern = f"{text}/part-0000[03]"
    found = run(stock_jobs.MapOnly, "-D", "mapreduce.job.maps=5", pattern)
    assert found == [line.upper().rstrip("\n").encode() for line in LINES]
    files = run(Files, text / "part-00000", text / "part-00002.bz2")
    assert sorted(files) == sorted(
        f'"{(text / name).uri}"\t{count}'.encode()
        for name, count in (("part-00000", len(LINES)), ("part-00002.bz2", 7))
    )


@cases(
    "name, code, said",
    ("part-00000", 1, "{}, line 2: 'word 1'"),
    ("part-00001.gz", 65, "{} is damaged or cut off"),
    ("hidden-by-its-name", 65, "{} is compressed (gzip), and would be read as text. Rename"),
    ("part-0000", 66, "the input {} does not exist. Did you mean"),
    ("*.txt", 66, "the input {} matches no file."),
)
def test_what_is_wrong_is_named(text, tmp_path, name, code, said):
    job = tmp_path / "failing.py"
    job.write_text(f"{programs.FAILING}\n\nif __name__ == '__main__':\n    Failing.run()\n")
    (text / "part-00001.gz").write_bytes(gzip.compress(b"1\n" * 99_999)[:-40])
    (text / "hidden-by-its-name").write_bytes(gzip.compress(b"1\n"))
    one = ["-D", "mapreduce.job.maps=1"]
    assert said.format(text / name) in fails(code, "run", job, *one, text / name, "-q")


@cases(
    "name, code, said",
    ("part-00004", 0, "warning: {} holds parts but no _SUCCESS"),
    ("_temporary/part", 65, "{} holds _temporary: what wrote it did not finish"),
)
def test_a_folder_that_looks_unfinished(root, tmp_path, name, code, said):
    job = tmp_path / "count.py"
    job.write_text(f"{programs.COUNT}\n\nif __name__ == '__main__':\n    Count.run()\n")
    (root / name).write_bytes(b"word\n")
    done = programs.gradreduce("run", job, root, "-q")
    assert done.returncode == code, done.stderr
    assert said.format(root) in done.stderr
    assert done.stdout == ('"word"\t1\n' if code == 0 else "")


def test_steps_of_mrjobs_own_runner_read_files_of_this_machine(text):
    with pytest.raises(UsageError, match="Copy the input here"):
        run(stock_jobs.WordCount, "--setup", "true", text)


#: Its tasks tell what they had to load, and what the script has prepared.
LOADING = """\
import os, sys
from pathlib import Path
from mrjob.job import MRJob

with Path("{log}").open("a") as log:
    log.write("loaded\\n")
print("printed")


class Loading(MRJob):
    prepared = 0

    def mapper(self, _, line):
        yield [line, self.prepared, "pyarrow.fs" in sys.modules], 1

    def reducer(self, key, ones):
        yield key, sum(ones)


if __name__ == "__main__":
    Loading.prepared = 7
    Loading.run()
"""


def test_small_files_take_no_client_and_no_class_of_their_own(root, tmp_path):
    """Each task would load them anew, which took twenty times as long as a small task."""
    log, job = tmp_path / "log", tmp_path / "loading.py"
    job.write_text(LOADING.format(log=log))
    for number in range(12):
        (root / f"file-{number:02d}").write_bytes(b"line\n" * number)
    done = programs.gradreduce("run", job, root, "-q")
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ('printed\n["line", 7, false]\t66\n', "")
    # By the driver, and by the process that starts the tasks.
    assert log.read_text() == "loaded\n" * 2


def test_a_file_that_goes_before_its_task(root, monkeypatch):
    """What cannot be fetched is read by its task, which says what is wrong."""
    (root / "file").write_bytes(b"line\n")
    monkeypatch.setattr(fetching, "RemotePath", None)
    assert run(stock_jobs.MapOnly, root) == [b"LINE"]


def test_a_script_that_ends_before_its_class_runs(root, tmp_path):
    """It is loaded in vain before the tasks are begun, and each of them says so."""
    (root / "file").write_bytes(b"line\n")
    job = tmp_path / "ending.py"
    guard = "import sys\n    if '--mapper' in sys.argv: sys.exit(3)\n    Count.run()\n"
    job.write_text(f"{programs.COUNT}\n\nif __name__ == '__main__':\n    {guard}")
    said = fails(1, "run", job, root, "-q")
    assert "ending.py ended in a task before it called Count.run()" in said


def test_files_without_a_size_beside_it(s3):
    """What cannot be read twice is copied, each into a file of its own."""
    far = path_of(f"{s3}/{secrets.token_hex(4)}/far")
    far.write_bytes(b"far\n")
    files = ["/proc/sys/kernel/ostype", "/proc/sys/kernel/osrelease"]
    found = run(stock_jobs.MapOnly, files[0], far, files[1])
    expected = [Path(files[0]).read_text(), "far\n", Path(files[1]).read_text()]
    assert found == [text.strip().upper().encode() for text in expected]
