"""Datasets and sources that the tests of ``mapreduce.data`` share."""

import gzip
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapreduce.data import shards
from mapreduce.data.importer import import_rows
from programs import PATIENCE
from reading import in_memory


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
def dataset(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 rows in 3 shards of 5, 5 and 3 record batches; not to be changed."""
    out = tmp_path_factory.mktemp("dataset") / "data"
    with tiny():
        features = np.arange(150, dtype=np.float32).reshape(50, 3)
        import_rows(in_memory(features, np.arange(50) % 4), out, seed=1)
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
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
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
