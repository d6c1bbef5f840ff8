"""Runs and datasets in other filesystems: the same bits, and nothing lost there either."""

import contextlib
import dataclasses
import json
import secrets
import socket
import subprocess
import sys
import threading
from concurrent import futures

import batch_jobs
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from builders import blobs_in
from hdfs_utils import conditional
from hdfs_utils.errors import StorageError
from hdfs_utils.paths import RemotePath, ordered, path_of
from hdfs_utils.publish import replace
from mapreduce.cli.main import main
from mapreduce.data import copying
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, LeaseError, MissingInputError, OutputError
from mapreduce.inference.predict import predict
from mapreduce.inference.report import report
from mapreduce.inference.request import Request
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint, events, lease
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import CheckpointSaved, Events, RunStarted
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver

SETTINGS = Settings("mlp:8", optimizer="adam", batch_size=128, rounds=12, checkpoint_every=4)

data = blobs_in(train=(200, 170, 97), test=(90,), dtype="uint8")


def copied(data, root):
    for name in ("train", "test"):
        copying.copy(data / name, root / "data" / name)
    return root / "data"


def train(run, *subscribers, runner="inline", take_over=False, **execution):
    execution = Execution(runner, **{"workers": 2, **execution})
    return driver.train(run, execution, 2, Events(*subscribers), take_over=take_over)


def create(path, folder, settings=SETTINGS):
    return creating.create(path, settings, folder / "train", folder / "test")


class Stop(Exception):
    """What ends a driver in the middle."""


def stop_at_a_checkpoint(event):
    if isinstance(event, CheckpointSaved) and event.completed == 4:
        raise Stop


@pytest.mark.slow
def test_a_run_has_the_bits_of_a_local_one(data, root, tmp_path):
    expected = train(create(tmp_path / "run", data))
    folder = copied(data, root)
    run = create(root / "run", folder)
    with pytest.raises(Stop):
        train(run, stop_at_a_checkpoint)
    assert not (run.path / "lease.json").exists()
    seen = []
    assert train(RunDir(run.path), seen.append) == expected
    assert next(e.completed for e in seen if isinstance(e, RunStarted)) == 4
    local = RunDir(tmp_path / "run")
    assert run.summary()["loss"] == local.summary()["loss"]
    assert run.evaluation_losses() == local.evaluation_losses()
    assert checkpoint.saved_rounds(run) == checkpoint.saved_rounds(local)
    recorded = [e["completed"] for e in events.read(run.path / "events.jsonl") if "rows" in e]
    assert sorted(set(recorded)) == list(range(1, 13))
    here, there = (
        report(Request(checkpoint.fitted(r, 12), f / "test", Execution("inline")))
        for r, f in ((local, data), (run, folder))
    )
    assert repr(here) == repr(there)
    out = root / "predictions"
    request = Request(checkpoint.fitted(run, 12), folder / "test", Execution("inline"), out)
    assert predict(request) == 90
    assert [p.name for p in ordered(out.glob("part-*"))] == ["part-00000.parquet"]


@pytest.mark.slow
def test_a_gang(data, root, tmp_path):
    settings = dataclasses.replace(SETTINGS, eval_every=4, patience=1)
    expected = train(create(tmp_path / "run", data, settings))
    run = create(root / "run", copied(data, root), settings)
    assert train(run, runner="parallel", executor="gang", workers=2) == expected


@pytest.mark.slow
def test_worker_processes(data, root, tmp_path):
    expected = train(create(tmp_path / "run", data))
    run = create(root / "run", copied(data, root))
    assert train(run, runner="parallel") == expected


def test_only_the_record_batches_that_are_needed_are_read(data, root, monkeypatch):
    folder = copied(data, root)
    read = []
    plain = RemotePath.read_range
    monkeypatch.setattr(
        RemotePath,
        "read_range",
        lambda path, offset, length: read.append(length) or plain(path, offset, length),
    )
    dataset, local = Dataset(folder / "train"), Dataset(data / "train")
    shard = dataset.shard(1)
    entry = shard.entry
    assert sum(read) == entry.bytes - sum(batch.length for batch in entry.batches)
    batch, expected = shard.rows(10, 30), local.shard(1).rows(10, 30)
    np.testing.assert_array_equal(batch.features, expected.features)
    np.testing.assert_array_equal(batch.labels, expected.labels)
    assert sum(read) == entry.bytes
    dataset.verify()


def test_damage_is_found(data, root):
    folder = copied(data, root)
    entry = Dataset(folder / "train").manifest.shards[0]
    path = folder / "train" / entry.file
    content = bytearray(path.read_bytes())
    content[entry.batches[0].offset + 700] ^= 1
    replace(path, content)
    with pytest.raises(DataError, match="is damaged in record batch 0"):
        Dataset(folder / "train").shard(0).rows(0, 5)
    replace(path, content[:-9])
    with pytest.raises(DataError, match="it was truncated or replaced"):
        Dataset(folder / "train").shard(0)
    path.unlink()
    with pytest.raises(MissingInputError, match="the dataset's manifest names it"):
        Dataset(folder / "train").shard(0)


def test_copying(data, root, tmp_path):
    told = []
    manifest = copying.copy(data / "train", root / "copy", told.append)
    assert told == [shard.file for shard in manifest.shards]
    assert copying.copy(root / "copy", tmp_path / "back") == manifest
    Dataset(tmp_path / "back").verify()
    with pytest.raises(OutputError, match="exists already"):
        copying.copy(data / "test", root / "copy")
    damaged = tmp_path / "back" / manifest.shards[1].file
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    with pytest.raises(DataError, match="is damaged: sha256"):
        copying.copy(tmp_path / "back", root / "other")
    with pytest.raises(MissingInputError, match="is not a dataset"):
        Dataset(root / "other").manifest  # noqa: B018


def test_one_driver_at_a_time(root):
    root.mkdir(parents=True)
    other = lease.Holder("elsewhere", 17, 0)
    with lease.hold(root) as previous:
        assert previous is None
        assert lease.holder(root) == lease.myself()
        with pytest.raises(LeaseError, match="in use by process"), lease.hold(root):
            pass
    assert lease.holder(root) is None
    replace(root / "lease.json", json.dumps(vars(other)).encode())
    with pytest.raises(LeaseError, match="on elsewhere"), lease.hold(root):
        pass
    with lease.hold(root, take_over=True) as previous:
        assert previous == other
    assert lease.holder(root) is None
    ended = subprocess.Popen(["true"])
    ended.wait()
    dead = lease.Holder(socket.gethostname(), ended.pid, 1)
    replace(root / "lease.json", json.dumps(vars(dead)).encode())
    with lease.hold(root) as previous:
        assert previous == dead
    assert [path.name for path in root.iterdir()] == []


def test_a_lease_that_another_takes_first(root, monkeypatch):
    """Two drivers find the same stale lease; the slower one does not remove the faster's."""
    root.mkdir(parents=True)
    stale = lease.Holder(socket.gethostname(), 2**22 + 1, 1)
    faster = lease.Holder("faster", 1, 1)
    replace(root / "lease.json", json.dumps(vars(stale)).encode())
    check = lease._check_free

    def lose(run, *arguments):
        check(run, *arguments)
        replace(root / "lease.json", json.dumps(vars(faster)).encode())

    monkeypatch.setattr(lease, "_check_free", lose)
    with pytest.raises(LeaseError), lease.hold(root):
        pass
    assert lease.holder(root) == faster


@pytest.mark.parametrize("is_stale", [False, True])
def test_of_drivers_at_one_moment_one_takes_the_lease_on_s3(s3, monkeypatch, is_stale):
    """All have found the same there before the first of them writes."""
    root = path_of(f"{s3}/{secrets.token_hex(4)}")
    if is_stale:
        stale = lease.Holder(socket.gethostname(), 2**22 + 1, 1)
        replace(root / "lease.json", json.dumps(vars(stale)).encode())
    swap, ready, alone = conditional.swap, threading.Barrier(4), threading.Lock()

    def together(*arguments):
        with contextlib.suppress(threading.BrokenBarrierError):
            ready.wait(10)
            ready.abort()
        # S3 compares and writes at once; moto may write what another has written meanwhile.
        with alone:
            return swap(*arguments)

    monkeypatch.setattr(conditional, "swap", together)
    drivers = [dataclasses.replace(lease.myself(), start_time=number) for number in range(4)]

    def take(me):
        try:
            lease._take(root, me, False, False)
        except LeaseError:
            return None
        return me

    monkeypatch.setattr(lease, "is_alive", lambda other: other in drivers)
    with futures.ThreadPoolExecutor(4) as pool:
        (taken,) = {me for me in pool.map(take, drivers) if me is not None}
    assert lease.holder(root) == taken


@pytest.mark.parametrize("missing", ["boto3", "conditions"])
def test_without_conditional_writes_one_takes_the_lease_all_the_same(s3, monkeypatch, missing):
    root = path_of(f"{s3}/{secrets.token_hex(4)}")
    if missing == "boto3":
        monkeypatch.setitem(sys.modules, "boto3", None)
    else:
        from botocore.exceptions import ClientError

        answer = {"ResponseMetadata": {"HTTPStatusCode": 501}}
        refused = ClientError(answer, "PutObject")
        monkeypatch.setattr("boto3.client", lambda *_, **__: (_ for _ in ()).throw(refused))
    test_one_driver_at_a_time(root)


def test_a_storage_that_ends(data, s3, tmp_path, monkeypatch):
    run = create(path_of(f"{s3}/{secrets.token_hex(4)}/run"), data)
    monkeypatch.setattr(
        RemotePath, "write_bytes", lambda *a, **k: (_ for _ in ()).throw(StorageError("gone"))
    )
    with pytest.raises(StorageError, match="gone"):
        train(run)
    monkeypatch.undo()


@pytest.mark.slow
def test_a_job_on_records(root, tmp_path, capfdbinary):
    """Read by the driver and at once by its workers, to which no connection may be handed down."""
    job = f"{batch_jobs.__file__}:RecordsSummed"
    table = pa.table({"name": ["a", "b", "c"] * 100, "number": range(300)})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    (root / "in").mkdir(parents=True)
    (root / "in/a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
    printed = []
    for runner, place in (("inline", tmp_path), ("parallel", root / "in")):
        assert main(["run", job, "--no-conf", "-q", "-r", runner, str(place)]) == 0
        printed.append(sorted(capfdbinary.readouterr().out.splitlines()))
    assert printed[0] == printed[1] != []
    arguments = ["--no-conf", "-r", "parallel", str(root / "in")]
    with batch_jobs.RecordsSummed(arguments).make_runner() as runner:
        assert runner._opts["start_method"] == "forkserver"
