"""Processes that end with the one that has started them."""

import os
import select
import signal
import subprocess
import sys

import pytest

from programs import PATIENCE

#: Leads a group, says so, and waits in C for what never comes, where no signal wakes it.
_DEAF = """
import ctypes, os, subprocess, sys
from mapreduce.support import parents
parents.end_group_with(os.getppid())
child = subprocess.Popen(["sleep", "600"], preexec_fn=parents.ending_here())
blocked = open(f"/proc/{child.pid}/status").read().split("SigBlk:")[1].split()[0]
print(child.pid, int(blocked, 16), flush=True)
mutex = ctypes.create_string_buffer(64)
libc = ctypes.CDLL(None)
libc.pthread_mutex_lock(mutex)
libc.pthread_mutex_lock(mutex)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other libraries of C have other locks")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_group_ends_also_while_its_leader_waits_for_a_lock(number):
    leader = subprocess.Popen([sys.executable, "-c", _DEAF], stdout=subprocess.PIPE, text=True)
    with leader:
        child, blocked = map(int, leader.stdout.readline().split())
        ended = os.pidfd_open(child)
        try:
            assert not blocked, "what the leader starts hears of signals as usual"
            leader.send_signal(number)
            assert leader.wait(PATIENCE) == -signal.SIGKILL
        finally:
            leader.kill()
        assert select.select([ended], [], [], PATIENCE)[0]
        os.close(ended)


_PARENT = """
import subprocess, sys
leader = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
print(leader.pid, leader.stdout.readline().split()[0], flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a parent's end")
def test_a_group_whose_leader_is_stopped_ends_with_its_parent():
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _PARENT, _DEAF], **given) as parent:
        leader, child = map(int, parent.stdout.readline().split())
        ends = [os.pidfd_open(leader), os.pidfd_open(child)]
        os.kill(leader, signal.SIGSTOP)
        parent.kill()
        for end in ends:
            assert select.select([end], [], [], PATIENCE)[0]
            os.close(end)
