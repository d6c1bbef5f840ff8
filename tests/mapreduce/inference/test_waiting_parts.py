"""What waits of predictions that were stopped: damaged, it is never called whole."""

import random
import shutil
from dataclasses import replace

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import mapreduce
from mapreduce.data import shards
from mapreduce.data.readers import csv
from mapreduce.errors import DataError
from mapreduce.inference import cutting, files, outputs, raw
from mapreduce.inference.predict import predict
from mapreduce.inference.request import Request
from mapreduce.inference.swarm import driver
from mapreduce.inference.swarm.worker import Done, work
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution
from wide_tables import table_of

HERE = Execution("inline", executor="here")
#: Kind of data, command, name of the output, and whether parts wait, or pieces of a dataset.
CASES = [
    *(("file", "predict", out, "part") for out in ("out", "a.csv", "a.parquet", "a.arrow")),
    ("file", "swarm", "out", "part"),
    *(("data", "predict", out, ".piece") for out in ("a.csv", "a.parquet", "a.arrow")),
    *(("data", name, "out", wait) for name in ("predict", "swarm") for wait in ("part", ".piece")),
]


class Stopped(Exception):
    """What stops a command before its end."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Commands that predict into a place, by the kind of their data and by their names."""
    folder = tmp_path_factory.mktemp("commands")
    options = {"label": "label", "rounds": 3, "progress": False, "executor": "here"}
    mapreduce.train(table_of(100, 0, False), "logistic", run=folder / "run", **options)
    pa.csv.write_csv(table_of(400, 1, False), folder / "new.csv")
    model, how = checkpoint.fitted(RunDir(folder / "run")), {"workers": 1, "patience": 9.0}
    with pytest.MonkeyPatch.context() as patch:
        # A worker of a swarm is this process.
        by_itself = lambda workers: work(workers._program, "worker", 9.0, Done())  # noqa: E731
        patch.setattr(driver._Workers, "run", by_itself)
        for module, name, value in (
            *((csv, "BLOCK_BYTES", 1 << 13), (cutting, "_PART_BYTES", 1 << 14)),
            *((shards, "ROW_UNIT", 64), (shards, "BATCH_BYTES", 8), (shards, "SHARD_BYTES", 8)),
        ):
            patch.setattr(module, name, value)
        request = Request(model, folder / "new.csv", HERE)
        file, of_data = cutting.cut(request), replace(request, data=folder / "data")
        raw.make(request, of_data.data, labelled=False)
        yield {
            ("file", "predict"): lambda out: files.predict(replace(request, out=out), file),
            ("file", "swarm"): lambda out: driver.predict_file(
                replace(request, out=out), file, **how
            ),
            ("data", "predict"): lambda out: predict(replace(of_data, out=out)),
            ("data", "swarm"): lambda out: driver.predict_dataset(replace(of_data, out=out), **how),
        }


@pytest.fixture(scope="module")
def left(commands, tmp_path_factory):
    """For each case what a command has left that was stopped, and what one gives at its end."""
    folder, found = tmp_path_factory.mktemp("left"), {}
    for case in CASES:
        kind, name, out, wait = case
        place = folder / "-".join(case)
        place.mkdir()
        commands[kind, name](place / out)
        (place / out).rename(folder / f"whole-{place.name}")
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
            for stage in ("_join", "finish") if out != "out" else ("finish",):
                patch.setattr(outputs, stage, stop)
            commands[kind, name](place / out)
        hidden = place / out if out == "out" else next(place.iterdir())
        if wait != "part":
            # Before any of the parts was made.
            for part in hidden.glob("part-*"):
                part.unlink()
        elif kind == "data":
            for piece in hidden.glob(".piece-*"):
                piece.unlink()
        found[case] = place, folder / f"whole-{place.name}"
    return found


def stop(*_):
    raise Stopped


def damage(path, chance):
    """Flip a bit of a file, cut something out of it, or put something into it."""
    content, kind = path.read_bytes(), chance.choice(["flip", "cut", "insertion"])
    at = end = chance.randrange(len(content))
    inserted = b""
    if kind == "flip":
        inserted, end = bytes([content[at] ^ 1 << chance.randrange(8)]), at + 1
    elif kind == "cut":
        end = chance.choice([at + 1, at + 40, len(content)])
    else:
        inserted = chance.randbytes(chance.randint(1, 40))
    path.write_bytes(content[:at] + inserted + content[end:])


def content(place):
    if place.is_file():
        return place.read_bytes()
    return {path.name: path.read_bytes() for path in place.iterdir()}


def check(commands, left, case, seed, tmp_path):
    """Damage a file that waits: it is refused, named, and the others are taken without it."""
    kind, name, out, wait = case
    chance, place = random.Random(f"{seed} {case}"), tmp_path / str(seed)
    before, whole = left[case]
    shutil.copytree(before, place)
    victim = chance.choice(sorted(place.rglob(f"{wait}-*")))
    damage(victim, chance)
    with pytest.raises(DataError, match=r"Remove it, then run the command again") as error:
        commands[kind, name](place / out)
    assert str(victim) in str(error.value)
    assert victim.exists()
    assert not (place / out).is_file()
    assert not (place / out / "_SUCCESS").exists()
    victim.unlink()
    commands[kind, name](place / out)
    assert content(place / out) == content(whole)
    shutil.rmtree(place)


@pytest.mark.every_case
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_damaged_parts_are_refused(commands, left, case, tmp_path):
    check(commands, left, case, 0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_many_damages(commands, left, case, tmp_path):
    for seed in range(1, 41):
        check(commands, left, case, seed, tmp_path)


@pytest.mark.parametrize("kind", ["file", "data"])
def test_parts_of_an_earlier_version_are_taken_if_their_pages_are_whole(
    commands, monkeypatch, tmp_path, kind
):
    """Those have the digest of what they are made from alone."""
    command = commands[kind, "predict"]
    command(tmp_path / "new")
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(
            outputs, "part_metadata", lambda content: {outputs._MADE_FROM: content.encode()}
        )
        patch.setattr(outputs, "seal", lambda file: None)
        patch.setattr(outputs, "finish", stop)
        command(tmp_path / "old")
    part = tmp_path / "old" / "part-00001.parquet"
    before = part.read_bytes()
    # In the first page.
    part.write_bytes(before[:200] + bytes([before[200] ^ 1]) + before[201:])
    with pytest.raises(DataError, match=r"part-00001.parquet is damaged. Remove it"):
        command(tmp_path / "old")
    part.write_bytes(before)
    command(tmp_path / "old")
    assert part.read_bytes() == before
    old, new = (pq.read_table(tmp_path / name) for name in ("old", "new"))
    assert old == new
