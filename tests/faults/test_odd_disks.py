"""Disks without hard links, as FAT, exFAT and many mounts of FUSE: all works there."""

import json
import os
import shutil
import subprocess

import pytest

import datasets
import programs
from hdfs_utils.errors import StorageError
from hdfs_utils.publish import SUCCESS
from mapreduce.cli.main import main
from mapreduce.runners.parallel import runner as parallel
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir

pytestmark = pytest.mark.fault

#: What every process of a command finds in the place of ``os.link``.
REFUSE = """
import errno, os
def link(*_, **__):
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
os.link = link
"""


@pytest.mark.slow
def test_everything_works_without_links(tmp_path):
    folder, site = tmp_path / "disk", tmp_path / "site"
    folder.mkdir()
    site.mkdir()
    (site / "sitecustomize.py").write_text(REFUSE)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    datasets.blobs(tmp_path / "train")
    (tmp_path / "rows.csv").write_text("a,b,y\n" + "1,2,0\n4,3,1\n" * 20)
    command = ["--model", "mlp:9", "--rounds", 12, "--batch-size", 96, "--checkpoint-every", 4]
    expected = json.loads(
        programs.succeed("train", tmp_path / "train", "--run", tmp_path / "run", *command, "--json")
    )

    def done(*arguments):
        return programs.succeed(*arguments, env=environment)

    done("data", "import", "--format", "csv", tmp_path / "rows.csv", "--label", "y", folder / "csv")
    done("data", "verify", folder / "csv")
    done("data", "copy", tmp_path / "train", folder / "train")
    for executor in ("chain", "gang"):
        run = folder / executor
        options = ["--executor", executor, "--workers", 2, "--json"]
        trained = done("train", folder / "train", "--run", run, *command, *options)
        assert json.loads(trained)["model_sha256"] == expected["model_sha256"]
        assert checkpoint.saved_rounds(RunDir(run)) == [4, 8, 12]
    # A driver that was killed before its last checkpoint.
    (folder / "chain/result.json").unlink()
    shutil.rmtree(folder / "chain/checkpoints/00000012")
    shutil.rmtree(folder / "chain/rounds")
    (folder / "chain/rounds").mkdir()
    resumed = json.loads(done("resume", folder / "chain", "--json"))
    assert resumed["model_sha256"] == expected["model_sha256"]
    done("evaluate", folder / "chain", folder / "train")
    done("predict", folder / "chain", folder / "train", folder / "predictions")
    assert (folder / "predictions" / SUCCESS).exists()
    job = tmp_path / "count.py"
    job.write_text(programs.COUNT + "\n\nif __name__ == '__main__':\n    Count.run()\n")
    done("run", job, tmp_path / "rows.csv", "-o", folder / "out", "--no-conf", "-q")
    assert (folder / "out" / SUCCESS).exists()
    assert not [path for path in folder.rglob("*") if path.name.endswith(".tmp")]


@pytest.mark.parametrize("runner", ["parallel", "inline"])
def test_an_output_that_is_whole_is_never_deleted(tmp_path, monkeypatch, capfd, runner):
    """What fails after the last record leaves the parts: the marker, or a reader of the output."""
    (tmp_path / "text").write_text("a b a\n")
    (tmp_path / "count.py").write_text(programs.COUNT)

    def full(path, *_content, **_options):
        raise StorageError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(parallel.publish, "put_if_absent", full)
    monkeypatch.setattr("mapreduce.launch.run._write", lambda _: full("the output"))
    out = tmp_path / "out"
    job = [str(tmp_path / "count.py"), str(tmp_path / "text")]
    code = main(["run", *job, "-o", str(out), "--cat-output", "--no-conf", "-q", "-r", runner])
    assert code == 74
    parts = b"".join(path.read_bytes() for path in sorted(out.glob("part-*")))
    assert sorted(parts.splitlines()) == [b'"a"\t2', b'"b"\t1']
    error = capfd.readouterr().err
    if runner == "parallel":
        advice = error.partition("mark it as such with: ")[2].split("\n")[0]
        monkeypatch.undo()
        subprocess.run(advice, shell=True, check=True)
        again = ["run", str(tmp_path / "count.py"), str(out), "--no-conf", "-q", "-r", runner]
        assert main(again) == 0
