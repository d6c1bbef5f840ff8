"""An archive of the packages that tasks need, for nodes that have a Python alone."""

import gzip
import importlib.metadata
import platform as machine
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hdfs_utils.atomic import storage_errors, temporary_name
from mapreduce.errors import GradreduceError, OutputError, UsageError

#: Beside the toolkit and mrjob, which are shipped with each job.
PACKAGES = (
    "fsspec",
    "hdfs-native",
    "numba",
    "numpy",
    "pyarrow",
    "pyyaml",
    "safetensors",
    "threadpoolctl",
)

#: Generations of Linux's C library that wheels are made for, of which the nodes may be any.
_GENERATIONS = ("2014", "_2_17", "_2_24", "_2_27", "_2_28")


def pack(
    file: Path,
    python: str | None,
    platform: str | None,
    more: Sequence[str],
    report: Callable[[str], None],
) -> int:
    """Write the archive.

    Parameters
    ----------
    file : Path
        Must not exist; ``.tar.gz``.
    python : str or None
        Version of the nodes' Python, as ``3.11``; None for this one's.
    platform : str or None
        Platform of the nodes, as wheels name it; None for this machine's.
    more : sequence of str
        More packages, as pip takes them.
    report : callable
        Called with the current activity.

    Returns
    -------
    int
        Bytes of the archive.

    Raises
    ------
    UsageError
        The name or the version is invalid.
    OutputError
        The file exists already.
    GradreduceError
        pip cannot find a package for such nodes.
    StorageError
        The file cannot be written.
    """
    if not file.name.endswith((".tar.gz", ".tgz")):
        raise UsageError(f"{file}: expected a name that ends with .tar.gz")
    if file.exists():
        raise OutputError(f"{file} exists. Name another file, or remove it first: rm {file}")
    version = python or "{}.{}".format(*sys.version_info)
    if not re.fullmatch(r"3\.\d+", version) or int(version[2:]) < 11:
        raise UsageError(f"--python: expected 3.11 or later, as 3.12, found {version!r}")
    with tempfile.TemporaryDirectory(prefix="gradreduce-pack-") as folder:
        wanted = [*pinned(), *more]
        report(f"getting {', '.join(wanted)} for Python {version}")
        _install(Path(folder), version, platform, wanted)
        report(f"writing {file}")
        _write(Path(folder), file)
    return file.stat().st_size


def pinned() -> list[str]:
    """The packages in the versions that this process has: other ones may give other bits."""
    return [f"{name}=={importlib.metadata.version(name)}" for name in PACKAGES]


def _install(folder: Path, version: str, platform: str | None, wanted: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", "--no-compile", "--only-binary=:all:", "--target", str(folder)]
    command += ["--implementation", "cp", "--python-version", version]
    for name in _platforms(platform):
        command += ["--platform", name]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reported = "\n".join(lines or done.stderr.splitlines()[-5:])
        raise GradreduceError(
            f"pip cannot install what tasks need for Python {version} on "
            f"{platform or 'this platform'}:\n{reported}"
        )


def _platforms(platform: str | None) -> list[str]:
    if platform is not None:
        return [platform]
    return [f"manylinux{generation}_{machine.machine()}" for generation in _GENERATIONS]


def _write(folder: Path, file: Path) -> None:
    """Pack a folder, the same for the same files."""
    shutil.rmtree(folder / "bin", ignore_errors=True)
    temporary = temporary_name(file)
    with storage_errors("write", file):
        try:
            with (
                temporary.open("xb") as raw,
                gzip.GzipFile("", "wb", 3, raw, mtime=0) as zipped,
                tarfile.open(mode="w", fileobj=zipped) as archive,
            ):
                for path in sorted(folder.rglob("*")):
                    if path.is_file() and "__pycache__" not in path.parts:
                        archive.add(path, str(path.relative_to(folder)), filter=_plain)
            temporary.rename(file)
        finally:
            temporary.unlink(missing_ok=True)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
