"""Small datasets for tests."""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mapreduce.data import shards
from mapreduce.data.batch import Batch
from mapreduce.data.manifest import MANIFEST, Manifest, ShardEntry
from mapreduce.data.shards import Dataset


def manifest(
    shard_rows: Iterable[int] = (300, 300, 123),
    features: int = 4,
    classes: Any = (0, 1, 2),
    seed: int = 0,
    **changes: Any,
) -> Manifest:
    """A manifest: of dense rows of classes, unless ``changes`` says otherwise."""
    shards = tuple(
        ShardEntry(f"{i}.arrow", rows, 1000, "0" * 64, (), "0" * 64)
        for i, rows in enumerate(shard_rows)
    )
    rows = sum(shard.rows for shard in shards)
    made = Manifest(
        rows,
        features,
        (features,),
        "uint8",
        1.0,
        classes,
        seed,
        {},
        shards,
        nonzeros=rows * features,
        target=None if classes is None else "class",
        class_rows=None if classes is None else (rows, *[0] * (len(classes) - 1)),
    )
    return replace(made, **changes)


def write_shard(path, x, labels, first=0):
    """A shard of rows, the first of which has this number in the source."""
    numbers = np.arange(first, first + len(x))
    return shards.write_shard(path, Batch(x, labels), numbers, x.shape[1] * x.dtype.itemsize)


def blobs(
    folder: Path,
    shard_rows: tuple[int, ...] = (200, 170, 97),
    features: int = 12,
    classes: int = 3,
    seed: int = 0,
    dtype: str = "float32",
    shape: tuple[int, ...] = (),
) -> Dataset:
    """Normal clouds around one centre for each class; learnable, but not separable.

    If rows have a ``shape``, that says how many features there are.
    """
    features = math.prod(shape) if shape else features
    generator = np.random.default_rng(7)
    centres = generator.normal(size=(classes, features))
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    entries = []
    first = 0
    class_rows = np.zeros(classes, np.int64)
    for number, rows in enumerate(shard_rows):
        labels = generator.integers(0, classes, rows).astype(np.int32)
        class_rows += np.bincount(labels, minlength=classes)
        x = centres[labels] + generator.normal(size=(rows, features))
        if dtype == "uint8":
            x = np.clip(x * 30 + 128, 0, 255)
        path = folder / f"shard-{number:05d}.arrow"
        entries.append(write_shard(path, x.astype(dtype), labels, first))
        first += rows
    manifest = Manifest(
        rows=sum(shard_rows),
        features=features,
        shape=shape or (features,),
        dtype=dtype,
        scale=1 / 255 if dtype == "uint8" else 1.0,
        classes=tuple(range(classes)),
        seed=seed,
        source={"format": "blobs"},
        shards=tuple(entries),
        nonzeros=sum(shard_rows) * features,
        target="class",
        class_rows=tuple(class_rows.tolist()),
    )
    manifest.save(folder)
    return Dataset(folder)


def rewrite_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write a manifest with a digest that fits it, as a stranger could."""
    content = {name: value for name, value in content.items() if name != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps({**content, "sha256": digest}))
