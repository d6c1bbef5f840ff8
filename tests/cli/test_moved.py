"""Data that have moved are named again, and compared with the run's digests."""

import json
import shutil

import pytest

import mapreduce
from datasets import blobs
from mapreduce.runs.directory import RunDir
from programs import gradreduce, succeed


@pytest.fixture
def folder(tmp_path):
    """A run whose data have moved to ``there``, half of its rounds done; and other data."""
    blobs(tmp_path / "train")
    blobs(tmp_path / "test", (60,), seed=1)
    blobs(tmp_path / "other", seed=2)
    command = ["train", "train", "--eval", "test", "-r", "inline", "-q", "--epochs", 1]
    succeed(*command, "--checkpoint-every", 2, "--run", "run", cwd=tmp_path)
    shutil.copytree(tmp_path / "run", tmp_path / "whole")
    run = RunDir(tmp_path / "run")
    (run.path / "result.json").unlink()
    for path in (*run.rounds.folder.iterdir(), *run.evaluations.iterdir()):
        path.unlink()
    shutil.rmtree(run.checkpoints / "00000005")
    shutil.rmtree(run.checkpoints / "00000004")
    (tmp_path / "there").mkdir()
    for name in ("train", "test"):
        (tmp_path / name).rename(tmp_path / "there" / name)
    return tmp_path


def fails(folder, code, *arguments):
    done = gradreduce(*arguments, cwd=folder)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    return done.stderr


def shown(folder, run):
    return json.loads(succeed("runs", "show", run, "--json", cwd=folder))


@pytest.mark.slow
def test_resume(folder):
    assert "are gone" in (message := fails(folder, 66, "resume", "run", "-q"))
    assert "name their folder by --data" in message
    half = ["resume", "run", "-q", "--data", "there/train"]
    assert "name their folder by --eval" in fails(folder, 66, *half)
    assert "other" in fails(folder, 65, "resume", "run", "-q", "--data", "other")
    assert not (folder / "run/moved.json").exists()
    succeed(*half, "--eval", "there/test", cwd=folder)
    found, expected = shown(folder, "run"), shown(folder, "whole")
    assert found["model_sha256"] == expected["model_sha256"]
    assert found["eval_loss"] == expected["eval_loss"]
    assert found["data"] == str(folder / "there/train")
    assert found["plan_sha256"] == expected["plan_sha256"]
    # The run keeps where they are.
    succeed("explain", "run", "--json", cwd=folder)
    assert succeed("evaluate", "run", cwd=folder).endswith(
        succeed("evaluate", "run", "there/test", cwd=folder)
    )


def test_resume_in_python(folder):
    run = mapreduce.open_run(folder / "run")
    there = {
        name: folder / "there" / at for name, at in (("data", "train"), ("evaluation", "test"))
    }
    run.resume(progress=False, **there)
    assert run.model_sha256 == shown(folder, "whole")["model_sha256"]


def test_explain(folder):
    assert "--data" in fails(folder, 66, "explain", "whole")
    fails(folder, 65, "explain", "whole", "--data", "other")
    trace = json.loads(succeed("explain", "whole", "--data", "there/train", "--json", cwd=folder))
    assert trace["number"] == 4
    assert trace["facts"]["data"] == str(folder / "there/train")
    assert not (folder / "whole/moved.json").exists()
    (folder / "job.py").write_text("")
    assert "--data is for the folder of a run" in fails(
        folder, 2, "explain", "job.py", "--data", "x"
    )


def test_evaluate(folder):
    assert "--data" in fails(folder, 66, "evaluate", "whole")
    fails(folder, 65, "evaluate", "whole", "--data", "other")
    fails(folder, 2, "evaluate", "whole", "other", "--data", "there/test")
    found = json.loads(succeed("evaluate", "whole", "--data", "there/test", "--json", cwd=folder))
    expected = shown(folder, "whole")
    assert (found["loss"], found["accuracy"]) == (expected["eval_loss"], expected["accuracy"])
    command = ["train", "there/train", "--run", "alone", "--rounds", 1, "-q", "-r", "inline"]
    succeed(*command, cwd=folder)
    assert "trained without --eval" in fails(folder, 2, "evaluate", "alone")


@pytest.mark.parametrize("content", ["[]", '{"data": 3}', '{"data": "s3://bucket/train"}'])
def test_a_strangers_file_is_not_trusted(folder, content):
    (folder / "run/moved.json").write_text(content)
    message = fails(folder, 2 if "s3" in content else 65, "resume", "run", "-q")
    assert "--remote-data s3://bucket/train" in message or "moved.json is damaged" in message
