"""Tables on HDFS: tasks read them, and the driver learns of them no more than it must."""

import json
import random
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from hdfs_utils.paths import path_of
from programs import gradreduce, succeed

COUNTED = Path(__file__).with_name("counted.py")


def rows(count, seed=0):
    """Lines of a table whose label follows from its columns."""
    chance = random.Random(seed)
    for _ in range(count):
        size, town = chance.gauss(0, 3), chance.choice("abc")
        label = "high" if size + 2 * (town == "a") + chance.gauss(0, 1) > 1 else "low"
        yield f'{size:.6f},{chance.random():.9f},"town {town}","{label}"\n'


@pytest.fixture
def place(cluster):
    path = path_of(f"hdfs:///tests/tables-{secrets.token_hex(4)}")
    path.mkdir(parents=True)
    yield path
    path.rmtree()


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_import(place, tmp_path):
    """A line feed in quotes lies in each block; at last there is a row that is none."""
    lines = [*rows(150_000)]
    lines[::1000] = [line.replace("town ", "town\n") for line in lines[::1000]]
    text = "size,chance,town,label\n" + "".join(lines)
    (here := tmp_path / "table.csv").write_text(text)
    (far := place / "table.csv").write_bytes(text.encode())
    succeed("data", "import", here, tmp_path / "data", "-q")
    told = gradreduce("data", "import", far, place / "data", "-r", "hadoop")
    assert told.returncode == 0 and "pass through this machine" not in told.stderr
    assert content(place / "data") == content(tmp_path / "data")
    far.write_bytes(text.encode(), b"1,2,a\n")
    told = gradreduce("data", "import", far, place / "wrong", "-r", "hadoop", "-q")
    message = f"error: {far}, row 150001: expected 4 fields, found 3\n"
    assert (told.returncode, told.stderr) == (65, message)
    assert [path.name for path in place.iterdir()] == ["data", "table.csv"]


@pytest.mark.long
def test_a_gigabyte_does_not_pass_through_the_driver(place, tmp_path):
    lines = "".join(rows(25_000)).encode()
    head, many = b"size,chance,town,label\n", (1 << 30) // len(lines) + 1
    (here := tmp_path / "table.csv").write_bytes(head + lines * many)
    (far := place / "table.csv").write_bytes(head, *[lines] * many)
    (first := place / "first.csv").write_bytes(head, lines)
    succeed("data", "import", first, place / "train", "-q")
    succeed(
        "train", place / "train", "--run", place / "run", "--model", "logistic", "--rounds", 3, "-q"
    )
    run = tmp_path / "run"
    succeed("train", place / "train", "--run", run, "--model", "logistic", "--rounds", 3, "-q")

    def counted(*command):
        """What a command prints, if little passes through its process."""
        arguments = [sys.executable, COUNTED, tmp_path / "count", *command, "-r", "hadoop", "-q"]
        done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        count = json.loads((tmp_path / "count").read_text())
        print(command[0], count)
        assert sum(count.values()) < 64 << 20
        return done.stdout

    def digest(folder):
        return json.loads((folder / "manifest.json").read_text())["sha256"]

    counted("data", "import", far, place / "data")
    succeed("data", "import", here, tmp_path / "data", "-q")
    assert digest(place / "data") == digest(tmp_path / "data")
    there = counted("evaluate", place / "run", far, "--json")
    assert there == succeed("evaluate", run, here, "--json", "-q")
    counted("predict", place / "run", far, place / "predicted")
    succeed("predict", run, here, tmp_path / "predicted", "-q")
    assert content(place / "predicted") == content(tmp_path / "predicted")
