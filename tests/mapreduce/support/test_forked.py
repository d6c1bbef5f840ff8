"""A fork begins and ends as a Python of its own."""

import atexit
import errno
import gzip
import json
import logging
import logging.handlers
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import warnings
import zipfile

import numpy as np
import pytest

import mapreduce.job  # noqa: F401  (notes seeds)
from mapreduce.support import forked

#: Files of a module, as a script may open them: before the fork, and in it.
BEFORE = None
LATER = None


def fork(work, path):
    """What a function returns in a fork that begins and ends as tasks do."""
    forked.prepare()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        status = 1
        try:
            forked.begin()
            path.write_text(json.dumps(work()))
            forked.end()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    return json.loads(path.read_text())


def in_module(path):
    global LATER
    LATER = path.open("w")
    LATER.write("done")


def compressed(path):
    global LATER
    LATER = gzip.open(path, "wt")  # noqa: SIM115
    LATER.write("done")


def archive(path):
    global LATER
    LATER = zipfile.ZipFile(path, "w")
    LATER.writestr("name", "done")


def at_exit(path):
    atexit.register(path.write_text, "done")


def waiting_record(path):
    handler = logging.handlers.MemoryHandler(100, target=logging.FileHandler(path))
    logging.getLogger(path.name).addHandler(handler)
    logging.getLogger(path.name).error("done")


def thread(path):
    def write(begun):
        begun.wait()
        path.write_text("done")

    begun = threading.Event()
    threading.Thread(target=write, args=[begun]).start()
    threading._register_atexit(begun.set)


def process(path):
    multiprocessing.get_context("fork").Process(target=path.write_text, args=["done"]).start()


def read(path):
    if zipfile.is_zipfile(path):
        return zipfile.ZipFile(path).read("name").decode()
    content = path.read_bytes()
    return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode().strip()


@pytest.mark.parametrize(
    "leave", [in_module, compressed, archive, at_exit, waiting_record, thread, process]
)
def test_what_a_fork_leaves_unfinished_is_done(leave, tmp_path):
    path = tmp_path / "left"
    fork(lambda: leave(path), tmp_path / "answer")
    assert read(path) == "done"


def test_a_file_that_a_module_opened_before_the_fork(tmp_path, monkeypatch):
    path = tmp_path / "shared"
    with path.open("a") as file:
        monkeypatch.setitem(globals(), "BEFORE", file)
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
        global LATER
        LATER = open("/dev/full", "w")  # noqa: SIM115, PTH123
        LATER.write("lost")
        try:
            forked.end()
        except OSError as error:
            LATER = None
            return error.errno

    assert fork(work, tmp_path / "answer") == errno.ENOSPC


def test_signals_are_as_in_a_new_python(tmp_path, monkeypatch):
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
    before = [signal.signal(number, lambda number, frame: None) for number in numbers]
    try:
        names = fork(lambda: [str(signal.getsignal(number)) for number in numbers], tmp_path / "a")
    finally:
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)
    assert names[::2] == [str(signal.SIG_DFL)] * 2
    assert "default_int_handler" in names[1]


class TestRandomNumbers:
    @pytest.fixture(autouse=True)
    def as_before(self, monkeypatch):
        monkeypatch.setattr(forked, "_is_seeded", False)
        state, numpys = random.getstate(), np.random.get_state()
        yield
        random.setstate(state)
        np.random.set_state(numpys)

    @staticmethod
    def draw():
        return random.random(), np.random.random()

    def drawn(self, tmp_path):
        return [fork(self.draw, tmp_path / "answer") for _ in range(2)]

    def test_forks_draw_different_ones(self, tmp_path, monkeypatch):
        generator = np.random.RandomState()
        monkeypatch.setattr(np.random.mtrand, "_rand", generator)
        monkeypatch.setattr(np.random, "seed", generator.seed)
        monkeypatch.setattr(np.random, "random", generator.random_sample)
        (one, ones), (two, twos) = self.drawn(tmp_path)
        assert one != two
        assert ones != twos

    def test_those_of_a_seed_are_everywhere_the_same(self, tmp_path):
        random.seed(1)
        np.random.seed(1)
        first, second = self.drawn(tmp_path)
        assert first == second == list(self.draw())
