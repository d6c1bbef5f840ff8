"""Two machines, each a network namespace."""

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def connected() -> Iterator[list[str]]:
    """Two network namespaces with a cable between them, and without any other way out.

    Their addresses are 10.97.0.1 and 10.97.0.2. Skips the test where none can be made.
    """
    names = [f"gradreduce-{os.getpid()}-{at}" for at in (1, 2)]
    ends = [f"gr{os.getpid() % 10**7}-{at}" for at in (1, 2)]
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        ip(
            "link",
            "add",
            ends[0],
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            ends[1],
            "netns",
            names[1],
        )
        for at, (name, end) in enumerate(zip(names, ends, strict=True), 1):
            ip("-n", name, "addr", "add", f"10.97.0.{at}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", b"").decode().strip() or error
        pytest.skip(f"network namespaces cannot be made here: {why}")
    else:
        yield names
    finally:
        for name in made:
            ip("netns", "del", name)
