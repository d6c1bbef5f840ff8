"""Running the command line as a user does, and looking at what it leaves behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

GRADREDUCE = [sys.executable, "-m", "mapreduce.cli.main"]


def gradreduce(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*GRADREDUCE, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )


def succeed(*arguments: object, **options) -> str:
    """Run a command that must succeed; returns its standard output."""
    done = gradreduce(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(*arguments: object, **options) -> subprocess.Popen[str]:
    """Start a command in a process group of its own."""
    return subprocess.Popen(
        [*GRADREDUCE, *map(str, arguments)],
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
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if text.encode() in content and state != "Z":
            found.append(int(folder.name))
    return found


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for something that must happen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a program as nothing can stop, and wait for its end."""
    process.send_signal(signal.SIGKILL)
    process.communicate()
