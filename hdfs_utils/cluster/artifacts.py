"""Hadoop's jars: downloaded by Maven once for each user, and checked against pinned digests.

``pom.xml`` names what is needed; ``jars.lock`` lists every jar that it requires, in the format
of ``sha256sum``: after a change of ``pom.xml``, that program makes it anew from the jars that
``mvn dependency:copy-dependencies`` brings. A folder of jars takes its name when it is complete and
checked. The files whose names begin with ``kerberos-`` do the same for Kerberos.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import DownloadError, RequirementError

VERSION = "3.4.2"

#: What is being done, how much of it is done, and of how much.
Progress = Callable[[str, int, int], None]

_HERE = Path(__file__).parent
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def cache() -> Path:
    """The folder of files that can be made again, by the XDG conventions."""
    return own_folder("XDG_CACHE_HOME", ".cache") / "hadoop"


def own_folder(variable: str, default: str) -> Path:
    """The toolkit's folder where a variable of the XDG conventions, or its default, says."""
    base = os.environ.get(variable)
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / default
    return root / "gradreduce"


def locked_jars(prefix: str = "") -> dict[str, str]:
    """Name and sha256 of every jar."""
    lines = (_HERE / f"{prefix}jars.lock").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def hadoop_folder(prefix: str = "") -> Path:
    """Where this version's jars are, or will be."""
    digest = hashlib.sha256((_HERE / f"{prefix}jars.lock").read_bytes()).hexdigest()
    return cache() / f"{prefix}{VERSION}-{digest[:12]}"


def assemble(progress: Progress, prefix: str = "") -> Path:
    """Download the jars with Maven, unless that was done, and check them; returns their folder."""
    folder = hadoop_folder(prefix)
    with storage_errors("create", cache()):
        cache().mkdir(parents=True, exist_ok=True)
    with exclusive(cache() / "lock"):
        if folder.is_dir():
            return folder
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=cache()) as scratch:
            whole = Path(scratch, "whole")
            _download(whole, progress, prefix)
            if wrong := _wrong(whole / "lib", prefix):
                raise DownloadError(
                    f"Maven's repository does not give the Hadoop {VERSION} that was pinned: "
                    f"{'; '.join(wrong[:3])}{' ...' if len(wrong) > 3 else ''}. Check the mirror "
                    f"in Maven's settings.xml, or have Maven begin another local repository: "
                    f"MAVEN_OPTS=-Dmaven.repo.local=FOLDER"
                )
            with storage_errors("create", folder):
                whole.rename(folder)
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


def _wrong(lib: Path, prefix: str) -> list[str]:
    """What differs from the lock file."""
    expected = locked_jars(prefix)
    found = {path.name for path in lib.glob("*.jar")}
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - found)]
    wrong += [f"{name} is not expected" for name in sorted(found - expected.keys())]
    for name in sorted(found & expected.keys()):
        with (lib / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected[name]:
            wrong.append(f"{name} has the sha256 {digest}, expected {expected[name]}")
    return wrong


def _download(folder: Path, progress: Progress, prefix: str) -> None:
    """Run Maven with the user's own settings, in a new folder."""
    maven = shutil.which("mvn")
    if not maven:
        raise RequirementError(
            "Hadoop is downloaded by Maven, and there is no mvn on PATH. Install it (on Debian or "
            "Ubuntu: apt-get install maven)"
        )
    folder.mkdir()
    shutil.copy(_HERE / f"{prefix}pom.xml", folder / "pom.xml")
    command = [maven, "--batch-mode", "--strict-checksums", _PLUGIN]
    command += [f"-DoutputDirectory={folder / 'lib'}", "-DincludeScope=runtime"]
    progress(f"downloading {'Kerberos for ' if prefix else ''}Hadoop {VERSION}", 0, 1)
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=folder,
        check=False,
    )
    if done.returncode:
        lines = done.stdout.splitlines()
        errors = [line for line in lines if line.startswith("[ERROR]")] or lines[-6:]
        raise DownloadError(
            f"Maven could not download Hadoop {VERSION} (exit code {done.returncode}):\n"
            + "\n".join(f"  {line[:300]}" for line in errors[:6])
            + "\nCheck the network, and the mirror and proxy in Maven's settings.xml, then run the "
            "command again: what was downloaded is kept"
        )
