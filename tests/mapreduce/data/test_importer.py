import errno
import gc
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hdfs_utils.errors import CreateError, StorageError
from mapreduce.data import importer, shards
from mapreduce.data.copying import check_absent
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.errors import DataError, OutputError
from quick import cases, first_of
from reading import in_memory, rows_in

IMPORT = """
import os, resource, sys
from pathlib import Path
import numpy as np
from hdfs_utils.errors import StorageError
from mapreduce.data import importer, shards
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.errors import OutputError

def run(out, rows, chunks, size=0, each=lambda: None):
    def stream():
        for i in range(chunks):
            yield Rows(np.full((rows, 4), i, np.uint8), np.zeros(rows, np.int64))
            each()
    try:
        import_rows(Source(stream(), (4,), 1.0, size, {}), Path(out), 0)
        print("imported")
    except (StorageError, OutputError) as error:
        print(type(error).__name__, error.exit_code, error)
    print(os.listdir(Path(out).parent))

"""


def rows(count):
    return Rows(np.arange(3 * count, dtype="f4").reshape(count, 3), np.arange(count) % 4)


def source_of(count, cuts=()):
    return in_memory(rows(count).features, rows(count).labels, cuts=cuts)


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("exact", [20, 40, 60])
def test_rows_that_fill_their_shards(tmp_path, tiny_shards, exact):
    written = import_rows(source_of(exact), tmp_path / "out", seed=0)
    assert [shard.rows for shard in written.shards] == [20] * (exact // 20)


def test_default_sizes_are_whole_record_batches():
    for row_bytes in (1, 4, 784, 3072, 4 * 784, 10**7):
        batch, shard = shards.rows_per_batch(row_bytes), shards.rows_per_shard(row_bytes)
        assert batch % 2048 == shard % batch == 0
        assert batch == 2048 or batch * row_bytes <= 8 << 20
        assert shard == batch or shard * row_bytes <= 16 << 20


@pytest.mark.slow
@pytest.mark.parametrize("by_label", first_of(False, True))
def test_memory_does_not_grow_with_the_source(tmp_path, monkeypatch, by_label):
    monkeypatch.setattr(importer, "BUCKET_BYTES", 1 << 18)
    monkeypatch.setattr(shards, "ROW_UNIT", 64)
    monkeypatch.setattr(shards, "BATCH_BYTES", 1 << 16)
    monkeypatch.setattr(shards, "SHARD_BYTES", 1 << 18)

    def peak(chunks):
        def stream():
            for i in range(chunks):
                labels = np.arange(512) % (2 if by_label else 512)
                yield Rows(np.full((512, 256), i % 256, np.uint8), labels)

        made = Source(stream(), (256,), 1.0, chunks * 512 * 256, {})
        # What tests before this one have left would be given back meanwhile.
        gc.collect()
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            import_rows(made, tmp_path / str(chunks), seed=0, by_label=by_label)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            assert pa.total_allocated_bytes() == before

    peak(1)
    # Threads write while rows are read, so that peaks of equal sources differ by a few hundred kB.
    small, large = peak(16), peak(160)
    assert large - small < (160 - 16) * 512 * 256 / 10


@pytest.mark.parametrize("error", [DataError("bad row"), KeyboardInterrupt(), OSError("lost")])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_error_in_the_stream_leaves_nothing(tmp_path, error, after):
    def stream():
        for _ in range(after):
            yield rows(100)
        raise error

    made = Source(stream(), (3,), 1.0, 10**12, {})
    with pytest.raises(type(error)) as caught:
        import_rows(made, tmp_path / "out", seed=0)
    assert caught.value is error
    assert entries(tmp_path) == []


@pytest.mark.parametrize("chunks", [[], [Rows(np.empty((0, 3), np.uint8), None)]])
def test_no_rows(tmp_path, chunks):
    made = Source(chunks, (3,), 1.0, 0, {"format": "csv", "files": ["a.csv", "b.csv"]})
    with pytest.raises(DataError, match=r"a\.csv, b\.csv: expected at least one row"):
        import_rows(made, tmp_path / "out", seed=0)
    assert entries(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_existing_output_is_refused_and_untouched(tmp_path, kind):
    out = tmp_path / "out"
    inside = out / "mine" if kind == "folder" else out
    inside.parent.mkdir(exist_ok=True)
    inside.write_text("precious")
    for refuse in (lambda: import_rows(source_of(10), out, seed=0), lambda: check_absent(out)):
        with pytest.raises(OutputError, match=f"{out} exists already. Name another") as caught:
            refuse()
        assert caught.value.exit_code == 73
    assert inside.read_text() == "precious"
    assert entries(tmp_path) == ["out"]


@pytest.mark.parametrize("kind", ["empty folder", "new in new folders"])
def test_output_may_be_an_empty_or_a_new_folder(tmp_path, kind):
    out = tmp_path / "out"
    if kind == "empty folder":
        out.mkdir()
    else:
        out = tmp_path / "new" / "folder" / "out"
    # Chunks may be empty.
    import_rows(source_of(10, [0, 0, 5, 5, 10, 10]), out, seed=0)
    assert len(rows_in(out).features) == 10
    assert entries(out.parent) == ["out"]


def test_output_that_appears_meanwhile_is_kept(tmp_path):
    def stream():
        yield rows(10)
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine").write_text("precious")

    with pytest.raises(CreateError, match=r"cannot create .*out: Directory not empty"):
        import_rows(Source(stream(), (3,), 1.0, 0, {}), tmp_path / "out", seed=0)
    assert entries(tmp_path) == ["out"]
    assert (tmp_path / "out" / "mine").read_text() == "precious"


@cases(
    "where, number, error, code",
    ("pathlib.Path.mkdir", errno.EACCES, CreateError, 73),
    ("pathlib.Path.is_dir", errno.EACCES, CreateError, 73),
    ("os.fsync", errno.EIO, StorageError, 74),
    ("pyarrow.OSFile", errno.EIO, StorageError, 74),
)
def test_an_error_of_the_disk_leaves_nothing(tmp_path, monkeypatch, where, number, error, code):
    def fail(*_args, **_kwargs):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(where, fail)
    with pytest.raises(error, match=os.strerror(number)) as caught:
        import_rows(source_of(10), tmp_path / "out", seed=0)
    assert caught.value.exit_code == code
    monkeypatch.undo()
    assert entries(tmp_path) == []


@pytest.mark.fault
def test_read_only_file_system(in_mount):
    printed = in_mount(IMPORT + "run(sys.argv[1] + '/out', 10, 1)", "ro")
    assert printed.startswith("CreateError 73 cannot create")
    assert "Read-only file system" in printed
    assert printed.endswith("\n[]\n")


@pytest.mark.fault
@pytest.mark.parametrize("size", [0, 10**12])
def test_full_disk_leaves_nothing(in_mount, size):
    # 1.6 MB of records do not fit into the buckets.
    script = f"run(sys.argv[1] + '/out', 1000, 100, {size})"
    printed = in_mount(IMPORT + script, "size=1m")
    assert printed.startswith("StorageError 74 cannot write")
    assert "No space left on device. Free some space there" in printed
    assert printed.endswith("\n[]\n")


@pytest.mark.fault
@pytest.mark.parametrize(("limit", "file"), [(60_000, "bucket-0"), (150_000, "shard-00000.arrow")])
def test_limit_on_file_sizes_leaves_nothing(in_process, tmp_path, limit, file):
    # 16 buckets of about 100,000 bytes; one shard of 800,000.
    script = (
        "importer.BUCKET_BYTES = 1000\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "run(sys.argv[1] + '/out', 1000, 100, 16_000)"
    )
    printed = in_process(IMPORT + script, tmp_path)
    assert printed.startswith("StorageError 74 cannot write")
    assert file in printed.split(": ")[0]
    assert "File too large" in printed
    assert printed.endswith("\n[]\n")
    assert entries(tmp_path) == []


@pytest.mark.fault
def test_killed_import_gives_no_dataset(in_process, tmp_path):
    script = "run(sys.argv[1] + '/out', 1000, 3, each=lambda: os._exit(0))"
    assert in_process(IMPORT + script, tmp_path) == ""
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".out.")
    assert left.name.endswith(".tmp")
    import_rows(source_of(10), Path(tmp_path / "out"), seed=0)
    assert entries(tmp_path) == ["out"]
