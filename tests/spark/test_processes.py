"""Commands on Spark: their drivers are interrupted, or killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mapreduce
import programs
from killing_spark import Killing, parent_of
from mapreduce.runners.spark import contexts

KILLING = Path(__file__).parents[1] / "killing_spark.py"
SLEEPING = """
import time
from mapreduce.job import Job

class Sleeping(Job):
    def mapper(self, _, line):
        open(line, "w").close()
        time.sleep(600)

if __name__ == "__main__":
    Sleeping.run()
"""


def below(pid):
    """The processes that a process has started, and those that these have."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        ancestor = int(path.name)
        with contextlib.suppress(OSError, IndexError):
            while ancestor > 1:
                ancestor = parent_of(ancestor)
                if ancestor == pid:
                    found.append(int(path.name))
                    break
    return found


def is_running(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_driver(number, tmp_path):
    script, mark = tmp_path / "sleeping.py", tmp_path / "mark"
    script.write_text(SLEEPING)
    (tmp_path / "input").write_text(f"{mark}\n")
    command = [sys.executable, "-m", "mapreduce.cli.main", "run", script, "-r", "spark"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    driver = subprocess.Popen(
        [*command, "--no-conf", tmp_path / "input"], env=environment, stderr=subprocess.PIPE
    )
    while not mark.exists():
        assert driver.poll() is None, driver.stderr.read()
        time.sleep(0.1)
    started = below(driver.pid)
    assert len(started) >= 3, "Java, Python, and the task"
    driver.send_signal(number)
    error = driver.communicate()[1].decode()
    assert driver.returncode == (130 if number == signal.SIGINT else -9)
    assert "org.apache" not in error
    programs.wait_until(lambda: not any(map(is_running, started)))
    if number == signal.SIGINT:
        left = {path.name for path in tmp_path.iterdir()} - {"sleeping.py", "input", "mark"}
        assert not [name for name in left if not name.startswith("tmp")], left


def used(spark):
    """Memory of this process in pages, open files of it and of Java, and temporary files."""
    folder = Path(spark.getConf().get("spark.local.dir"))
    open_files = [
        len([*Path(f"/proc/{pid}/fd").iterdir()]) for pid in ("self", spark._gateway.proc.pid)
    ]
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return [pages, *open_files, sum(path.is_file() for path in folder.rglob("*"))]


@pytest.mark.long
def test_a_hundred_jobs_leave_nothing():
    spark, before = contexts.get(None, 2).spark, []
    for number in range(100):
        arguments = ["--times", 0]
        found = mapreduce.run(Killing, lines=["a b"] * 9, runner="spark", arguments=arguments)
        assert dict(found.pairs) == {"a": 9, "b": 9}
        before = before or used(spark) if number >= 9 else []
    after = used(spark)
    print(before, after)
    assert all(now <= 1.05 * then for now, then in zip(after, before, strict=True)), (before, after)
