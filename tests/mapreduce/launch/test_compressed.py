"""Compressed input: all runners read the same files, and none takes compressed bytes for text."""

import bz2
import gzip
import io
import lzma
import zlib

import pytest
from mrjob.job import MRJob
from mrjob.protocol import RawValueProtocol

import mapreduce
from mapreduce.errors import DataError
from mapreduce.launch import run as launch
from mapreduce.mrjob_patches import registry
from quick import cases


class Unpacks(MRJob):
    OUTPUT_PROTOCOL = RawValueProtocol

    def mapper_cmd(self):
        return "gzip -dc"


RUNNERS = pytest.mark.parametrize("runner", ["parallel", "inline"])


class Count(MRJob):
    def mapper(self, _, line):
        yield line, 1

    def reducer(self, line, ones):
        yield line, sum(ones)


class Raw(MRJob):
    """Opens its files by itself."""

    def mapper_raw(self, path, uri):
        with gzip.open(path) as file:
            yield uri.rpartition("/")[2], len(file.read())


@RUNNERS
def test_every_format_is_read_by_its_name(tmp_path, runner):
    packs = {"a.GZ": gzip.compress, "a.xz": lzma.compress, "a.deflate": zlib.compress}
    for name, pack in {**packs, "a.BZ2": bz2.compress, "a.txt": bytes}.items():
        (tmp_path / name).write_bytes(pack(b"to be\nor not\n"))
    assert dict(mapreduce.run(Count, tmp_path, runner=runner).pairs) == {"to be": 5, "or not": 5}


@RUNNERS
@cases(
    "name, content, advice",
    ("a.txt", gzip.compress(b"a\n", mtime=0), r"Rename it to a\.txt\.gz, or decompress it"),
    ("a.tgz", gzip.compress(b"a\n", mtime=0), r"\(gzip\).* Unpack it, as by: tar -xf"),
    ("a.gz", lzma.compress(b"a\n"), r"\(xz\).* Rename it to a\.gz\.xz, or decompress it"),
    ("a.txt", b"PK\x03\x04a\nb\n", r"\(ZIP, or .* Decompress it, as by: unzip -p"),
)
def test_what_would_be_read_as_text_is_refused(tmp_path, runner, name, content, advice):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path} is compressed .*{advice}"):
        mapreduce.run(Count, [path], runner=runner)


@RUNNERS
def test_standard_input(tmp_path, runner):
    job = Count(["--no-conf", "-r", runner])
    job.sandbox(stdin=io.BytesIO(gzip.compress(b"a\n", mtime=0)))
    with (
        job.make_runner() as made,
        pytest.raises(DataError, match=r"standard input is .*gzip -dc FILE \| gradreduce"),
    ):
        made.run()
    # Lines of a program are no stream.
    lines = [gzip.compress(b"a", mtime=0)[:3]]
    ((line, _),) = mapreduce.run(Count, lines=lines, runner=runner).pairs
    assert line.encode("latin-1") == lines[0]


def test_a_mapper_that_opens_its_files_gets_any(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(gzip.compress(b"abc", mtime=0))
    assert dict(mapreduce.run(Raw, path, runner="inline").pairs) == {"a.bin": 3}


def test_a_program_gets_any_file(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(gzip.compress(b"abc", mtime=0))
    one = ["-D", "mapreduce.job.maps=1"]
    assert mapreduce.run(Unpacks, path, arguments=one).pairs == [(None, "abc\n")]


@cases(
    "name, content, advice",
    ("a.GZ", gzip.compress(b"", mtime=0), "Rename it to a.gz, or decompress it"),
    ("a.DEFLATE", zlib.compress(b""), "Rename it to a.deflate, or decompress it"),
    ("a.xz", lzma.compress(b""), "Decompress it, as by: xz -dc"),
    ("a.lz4", b"\x04\x22\x4d\x18", "Decompress it, as by: lz4 -dc"),
    ("a.gz", gzip.compress(b"", mtime=0), None),
    ("a.lz4", b"\0\0\0\1", None),
    ("a.txt", b"a\n", None),
)
def test_what_hadoop_would_read_as_text_is_not_uploaded(tmp_path, name, content, advice):
    (tmp_path / name).write_bytes(content)
    given = [f"file://{tmp_path / name}", "-", "hdfs://host/a.GZ"]
    if advice is None:
        launch._refuse_compressed(given, "cluster")
        return
    with pytest.raises(DataError) as raised:
        launch._refuse_compressed(given, "cluster")
    assert advice in str(raised.value)


def test_mrjobs_own_functions_have_the_table_too():
    import mrjob.cat
    import mrjob.sim

    registry.install()
    content = zlib.compress(b"a\n") * 2
    for decompress in (mrjob.cat.decompress, mrjob.sim.decompress):
        assert b"".join(decompress(io.BytesIO(content), "a.deflate")) == b"a\na\n"
        assert b"".join(decompress([content[:3], content[3:]], "a.deflate")) == b"a\na\n"
        with pytest.raises(DataError, match=r"a\.deflate is damaged or cut off"):
            list(decompress(io.BytesIO(content[:-2]), "a.deflate"))
