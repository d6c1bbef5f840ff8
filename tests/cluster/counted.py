"""Run a command of gradreduce, and tell at its end what this process has read and written.

``python counted.py FILE COMMAND ...``: FILE gets the bytes of files, without those of programs that
it has started, and what came from or went to HDFS, which the kernel counts for no process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from hdfs_utils.atomic import octets
from hdfs_utils.paths import RemotePath
from mapreduce.cli.main import main

OWN, FAR = os.getpid(), {"read": 0, "written": 0}


def passed():
    """What the kernel has counted so far; with programs, once they have been waited for."""
    lines = Path("/proc/self/io").read_text().splitlines()
    counts = dict(line.split(": ") for line in lines)
    return int(counts["rchar"]) + int(counts["wchar"])


class Counting:
    """A file of HDFS."""

    def __init__(self, file):
        self._file = file

    def read(self, *size):
        FAR["read"] += len(found := self._file.read(*size))
        return found

    def readinto(self, buffer):
        FAR["read"] += (count := self._file.readinto(buffer))
        return count

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()


def opened(path, opening=RemotePath.open_native):
    return Counting(opening(path))


def written(path, *content, writing=RemotePath._write):
    FAR["written"] += sum(octets(piece).nbytes for piece in content)
    writing(path, *content)


def waited(process, flags, wait=subprocess.Popen._try_wait):
    before = passed()
    found = wait(process, flags)
    PROGRAMS.append(passed() - before if found[0] == process.pid else 0)
    return found


PROGRAMS = []
if __name__ == "__main__":
    RemotePath.open_native, RemotePath._write = opened, written
    subprocess.Popen._try_wait = waited
    code = main(sys.argv[2:])
    if os.getpid() == OWN:
        Path(sys.argv[1]).write_text(json.dumps({"files": passed() - sum(PROGRAMS), **FAR}))
    sys.exit(code)
