"""The classic, against a loop, on every runner and in every way to start it."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "licence.txt"
    extra = "Don't, don't! Größe größe_2 Ελλάδα\n\n  \t naïve-café 1,000\nend without line feed"
    path.write_text((ROOT / "LICENSE").read_text() + extra)
    return path


def expected(path):
    return Counter(re.findall(r"[\w']+", path.read_text().lower()))


@pytest.mark.parametrize("runner", ["inline", "parallel", "local"])
@pytest.mark.parametrize("program", [["-m", "jobs.word_count"], ["jobs/word_count.py"]])
def test_against_a_loop(text, runner, program):
    command = [sys.executable, *program, "-r", runner, "--no-conf", "-q", str(text)]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pairs = [[json.loads(part) for part in line.split("\t")] for line in out.splitlines()]
    assert len(pairs) == len(dict(pairs))
    assert dict(pairs) == expected(text)


def test_job_files_are_short_and_say_what_is_next():
    for path in (ROOT / "jobs").glob("[a-z]*.py"):
        source = path.read_text()
        assert len(source.splitlines()) <= 80
        for heading in ("builds on", "adds", "run me"):
            assert f"\n{heading}" in source, (path, heading)
        assert path.name in (ROOT / "jobs/README.md").read_text()
