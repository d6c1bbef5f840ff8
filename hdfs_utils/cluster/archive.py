"""Hadoop's classes as an archive that virtual machines map into memory: they start twice as fast.

Which classes belong in it is recorded once on this machine, with a small cluster that runs a job.
That proves too that what was downloaded works. The archive is for one version of Java, one order of
jars and one place of them; any other virtual machine ignores it.
"""

import re
import tempfile
import time
from pathlib import Path

from hdfs_utils.atomic import replacing
from hdfs_utils.cluster import artifacts, java, processes
from hdfs_utils.cluster.artifacts import Progress, exclusive
from hdfs_utils.cluster.layout import Cluster
from hdfs_utils.cluster.starting import begin, stopped_on_error, with_port
from hdfs_utils.errors import DaemonError


def archive(hadoop: Path, runtime: java.Java, progress: Progress) -> Path | None:
    """The archive for a Java, made if it is not there; None for a Java without such archives."""
    if not runtime.hotspot:
        return None
    path = hadoop / f"classes-{re.sub(r'[^A-Za-z0-9.+-]', '_', runtime.version)}.jsa"
    with exclusive(artifacts.cache() / "lock"):
        if not path.exists():
            with tempfile.TemporaryDirectory(prefix=".recording.", dir=hadoop) as scratch:
                classes = _record(Path(scratch), hadoop, runtime, progress)
                progress("making Hadoop quick to start", 0, 1)
                _dump(path, classes, hadoop, runtime, Path(scratch))
    return path


def _record(scratch: Path, hadoop: Path, runtime: java.Java, progress: Progress) -> list[str]:
    """Classes that the daemons, a client, an application master and tasks load."""
    (scratch / "lists").mkdir()
    recorder = f"-XX:DumpLoadedClassList={scratch / 'lists' / '%p'}"
    cluster = Cluster(
        folder=scratch,
        nodes=1,
        port=0,
        java_home=runtime.home,
        java_options=(*java.options(runtime), recorder),
        hadoop=hadoop,
    )
    with exclusive(artifacts.cache() / "ports.lock"):
        cluster = with_port(cluster, None, None)
        with stopped_on_error(cluster):
            begin(cluster, True, lambda _, done, total: progress("trying Hadoop", done, total + 1))
            _run_job(cluster)
            progress("trying Hadoop", 1, 1)
            # An application master stays for some seconds, and writes its list at its end.
            end = time.monotonic() + 20
            while processes.containers(cluster) and time.monotonic() < end:
                time.sleep(0.2)
        processes.stop(cluster.folder)
    found: dict[str, None] = {}
    for path in sorted((scratch / "lists").iterdir()):
        for line in path.read_text(errors="replace").splitlines():
            # Numbers differ between machines; a class with a source is not a built-in loader's.
            if line.startswith("@lambda") or (line[:1] not in "#@" and "source:" not in line):
                found[line.partition(" id:")[0]] = None
    return list(found)


def _run_job(cluster: Cluster) -> None:
    text = cluster.folder / "text"
    text.write_text("b\na\n")
    program = str(cluster.home / "bin" / "hadoop")
    streaming = ["-input", "text", "-output", "out", "-mapper", "cat", "-reducer", "cat"]
    for arguments in (
        ["fs", "-put", str(text), "text"],
        ["jar", str(cluster.streaming_jar), *streaming],
        ["fs", "-cat", "out/part-*"],
    ):
        done = processes.run(cluster, [program, *arguments])
        if done.returncode:
            raise DaemonError(
                f"a first job on Hadoop failed: hadoop {' '.join(arguments)}\n{_tail(done.stderr)}"
            )
    if done.stdout.split() != ["a", "b"]:
        raise DaemonError(f"a first job on Hadoop gave {done.stdout!r}, expected 'a' and 'b'")


def _dump(path: Path, classes: list[str], hadoop: Path, runtime: java.Java, scratch: Path) -> None:
    listed = scratch / "classes"
    listed.write_text("\n".join(classes) + "\n")
    cluster = Cluster(scratch, 1, 0, runtime.home, tuple(java.options(runtime)), hadoop)
    command = [str(runtime.program), *cluster.java_options, "-Xshare:dump"]
    command.append(f"-XX:SharedClassListFile={listed}")
    with replacing(path, "create") as temporary:
        command.append(f"-XX:SharedArchiveFile={temporary}")
        done = processes.run(cluster, [*command, "-cp", cluster.class_path()])
        if done.returncode or not temporary.exists():
            raise DaemonError(
                f"Java {runtime.version} could not make an archive of classes (exit code "
                f"{done.returncode}):\n{_tail(done.stdout + done.stderr)}"
            )
        temporary.chmod(0o644)


def _tail(text: str) -> str:
    return "\n".join(f"  {line[:300]}" for line in text.splitlines()[-8:])
