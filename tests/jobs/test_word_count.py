"""The classic in its three forms: against a loop on text of many kinds, and byte by byte."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import naive

ROOT = Path(__file__).parents[2]


def run(name, runner, *arguments):
    command = [sys.executable, f"jobs/{name}.py", "-r", runner, "--no-conf", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_all_files_agree_to_the_byte(tmp_path):
    """Also on lines that are not UTF-8, which are read as Latin-1, and on separators of Unicode."""
    generator = random.Random(7)
    letters = "abcXYZ019_'äÖßΣσςİıſ٣日本 \t\r-.,\x0b\x85\u2028\u0301"
    with (tmp_path / "text").open("wb") as out:
        for _ in range(3000):
            line = "".join(generator.choices(letters, k=generator.randrange(40)))
            encoding = "latin-1" if generator.random() < 0.1 else "utf-8"
            out.write(line.encode(encoding, "replace") + b"\n")
        out.write(b"broken \xff\xfe utf-8 \xc3\n\x00 nul")
    parts = []
    for name in ("word_count", "word_count_combiner", "word_count_vectorized"):
        run(name, "parallel", "-o", tmp_path / name, tmp_path / "text")
        parts.append({path.name: path.read_bytes() for path in tmp_path.glob(f"{name}/part-*")})
    assert len(parts[0]) == len(os.sched_getaffinity(0))
    assert parts[0] == parts[1] == parts[2]
    lines = sorted(b"".join(parts[0].values()).decode().splitlines())
    assert sorted(run("word_count", "inline", tmp_path / "text").splitlines()) == lines
    pairs = [[json.loads(part) for part in line.split("\t")] for line in lines]
    counts = naive.word_counts((tmp_path / "text").read_bytes())
    assert sorted(pairs) == sorted([word.decode(), count] for word, count in counts.items())
