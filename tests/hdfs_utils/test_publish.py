import errno
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hdfs_utils.atomic import storage_errors, temporary_name
from hdfs_utils.errors import ConflictError, StorageError
from hdfs_utils.folders import remove_leftovers
from hdfs_utils.publish import put_if_absent, replace
from programs import wait_until
from quick import cases

WRITER = """
import sys, time
from pathlib import Path
from hdfs_utils.errors import ConflictError
from hdfs_utils.publish import put_if_absent
folder, name, same = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "same"
(folder / f"ready-{name}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
for i in range(100):
    content = (b"everyone" if same else name.encode()) * 1000
    try:
        print(int(put_if_absent(folder / f"file-{i}", content)))
    except ConflictError:
        print(-1)
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fail(code):
    def function(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    return function


@contextmanager
def file_size_limit(size):
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@pytest.mark.parametrize("publish", [put_if_absent, replace])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (5,), (2, 3)])
def test_content_may_be_any_contiguous_buffer(tmp_path, publish, shape):
    array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    for content in (array.tobytes(), bytearray(array.tobytes()), array.data):
        publish(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == array.tobytes()


@pytest.mark.parametrize("content", ["same", "own"])
def test_one_of_many_writers_wins(tmp_path, content):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(i), content],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(4)
    ]
    wait_until(lambda: len(list(tmp_path.glob("ready-*"))) == 4)
    (tmp_path / "go").touch()
    outcomes = [[int(line) for line in writer.communicate()[0].split()] for writer in writers]
    lost = 0 if content == "same" else -1
    for i, results in enumerate(zip(*outcomes, strict=True)):
        assert sorted(results) == sorted([1, lost, lost, lost])
        winner = b"everyone" if content == "same" else str(results.index(1)).encode()
        assert (tmp_path / f"file-{i}").read_bytes() == winner * 1000
    assert len(outcomes[0]) == 100
    assert not list(tmp_path.glob(".*"))


@cases("where, code", ("os.fsync", errno.ENOSPC), ("os.fsync", errno.EIO), ("os.link", errno.EIO))
def test_failed_put_leaves_nothing(tmp_path, monkeypatch, where, code):
    monkeypatch.setattr(where, fail(code))
    with pytest.raises(StorageError, match=f"cannot write .*file: {os.strerror(code)}"):
        put_if_absent(tmp_path / "file", b"abc", sync=True)
    assert names(tmp_path) == []


@pytest.mark.parametrize("where", ["os.fsync", "pathlib.Path.rename"])
def test_failed_replace_keeps_the_old_file(tmp_path, monkeypatch, where):
    path = tmp_path / "file"
    replace(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(where, fail(errno.ENOSPC))
        with pytest.raises(StorageError, match=r"No space left on device\. Free some space"):
            replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]
    replace(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("publish", [put_if_absent, replace])
def test_file_cut_short_is_not_published(tmp_path, publish):
    # The limit lets a part of the bytes be written before it fails.
    with file_size_limit(1000), pytest.raises(StorageError, match="File too large"):
        publish(tmp_path / "file", b"x" * 5000)
    assert names(tmp_path) == []


@pytest.mark.parametrize("publish", [put_if_absent, replace])
def test_interrupt_leaves_nothing(tmp_path, monkeypatch, publish):
    def interrupt(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.link", interrupt)
    monkeypatch.setattr("pathlib.Path.rename", interrupt)
    with pytest.raises(KeyboardInterrupt):
        publish(tmp_path / "file", b"abc")
    assert names(tmp_path) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EPERM])
def test_without_links_a_failed_rename_leaves_nothing(tmp_path, monkeypatch, code):
    monkeypatch.setattr("os.link", fail(errno.EPERM))
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.rename", fail(code))
        with pytest.raises(StorageError, match=f"cannot write .*file: {os.strerror(code)}"):
            put_if_absent(tmp_path / "file", b"abc")
    assert names(tmp_path) == []
    assert put_if_absent(tmp_path / "file", b"abc") is True
    with pytest.raises(ConflictError):
        put_if_absent(tmp_path / "file", b"abd")
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("publish", [put_if_absent, replace])
def test_a_name_that_no_file_can_have(tmp_path, publish):
    (tmp_path / "folder").mkdir()
    for name, said in (("folder", "Is a directory"), ("none/file", "No such file or directory")):
        with pytest.raises(StorageError, match=said):
            publish(tmp_path / name, b"abc")
    assert names(tmp_path) == ["folder"]


@cases(
    "code, advice",
    (errno.ENOSPC, "Free some space there"),
    (errno.EDQUOT, "Free some space there"),
    (errno.EROFS, "Read-only file system$"),
    (errno.EIO, "Input/output error$"),
)
def test_storage_errors_say_what_where_why_and_what_next(code, advice):
    with (
        pytest.raises(StorageError, match=advice) as caught,
        storage_errors("write", Path("folder/file")),
    ):
        fail(code)()
    assert str(caught.value).startswith(f"cannot write folder/file: {os.strerror(code)}")
    assert caught.value.__cause__.errno == code
    assert caught.value.exit_code == 74
    for error, expected in ((OSError("lost"), StorageError), (KeyError("x"), KeyError)):
        with pytest.raises(expected, match=r"lost|x"), storage_errors("read", Path("x")):
            raise error


def test_temporary_names_differ_and_are_found(tmp_path):
    path = tmp_path / "file"
    made = [temporary_name(path) for _ in range(100)]
    assert len(set(made)) == 100
    assert all(one.parent == tmp_path for one in made)
    kept = tmp_path / "kept.tmp"
    for one in (*made[:50], path, kept, tmp_path / ".hidden"):
        one.write_bytes(b"half")
    made[50].mkdir()
    (made[50] / "part").touch()
    made[51].symlink_to(tmp_path)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".hidden", "file", "kept.tmp"]


def test_remove_leftovers_reports_what_it_cannot_remove(tmp_path, monkeypatch):
    temporary_name(tmp_path / "file").touch()
    monkeypatch.setattr("pathlib.Path.unlink", fail(errno.EROFS))
    with pytest.raises(StorageError, match="Read-only"):
        remove_leftovers(tmp_path)
