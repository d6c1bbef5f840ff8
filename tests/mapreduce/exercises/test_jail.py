"""What a program in a jail may hold: no memory that is not counted, with a control group or not."""

import subprocess
import sys
from pathlib import Path

import pytest

from mapreduce.exercises import groups, jail
from mapreduce.exercises.groups import Groups
from mapreduce.exercises.jail import Jail, Limits
from programs import PATIENCE
from quick import cases

#: Ways to memory that no page of a process shows: what a program in a jail gets by each.
WAYS = """
import ctypes, mmap, os, socket
C = ctypes.CDLL(None, use_errno=True)

def call(*numbers):
    number = numbers[os.uname().machine == "aarch64"]
    if C.syscall(number, *[ctypes.c_long(one) for one in numbers[2:]]) < 0:
        raise OSError(ctypes.get_errno(), "")

WAYS = {
    "memfd": lambda: os.memfd_create("x"),
    "secret": lambda: call(447, 447, 0),
    "segment": lambda: call(29, 194, 0, 4096, 0o1600),
    "queue": lambda: call(68, 186, 0, 0o1600),
    "semaphores": lambda: call(64, 190, 0, 9, 0o1600),
    "socket": socket.socket,
    "pair": socket.socketpair,
    "shared pages": lambda: mmap.mmap(-1, 4096),
    "zero": lambda: open("/dev/zero"),
    "unshare": lambda: call(272, 97, 0x10000000),
    "clone": lambda: call(56, 220, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": lambda: call(435, 435, 0, 0),
    "setns": lambda: call(308, 268, 0, 0),
    "ring": lambda: call(425, 425, 8, 0),
    "splice": lambda: call(275, 76, 0, 0, 1, 0, 1, 0),
    "a newer call": lambda: call(463, 463, 0),
    "another way to call": lambda: call(0x40000000 + 39, 0x40000000 + 172),
}
for name, way in WAYS.items():
    try:
        way()
    except OSError as error:
        if error.errno in (1, 2, 38):
            continue
    print(name)
"""

#: What jobs do that a filter could break.
USUAL = """
import mmap, multiprocessing, os, subprocess, tempfile, threading
thread = threading.Thread(target=print, args=["a thread"])
thread.start()
thread.join()
print(multiprocessing.get_context("fork").Pool(2).map(abs, [-1, 2]))
print(subprocess.run(["/bin/sh", "-c", "exit 3"]).returncode)
with tempfile.TemporaryFile() as file:
    file.truncate(4096)
    print(len(mmap.mmap(file.fileno(), 4096)), len(mmap.mmap(-1, 4096, mmap.MAP_PRIVATE)))
"""

#: Processes that hold 80 MiB each, and what they do then.
MANY = """
import ctypes, os, threading, time
for _ in range(4):
    if not os.fork():
        held = b"x" * (80 << 20)
        {}
        time.sleep(600)
        os._exit(0)
time.sleep(600)
"""


def in_jail(place, program, group="", memory=256 << 20):
    """Exit code and output of a Python program in a jail."""
    visible = [*("/usr", "/bin", "/lib", "/lib64"), sys.prefix, sys.base_prefix]
    visible = [one for one in dict.fromkeys(visible) if Path(one).exists()]
    place.mkdir(exist_ok=True)
    made = Jail(str(place), visible, [], {}, Limits(memory=memory), group=group)
    if reason := jail.refusal(made):
        pytest.skip(reason)
    started = jail.start(made, [sys.executable, "-I", "-c", program], subprocess.STDOUT)
    try:
        out, _ = started.communicate(timeout=PATIENCE)
    finally:
        jail.stop(started)
    return started.returncode, out.decode()


def test_no_memory_is_to_be_had_that_is_not_counted(tmp_path):
    assert in_jail(tmp_path / "jail", WAYS) == (0, "")


def test_the_filter_leaves_what_jobs_use(tmp_path):
    assert in_jail(tmp_path / "jail", USUAL) == (0, "a thread\n[1, 2]\n3\n4096 4096\n")


END_FIRST_THREAD = (
    "threading.Thread(target=time.sleep, args=[600]).start(); "
    "ctypes.CDLL(None).syscall(93 if os.uname().machine == 'aarch64' else 60, 0)"
)


@pytest.mark.parametrize("then", ["", END_FIRST_THREAD])
def test_memory_of_many_processes_is_added_up(tmp_path, then):
    code, _ = in_jail(tmp_path / "jail", MANY.format(then or "pass"))
    assert jail.TOO_MANY[code] == "memory"


def test_files_count_as_memory(tmp_path):
    program = "import time; open('x', 'wb').writelines([b'x' * (1 << 20)] * 60); time.sleep(600)"
    code, _ = in_jail(tmp_path / "jail", program, memory=50 << 20)
    assert jail.TOO_MANY[code] == "memory"


def test_a_group_ends_who_holds_too_much(tmp_path):
    made = Groups()
    if made.parent is None:
        pytest.skip("no control group can be made here")
    # Its pages are counted as they come, not at the next look.
    with made.group(60 << 20) as group:
        program = "held = bytearray(200 << 20); print('alive')"
        code, out = in_jail(tmp_path / "jail", program, group)
    assert (jail.TOO_MANY[code], out) == ("memory", "")
    # Others may make theirs beside it at the same time.
    assert not Path(group).exists()


def make_tree(tmp_path, kind, own, controllers):
    """A process's tables and a tree of groups, as the kernel shows them."""
    (tmp_path / "proc").mkdir()
    options = "rw,memory" if kind == "cgroup" else "rw"
    line = f"30 20 0:26 / {tmp_path}/tree rw,relatime shared:1 - {kind} cgroup {options}\n"
    (tmp_path / "proc" / "mountinfo").write_text(f"1 0 8:1 / / rw - ext4 /dev/vda rw\n{line}")
    name = "4:memory" if kind == "cgroup" else "0:"
    (tmp_path / "proc" / "cgroup").write_text(f"3:cpu,cpuacct:/else\n{name}:{own}\n")
    folder = tmp_path / "tree"
    for part in ["", *own.strip("/").split("/")]:
        folder /= part
        folder.mkdir(exist_ok=True)
        if kind == "cgroup2":
            (folder / "cgroup.subtree_control").write_text(controllers.get(part, ""))


@cases(
    "kind, parent, files",
    ("cgroup2", "user/app", {"memory.max": "99"}),
    ("cgroup", "user/app/one", {"memory.limit_in_bytes": "99"}),
)
def test_where_a_group_is_made(tmp_path, monkeypatch, kind, parent, files):
    monkeypatch.setattr(groups, "_PATIENCE", 0)
    make_tree(tmp_path, kind, "/user/app/one", {"app": "cpu memory\n", "one": "pids\n"})
    made = Groups(tmp_path / "proc")
    assert made.parent == tmp_path / "tree" / parent
    with made.group(99) as group:
        assert Path(group).parent == made.parent
        assert {one.name: one.read_text() for one in Path(group).iterdir()} == files


def test_where_no_group_can_be_made(tmp_path):
    make_tree(tmp_path, "cgroup2", "/user/app/one", {"one": "pids\n"})
    made = Groups(tmp_path / "proc")
    assert made.parent is None
    assert Groups(tmp_path / "nothing").parent is None
    with made.group(99) as group:
        assert group == ""
