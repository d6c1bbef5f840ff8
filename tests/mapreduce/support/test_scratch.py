"""Memory that is a file's."""

import errno
import os
import tempfile

import numpy as np
import pytest

from hdfs_utils.errors import StorageError
from mapreduce.support.scratch import Scratch


def test_arrays_are_what_was_put(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    random, scratch = np.random.default_rng(0), Scratch(20_000)
    assert list(tmp_path.iterdir()) == []
    written, plain = [], os.pwrite
    # The system may write less than it was given.
    monkeypatch.setattr(
        os, "pwrite", lambda file, left, at: written.append(at) or plain(file, left[:999], at)
    )
    for place in (0, 7000, 0):
        array = random.integers(0, 256, (350, 20)).astype(np.uint8)
        found = scratch.put(place, array[::2])
        np.testing.assert_array_equal(found, array[::2])
        assert not found.flags.writeable
    assert len(written) == 12
    assert scratch.put(20_000, array[:0]).shape == (0, 20)


def test_a_full_disk(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    scratch = Scratch(4096)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match=r"cannot write to a file in /.*Free some space there"):
        scratch.put(0, np.zeros(10, np.uint8))
