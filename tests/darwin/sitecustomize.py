"""A Python that lacks what Linux has and macOS has not: begin it with this folder on PYTHONPATH.

Functions and constants are deleted, ``/proc`` and its like are not found, processes start by
*spawn*, and a signal to a group that has ended but was not waited for is refused. To the toolkit,
and to nobody else, ``sys.platform`` is ``darwin``. The processes that it starts are the same.
"""

import builtins
import fcntl
import functools
import importlib
import io
import mmap
import os
import re
import select
import signal
import socket
import sys
import types

GONE = {
    os: r"(sched_[gs]et(affinity|param|scheduler)|sched_rr|pidfd_|memfd_|posix_fa|eventfd|splice|"
    r"copy_file_range|getrandom|[gs]etres|[gs]etxattr|listxattr|removexattr|pipe2|fdatasync|waitid|"
    r"timerfd|setns|unshare|P_PIDFD|MFD_|EFD_|GRND_|XATTR_|SPLICE_|TFD_|CLONE_|POSIX_FADV|RWF_|"
    r"O_(TMPFILE|DIRECT$|LARGEFILE|NOATIME|PATH|RSYNC)|SCHED_(BATCH|IDLE|RESET))",
    socket: r"(SO_(PEERCRED|PASSCRED|PROTOCOL|DOMAIN|MARK|BINDTO)|SOCK_(CLOEXEC|NONBLOCK)|AF_(ALG|"
    r"NETLINK|PACKET|VSOCK)|MSG_(CMSG_CLOEXEC|NOSIGNAL|MORE|ERRQUEUE)|TCP_(USER_TIMEOUT|KEEPIDLE|"
    r"CORK|QUICKACK|LINGER2|DEFER))",
    fcntl: r"(F_(ADD_SEALS|GET_SEALS|SEAL_|[SG]ETPIPE|[SG]ETLEASE|[SG]ETSIG|NOTIFY|OFD)|DN_)",
    select: r"(epoll|EPOLL)",
    signal: r"(SIGRT|SIGPOLL|SIGPWR|SIGSTKFLT|SIGCLD|sigtimedwait|sigwaitinfo|pidfd_)",
    mmap: r"MAP_(POPULATE|STACK|DENYWRITE|EXECUTABLE)",
}
for module, names in GONE.items():
    for name in [name for name in dir(module) if re.match(names, name)]:
        delattr(module, name)

HIDDEN = ("/proc", "/sys", "/dev/shm")
#: But those of tests, which may be in memory.
TEMPORARY = (os.environ["TMPDIR"],) if "TMPDIR" in os.environ else ()
listed, opened, sent = os.listdir, io.open, os.killpg


def hiding(function):
    @functools.wraps(function)
    def ours(path=".", *arguments, **options):
        name = "" if isinstance(path, int) else os.fsdecode(path)
        if name.startswith(HIDDEN) and not name.startswith(TEMPORARY):
            if function.__name__ == "access":
                return False
            raise FileNotFoundError(2, "No such file or directory", name)
        return function(path, *arguments, **options)

    for able in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
        able |= {ours} if function in able else set()
    return ours


for name in ("access", "listdir", "lstat", "open", "readlink", "scandir", "stat", "statvfs"):
    setattr(os, name, hiding(getattr(os, name)))
io.open = builtins.open = hiding(io.open)


def states(group):
    """The state of each process of a group."""
    for pid in filter(str.isdigit, listed("/proc")):
        try:
            with opened(f"/proc/{pid}/stat") as file:
                state, _, found = file.read().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(found) == group:
            yield state


@functools.wraps(sent)
def killpg(group, number):
    if set(states(group or os.getpgrp())) == {"Z"}:
        raise PermissionError(1, "Operation not permitted")
    sent(group, number)


os.killpg = killpg


class Darwin(types.ModuleType):
    platform = "darwin"

    def __getattr__(self, name):
        return getattr(sys, name)

    def __setattr__(self, name, value):
        setattr(sys, name, value)


theirs, darwin = builtins.__import__, Darwin("sys")


def imported(name, globals=None, locals=None, fromlist=(), level=0):
    own = ("mapreduce", "kernels", "hdfs_utils", "jobs")
    if name == "sys" and (globals or {}).get("__name__", "").partition(".")[0] in own:
        return darwin
    return theirs(name, globals, locals, fromlist, level)


builtins.__import__ = imported
linux, sys.platform = sys.platform, "darwin"
# The way to start processes follows from the platform.
importlib.import_module("multiprocessing.context")
sys.platform = linux
