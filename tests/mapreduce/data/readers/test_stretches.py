"""Stretches of a gzipped file are what they are of the file itself, and unpack it once."""

import gzip
import multiprocessing
import os

import pytest

from mapreduce.data.readers import files
from mapreduce.errors import DataError
from quick import cases

CONTENT = os.urandom(1 << 16) + bytes(1 << 20)


@pytest.fixture
def opened(monkeypatch):
    """The gzipped files that are unpacked from their beginning."""
    found, stopped = [], {}
    unpack = gzip.open
    monkeypatch.setattr(files, "_stopped", stopped)
    monkeypatch.setattr(gzip, "open", lambda file: found.append(file) or unpack(file))
    yield found
    for *_, stack in stopped.values():
        stack.close()


@pytest.fixture
def packed(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(CONTENT))
    return path


def read(path, at, size):
    with files.open_stretch(path, at) as file:
        return file.read(size)


@cases(
    "stretches, times",
    ([(0, 10), (10, 70_000), (70_010, 5)], 1),
    ([(5, 10), (40_000, 10), (40_000, 10), (200_000, 10)], 2),
    ([(100, 5), (50, 5), (200, 5)], 2),
    ([(0, len(CONTENT)), (len(CONTENT), 1)], 2),
    ids=["neighbours", "the same again", "backwards", "at the end"],
)
def test_stretches(packed, opened, stretches, times):
    for at, size in stretches:
        assert read(packed, at, size) == CONTENT[at : at + size]
    assert len(opened) == times


def test_two_files_in_turn(packed, tmp_path, opened):
    other = tmp_path / "b"
    other.write_bytes(gzip.compress(CONTENT[::-1]))
    for at in (0, 10):
        assert read(packed, at, 10) == CONTENT[at : at + 10]
        assert read(other, at, 10) == CONTENT[::-1][at : at + 10]


def test_a_file_that_is_replaced(packed, opened):
    read(packed, 0, 10)
    packed.write_bytes(gzip.compress(CONTENT[::-1]))
    assert read(packed, 10, 10) == CONTENT[::-1][10:20]


def test_a_fork_reads_for_itself(packed, opened):
    """The place in a file is one for both: each would take from the other."""
    read(packed, 0, 10)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(read, (packed, 10, 600_000)) == CONTENT[10:600_010]
    assert read(packed, 10, 600_000) == CONTENT[10:600_010]
    assert len(opened) == 1


def test_what_fails_is_closed_and_not_gone_on_with(packed, opened):
    for _ in range(2):
        with pytest.raises(KeyError), files.open_stretch(packed, 0) as file:
            raise KeyError
        assert file.closed
    assert len(opened) == 2


def test_a_stretch_of_a_damaged_file(packed):
    packed.write_bytes(packed.read_bytes()[:-4])
    with pytest.raises(DataError, match="the gzip stream is damaged or truncated"):
        read(packed, len(CONTENT) - 5, 10)
