"""Hadoop's jars: downloaded by Maven once for each user, and checked against pinned digests.

``pom.xml`` names what is needed; ``jars.lock`` lists every jar that it requires, in the format
of ``sha256sum``: after a change of ``pom.xml``, that program makes it anew from the jars that
``mvn dependency:copy-dependencies`` brings. A folder of jars takes its name when it is complete and
checked.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import DownloadError, RequirementError, StorageError

VERSION = "3.4.2"

#: What is being done, how much of it is done, and of how much.
Progress = Callable[[str, int, int], None]

_HERE = Path(__file__).parent
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
#: MiB: jars here and in Maven's own repository, and the archive of classes.
_NEEDED = 512


def cache() -> Path:
    """The folder of files that can be made again, by the XDG conventions."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "gradreduce" / "hadoop"


def locked_jars() -> dict[str, str]:
    """Name and sha256 of every jar."""
    lines = (_HERE / "jars.lock").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def hadoop_folder() -> Path:
    """Where this version's jars are, or will be."""
    digest = hashlib.sha256((_HERE / "jars.lock").read_bytes()).hexdigest()
    return cache() / f"{VERSION}-{digest[:12]}"


def assemble(progress: Progress) -> Path:
    """Download the missing jars, and check every jar.

    Returns
    -------
    Path
        A folder with ``lib/*.jar``.

    Raises
    ------
    RequirementError
        Maven is not installed.
    DownloadError
        Maven failed, or a jar is not the one that was pinned.
    StorageError
        The disk is full, or the folder cannot be written.
    """
    folder = hadoop_folder()
    with storage_errors("create", cache()):
        cache().mkdir(parents=True, exist_ok=True)
    with exclusive(cache() / "lock"):
        if folder.is_dir() and not _wrong(folder / "lib"):
            return folder
        # Nobody else builds now: a temporary name was left by a killed process.
        for stale in [folder, *cache().glob(f".{folder.name}.*")]:
            if stale.exists():
                with storage_errors("delete", stale):
                    shutil.rmtree(stale)
        require_space(cache(), _NEEDED, "XDG_CACHE_HOME")
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=cache()) as scratch:
            _download(Path(scratch), progress)
            wrong = _wrong(Path(scratch) / "lib")
            if wrong:
                raise DownloadError(
                    f"Maven's repository does not give the Hadoop {VERSION} that was pinned: "
                    f"{'; '.join(wrong[:3])}{' ...' if len(wrong) > 3 else ''}. Check the mirror "
                    f"in Maven's settings.xml, delete these files from Maven's local repository, "
                    f"then run the command again"
                )
            with storage_errors("create", folder):
                (Path(scratch) / "lib").chmod(0o755)
                folder.mkdir()
                (Path(scratch) / "lib").rename(folder / "lib")
    return folder


def missing() -> str | None:
    """Why Hadoop cannot be had here, as far as that is known without trying."""
    if not hadoop_folder().is_dir() and not shutil.which("mvn"):
        return "there is no mvn on PATH"
    return None


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """One process at a time; the next waits."""
    with storage_errors("create", path):
        file = path.open("a")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _wrong(lib: Path) -> list[str]:
    """What differs from the lock file."""
    expected = locked_jars()
    found = {path.name for path in lib.glob("*.jar")}
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - found)]
    wrong += [f"{name} is not expected" for name in sorted(found - expected.keys())]
    for name in sorted(found & expected.keys()):
        with (lib / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected[name]:
            wrong.append(f"{name} has the sha256 {digest}, expected {expected[name]}")
    return wrong


def require_space(folder: Path, mebibytes: int, variable: str) -> None:
    """Raise a :class:`StorageError` if a disk is nearly full; a variable names another folder."""
    free = shutil.disk_usage(folder).free >> 20
    if free < mebibytes:
        raise StorageError(
            f"Hadoop needs {mebibytes} MiB in {folder}, and {free} MiB are free. Free some space "
            f"there, or set {variable} to a folder with more"
        )


def _download(scratch: Path, progress: Progress) -> None:
    """Run Maven with the user's own settings; what it says goes to a log."""
    maven = shutil.which("mvn")
    if not maven:
        raise RequirementError(
            "Hadoop is downloaded by Maven, and there is no mvn on PATH. Install it (on Debian or "
            "Ubuntu: apt-get install maven)"
        )
    shutil.copy(_HERE / "pom.xml", scratch)
    command = [maven, "--batch-mode", "--strict-checksums", "-f", str(scratch / "pom.xml"), _PLUGIN]
    command += [f"-DoutputDirectory={scratch / 'lib'}", "-DincludeScope=runtime"]
    total = len(locked_jars())
    names = set()
    tail: list[str] = []
    progress(f"downloading Hadoop {VERSION}", 0, total)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=scratch,
    ) as process:
        try:
            for line in process.stdout or ():
                tail = [*tail[-200:], line.rstrip()]
                name = re.search(r"(?:Downloaded|Copying).*?([^/ ]+\.jar)\b", line)
                if name:
                    names.add(name[1])
                    progress(f"downloading Hadoop {VERSION}", min(len(names), total), total)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        errors = [line for line in tail if line.startswith("[ERROR]")] or tail
        raise DownloadError(
            f"Maven could not download Hadoop {VERSION} (exit code {process.returncode}):\n"
            + "\n".join(f"  {line[:300]}" for line in errors[:6])
            + "\nCheck the network, and the mirror and proxy in Maven's settings.xml, then run the "
            "command again: what was downloaded is kept"
        )
