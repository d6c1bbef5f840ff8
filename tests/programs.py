"""Running the command line as a user does, and looking at what it leaves behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import warm

GRADREDUCE = [sys.executable, "-m", "mapreduce.cli.main"]

#: Seconds for what must happen, on however busy a machine; nobody waits for them if it does.
PATIENCE = 600

#: A job that counts words, whose class takes more methods after it.
COUNT = """\
from mrjob.job import MRJob


class Count(MRJob):
    def mapper(self, _, line):
        for word in line.split():
            yield word, 1

    def reducer(self, word, counts):
        yield word, sum(counts)
"""

#: A model of one's own with an option.
WIDE = """
from dataclasses import dataclass
from mapreduce.models.softmax import Softmax
from mapreduce.support.options import option

@dataclass(frozen=True)
class Options:
    width: int = option(3, "how wide")

class Wide(Softmax):
    Options = Options
"""

#: A job that fails at what is no number, in a method of its own.
FAILING = """\
from mrjob.job import MRJob


class Failing(MRJob):
    def mapper(self, _, line):
        yield self.parse(line), 1

    def parse(self, line):
        return int(line)
"""


def gradreduce(
    *arguments: object, cwd: Path | str = ".", env: Mapping[str, str] = os.environ, input: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a folder, with variables and standard input."""
    texts = [*map(str, arguments)]
    if warm.fits(env):
        return warm.run(texts, str(Path(cwd).resolve()), PATIENCE, env, input)
    return subprocess.run(
        [*GRADREDUCE, *texts],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=cwd,
        env=env,
        input=input,
    )


def succeed(*arguments: object, **options) -> str:
    """Run a command that must succeed; returns its standard output."""
    done = gradreduce(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fails(code: int, *arguments: object, **options) -> str:
    """Run a command that must end with an exit code; returns what it says of that."""
    done = gradreduce(*arguments, **options)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    # A job's own errors have their places.
    assert code == 1 or "Traceback" not in done.stderr
    return done.stderr


def ran(
    *command: object, check: bool = True, timeout: float = PATIENCE, **options
) -> subprocess.CompletedProcess[str]:
    """Run any program to its end; ``options`` are those of :func:`subprocess.run`."""
    texts = [*map(str, command)]
    return subprocess.run(
        texts, capture_output=True, text=True, check=check, timeout=timeout, **options
    )


def install(folder: Path, package: str, group: str, name: str, place: str) -> None:
    """Have a folder of Python's path be that of an installed package with an entry point."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {place}\n")


def unread(*command: object) -> subprocess.CompletedProcess[str]:
    """Run any program, whose output nobody reads and Python, if it is one, holds back."""
    reader, writer = os.pipe()
    os.close(reader)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        return subprocess.run(
            [*map(str, command)], stdout=writer, stderr=subprocess.PIPE, text=True, env=env
        )
    finally:
        os.close(writer)


def start(
    *arguments: object, program: Sequence[object] = GRADREDUCE, **options
) -> subprocess.Popen[str]:
    """Start a command in a process group of its own."""
    return subprocess.Popen(
        [*map(str, (*program, *arguments))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def processes_of(text: str) -> list[int]:
    """Processes whose command line or environment holds a text."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            content = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in content and lives(int(folder.name)):
            found.append(int(folder.name))
    return found


def processes_in(folder: Path) -> list[int]:
    """Processes that work in a folder, also after it was deleted."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str((process / "cwd").readlink()).startswith(str(folder)) and lives(
                int(process.name)
            ):
                found.append(int(process.name))
    return found


def lives(pid: int) -> bool:
    """Whether there is more of a process than its exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for something that must happen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a program as nothing can stop, and wait for its end."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A file system in memory that can be filled, such as of 64k; without permission, a skip.

    It is unmounted whatever happens, and later if a process that should have ended works in it.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the permission to mount a file system")
    try:
        yield folder
    finally:
        if subprocess.run(["umount", str(folder)], check=False).returncode:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
            raise AssertionError(f"{folder} is still in use")
