"""A fork begins and ends as a Python of its own."""

import atexit
import ctypes
import errno
import gzip
import json
import logging
import logging.handlers
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import warnings
from functools import partial
from types import ModuleType

import pytest

import programs
from devices import DEVICES
from mapreduce.runs.execution import Execution
from mapreduce.support import forked

#: A file of a module, as a script may open it: before the fork, or in it.
FILE = None


def fork(work, path):
    """What a function returns in a fork that begins and ends as tasks do."""
    forked.prepare()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        try:
            forked.begin()
            path.write_text(json.dumps(work()))
            forked.end()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    return json.loads(path.read_text())


def file(path, opener=open):
    global FILE
    FILE = opener(path, "wt")
    FILE.write("done")


compressed = partial(file, opener=gzip.open)


def at_exit(path):
    atexit.register(path.write_text, "done")


def record(path):
    handler = logging.handlers.MemoryHandler(100, target=logging.FileHandler(path))
    logging.getLogger(path.name).addHandler(handler)
    logging.getLogger(path.name).error("done")


def thread(path):
    begun = threading.Event()
    threading.Thread(target=lambda: begun.wait() and path.write_text("done")).start()
    threading._register_atexit(begun.set)


@pytest.mark.every_case
@pytest.mark.parametrize("leave", [file, compressed, at_exit, record, thread])
def test_what_a_fork_leaves_unfinished_is_done(leave, tmp_path):
    path = tmp_path / "left"
    fork(lambda: leave(path), tmp_path / "answer")
    content = path.read_bytes()
    assert (gzip.decompress(content) if leave is compressed else content).strip() == b"done"


@pytest.mark.parametrize("is_late", [False, True])
def test_a_file_that_a_module_opened_before_the_fork(is_late, tmp_path, monkeypatch):
    """Also a module that was imported after an earlier fork."""
    path = tmp_path / "shared"
    fork(lambda: 0, tmp_path / "answer")
    with path.open("a") as file:
        if is_late:
            module = ModuleType("late")
            module.FILE = file
            monkeypatch.setitem(sys.modules, "late", module)
        else:
            monkeypatch.setitem(globals(), "FILE", file)
        file.write("parent\n")
        for _ in range(2):
            fork(lambda: file.write("fork\n"), tmp_path / "answer")
    assert path.read_text() == "parent\nfork\nfork\n"


def test_what_the_parent_has_to_do_at_its_end_is_left_to_it(tmp_path):
    done = tmp_path / "done"
    atexit.register(done.write_text, "too early")
    helper = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
    try:
        helper.start()
        with tempfile.TemporaryDirectory() as folder:
            fork(lambda: 0, tmp_path / "answer")
            assert os.path.isdir(folder)  # noqa: PTH112
        assert not done.exists()
        assert helper.is_alive()
    finally:
        atexit.unregister(done.write_text)
        helper.kill()
        helper.join()


def test_a_full_disk_is_told(tmp_path):
    def work():
        global FILE
        file("/dev/full")
        try:
            forked.end()
        except OSError as error:
            FILE = None
            return error.errno

    assert fork(work, tmp_path / "answer") == errno.ENOSPC


def test_signals_are_as_in_a_new_python(tmp_path):
    before = signal.signal(signal.SIGUSR1, print)
    try:
        is_default = fork(
            lambda: signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL, tmp_path / "a"
        )
        assert is_default
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
@pytest.mark.skipif(DEVICES == ("cpu", "cuda"), reason="this process has started CUDA")
@pytest.mark.parametrize("name", [b"cuda-EvtHandlr", b"pt_autograd_0"])
def test_a_process_that_has_used_a_gpu_is_not_forked(name, tmp_path):
    named, end = threading.Event(), threading.Event()

    def threads():
        set_name = 15
        ctypes.CDLL(None).prctl(set_name, name, 0, 0, 0)
        named.set()
        end.wait()

    def method():
        return Execution(start_method="fork").for_paths(tmp_path).start_method

    thread = threading.Thread(target=threads)
    thread.start()
    try:
        named.wait()
        assert method() == "forkserver"
    finally:
        end.set()
        thread.join()
    # The system's thread ends a moment after Python's.
    programs.wait_until(lambda: method() == "fork")
