"""Tasks in processes of their own: none outlives who started it."""

import signal
import subprocess
import sys

import pytest

from programs import processes_of, wait_until

PROGRAM = """
import sys, time
from mapreduce.explaining.apart import run_apart

def work():
    time.sleep(60)

run_apart(work, 60)
"""


@pytest.mark.fault
def test_a_task_ends_with_its_parent(tmp_path):
    mark = f"apart-{tmp_path.name}"
    command = [sys.executable, "-c", PROGRAM, mark]
    parent = subprocess.Popen(command)
    wait_until(lambda: len(processes_of(mark)) == 2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not processes_of(mark))
