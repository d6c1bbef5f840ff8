"""Java classes of our own, where there is a compiler: they make the steps of jobs quick.

A Java runtime alone has none: then each step starts a Java of its own, and waits for Hadoop.
"""

import hashlib
import subprocess
import tempfile
from pathlib import Path

from hdfs_utils.atomic import storage_errors
from hdfs_utils.cluster import artifacts, java
from hdfs_utils.cluster.artifacts import Progress, exclusive
from hdfs_utils.errors import DaemonError

#: A program that runs a job's steps one after the other in one Java, for ``hadoop CLASS``.
SUBMITTER = "gradreduce.Submitter"

#: What it says when a step is over, before the exit code.
ENDED = b"gradreduce: ended with "

#: A job's ``mapred.output.committer.class``, if its tasks have one attempt within the master.
COMMITTER = "gradreduce.OnlyAttemptCommitter"

_SOURCES = sorted(Path(__file__).parent.glob("*.java"))
_SECONDS = 120


def folder(hadoop: Path) -> Path:
    """Where the compiled classes are, or would be, as an entry of the class path."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()
    return hadoop / f"compiled-{digest[:12]}"


def exists(hadoop: Path) -> bool:
    return folder(hadoop).is_dir()


def compile_once(hadoop: Path, class_path: str, runtime: java.Java, progress: Progress) -> None:
    """Compile the classes, unless that was done or this Java has no compiler."""
    compiler = runtime.home / "bin" / "javac"
    target = folder(hadoop)
    if target.exists() or not compiler.is_file():
        return
    with exclusive(artifacts.cache() / "lock"):
        if target.exists():
            return
        progress("making steps quick", 0, 1)
        with tempfile.TemporaryDirectory(prefix=".compiling.", dir=hadoop) as scratch:
            command = [str(compiler), "--release", str(java.OLDEST), "-proc:none", "-nowarn"]
            command += ["-cp", class_path, "-d", f"{scratch}/classes", *map(str, _SOURCES)]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=_SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise DaemonError(f"{compiler} does not work: {error}") from error
            if done.returncode:
                raise DaemonError(
                    f"{compiler} could not compile {Path(__file__).parent}/*.java:\n"
                    f"{done.stderr[-1000:]}"
                )
            with storage_errors("create", target):
                Path(scratch, "classes").rename(target)
