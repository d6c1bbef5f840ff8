"""The processes of ``-r local``: none of them is waited for in vain."""

import os
import signal
import time
from functools import partial

import pytest

from mapreduce.errors import JobError
from mapreduce.mrjob_patches.pool import Pool
from programs import gradreduce

KILLS = """\
import os
import signal

from mapreduce.job import Job


class Kills(Job):
    def mapper(self, _, line):
        os.kill(os.getppid(), signal.SIGKILL)
        yield line, 1


if __name__ == "__main__":
    Kills.run()
"""


def fail() -> None:
    raise ValueError("this one")


def end(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(600)


@pytest.fixture
def pool():
    found = Pool(2)
    yield found
    found.terminate()
    found.join()


def test_calls_end_and_raise_what_they_raise(pool):
    waiting = [pool.apply_async(each) for each in (int, fail, int)]
    assert waiting[0].get() == 0
    with pytest.raises(ValueError, match="this one"):
        waiting[1].get()
    assert waiting[2].get() == 0
    pool.close()
    pool.join()


def test_a_killed_process_is_an_error(pool):
    waiting = pool.apply_async(partial(end, signal.SIGKILL))
    with pytest.raises(JobError, match="Is there enough memory"):
        waiting.get()
    with pytest.raises(JobError, match="was killed"):
        pool.apply_async(int)


@pytest.mark.parametrize("state", [signal.SIGSTOP, signal.SIGCONT])
def test_processes_end_that_are_stopped_or_at_work(pool, state):
    pool.apply_async(partial(end, state))
    with pytest.raises(ValueError, match="this one"):
        pool.apply_async(fail).get()
    pids = [*pool._executor._processes]
    pool.terminate()
    pool.join()
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_job_whose_process_was_killed(tmp_path):
    (tmp_path / "job.py").write_text(KILLS)
    (tmp_path / "words.txt").write_text("to be\n")
    done = gradreduce(
        "run", tmp_path / "job.py", "-r", "local", "--no-conf", "-q", tmp_path / "words.txt"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: a process that waits for a task was killed. Is there enough memory?\n"
    )
