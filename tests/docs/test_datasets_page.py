"""Every command of docs/datasets.md works as it stands there."""

import gzip
import json
import re
import struct
from dataclasses import fields

import numpy as np
import pytest
from test_readme import ROOT, blocks, shell

from mapreduce.data.manifest import FORMAT_VERSION, Manifest, load
from mapreduce.data.readers import READERS

TEXT = (ROOT / "docs" / "datasets.md").read_text()


@pytest.fixture
def folder(tmp_path):
    """The files that the page speaks of."""
    lines = [f"{i},{i % 3},{i % 2}" for i in range(12)]
    (tmp_path / "table.csv").write_text("\n".join(["size,price,label", *lines]) + "\n")
    pixels = np.random.default_rng(0).integers(0, 256, (20, 28, 28), np.uint8)
    for name, array in (("images-idx3", pixels), ("labels-idx1", np.arange(20) % 10)):
        # As FashionMNIST's files: two zeros, the code of bytes, the dimensions, the elements.
        header = struct.pack(f">2xBB{array.ndim}I", 8, array.ndim, *array.shape)
        packed = gzip.compress(header + array.astype(np.uint8).tobytes())
        (tmp_path / f"train-{name}-ubyte.gz").write_bytes(packed)
    return tmp_path


@pytest.mark.slow
def test_commands_in_order(folder):
    from_csv, uneven, hashing, standardising, images = blocks("sh", TEXT)
    shown = shell(from_csv, folder)
    assert "12 rows of 2 features in 1 shard" in shown
    assert "match their digests" in shown
    shell(uneven, folder)
    shell(hashing, folder)
    (folder / "plain").rename(folder / "more")
    shell("cp -r more plain", folder)
    shell(standardising, folder)
    shell(images, folder)
    assert load(folder / "normal").class_rows == (2,) * 10


def test_tables_are_complete():
    formats = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]*\|$", TEXT, re.MULTILINE)
    assert set(formats) == set(READERS)
    table = TEXT.partition("## manifest.json")[2]
    names = {
        name
        for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert names == {"sha256", *(field.name for field in fields(Manifest))}
    assert f"`format_version` is {FORMAT_VERSION}" in table
    assert json.dumps(None) in table
