"""Datasets and sources that the tests of ``mapreduce.data`` share."""

import gzip
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapreduce.data import shards
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset

FEATURES, CLASSES = 3, 4


@pytest.fixture
def write(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Writes a file, gzipped or not; its name is the module's ``FILE``, if none is given."""

    def make(content: bytes | str, name: str = "", packed: bool = False) -> Path:
        path = tmp_path / (name or getattr(request.module, "FILE", "a.csv"))
        raw = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(raw, mtime=0) if packed else raw)
        return path

    return make


@pytest.fixture(scope="session")
def rows() -> Callable[..., Rows]:
    """Random rows, no two alike, with labels."""

    def make(count: int, dtype: str = "float32", seed: int = 0) -> Rows:
        random = np.random.default_rng(seed)
        features = random.permutation(count * FEATURES).reshape(count, FEATURES).astype(dtype)
        return Rows(features, random.integers(0, CLASSES, count))

    return make


@pytest.fixture(scope="session")
def source() -> Callable[..., Source]:
    """A source of rows, cut into chunks at the given places."""

    def make(rows: Rows, cuts: Any = (), size: int = 0) -> Source:
        places = [0, *cuts, len(rows.features)]
        pieces = [slice(*pair) for pair in pairwise(places)]
        return Source(
            chunks=[
                Rows(rows.features[piece], None if rows.labels is None else rows.labels[piece])
                for piece in pieces
            ],
            shape=rows.features.shape[1:],
            scale=1.0,
            bytes=size,
            description={"format": "memory", "files": ["memory"]},
        )

    return make


@pytest.fixture(scope="session")
def read() -> Callable[[Path], tuple[Any, Any]]:
    """All features and labels of a dataset, the labels as the source had them."""

    def read_all(folder: Path) -> tuple[Any, Any]:
        data = Dataset(folder)
        batches = [
            data.shard(i).rows(0, entry.rows) for i, entry in enumerate(data.manifest.shards)
        ]
        features = np.concatenate([batch.features for batch in batches])
        if data.manifest.classes is None:
            assert all(batch.labels is None for batch in batches)
            return features, None
        labels = np.concatenate([batch.labels for batch in batches])
        return features, np.array(data.manifest.classes)[labels]

    return read_all


@pytest.fixture(scope="session")
def tiny() -> Callable[[], AbstractContextManager[pytest.MonkeyPatch]]:
    """For a block of code: record batches of 4 rows of 3 float32, shards of 20 rows."""

    @contextmanager
    def patched() -> Iterator[pytest.MonkeyPatch]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shards, "ROW_UNIT", 4)
            patch.setattr(shards, "BATCH_BYTES", 64)
            patch.setattr(shards, "SHARD_BYTES", 256)
            yield patch

    return patched


@pytest.fixture
def tiny_shards(tiny: Any) -> Iterator[None]:
    """The same for a whole test."""
    with tiny():
        yield


@pytest.fixture(scope="module")
def dataset(tiny: Any, rows: Any, source: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 rows in 3 shards of 5, 5 and 3 record batches; not to be changed."""
    out = tmp_path_factory.mktemp("dataset") / "data"
    with tiny():
        import_rows(source(rows(50)), out, seed=1)
    return out


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    """The same dataset, to be damaged."""
    return shutil.copytree(dataset, tmp_path / "copy")


@pytest.fixture
def in_process() -> Callable[..., str]:
    """Run a script in a new process and return what it printed."""

    def run(script: str, *arguments: object, prefix: tuple[str, ...] = ()) -> str:
        command = [*prefix, sys.executable, "-c", script, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert not done.returncode, done.stderr
        return done.stdout

    return run


@pytest.fixture
def in_mount(in_process: Callable[..., str], tmp_path: Path) -> Callable[[str, str], str]:
    """Run a script with a file system of its own, whose path is its only argument."""
    unshare = ["unshare", "--mount", "--propagation", "private"]
    mount = ["mount", "-t", "tmpfs", "tmpfs"]
    if not (shutil.which("unshare") and shutil.which("mount")):
        pytest.skip("unshare and mount are not installed")
    probe = subprocess.run([*unshare, *mount, str(tmp_path)], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no permission to mount: {probe.stderr.strip()}")

    def run(script: str, options: str) -> str:
        shell = f'{" ".join(mount)} -o {options} "$0" && exec "$@" "$0"'
        return in_process(script, prefix=(*unshare, "sh", "-c", shell, str(tmp_path)))

    return run
