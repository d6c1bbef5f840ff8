"""Small datasets for tests."""

from pathlib import Path

import numpy as np

from mapreduce.data.manifest import Manifest
from mapreduce.data.shards import Dataset, write_shard


def blobs(
    folder: Path,
    shard_rows: tuple[int, ...] = (200, 170, 97),
    features: int = 12,
    classes: int = 3,
    seed: int = 0,
    dtype: str = "float32",
) -> Dataset:
    """Normal clouds around one centre for each class; learnable, but not separable."""
    generator = np.random.default_rng(7)
    centres = generator.normal(size=(classes, features))
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    entries = []
    class_rows = np.zeros(classes, np.int64)
    for number, rows in enumerate(shard_rows):
        labels = generator.integers(0, classes, rows).astype(np.int32)
        class_rows += np.bincount(labels, minlength=classes)
        x = centres[labels] + generator.normal(size=(rows, features))
        if dtype == "uint8":
            x = np.clip(x * 30 + 128, 0, 255)
        entries.append(write_shard(folder / f"shard-{number:05d}.arrow", x.astype(dtype), labels))
    manifest = Manifest(
        rows=sum(shard_rows),
        features=features,
        shape=(features,),
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
