"""Jobs and trainings without what Linux alone has: all that is known of macOS."""

import functools
import json
import os
from pathlib import Path

import pytest

import programs
from quick import first_of

#: The job's own processes look, too.
LOOK = "        assert not hasattr(os, 'pidfd_open') and not os.path.exists('/proc')\n"
JOB = "import os\n" + programs.COUNT.replace("        for word", f"{LOOK}        for word")
DARWIN = Path(__file__).parents[1] / "darwin"


@pytest.fixture
def on_darwin(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(DARWIN)}
    return functools.partial(programs.gradreduce, cwd=tmp_path, env=env)


@pytest.mark.parametrize(
    "options", first_of([], ["-r", "inline"], ["-r", "local"], ["--start-method", "fork"])
)
def test_jobs(on_darwin, tmp_path, options):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "text").write_text("one two\nthree two one one\n" * 200)
    done = on_darwin("run", "job.py", "-q", *options, "text")
    assert done.returncode == 0, done.stderr
    found = dict(line.split("\t") for line in done.stdout.splitlines())
    assert found == {'"one"': "600", '"two"': "400", '"three"': "200"}


@pytest.mark.parametrize(
    "left", first_of("os.fork() or time.sleep(600)", "os.system('sleep 600 &')")
)
def test_a_killed_worker_is_seen_whatever_its_task_has_left(on_darwin, tmp_path, left):
    """Nothing tells the driver of its end but that of the connection, which children inherit."""
    fall = (
        f"    def mapper_init(self):\n        if not os.path.exists({str(tmp_path / 'fell')!r}):\n"
        f"            open({str(tmp_path / 'fell')!r}, 'w')\n"
        f"            {left}\n            os.kill(os.getpid(), 9)\n\n    def reducer("
    )
    job = programs.COUNT.replace("    def reducer(", fall)
    (tmp_path / "job.py").write_text(f"import os, time\n{job}")
    done = on_darwin("run", "job.py", "-q", input="one\n")
    assert done.stdout == '"one"\t1\n', done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["explain", "check"])
def test_looking_at_jobs(on_darwin, tmp_path, command):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "text").write_text("one two\nthree two one one\n")
    done = on_darwin(command, "job.py", "text")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_trainings(on_darwin, tmp_path):
    rows = [f"{n % 7},{n * n % 11},{n % 3}" for n in range(200)]
    (tmp_path / "table.csv").write_text("a,b,label\n" + "\n".join(rows))
    assert on_darwin("data", "import", "table.csv", "data").returncode == 0
    command = ["train", "data", "--model", "softmax", "--rounds", 4]
    for runner in ("inline", "parallel"):
        done = on_darwin(*command, "-r", runner, "--run", runner)
        assert done.returncode == 0, done.stderr
        done = on_darwin("predict", runner, "table.csv", f"{runner}.csv", "-r", runner)
        assert done.returncode == 0, done.stderr
    for options in (["--executor", "gang"], ["--executor", "gang", "-r", "local"]):
        done = on_darwin(*command, "--run", "gang", *options)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert "runs on Linux only, and this is darwin" in done.stderr
    # On Linux the same model comes of it.
    programs.succeed(*command, "--run", "linux", cwd=tmp_path)
    digests = {
        json.loads((tmp_path / run / "result.json").read_text())["model_sha256"]
        for run in ("inline", "parallel", "linux")
    }
    assert len(digests) == 1
