"""mrjob's interface to our filesystems, beside mrjob's own for local files."""

import bz2
import gzip
import zlib

import pytest
from mrjob.fs.local import LocalFilesystem

import mapreduce.job  # noqa: F401  (teaches mrjob more formats)
from hdfs_utils.mrjob_fs import RemoteFilesystem

FILES = {
    "in/a.txt": b"one\ntwo\n",
    "in/b.txt": b"three\n",
    "in/deep/c.log": b"",
    "other/d.txt": b"x" * 3_000_000,
    "packed/e.gz": gzip.compress(b"four\n" * 1000),
    "packed/f.bz2": bz2.compress(b"five\n"),
    "packed/g.deflate": zlib.compress(b"six\n" * 1000),
}
PATTERNS = (
    *("in", "in/", "in/*", "in/*.txt", "in/?.txt", "in/[ab].txt", "*/*.txt", "in/d*/c.log", "none"),
    *("none/*", "other/d.txt", "packed"),
)


@pytest.fixture
def root(root):
    return root.uri


def fill(filesystem, root, tmp_path):
    for name, content in FILES.items():
        source = tmp_path / "source"
        source.write_bytes(content)
        filesystem.mkdir(f"{root}/{name}".rpartition("/")[0])
        filesystem.put(str(source), f"{root}/{name}")


def test_as_mrjobs_own_for_local_files(root, tmp_path):
    ours, theirs = RemoteFilesystem(), LocalFilesystem()
    local = str(tmp_path / "local")
    fill(ours, root, tmp_path)
    fill(theirs, local, tmp_path)

    def names(filesystem, base, pattern):
        return sorted(path.removeprefix(base) for path in filesystem.ls(f"{base}/{pattern}"))

    for pattern in PATTERNS:
        expected = [name.replace("//", "/") for name in names(theirs, local, pattern)]
        assert names(ours, root, pattern) == expected, pattern
        assert ours.exists(f"{root}/{pattern}") == theirs.exists(f"{local}/{pattern}"), pattern
        assert ours.du(f"{root}/{pattern}") == theirs.du(f"{local}/{pattern}"), pattern
    for pattern in ("in/a.txt", "packed/*", "other"):
        # mrjob's own takes files as the system gives them, in any order.
        contents = [
            sorted(b"".join(filesystem.cat(f"{base}/{pattern}")).splitlines())
            for filesystem, base in ((ours, root), (theirs, local))
        ]
        assert contents[0] == contents[1]
    assert ours.md5sum(f"{root}/other/d.txt") == theirs.md5sum(f"{local}/other/d.txt")
    for filesystem, base in ((ours, root), (theirs, local)):
        filesystem.rm(f"{base}/in/*.txt")
        filesystem.rm(f"{base}/packed")
        filesystem.rm(f"{base}/none*")
        left = sorted(path.removeprefix(base) for path in filesystem.ls(base))
        assert left == ["/in/deep/c.log", "/other/d.txt"]


def test_braces(root, tmp_path):
    filesystem = RemoteFilesystem()
    fill(filesystem, root, tmp_path)
    found = [path.removeprefix(root) for path in filesystem.ls(f"{root}/{{in/a,other/d,z}}.txt")]
    assert found == ["/in/a.txt", "/other/d.txt"]


def test_put(root, tmp_path):
    filesystem = RemoteFilesystem()
    filesystem.mkdir(root)
    (tmp_path / "f").write_bytes(b"x")
    filesystem.put(str(tmp_path / "f"), f"{root}/f")
    with pytest.raises(FileExistsError):
        filesystem.put(str(tmp_path / "f"), f"{root}/f")
    with pytest.raises(ValueError, match="expected the name of a file"):
        filesystem.put(str(tmp_path / "f"), f"{root}/folder/")


def test_which_paths():
    filesystem = RemoteFilesystem()
    assert filesystem.can_handle_path("hdfs:///x")
    assert filesystem.can_handle_path("s3://bucket/x")
    for path in ("/x", "x", "file:///x", "gs://bucket/x", "ssh://host/x"):
        assert not filesystem.can_handle_path(path)
