"""The Java programs that give a step to Hadoop: one for a step, or one for all steps of a job."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import cast
from urllib.parse import quote

from mrjob.logs.step import _parse_indented_counters

from hdfs_utils.cluster import Cluster, compiled
from hdfs_utils.errors import ClusterError
from mapreduce.runners.hadoop.installation import Installation
from mapreduce.support import parents

#: Seconds that a question to YARN may take; a machine that is busy needs some for Java alone.
_SECONDS = 60

_DEBUG = "DEBUG,console"


class Program:
    """A command for one step, as ``hadoop jar``, with all of its environment."""

    _STDIN = subprocess.DEVNULL

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            arguments,
            stdin=self._STDIN,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(environment),
            # Ctrl-C is for the driver, which then ends both.
            start_new_session=True,
            preexec_fn=parents.ending_here(),
        )

    def lines(self) -> Iterator[bytes]:
        """What it says, until the step is over."""
        assert self._process.stderr is not None
        return iter(self._process.stderr.readline, b"")

    def wait(self) -> int:
        """The step's exit code, once it is over."""
        return self._process.wait()

    def kill(self) -> None:
        """End it at once, if it still works."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """The step is over."""
        self.end()

    def end(self) -> None:
        """No more steps come."""
        for pipe in (self._process.stdin, self._process.stderr):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        self.kill()


def refusal(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """The exception by which Hadoop's streaming refused the options of a step; "" if it was not so.

    To all but those who debug it, streaming says "Streaming Command Failed!".
    """
    options = f"{environment.get('HADOOP_CLIENT_OPTS', '')} -Dhadoop.root.logger={_DEBUG}"
    talking = {"HADOOP_ROOT_LOGGER": _DEBUG, "HADOOP_CLIENT_OPTS": options.strip()}
    program = Program(arguments, {**environment, **talking})
    try:
        lines = program.lines()
        for line in lines:
            if b"Error in streaming job" in line:
                return next(lines, b"").decode(errors="replace").strip()
            if b"JobResourceUploader" in line or b"JobSubmitter" in line:
                # The options are right today: nothing shall be submitted.
                break
    finally:
        program.close()
    return ""


def counters(installation: Installation, application: str) -> dict[str, dict[str, int]]:
    """Group, counter and amount of a job that has ended; empty if they are not known."""
    job, said = application.replace("application_", "job_"), ""
    with contextlib.suppress(ClusterError):
        said = _output(installation, "org.apache.hadoop.mapred.JobClient", "-status", job)
    _, found, rest = said.partition("\nCounters: ")
    counted = _parse_indented_counters(f"Counters: {rest}".splitlines()) if found else {}
    return cast(dict[str, dict[str, int]], counted)


def applications(installation: Installation, tag: str, states: str) -> list[str]:
    said = _ask(installation, "-list", "-appTags", tag, "-appStates", states)
    return re.findall(r"^\s*(application_\d+_\d+)\s", said, re.MULTILINE)


def application(installation: Installation, name: str) -> dict[str, str]:
    """Name, states and diagnostics of an application, as the REST interface calls them."""
    said = _ask(installation, "-status", name)
    known = dict(re.findall(r"^\s*([\w-]+) : (.*)$", said, re.MULTILINE))
    diagnostics = re.search(r"^\s*Diagnostics : (.*?)^\s*[\w-]+[\w -]* : ", said, re.M | re.S)
    return {
        "name": known.get("Application-Name", ""),
        "state": known.get("State", ""),
        "finalStatus": known.get("Final-State", ""),
        "diagnostics": diagnostics[1] if diagnostics else "",
    }


def kill(installation: Installation, name: str) -> None:
    """End an application."""
    _ask(installation, "-kill", name)


def logs(installation: Installation, name: str, log: str) -> str:
    """The logs of one kind that YARN has collected from an application's containers."""
    program = "org.apache.hadoop.yarn.client.cli.LogsCLI"
    found = _output(installation, program, "-applicationId", name, "-log_files", log)
    if not found.strip():
        raise ClusterError(f"hadoop {program} shows none of {name}")
    return found


def _ask(installation: Installation, *arguments: str) -> str:
    program = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
    return _output(installation, program, "application", *arguments)


def _output(installation: Installation, *arguments: str) -> str:
    command = [installation.program, *arguments]
    shown = " ".join(["hadoop", *arguments])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            env={**os.environ, **installation.environment},
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"{shown}: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if re.search("Exception|rror", line)]
        why = (lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0]
        raise ClusterError(f"{shown}: {why.strip()[:400]}")
    return done.stdout


class Submitter(Program):
    """One Java for all streaming steps of a job: what a step needs is loaded for the first only."""

    _STDIN = subprocess.PIPE

    def __init__(self, own: Cluster, environment: Mapping[str, str]) -> None:
        path = [environment.get("HADOOP_CLASSPATH", ""), str(compiled.folder(own.hadoop))]
        options = [environment.get("HADOOP_CLIENT_OPTS", ""), "-Dhadoop.root.logger=INFO,console"]
        super().__init__(
            [str(own.home / "bin" / "hadoop"), compiled.SUBMITTER],
            {
                **environment,
                "HADOOP_CLASSPATH": os.pathsep.join(filter(None, path)),
                "HADOOP_CLIENT_OPTS": " ".join(filter(None, options)),
            },
        )
        self._environment = dict(environment)
        self._code: int | None = None

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Whether it lives, and has this environment."""
        return self._process.poll() is None and self._environment == dict(environment)

    def submit(self, arguments: Sequence[str]) -> None:
        """Begin a step, by arguments for Hadoop's streaming."""
        self._code = None
        assert self._process.stdin is not None
        words = "\t".join(quote(word, safe="") for word in arguments)
        # If it died meanwhile, its last words and its exit code say why.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{words}\n".encode())
            self._process.stdin.flush()

    def lines(self) -> Iterator[bytes]:
        for line in super().lines():
            if line.startswith(compiled.ENDED):
                self._code = int(line.removeprefix(compiled.ENDED))
                return
            yield line

    def wait(self) -> int:
        # One that died in the middle of a step has not succeeded.
        return super().wait() or 1 if self._code is None else self._code

    def close(self) -> None:
        """Nothing: the next step may come."""
