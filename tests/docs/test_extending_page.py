"""Every block of docs/extending.md works as it stands there, and each part has one hash."""

import os
import re
import sys
import tomllib

import pytest
from safetensors.numpy import load_file
from test_readme import PATH, ROOT, blocks, shell

import programs
from mapreduce.runs.directory import RunDir

TEXT = (ROOT / "docs" / "extending.md").read_text()

FILES = {
    name: block
    for block in blocks("python", TEXT)
    for name in re.findall(r"\A# (\w+\.py)\n", block)
}


def installed(folder):
    """The shell, for which the package of the page is installed in a folder."""
    (page,) = (block for block in blocks("toml", TEXT) if "[project]" in block)
    project = tomllib.loads(page)["project"]
    ((group, points),) = project["entry-points"].items()
    programs.install(folder, project["name"], group, *next(iter(points.items())))
    return lambda line, cwd: shell(f"PYTHONPATH={folder};export PYTHONPATH;{line}", cwd)


@pytest.mark.slow
def test_blocks_in_order(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    found = {}
    for language, block in re.findall(r"^```(python|sh)\n(.*?)^```$", TEXT, re.M | re.S):
        if language == "sh":
            run = installed(tmp_path) if "-r polite" in block else shell
            found |= {line: run(line, tmp_path) for line in block.splitlines()}
        elif block not in FILES.values():
            found[block] = programs.ran(
                sys.executable, "-c", block, cwd=tmp_path, env={**os.environ, "PATH": PATH}
            ).stdout
    runs = {path.name: RunDir(path) for path in (tmp_path / "runs").iterdir() if path.is_dir()}
    results = {name: run.result() for name, run in runs.items()}
    for name, least in (("centres", 0.8), ("lion", 0.8), ("voting", 0.8)):
        assert runs[name].summary()["accuracy"] > least, name
    assert results["again"].model_sha256 in found[blocks("python", TEXT)[-2]]
    assert results["again"].model_sha256 == results["centres"].model_sha256
    assert results["polite"].model_sha256 == results["centres"].model_sha256
    (last,) = (tmp_path / "runs" / "huber" / "checkpoints").iterdir()
    weight = load_file(last / "model.safetensors")["weight"]
    # Least squares would be far off: the errors have no variance.
    assert abs(weight - [1, 2, 3, 4, 5]).max() < 0.3
    (told,) = [text for line, text in found.items() if line.startswith("gradreduce explain")]
    assert "vote" in told
    (told,) = [text for block, text in found.items() if "from k_means" in block]
    (here,) = {*told.splitlines()}
    assert here.startswith("18 rounds, ")
    (told,) = [text for block, text in found.items() if "from fisher" in block]
    # Any executor, and any order of the rows.
    scores = [line for line in told.splitlines() if re.fullmatch(r"\d+ \w{16}", line)]
    assert len(scores) == 4 and len({*scores}) == 1
    (told,) = [text for block, text in found.items() if "from threads" in block]
    assert {one for one in told.splitlines() if len(one) == 64} == {
        results["by-chain"].model_sha256
    }
    for name in ("by-threads-Threads", "by-threads-Threads-at_once=3"):
        assert results["by-chain"] == results[name]
        assert runs["by-chain"].evaluation_losses() == runs[name].evaluation_losses() != {}
    (tested,) = [text for line, text in found.items() if line.startswith("python")]
    assert "4 passed" in tested
