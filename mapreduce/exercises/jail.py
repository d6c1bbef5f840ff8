"""Runs a program of strangers where it can do no harm: in namespaces of its own, with limits.

It has a user, processes, mounts and a network of its own, none of which reaches the machine's. It
sees the Python that it needs, read-only, and may write into one folder, which is in memory. The
first process of its namespace counts the others, and when that ends, the kernel ends them all.
Linux 5.12 or later can do this, if the administrator allows it.

This module is also the program that :func:`start` starts, so it imports next to nothing.
"""

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from mapreduce.exercises import syscalls
from mapreduce.support import parents

#: Of unshare(2): mounts, host name, messages, user, processes, network.
_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

#: Of mount(2), umount2(2), mount_setattr(2) and prctl(2).
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_DETACH, _RECURSIVE, _MOUNT_SETATTR, _NO_NEW_PRIVS = 2, 0x8000, 442, 38

#: The user within, and the folder that he may write into.
_USER, WORK = 1, Path("/submission")

#: How the watching process ends, by what there was too much of.
TOO_MANY = {90: "processes", 91: "memory"}

#: Files of a control group's events, in version 2 and 1.
_EVENTS = ("memory.events", "memory.oom_control")

#: The exit code where there are no namespaces.
_REFUSED = 92

#: Open files of a process.
_DESCRIPTORS = 256

#: Seconds between two looks at the processes.
_LOOK = 0.05


@dataclass(frozen=True)
class Limits:
    """What a program may use: seconds of processors, bytes of memory and of files, processes."""

    seconds: float = 60.0
    memory: int = 1 << 30
    files: int = 64 << 20
    processes: int = 64


@dataclass(frozen=True)
class Jail:
    """What a program sees.

    ``visible``, ``hidden``: Files and folders of the machine that it may read, and those among them
      that it may not. ``given``: What is copied into :data:`WORK`, by its name there. ``is_open``:
      Whether there are no namespaces, only limits; the folder is then ``place``. ``group``: The
      folder of a control group for its processes, if there is one.
    """

    place: str
    visible: list[str]
    hidden: list[str]
    given: dict[str, str]
    limits: Limits
    is_open: bool = False
    group: str = ""


def start(jail: Jail, program: Sequence[str], errors: int | IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start a program in a jail; its standard input and output are pipes.

    Its exit code is that of the program, or one of :data:`TOO_MANY`.
    """
    code = "from mapreduce.exercises import jail; jail.main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, str(os.getpid()), json.dumps(asdict(jail)), *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )


def stop(started: "subprocess.Popen[bytes]") -> None:
    """End what :func:`start` has started, and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    # What has left its group may hold the other end of a pipe: nothing is read to its end.
    for pipe in (started.stdin, started.stdout):
        with contextlib.suppress(OSError):
            if pipe:
                pipe.close()


def refusal(jail: Jail) -> str:
    """Why this machine gives no namespaces; empty if it does."""
    tried = start(jail, ["/bin/true"], subprocess.PIPE)
    try:
        said = tried.communicate()[1].decode("utf-8", "replace").strip()
    finally:
        stop(tried)
    return said.rpartition("\n")[2] or "unknown reason" if tried.returncode == _REFUSED else ""


def main() -> NoReturn:
    """The process that is started: it makes the namespaces, and waits for what is in them."""
    parent, told, *program = sys.argv[1:]
    parents.end_with(int(parent))
    settings = json.loads(told)
    jail = Jail(**{**settings, "limits": Limits(**settings["limits"])})
    if jail.is_open:
        os.chdir(jail.place)
        _run(jail, program, jail.place)
    events = _join(Path(jail.group)) if jail.group else None
    try:
        _unshare()
    except (OSError, AttributeError) as error:
        _refuse(f"this machine gives no namespaces: {error}")
    ours = os.getpid()
    first = os.fork()
    if not first:
        try:
            # Numbers of processes are other ones within.
            parents.end_with(0)
            _furnish(jail)
        except OSError as error:
            _refuse(f"this machine gives no namespaces: {error} (in {ours})")
        _watch(jail, program)
    status = os.waitpid(first, 0)[1]
    if events and re.search(r"(?m)^oom_kill [1-9]", events.read()):
        os._exit(91)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _refuse(reason: str) -> NoReturn:
    print(reason, file=sys.stderr, flush=True)
    os._exit(_REFUSED)


def _join(group: Path) -> IO[str]:
    """Enter a control group; returns the file that counts whom the kernel ends for its memory."""
    (group / "cgroup.procs").write_text("0")
    return next(group / name for name in _EVENTS if (group / name).exists()).open()


# Namespaces


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _check_call(code: int, what: str) -> None:
    if code < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _unshare() -> None:
    """Leave the machine's namespaces: 0 is who it was before, 1 the user within."""
    uid, gid = os.geteuid(), os.getegid()
    if uid:
        # Without its rights as root the first process has all rights within until it calls exec.
        maps = {"uid_map": f"{_USER} {uid} 1", "gid_map": f"{_USER} {gid} 1"}
    else:
        other = _unused()
        maps = {"uid_map": f"0 0 1\n{_USER} {other} 1", "gid_map": f"0 0 1\n{_USER} {other} 1"}
    ready, tell = os.pipe()
    writer = os.fork()
    if not writer:
        # Only from outside may a root map other users than himself.
        os.close(tell)
        os.read(ready, 1)
        folder = Path(f"/proc/{os.getppid()}")
        try:
            if uid:
                (folder / "setgroups").write_text("deny")
            for name, lines in maps.items():
                (folder / name).write_text(lines)
        except OSError as error:
            _refuse(f"this machine gives no namespaces: {error}")
        os._exit(0)
    try:
        _check_call(_libc().unshare(_NAMESPACES), "unshare")
    finally:
        os.close(tell)
        status = os.waitpid(writer, 0)[1]
    if status:
        os._exit(_REFUSED)


def _unused() -> int:
    """A user of the machine who has no processes: that of a root may have any number."""
    line = Path("/proc/self/uid_map").read_text().splitlines()[-1]
    start, _, length = map(int, line.split())
    return start + length - 2 - os.getpid() % max(1, min(length // 2, 1 << 20))


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    given = [one.encode() or None for one in (source, target, kind)]
    _check_call(_libc().mount(*given, ctypes.c_ulong(flags), options.encode() or None), target)


def _bind(source: str, target: str) -> None:
    """Show a file or folder, with all that is mounted there, read-only."""
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    _mount(source, target, "", _BIND | _REC)
    # The flags to set, those to clear, how mounts spread, and a namespace.
    attributes = (ctypes.c_uint64 * 4)(_RDONLY | _NOSUID, 0, 0, 0)
    given = ctypes.c_int(-100), target.encode(), ctypes.c_uint(_RECURSIVE)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _check_call(
        _libc().syscall(ctypes.c_long(_MOUNT_SETATTR), *given, ctypes.byref(attributes), size),
        target,
    )


def _furnish(jail: Jail) -> None:
    """Make a new root of what the program may see, and go there."""
    root = jail.place
    _mount("none", "/", "", _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for path in jail.visible:
        _bind(path, root + path)
    for path in jail.hidden:
        if Path(root + path).exists():
            _mount("tmpfs", root + path, "tmpfs", _RDONLY, "size=4k,mode=0")
    # Without zero: its pages may be shared without being counted.
    for name in ("null", "full", "random", "urandom"):
        _bind(f"/dev/{name}", f"{root}/dev/{name}")
    work = root + str(WORK)
    Path(work).mkdir()
    # A user within of its own.
    options = f"size={jail.limits.files},nr_inodes=10000,mode=700,uid={_USER},gid={_USER}"
    _mount("tmpfs", work, "tmpfs", _NOSUID | _NODEV, options)
    for name, source in jail.given.items():
        target = Path(work, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(source).read_bytes())
        for one in (target, *target.parents[: len(Path(name).parents) - 1]):
            os.chown(one, _USER, _USER)
    for link, folder in {"tmp": "tmp", "dev/shm": "shm"}.items():
        Path(work, folder).mkdir()
        os.chown(f"{work}/{folder}", _USER, _USER)
        if not Path(root, link).exists():
            Path(root, link).symlink_to(WORK / folder)
    Path(root, "etc").mkdir(exist_ok=True)
    Path(root, "etc/passwd").write_text(f"student:x:{_USER}:{_USER}::{WORK}:/bin/sh\n")
    Path(root, "proc").mkdir()
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV)
    os.chdir(root)
    _check_call(_libc().pivot_root(b".", b"."), "pivot_root")
    _check_call(_libc().umount2(b".", _DETACH), "umount")
    os.chdir("/")
    _mount("", "/", "", _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)


# The program


def _watch(jail: Jail, program: list[str]) -> NoReturn:
    """The first process: it waits for the program, and ends all if there is too much of it."""
    started = os.fork()
    if not started:
        _run(jail, program, str(WORK))
    while True:
        with contextlib.suppress(ChildProcessError):
            while True:
                ended, status = os.waitpid(-1, os.WNOHANG)
                if ended == started:
                    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
                if not ended:
                    break
        running = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        # Itself is one of them.
        if len(running) > jail.limits.processes + 1:
            os._exit(90)
        most = jail.limits.memory
        if _memory(running) > most and _memory(running, is_careful=True) > most:
            os._exit(91)
        time.sleep(_LOOK)


def _memory(running: list[str], *, is_careful: bool = False) -> int:
    """Bytes that processes and their files hold; with care, which takes time, shared pages once."""
    files = os.statvfs(WORK)
    total = (files.f_blocks - files.f_bfree) * files.f_frsize
    for one in running:
        # Where the first thread has ended, the others tell what there is.
        threads = [_sizes(path / "status") for path in Path("/proc", one).glob("task/*")]
        held = max(threads, key=lambda some: some.get("VmRSS", 0), default={})
        pages = held.get("VmRSS", 0) + held.get("VmSwap", 0)
        if is_careful and (shares := _sizes(Path("/proc", one, "smaps_rollup"))):
            pages = shares.get("Pss", 0) + shares.get("SwapPss", 0)
        total += (pages + held.get("VmPTE", 0) + held.get("HugetlbPages", 0)) << 10
    return total


def _sizes(path: Path) -> dict[str, int]:
    """The KiB that a table of a process names; nothing once it has ended."""
    try:
        return {
            name: int(size)
            for name, size in re.findall(r"(?m)^(\w+):\s+(\d+) kB", path.read_text())
        }
    except OSError:
        return {}


def _run(jail: Jail, program: list[str], folder: str) -> NoReturn:
    """Become the program, as the user within, with limits."""
    try:
        if not jail.is_open:
            os.setsid()
        limits = jail.limits
        seconds = int(limits.seconds) + 1
        bounds = {
            resource.RLIMIT_CPU: seconds,
            resource.RLIMIT_DATA: limits.memory,
            resource.RLIMIT_FSIZE: limits.files,
            resource.RLIMIT_CORE: 0,
            # Each may be a pipe, whose content is not counted everywhere.
            resource.RLIMIT_NOFILE: _DESCRIPTORS,
        }
        if not jail.is_open:
            bounds[resource.RLIMIT_NPROC] = limits.processes
        for number, most in bounds.items():
            resource.setrlimit(number, (most, most))
        if not jail.is_open:
            if sys.platform == "linux" and os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(_USER, _USER, _USER)
                os.setresuid(_USER, _USER, _USER)
            _check_call(_libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
            syscalls.forbid()
        os.chdir(folder)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execve(program[0], program, _environment(folder))  # noqa: S606
    except OSError as error:
        _refuse(f"cannot start {program[0]}: {error}")


def _environment(folder: str) -> dict[str, str]:
    """What a program knows of its surroundings."""
    cache = {"PYTHONPYCACHEPREFIX": sys.pycache_prefix} if sys.pycache_prefix else {}
    return {
        **cache,
        "HOME": folder,
        "LANG": "C.UTF-8",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": f"{folder}/tmp",  # noqa: S108
        "USER": "student",
    }
