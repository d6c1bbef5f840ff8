"""Files of a run are damaged or gone: it goes back to what is whole, and advice works."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import datasets
import programs
from mapreduce.cli.main import main
from mapreduce.errors import DataError, LeftOutWarning
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint, events
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, RunStarted, Warned
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("pinned")]

SETTINGS = Settings("mlp:9", optimizer="adam", batch_size=96, rounds=10, checkpoint_every=4)
PATIENT = Settings(
    "softmax", batch_size=16, learning_rate=40.0, rounds=200, eval_every=2, patience=4
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    datasets.blobs(folder / "train")
    datasets.blobs(folder / "test", (60,), seed=1)
    for name, settings in (("plain", SETTINGS), ("patient", PATIENT)):
        train(creating.create(folder / name, settings, folder / "train", folder / "test"))
    return folder


def train(run, executor="chain"):
    """Train, or go on; how it ended, and what was told."""
    seen = []
    execution = Execution("inline", executor=executor, workers=1)
    return driver.train(run, execution, 0, Events(seen.append)), seen


def copied(data, tmp_path, name="plain"):
    shutil.copytree(data / name, tmp_path / "run")
    return RunDir(tmp_path / "run")


def flip(path):
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def folder_of(run, completed):
    return run.checkpoints / f"{completed:08d}"


WAYS = {
    "a flipped bit": lambda folder: flip(folder / checkpoint.MODEL),
    "cut short": lambda folder: (folder / checkpoint.OPTIMIZER).write_bytes(b"\0" * 7),
    "no text": lambda folder: (folder / checkpoint.MARKER).write_bytes(b"\xff\xfe"),
    "no object": lambda folder: (folder / checkpoint.MARKER).write_bytes(b"[" * 100_000),
    "empty": lambda folder: [path.unlink() for path in folder.iterdir()],
    "gone": shutil.rmtree,
    "another": lambda folder: (
        shutil.rmtree(folder),
        shutil.copytree(folder.parent / "00000004", folder),
    ),
}


def follow(text, capsys):
    """Do what a message advises; the output of the last command."""
    files = re.findall(r"[Rr]emove (/\S+?)[;,.]? ", text)
    for path in dict.fromkeys(files):
        Path(path).unlink()
    (command,) = set(re.findall(r"'(gradreduce [^']*)'", text))
    assert main(shlex.split(command)[1:]) == 0
    return capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("with_rounds", [True, False])
def test_a_damaged_result_is_refused_and_made_again(data, tmp_path, capsys, way, with_rounds):
    run = copied(data, tmp_path)
    before, result = run.result(), (run.path / "result.json").read_bytes()
    scored = programs.succeed("evaluate", run.path, data / "test")
    WAYS[way](folder_of(run, 10))
    if not with_rounds:
        shutil.rmtree(run.rounds.folder)
        run.rounds.folder.mkdir()
    assert main(["predict", str(run.path), str(data / "test"), str(tmp_path / "out")]) == 65
    assert not (tmp_path / "out").exists()
    assert main(["evaluate", str(run.path), str(data / "test")]) == 65
    told = capsys.readouterr()
    assert main(["explain", str(run.path), "--round", "9"]) == 0
    assert ("00000010" in capsys.readouterr().err) == (way != "gone")
    assert main(["runs", "list", str(tmp_path)]) == 0
    assert before.model_sha256[:12] in capsys.readouterr().out
    assert before.model_sha256 in follow(told.err, capsys).out
    assert (run.path / "result.json").read_bytes() == result
    position = checkpoint.load(run, run.config.plan.create_model(), 10)
    checkpoint.check_result(run.config.plan.create_model(), position, before)
    assert main(["evaluate", str(run.path), str(data / "test")]) == 0
    assert capsys.readouterr() == (scored, "")


def test_if_nothing_is_whole_the_run_begins_again(data, tmp_path, capsys):
    run = copied(data, tmp_path)
    before = run.result()
    for path in run.path.rglob("*.block"):
        flip(path)
    for completed in checkpoint.saved_rounds(run):
        WAYS["a flipped bit"](folder_of(run, completed))
    assert main(["evaluate", str(run.path), str(data / "test")]) == 65
    assert before.model_sha256 in follow(capsys.readouterr().err, capsys).out
    for completed in checkpoint.saved_rounds(run):
        checkpoint.load(run, run.config.plan.create_model(), completed)


@pytest.mark.parametrize("name", ["rounds", "checkpoints", "evaluations"])
def test_a_folder_that_a_copy_lacks_is_made_again(data, tmp_path, name):
    run = copied(data, tmp_path)
    (run.path / "result.json").unlink()
    shutil.rmtree(run.path / name)
    assert train(run)[0] == RunDir(data / "plain").result()


def test_a_result_that_cannot_be_made_again_is_told(data, tmp_path, capsys):
    """As on another processor: nothing is put in its place but by the user's own hand."""
    run = copied(data, tmp_path)
    content = run.read_json("result.json")
    (run.path / "result.json").write_text(json.dumps({**content, "model_sha256": "0" * 64}))
    assert main(["resume", str(run.path)]) == 65
    told = capsys.readouterr().err
    assert "names another model than" in told
    follow(told, capsys)
    assert run.read_json("result.json") == content


@pytest.mark.parametrize("executor", ["chain", "gang"])
@pytest.mark.parametrize("way", ["a flipped bit", "gone"])
def test_the_best_model_is_made_again(data, tmp_path, way, executor):
    """It is not the last one, which is whole; nor do later evaluations end the run before it."""
    run = copied(data, tmp_path, "patient")
    before = run.result()
    assert before.completed > 2
    assert before.stopped_early
    WAYS[way](folder_of(run, before.completed))
    ended, seen = train(run, executor)
    assert ended == before
    started = next(event for event in seen if isinstance(event, RunStarted))
    assert started.completed < before.completed
    told = "".join(event.message for event in seen if isinstance(event, Warned))
    assert ("model.safetensors is damaged" in told) == (way == "a flipped bit")
    position = checkpoint.load(run, run.config.plan.create_model(), before.completed)
    checkpoint.check_result(run.config.plan.create_model(), position, before)


@pytest.mark.parametrize("executor", ["chain", "gang"])
@pytest.mark.parametrize("back_to", [0, 2])
def test_what_came_after_a_fall_back_does_not_count_until_it_is_reached(
    data, tmp_path, monkeypatch, back_to, executor
):
    run = copied(data, tmp_path, "patient")
    before, log = run.result(), events.read(run.path / "events.jsonl")
    (run.path / "result.json").unlink()
    for path in run.path.rglob("*.block"):
        flip(path)
    for completed in checkpoint.saved_rounds(run):
        if completed > back_to:
            WAYS["a flipped bit"](folder_of(run, completed))
    assert not run.is_out_of_patience(back_to)

    def stop(_training, position):
        assert position.completed == back_to
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(driver.Driver, "advance", stop)
        with pytest.raises(KeyboardInterrupt):
            train(run)
    assert run.summary()["completed"] == back_to
    ended, _ = train(run, executor)
    assert ended == before
    for kind in ("RoundCompleted", "Evaluated", "RunEnded"):
        now, then = (
            [{**event, "time": 0} for event in found if event["event"] == kind]
            for found in (events.read(run.path / "events.jsonl"), log)
        )
        assert now == then


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"\xff\xfe", b"[]", b"{}", b'{"rows": 0}', b"", None])
@pytest.mark.parametrize("name", ["plain", "patient"])
def test_a_damaged_evaluation_is_made_again(data, tmp_path, name, content):
    run = copied(data, tmp_path, name)
    before, losses = run.result(), run.evaluation_losses()
    (run.path / "result.json").unlink()
    path = run.evaluations / f"{before.completed:08d}.json"
    path.unlink() if content is None else path.write_bytes(content)
    ended, _ = train(run)
    assert ended == before
    assert run.evaluation_losses() == losses


@pytest.mark.parametrize("name", ["result.json", "profile.json", "execution.json"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"{", b"[1]", b"[" * 100_000])
def test_a_damaged_file_says_how_to_go_on(data, tmp_path, capsys, name, content):
    run = copied(data, tmp_path)
    before = run.result()
    if name != "result.json":
        (run.path / "result.json").unlink()
    (run.path / name).write_bytes(content)
    assert main(["resume", str(run.path)]) == 65
    told = capsys.readouterr().err
    assert f"{name} is damaged" in told
    assert before.model_sha256 in follow(told, capsys).out
    assert run.result() == before


def test_an_evaluation_that_is_read_from_a_stopped_run(data, tmp_path, capsys):
    """A run that has not ended yet; then one that has no checkpoint."""
    run = copied(data, tmp_path)
    (run.path / "result.json").unlink()
    shutil.rmtree(run.rounds.folder)
    run.rounds.folder.mkdir()
    WAYS["cut short"](folder_of(run, 10))
    assert main(["evaluate", str(run.path), str(data / "test")]) == 65
    follow(capsys.readouterr().err, capsys)
    shutil.rmtree(run.path)
    creating.create(run.path, SETTINGS, data / "train", data / "test")
    assert main(["evaluate", str(run.path), str(data / "test")]) == 66
    follow(capsys.readouterr().err, capsys)
    assert main(["evaluate", str(run.path), str(data / "test")]) == 0


# The log


LINES = [
    b"\xff\xfe\x00\n",
    b'{"event": "RoundCompl\n',
    b'{"event": "Later", "completed": 3}\n',
    b'{"event": "RoundCompleted", "completed": "many", "rows": 1, "loss": 0.5}\n',
    b'{"event": "RoundCompleted", "completed": 5}\n',
    b'{"event": "RoundCompleted", "completed": 5, "rows": 1, "loss": NaN}\n',
    b'{"event": "RoundCompleted", "completed": 5, "rows": 1, "loss": 1e999}\n',
    b'{"event": ["RoundCompleted"]}\n',
    b'["event"]\n',
    b"5\n",
    b"[" * 100_000 + b"\n",
]


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_log_stops_nobody(data, tmp_path, capsys, is_ended):
    run = copied(data, tmp_path)
    before = run.summary()
    log = run.path / "events.jsonl"
    log.write_bytes(b"".join(LINES) + log.read_bytes() + b'{"event": "Eval')
    if not is_ended:
        (run.path / "result.json").unlink()
    ended, seen = train(run)
    assert ended.model_sha256 == before["model_sha256"]
    told = [event.message for event in seen if isinstance(event, Warned)]
    if not is_ended:
        assert len(told) == 1
        assert re.search(r"events.jsonl: 12 of \d+ lines are not events", told[0])
    with pytest.warns(LeftOutWarning, match="lines are not events"):
        assert run.summary() == before
    capsys.readouterr()
    for command in (
        ["list", str(tmp_path)],
        ["show", str(run.path)],
        ["compare", str(run.path), str(run.path)],
    ):
        assert main(["runs", *command]) == 0
        shown = capsys.readouterr()
        assert shown.err.count("warning: ") == 1
    assert main(["runs", "list", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert before["model_sha256"][:12] in shown.out
    assert main(["explain", str(run.path), "--round", "9"]) == 0
    assert main(["logs", str(run.path)]) in (66, 69)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (name, content)
        for name in ("run.json", "result.json")
        for content in (b"\xff", b"", b"[]", b"null", b"[" * 100_000, b'{"completed": "x"}')
    ],
)
def test_runs_are_listed_beside_one_that_is_damaged(data, tmp_path, answer, name, content):
    run = copied(data, tmp_path)
    shutil.copytree(run.path, tmp_path / "a whole one")
    (run.path / name).write_bytes(content)
    whole, damaged = answer(0, "runs", "list", tmp_path).out.splitlines()
    assert "a whole one" in whole
    assert " ended " in whole
    assert re.search(rf"/run +damaged +.*{name}", damaged)
    listed = json.loads(answer(0, "runs", "list", tmp_path, "--json").out)["runs"]
    assert [run["state"] for run in listed] == ["ended", "damaged"]


def test_a_storage_that_cannot_be_read_is_not_damage(data, tmp_path, monkeypatch):
    """Nothing is trained again for that, and no other model is scored."""
    run = copied(data, tmp_path)
    monkeypatch.setattr(
        type(run.path), "read_bytes", lambda path: (_ for _ in ()).throw(OSError(5, "I/O error"))
    )
    with pytest.raises(Exception, match="I/O error") as error:
        checkpoint.load(run, None, 10)
    assert not isinstance(error.value, DataError)
