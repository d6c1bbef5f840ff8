import numpy as np
import pytest

from mapreduce.cli.main import main
from mapreduce.data import manifest
from mapreduce.data.importer import import_rows
from mapreduce.data.readers import text
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, UsageError

CONTENT = bytes(np.random.default_rng(0).integers(0, 256, 1000, np.uint8))

FILE = "text.txt"


def pieces(content, sequence):
    """Rows and labels, byte by byte."""
    rows, labels = [], []
    at = 0
    while at + sequence < len(content):
        rows.append(list(content[at : at + sequence]))
        labels.append(content[at + sequence])
        at += sequence
    return rows, labels


def read(source):
    chunks = list(source.chunks)
    rows = [row for chunk in chunks for row in chunk.features.tolist()]
    return rows, [label for chunk in chunks for label in chunk.labels.tolist()]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 64, 65, 8 << 20])
@pytest.mark.parametrize("sequence", [1, 3, 64, 999])
def test_rows_are_consecutive_and_labels_follow(write, monkeypatch, sequence, chunk, packed):
    monkeypatch.setattr(text, "CHUNK_BYTES", chunk)
    assert read(text.source([write(CONTENT, packed=packed)], sequence)) == pieces(CONTENT, sequence)


def test_a_row_does_not_go_on_in_another_file(write, tmp_path):
    first, second = CONTENT[:200], CONTENT[300:495]
    source = text.source([write(first), write(second, "more.txt")], 64)
    rows, labels = (a + b for a, b in zip(pieces(first, 64), pieces(second, 64), strict=True))
    assert read(source) == (rows, labels)
    assert source.remarks == [
        f"{tmp_path / 'text.txt'}: 7 bytes at its end, too few for a row of 64, are left out",
        f"{tmp_path / 'more.txt'}: 2 bytes at its end, too few for a row of 64, are left out",
    ]


def test_the_classes_are_all_bytes(write, tmp_path):
    written = import_rows(text.source([write(b"abcabcabca")], 3), tmp_path / "out", seed=4)
    assert written == manifest.load(tmp_path / "out")
    assert (written.shape, written.dtype, written.scale) == ((3,), "uint8", 1.0)
    assert written.classes == tuple(range(256))
    assert written.class_rows == tuple(3 * (byte == ord("a")) for byte in range(256))
    batch = Dataset(tmp_path / "out").shard(0).rows(0, 3)
    assert batch.labels.tolist() == [ord("a")] * 3
    assert batch.features.tolist() == [list(b"abc")] * 3


def test_without_labels(write, tmp_path):
    source = text.source([write(CONTENT)], 64, labelled=False)
    assert import_rows(source, tmp_path / "out", seed=0).classes is None


@pytest.mark.parametrize("content", [b"", b"a" * 64])
@pytest.mark.parametrize("packed", [False, True])
def test_a_text_that_is_too_short(write, content, packed):
    path = write(content, packed=packed)
    with pytest.raises(DataError) as caught:
        list(text.source([path], 64).chunks)
    expected = f"{path} is shorter than a row: expected at least 65 bytes"
    assert str(caught.value).startswith(expected)
    assert f"found {len(content)}. Take a longer text" in str(caught.value)


def test_rows_of_no_bytes(tmp_path):
    with pytest.raises(UsageError, match="--sequence: expected at least 1 byte in a row, found 0"):
        text.source([tmp_path], 0)


def test_the_command(write, tmp_path, capsys):
    command = ["data", "import", str(write(CONTENT)), str(tmp_path / "out"), "--format", "text"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "15 rows of 64 features" in said.out
    assert "39 bytes at its end, too few for a row of 64, are left out" in said.err
    assert main([*command, "--sequence", "10"]) == 73
    assert main([*command[:3], str(tmp_path / "more"), *command[4:], "--sequence", "10"]) == 0
    assert manifest.load(tmp_path / "more").features == 10
    assert main(["data", "import", "x", "y", "--format", "idx", "--sequence", "3"]) == 2
    assert "--sequence is for text, not for idx" in capsys.readouterr().err
