"""Patch the metadata of a dataset's shards, with digests that fit, and read what comes of it.

Run as ``patching.py DATA SCRATCH SEED``; prints how often what came out. Ends by a signal where
reading a patched file would.
"""

import json
import random
import shutil
import struct
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from mapreduce.data import shards
from mapreduce.data.batch import Csr
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError

VALUES = (0, 1, 2, 3, 7, 255, 2**15, 2**31 - 1, -1, -8, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))


def patches(content, offsets, generator):
    """The content with an integer of some width at each place, and with flipped bytes."""
    for offset in offsets:
        for code in "<i", "<q":
            size = struct.calcsize(code)
            if offset + size <= len(content):
                value = generator.choice([v for v in VALUES if -(2 ** (8 * size - 1)) <= v])
                patched = bytearray(content)
                packed = struct.pack("<q", value)[:size]
                patched[offset : offset + size] = packed
                yield bytes(patched)
        for flip in (0x80, generator.randrange(1, 256)):
            patched = bytearray(content)
            patched[offset] ^= flip
            yield bytes(patched)


def read(folder, original):
    """Whether everything can be read, and has the shape that the manifest says."""
    data = Dataset(folder)
    try:
        data.verify()
    except DataError:
        return "refused"
    for number, entry in enumerate(data.manifest.shards):
        batch = data.shard(number).rows(0, entry.rows)
        assert batch.features.shape == (entry.rows, original.features)
        dense = batch.features.to_dense() if isinstance(batch.features, Csr) else batch.features
        # Touches every page.
        assert np.asarray(dense).tobytes() is not None
        assert len(batch.labels) == len(batch.weights) == entry.rows
        assert len(data.shard(number).source_rows(0, entry.rows)) == entry.rows
    return "read"


def main(source, scratch, seed):
    generator = random.Random(seed)
    original = Dataset(source).manifest
    entry = original.shards[0]
    path = scratch / "data" / entry.file
    shutil.copytree(source, scratch / "data")
    content = path.read_bytes()
    found = Counter()
    inside = [entry.batches[0].offset, entry.batches[-1].offset]
    body = [b.offset + b.length for b in entry.batches]
    # Metadata of the first and of the last record batch, and the footer.
    offsets = {
        *range(inside[0], min(body[0], inside[0] + 1300), 4),
        *range(inside[1], min(body[-1], inside[1] + 700), 4),
        *range(body[-1], len(content), 4),
    }
    ranges = [(batch.offset, batch.length, batch.rows) for batch in entry.batches]
    for patched in patches(content, sorted(offsets), generator):
        # The last one may still be mapped.
        path.unlink()
        path.write_bytes(patched)
        described = shards._describe(path, entry.rows, ranges)
        manifest = replace(original, shards=(described, *original.shards[1:]))
        (scratch / "data/manifest.json").write_text(manifest.to_json())
        found[read(scratch / "data", original)] += 1
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
