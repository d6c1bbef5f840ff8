"""The Java programs that give a step to Hadoop: one for a step, or one for all steps of a job."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol
from urllib.parse import quote

from hdfs_utils.cluster import Cluster, compiled


class Program(Protocol):
    """What a step's client talks to."""

    def lines(self) -> Iterator[bytes]:
        """What it says, until the step is over."""

    def wait(self) -> int:
        """The step's exit code, once it is over."""

    def kill(self) -> None:
        """End it at once, if it still works."""

    def close(self) -> None:
        """The step is over."""


class Once:
    """A command for one step, as ``hadoop jar``.

    Parameters
    ----------
    arguments : sequence of str
    environment : mapping
        All of it.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = _start(arguments, environment, subprocess.DEVNULL)

    def lines(self) -> Iterator[bytes]:
        assert self._process.stderr is not None
        return iter(self._process.stderr.readline, b"")

    def wait(self) -> int:
        return self._process.wait()

    def kill(self) -> None:
        _kill(self._process)

    def close(self) -> None:
        assert self._process.stderr is not None
        self._process.stderr.close()


class Submitter:
    """One Java for all streaming steps of a job: what a step needs is loaded for the first only.

    Parameters
    ----------
    own : Cluster
        Of which the Java is.
    environment : mapping
        All of it.
    """

    def __init__(self, own: Cluster, environment: Mapping[str, str]) -> None:
        path = [environment.get("HADOOP_CLASSPATH", ""), str(compiled.folder(own.hadoop))]
        options = [environment.get("HADOOP_CLIENT_OPTS", ""), "-Dhadoop.root.logger=INFO,console"]
        self._environment = dict(environment)
        self._process = _start(
            [str(own.home / "bin" / "hadoop"), compiled.SUBMITTER],
            {
                **environment,
                "HADOOP_CLASSPATH": os.pathsep.join(filter(None, path)),
                "HADOOP_CLIENT_OPTS": " ".join(filter(None, options)),
            },
            subprocess.PIPE,
        )
        self._code: int | None = None

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Whether it lives, and has this environment."""
        return self._process.poll() is None and self._environment == dict(environment)

    def submit(self, arguments: Sequence[str]) -> None:
        """Begin a step.

        Parameters
        ----------
        arguments : sequence of str
            For Hadoop's streaming.
        """
        self._code = None
        assert self._process.stdin is not None
        words = "\t".join(quote(word, safe="") for word in arguments)
        # If it died meanwhile, its last words and its exit code tell.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{words}\n".encode())
            self._process.stdin.flush()

    def lines(self) -> Iterator[bytes]:
        assert self._process.stderr is not None
        for line in iter(self._process.stderr.readline, b""):
            if line.startswith(compiled.ENDED):
                self._code = int(line.removeprefix(compiled.ENDED))
                return
            yield line

    def wait(self) -> int:
        # One that died in the middle of a step has not succeeded.
        return self._process.wait() or 1 if self._code is None else self._code

    def kill(self) -> None:
        _kill(self._process)

    def close(self) -> None:
        """Nothing: the next step may come."""

    def end(self) -> None:
        """No more steps come."""
        for pipe in (self._process.stdin, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        _kill(self._process)


def _start(
    arguments: Sequence[str], environment: Mapping[str, str], stdin: int
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        arguments,
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(environment),
        # Ctrl-C is for the driver, which then ends both.
        start_new_session=True,
    )


def _kill(process: "subprocess.Popen[bytes]") -> None:
    # Which does nothing to one that has ended.
    process.kill()
    process.wait()
