"""Jobs and gangs on a real Hadoop whose queue is full: what they wait for is said, with a limit."""

import re
import secrets

import pytest

import mapreduce
from mapreduce.runners.hadoop import installation
from mapreduce.runners.hadoop.rest import Yarn
from programs import COUNT, gradreduce, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.slow]

#: Two of its tasks take two of the three nodes; its master and another one fit on the third.
HOG = """\
import time

from mrjob.job import MRJob


class Hog(MRJob):
    def mapper(self, _, line):
        time.sleep(600)


if __name__ == "__main__":
    Hog.run()
"""

#: More than is left there.
LARGE = ["--map-memory", 2400, "--queue-wait", 12]


# Of each test: another worker's test on the cluster may come between two of them.
@pytest.fixture
def full(cluster, tmp_path, monkeypatch):
    """A folder with a job and its input, while the queue is full."""
    (folder := tmp_path / "full").mkdir()
    (folder / "count.py").write_text(f"{COUNT}\n\nif __name__ == '__main__':\n    Count.run()\n")
    (folder / "hog.py").write_text(HOG)
    inputs = [folder / f"{number}.txt" for number in range(2)]
    for path in inputs:
        path.write_text("a b\n")
    arguments = ["--no-conf", "--map-memory", 2816, "-D", "mapreduce.job.maps=1"]
    output = f"hdfs:///user/tests/{secrets.token_hex(4)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    hog = mapreduce.submit(
        folder / "hog.py", inputs, output=output, runner="hadoop", arguments=arguments
    )
    try:
        yarn = Yarn(installation.find())
        wait_until(
            lambda: [
                one
                for one in hog.status().applications
                if yarn.application(one)["runningContainers"] == 3
            ]
        )
        yield folder
    finally:
        hog.cancel()


def ended(yarn, said):
    (application,) = set(re.findall(r"application_\d+_\d+", said))
    wait_until(lambda: yarn.application(application)["finalStatus"] == "KILLED")


def test_a_job_that_finds_no_room(full, yarn):
    command = ["run", full / "count.py", "-r", "hadoop", "--no-conf", *LARGE, full / "0.txt"]
    done = gradreduce(*command)
    assert done.returncode == 75, done.stderr
    needs = r"needs [234] x 2,432 MB, 0 free"
    assert re.search(rf"waiting in queue root\.default for \d\d s \({needs}\)", done.stderr)
    error = done.stderr.partition("\nerror: ")[2]
    assert re.match(
        rf"step 1 of 1 failed: \S+ found no room in queue root\.default within 12 s: it {needs}\. "
        rf"Run the command again later, .* with --queue-wait",
        error,
    )
    assert "gradreduce logs" not in error
    ended(yarn, error)


def test_a_gang_that_finds_no_room_is_called_by_its_run(full, yarn, drill_data):
    command = ["train", drill_data[1] / "train", "--run", full / "first", "--model", "mlp:9"]
    command += ["-r", "hadoop", "--executor", "gang", "--workers", 3, "--", *LARGE]
    done = gradreduce(*command)
    assert done.returncode == 75, done.stderr
    needs = r"needs 3 x 2,432 MB, 0 free"
    assert re.search(rf"waiting in queue root\.default for \d\d s \({needs}\)", done.stderr)
    assert re.search(rf"no room in queue root\.default within 12 s: it {needs}", done.stderr)
    (application,) = set(re.findall(r"application_\d+_\d+", done.stderr))
    assert yarn.application(application)["name"] == "gang-first"
    ended(yarn, done.stderr)
