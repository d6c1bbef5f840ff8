"""Workers that come, go and are killed: the predictions are those of one command, to the byte."""

import contextlib
import json
import multiprocessing
import os
import random
import secrets
import shutil
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.csv
import pytest

import mapreduce
import programs
from hdfs_utils.errors import StorageError
from hdfs_utils.paths import path_of
from mapreduce.data import shards
from mapreduce.data.readers import csv
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Layout
from mapreduce.engine.state import InMemory
from mapreduce.errors import DataError, GradreduceError, OutputError, UsageError
from mapreduce.inference import cutting, files, outputs, predict as predict_module, raw
from mapreduce.inference.files import PredictFile
from mapreduce.inference.predict import Predict, begin, predict
from mapreduce.inference.request import Request
from mapreduce.inference.swarm import driver, leases
from mapreduce.inference.swarm.leases import Lease, Leases
from mapreduce.inference.swarm.worker import Done, main, work
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution
from programs import fails, succeed
from quick import first_of
from wide_tables import table_of

FORK = multiprocessing.get_context("fork")
INLINE = Execution("inline")
#: Seconds, for workers of which none is killed: others take over from none that stands still.
PATIENCE = programs.PATIENCE
#: Seconds of a :class:`Herd`, whose clock is its own.
PACE = 0.5


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, a file, and what it predicts of it, in some parts."""
    folder = tmp_path_factory.mktemp("swarm")
    options = {"label": "label", "rounds": 3, "progress": False, "executor": "here"}
    mapreduce.train(table_of(200, 0, False), "mlp:9", run=folder / "run", **options)
    pyarrow.csv.write_csv(table_of(1500, 1, False), folder / "new.csv")
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        files.predict(request_in(folder, out=folder / "expected"), file_of(folder))
        patch.setattr(shards, "ROW_UNIT", 64)
        patch.setattr(shards, "BATCH_BYTES", 8)
        patch.setattr(shards, "SHARD_BYTES", 8)
        raw.make(request_in(folder), folder / "data", labelled=False)
    predict(request_in(folder, "data", folder / "expected-of-data"))
    return folder


def small_parts(patch):
    patch.setattr(csv, "BLOCK_BYTES", 1 << 14)
    patch.setattr(cutting, "_PART_BYTES", 1 << 15)


@pytest.fixture
def file(trained, monkeypatch):
    small_parts(monkeypatch)
    return file_of(trained)


def model_in(folder):
    return checkpoint.fitted(RunDir(folder / "run"))


def request_in(folder, data="new.csv", out=None, tell=lambda text: None):
    return Request(model_in(folder), folder / data, INLINE, out or folder / "out", tell=tell)


def file_of(folder, data="new.csv"):
    return cutting.cut(request_in(folder, data))


def swarm(trained, file, out, workers=2, patience=PATIENCE):
    told = []
    request = request_in(trained, out=out, tell=told.append)
    return driver.predict_file(request, file, workers=workers, patience=patience), told


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("patience", first_of(PATIENCE, 0))
def test_a_swarm_writes_what_one_command_does(trained, file, tmp_path, patience):
    assert len(file.parts) > 8
    (rows, notes), told = swarm(trained, file, tmp_path / "out", 2, patience)
    assert (rows, notes) == (1500, [])
    assert content(tmp_path / "out") == content(trained / "expected")
    said = [line.split(":")[0] for line in sorted(told) if line.startswith("worker")]
    assert said == ["worker 1", "worker 2"]
    # Whoever comes later finds it done.
    assert swarm(trained, file, tmp_path / "out") == ((rows, notes), [])
    assert content(tmp_path / "out") == content(trained / "expected")


@pytest.mark.slow
def test_other_filesystems(trained, file, root):
    outputs.make_folder(root / "out")
    for left in (".part-00003.parquet.1.ab.tmp", "..piece-00003.1.ab.tmp"):
        (root / "out" / left).write_bytes(b"of a writer that was killed")
    swarm(trained, file, root / "out")
    assert content(root / "out") == content(trained / "expected")


class OfFile:
    """A swarm on a file."""

    expected, unit = "expected", (PredictFile, "_write")

    def __init__(self, trained, file):
        self.trained, self.file = trained, file

    def program(self, out):
        return program_of(self.trained, self.file, out)

    def finish(self, out):
        swarm(self.trained, self.file, out, 1)


class OfDataset:
    """A swarm on a dataset."""

    expected, unit = "expected-of-data", (Predict, "_predict")

    def __init__(self, trained):
        self.trained = trained

    def request(self, out):
        return request_in(self.trained, "data", out)

    def program(self, out):
        program, made_from = begin(self.request(out))
        outputs.claim(out, made_from)
        return program

    def finish(self, out, workers=1):
        how = {"workers": workers, "patience": PATIENCE}
        assert driver.predict_dataset(self.request(out), **how) == 1500


class Herd:
    """Workers in processes of their own, and a log of the units that they begin.

    Their clock goes on only where whoever has a lease was killed: nobody takes over from a worker
    that lacks a core, however long.
    """

    def __init__(self, program, unit, folder, patience, monkeypatch):
        self.program, self.log, self.patience = program, folder / "log", patience
        self.processes, self.names = [], []
        self._clock = clock = FORK.RawValue("d")
        monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: clock.value))
        make = getattr(*unit)

        def logged(program, number, *more):
            with self.log.open("a") as log:
                log.write(f"{os.getpid()} {number}\n")
            return make(program, number, *more)

        monkeypatch.setattr(*unit, logged)

    def start(self, count):
        for _ in range(count):
            self.names.append(secrets.token_hex(4))
            given = self.program, self.names[-1], self.patience, Done()
            self.processes.append(FORK.Process(target=work, args=given))
            self.processes[-1].start()

    def begun(self):
        """Who has begun which part."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [tuple(map(int, line.split())) for line in lines]

    def holders(self):
        """Who has a lease of a part that is missing; None if that cannot be read just now."""
        latest = {}
        for lease in sorted(leases.find_leases(self.program.place)):
            latest[lease.part] = lease
        try:
            wanted = [latest[part] for part in self.program.missing() if part in latest]
            texts = [(self.program.place / lease.name).read_bytes() for lease in wanted]
        except (OSError, StorageError):
            return None
        return {text.decode().partition(" ")[0] for text in texts}

    def pass_time(self):
        """Have time pass if all parts that are left are those of killed workers.

        It is half of the patience: who takes over meanwhile is seen before the other half.
        """
        held = self.holders()
        pairs = zip(self.names, self.processes, strict=True)
        if held and held <= {name for name, process in pairs if process.exitcode}:
            self._clock.value += self.patience / 2

    def end(self):
        def ended():
            self.pass_time()
            time.sleep(0.02)
            return not any(process.is_alive() for process in self.processes)

        programs.wait_until(ended)
        for process in self.processes:
            process.join()
        assert {process.exitcode for process in self.processes} <= {0, -signal.SIGKILL}


def program_of(trained, file, out):
    model = model_in(trained)
    outputs.claim(out, outputs.made_from(Request(model, file.path, INLINE), file.sha256))
    content = outputs.digest_of(outputs.made_from(Request(model, file.path, INLINE), file.sha256))
    return PredictFile.of(request_in(trained, out=out), file, content)


def kills(seed, trained, work, out, folder, monkeypatch, patience=PACE):
    """Workers of which some are killed at their parts; more come late, and clocks are wrong."""
    chance = random.Random(seed)
    program, victims = work.program(out), chance.randint(1, 3)
    parts = program.units(0)
    moments = sorted(chance.sample(range(1, parts - 2), victims))
    herd = Herd(program, work.unit, folder, patience, monkeypatch)
    herd.start(victims + 1)
    killed = 0
    for moment in moments:
        programs.wait_until(lambda at=moment: len(herd.begun()) >= at or not herd.program.missing())
        alive = {process.pid for process in herd.processes if process.is_alive()}
        for pid, _ in reversed(herd.begun()):
            if pid in alive and len(alive) > 1:
                os.kill(pid, signal.SIGKILL)
                killed += 1
                break
        for lease in leases.find_leases(out):
            if isinstance(out, os.PathLike):
                wrong = chance.choice([-3600, 3600])
                try:
                    status = (out / lease.name).stat()
                    os.utime(out / lease.name, (status.st_atime, status.st_mtime + wrong))
                except FileNotFoundError:
                    pass
    herd.start(4)
    herd.end()
    assert herd.program.missing() == []
    if patience:
        assert len(herd.begun()) <= parts + killed, seed
    # The command that comes last tidies up.
    work.finish(out)
    assert content(out) == content(trained / work.expected), seed


@pytest.fixture
def works(trained, file):
    """What swarms may be at."""
    return {"file": OfFile(trained, file), "dataset": OfDataset(trained)}


@pytest.mark.parametrize(("seed", "kind"), first_of((1, "file"), (2, "dataset"), (3, "file")))
def test_killed_workers(seed, kind, trained, works, tmp_path, monkeypatch):
    kills(seed, trained, works[kind], tmp_path / "out", tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("draw", range(20))
def test_workers_that_are_killed_at_random(draw, trained, works, root, tmp_path, monkeypatch):
    seed, out = secrets.randbits(32), (tmp_path if draw % 3 else root) / "out"
    work = works["file" if draw % 4 < 2 else "dataset"]
    kills(seed, trained, work, out, tmp_path, monkeypatch, PACE if draw % 2 else 0)


def test_a_swarm_on_a_dataset(trained, works, tmp_path, monkeypatch):
    work, out = works["dataset"], tmp_path / "out"
    work.finish(out, 2)
    assert content(out) == content(trained / work.expected)
    assert len(content(out)) == 2 + 24
    # Whoever comes later finds it done, and so does one that ended before it had tidied up.
    outputs.piece_path(out, 3).write_bytes(b"left")
    work.finish(out)
    predict(work.request(out))
    assert content(out) == content(trained / work.expected)
    # As many parts at once as fit, and those that are there already.
    monkeypatch.setattr(predict_module, "_JOIN_BYTES", 10_000)
    for number in (2, 5, 6, 20):
        outputs.part_path(out, number).unlink()
    (out / "_SUCCESS").unlink()
    work.finish(out)
    assert content(out) == content(trained / work.expected)


def test_predict_goes_on_with_shards_that_a_swarm_has_predicted(
    trained, works, tmp_path, monkeypatch
):
    work, out = works["dataset"], tmp_path / "out"
    program = work.program(out)
    for number in range(1, 24):
        program.make(number)
    outputs.part_path(out, 7).write_bytes(
        (trained / work.expected / "part-00007.parquet").read_bytes()
    )
    asked, before = [], Predict._predict
    monkeypatch.setattr(Predict, "_predict", lambda self, at: asked.append(at) or before(self, at))
    predict(work.request(out))
    assert asked == [0]
    assert content(out) == content(trained / work.expected)


@pytest.mark.parametrize("kind", ["file", "dataset"])
def test_a_folder_that_is_removed_meanwhile_is_named(trained, works, tmp_path, monkeypatch, kind):
    work, out = works[kind], tmp_path / "out"

    def remove(self):
        shutil.rmtree(out)
        self._program.missing()

    monkeypatch.setattr(driver._Workers, "run", remove)
    with pytest.raises(OutputError, match=rf"{out} was removed while the swarm was at work. Run"):
        work.finish(out)


def test_pieces_of_others_and_damaged_ones_are_refused(works, tmp_path):
    work, out = works["dataset"], tmp_path / "out"
    program = work.program(out)
    replace(program, made_from="other").make(3)
    with pytest.raises(DataError, match=r"\.piece-00003 holds predictions of another model"):
        predict(work.request(out))
    piece = outputs.piece_path(out, 3)
    whole = piece.read_bytes()
    piece.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for command in (work.finish, lambda out: predict(work.request(out))):
        with pytest.raises(DataError, match=r"\.piece-00003 is damaged.*Remove it, then run"):
            command(out)
    piece.unlink()
    work.finish(out)


def test_a_lease_passes_on_when_its_holder_shows_no_sign(tmp_path, monkeypatch):
    clock = 0
    monkeypatch.setattr(leases.time, "monotonic", lambda: clock)
    first, *others = (Leases(tmp_path, name, 10) for name in ("a", "b", "c"))
    assert first.take([4, 7]) == Lease(4, 1)
    assert others[0].take([4, 7]) == Lease(7, 1)
    assert [one.take([4, 7]) for one in others] == [None, None]
    clock = 9
    (tmp_path / Lease(7, 1).name).write_text("b 1")
    assert [one.take([4, 7]) for one in others] == [None, None]
    clock = 10
    # Only one of those who wait takes it.
    assert [one.take([4, 7]) for one in others] == [Lease(4, 2), None]
    clock = 19
    assert [one.take([7]) for one in others] == [Lease(7, 2), None]
    with others[0].hold(Lease(4, 2)):
        assert (tmp_path / Lease(4, 2).name).exists()
    assert sorted(leases.find_leases(tmp_path)) == [Lease(4, 1), Lease(7, 1), Lease(7, 2)]
    # What cannot be read for so long is nobody's, either.
    (tmp_path / Lease(9, 1).name).mkdir()
    assert others[1].take([9]) is None
    clock = 29
    assert others[1].take([9]) == Lease(9, 2)
    for path in (tmp_path / Lease(9, 1).name).parent.glob(f"{leases.LEASE}00009-*"):
        path.rmdir() if path.is_dir() else path.unlink()
    leases.give_back(tmp_path, "a")
    assert sorted(leases.find_leases(tmp_path)) == [Lease(7, 1), Lease(7, 2)]
    leases.give_back(tmp_path, "b")
    assert content(tmp_path) == {}


@pytest.mark.slow
def test_a_part_that_cannot_be_predicted_is_named_and_the_others_are_there(
    trained, file, tmp_path, monkeypatch
):
    lines = (trained / "new.csv").read_text().splitlines()
    lines[701] = "wrong" + lines[701][lines[701].index(",") :]
    (trained / "bad.csv").write_text("\n".join(lines) + "\n")
    bad = file_of(trained, "bad.csv")
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            swarm(trained, bad, tmp_path / "out")
        assert "bad.csv, row 701" in str(caught.value)
        count = len(bad.parts)
        assert f"{count - 1} of {count} parts are written" in str(caught.value)
        names = {*content(tmp_path / "out")}
        assert len(names) == count + 1
        assert {"_prediction.json", "_swarm.json"} < names


def test_who_does_not_fit_is_refused(trained, file, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("mine")
    with pytest.raises(OutputError, match="does not contain predictions"):
        swarm(trained, file, tmp_path / "mine")
    assert [*content(tmp_path / "mine")] == ["a.txt"]
    out = tmp_path / "out"
    out.mkdir()
    driver._join(model_in(trained), out, "other", print)
    before = content(out)
    with pytest.raises(OutputError, match="predicts other data, or by another model"):
        swarm(trained, file, out)
    told = json.loads(before["_swarm.json"])
    told["versions"]["gradreduce"] = "0.0.1"
    (out / "_swarm.json").write_text(json.dumps(told))
    with pytest.raises(UsageError, match=r"workers of one version.*gradreduce: 0\.0\.1, now"):
        driver._join(model_in(trained), out, "other", print)
    (out / "_swarm.json").write_text("{")
    with pytest.raises(DataError, match=r"_swarm\.json is damaged"):
        swarm(trained, file, out)
    (out / "_swarm.json").unlink()
    assert swarm(trained, file, out)[0] == (1500, [])
    with pytest.raises(OutputError, match="predictions of another model or of other data"):
        swarm(trained, replace(file, sha256="0"), out)
    assert content(out) == content(trained / "expected")


def test_nothing_is_left_where_no_part_could_be_predicted(trained, tmp_path):
    table = table_of(5, 1, False).to_pydict()
    table["x03"][2] = "wrong"
    pyarrow.csv.write_csv(
        pa.table({**table, "x03": [*map(str, table["x03"])]}), tmp_path / "bad.csv"
    )
    bad = cutting.cut(Request(model_in(trained), tmp_path / "bad.csv", INLINE))
    with pytest.raises(DataError, match="row 3"):
        swarm(trained, bad, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_predict_goes_on_with_what_a_swarm_has_begun_and_tidies_up(trained, file, tmp_path):
    out, model = tmp_path / "out", model_in(trained)
    program = program_of(trained, file, out)
    driver._join(model, out, program.made_from, print)
    [*program.task(InMemory(1), Layout(1, 1)).map(LeafRange(0, 0, 2))]
    (out / Lease(5, 1).name).write_text("gone 3")
    # One of another model keeps away.
    with pytest.raises(OutputError, match="of another model or of other data"):
        outputs.claim(out, {"model_sha256": "other"})
    files.predict(Request(model, file.path, INLINE, out), file)
    assert content(out) == content(trained / "expected")


def test_parts_of_others_are_seen(trained, file, tmp_path):
    program = program_of(trained, file, tmp_path / "out")
    other = replace(program, made_from="other")
    [*other.task(InMemory(1), Layout(1, 1)).map(LeafRange(0, 1, 2))]
    with pytest.raises(DataError, match=r"part-00001.parquet holds predictions of another model"):
        swarm(trained, file, tmp_path / "out")
    made_from = outputs.made_from(Request(model_in(trained), file.path, INLINE), file.sha256)
    (tmp_path / "out" / "_prediction.json").write_text("{}")
    with pytest.raises(OutputError, match="at the same time"):
        outputs.finish(tmp_path / "out", made_from)


def test_a_worker_says_what_it_could_not_read(trained, file, tmp_path, capfd):
    program = program_of(trained, file, tmp_path / "out")
    given = {"program": program.describe(), "worker": "a", "patience": 1.0}
    shutil.rmtree(tmp_path / "out")
    assert main(json.dumps(given)) == 74
    assert f"cannot read {tmp_path / 'out'}" in json.loads(capfd.readouterr().out)["error"]
    place = program.model._replace(completed=99)
    given["program"] = replace(program, model=place).describe()
    assert main(json.dumps(given)) == 65
    assert "trained on meanwhile" in json.loads(capfd.readouterr().out)["error"]


def test_workers_that_all_end_too_early(trained, file, tmp_path, monkeypatch):
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    (tmp_path / "ended.py").write_text(code)
    monkeypatch.setattr(driver.worker, "__name__", "ended")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    told = []
    with pytest.raises(GradreduceError, match="exit codes -9, -9") as caught:
        request = request_in(trained, out=tmp_path / "out", tell=told.append)
        driver.predict_file(request, file, workers=2, patience=PATIENCE)
    assert "0 of" in str(caught.value)
    assert sum(line.endswith("the others go on") for line in told) == 1


@pytest.mark.slow
def test_commands(trained, tmp_path):
    said = succeed("swarm", trained / "run", trained / "new.csv", tmp_path / "out", "--json")
    assert json.loads(said) == {"rows": 1500, "out": str(tmp_path / "out")}
    succeed("predict", trained / "run", trained / "new.csv", tmp_path / "one")
    assert content(tmp_path / "out") == content(tmp_path / "one")
    data = trained / "data"
    said = succeed("swarm", trained / "run", data, tmp_path / "data", "--workers", 1)
    assert said == f"{tmp_path / 'data'}: 1,500 predictions\n"
    assert content(tmp_path / "data") == content(trained / "expected-of-data")
    (sparse := tmp_path / "a.libsvm").write_text("1 1:2\n")
    command = ["swarm", trained / "run", trained / "new.csv"]
    for arguments, expected in (
        ((*command, tmp_path / "out.csv"), "expected a folder"),
        ((*command[:2], data, "--keep", "all", tmp_path / "no"), "--keep"),
        ((*command[:2], sparse, tmp_path / "no"), "expected a run of a model of sparse rows"),
    ):
        assert expected in fails(2, *arguments)


@pytest.fixture(scope="module")
def several_parts(trained):
    """A file of several parts, and what one command makes of it."""
    pyarrow.csv.write_csv(table_of(80_000, 2, False), path := trained / "several.csv")
    succeed("predict", trained / "run", path, trained / "expected-of-several")
    return path, content(trained / "expected-of-several")


@contextlib.contextmanager
def another_at_work(request):
    """A worker of the same swarm has the first part, and lives: nobody comes to an end."""
    file = cutting.cut(request)
    made_from = outputs.made_from(request, file.sha256)
    assert len(file.parts) > 2
    outputs.make_folder(request.out)
    driver._join(request.fitted, request.out, outputs.digest_of(made_from), print)
    outputs.claim(request.out, made_from, for_swarm=True)
    other = Leases(request.out, "other", PATIENCE)
    with other.hold(other.take([0])):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_what_it_has_done(
    trained, several_parts, tmp_path, number
):
    (path, expected), out = several_parts, tmp_path / "out"
    command = ["swarm", trained / "run", path, out, "--workers", 1, "--patience", PATIENCE]
    with another_at_work(Request(model_in(trained), path, INLINE, out)):
        process = programs.start(*command)
        programs.wait_until(lambda: any(out.glob("part-*")) or process.poll() is not None)
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode in (-number, 128 + number), err
    programs.wait_until(lambda: not programs.processes_of(str(path)))
    if number == signal.SIGINT:
        assert "the same command goes on with the others" in err
        assert leases.find_leases(path_of(str(out))) == []
    # Nobody else is there: a lease is of the worker that was killed.
    succeed(*command[:-1], 1)
    assert content(out) == expected
