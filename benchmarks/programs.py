"""Programs that count the words of a file, as whole processes: how they start, what they write."""

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
INSTALL = "pip install -e '.[bench]'"

Counts = dict[str, int]


def json_lines(lines: Iterator[str]) -> Iterator[tuple[str, int]]:
    """Words and counts as mrjob writes them."""
    for line in lines:
        word, count = line.split("\t")
        yield json.loads(word), int(count)


def tab_lines(lines: Iterator[str]) -> Iterator[tuple[str, int]]:
    """Words and counts without quotes."""
    for line in lines:
        word, count = line.split("\t")
        yield word, int(count)


def _uniq_lines(lines: Iterator[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        count, *word = line.split()
        # Text that starts with no word leaves one empty line in front.
        if word:
            yield word[0], int(count)


@dataclass(frozen=True)
class Program:
    """A way to count words.

    Attributes
    ----------
    name : str
    command : callable
        Of the paths of a text and of the output, a file or a folder: the command.
    read : callable
        Words and counts of the lines of the output.
    needs : str
        A module without which the program is skipped.
    """

    name: str
    command: Callable[[Path, Path], list[str]]
    read: Callable[[Iterator[str]], Iterator[tuple[str, int]]] = tab_lines
    needs: str = ""

    def missing(self) -> str:
        """Why it cannot be run here, or nothing."""
        if self.needs == "pyspark" and not shutil.which("java"):
            return "there is no Java 17 or later on PATH"
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed ({INSTALL})"
        return ""

    def start(self, text: Path, out: Path) -> subprocess.Popen[bytes]:
        """Start it on a text; the output must not be there yet."""
        return subprocess.Popen(
            self.command(text, out), cwd=ROOT, env=_environment(), stderr=subprocess.PIPE
        )

    def seconds(self, text: Path, out: Path) -> float:
        """Seconds of the whole process. What an earlier run left is deleted before."""
        remove(out)
        started = time.perf_counter()
        finish(self.start(text, out))
        return time.perf_counter() - started

    def counts(self, out: Path) -> Counts:
        """What it has written."""
        found: Counts = {}
        for path in sorted(out.glob("part*")) if out.is_dir() else [out]:
            with path.open(encoding="ascii") as lines:
                for word, count in self.read(line.rstrip("\n") for line in lines):
                    assert word not in found, f"{self.name}: {word!r} comes twice"
                    found[word] = count
        return found


def _environment() -> dict[str, str]:
    """That of this process; letters are bytes to coreutils, and Spark asks for no host name."""
    return {**os.environ, "LC_ALL": "C", "SPARK_LOCAL_IP": "127.0.0.1"}


def finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for a program, which must succeed."""
    _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}: {errors.decode()}")


def remove(out: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if out.is_dir():
        shutil.rmtree(out)
    else:
        out.unlink(missing_ok=True)


def job(script: str, runner: str, name: str) -> Program:
    """A job of this repository on a runner."""

    def command(text: Path, out: Path) -> list[str]:
        options = ["-r", runner, "--no-conf", "-q", "--output-dir", str(out)]
        return [sys.executable, f"jobs/{script}.py", *options, str(text)]

    return Program(name, command, json_lines)


def peer(module: str, name: str) -> Program:
    """A program of benchmarks/peers."""

    def command(text: Path, out: Path) -> list[str]:
        return [sys.executable, "-m", f"benchmarks.peers.{module}", str(text), str(out)]

    return Program(name, command, needs=module)


def _pipe(text: Path, out: Path) -> list[str]:
    scratch = shlex.quote(str(out.parent))
    pipe = (
        f"tr A-Z a-z < {shlex.quote(str(text))} | tr -cs \"a-z0-9_'\" '\\n' | "
        f"sort --parallel=2 -S 2G -T {scratch} | uniq -c > {shlex.quote(str(out))}"
    )
    return ["bash", "-o", "pipefail", "-c", pipe]


TEXTBOOK = job("word_count", "parallel", "this toolkit")
VECTORIZED = job("word_count_vectorized", "parallel", "this toolkit, vectorized")
LOCAL = job("word_count", "local", "mrjob -r local")
INLINE = job("word_count", "inline", "mrjob -r inline")
DUCKDB = peer("duckdb", "DuckDB")
POLARS = peer("polars", "Polars")
PYARROW = peer("pyarrow", "pyarrow")
PYSPARK = peer("pyspark", "PySpark local[2]")
COREUTILS = Program("tr, sort, uniq", _pipe, _uniq_lines)
