"""Finding a Java that Hadoop runs on, and the options that its version needs."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from hdfs_utils.errors import RequirementError

#: Oldest and newest major version that Hadoop 3.4 runs on: Java 24 took away what its log-in needs.
OLDEST, NEWEST = 11, 23


class Java(NamedTuple):
    """A Java runtime."""

    home: Path
    major: int
    version: str
    hotspot: bool

    @property
    def program(self) -> Path:
        """The ``java`` to run."""
        return self.home / "bin" / "java"


def find(user: str = "Hadoop", oldest: int = OLDEST, newest: int | None = NEWEST) -> Java:
    """The Java of ``JAVA_HOME``, else that on ``PATH``, for a program that needs such a version.

    Raises RequirementError (there is none, or another version).
    """
    versions = f"{oldest} to {newest}" if newest else f"{oldest} or later"
    advice = (
        f"Install Java {versions} (on Debian or Ubuntu: apt-get install openjdk-17-jre-headless), "
        f"or set JAVA_HOME to the folder of one"
    )
    if os.environ.get("JAVA_HOME"):
        where = f"JAVA_HOME={os.environ['JAVA_HOME']}"
        program = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
        if not program.is_file():
            raise RequirementError(f"{user} needs Java: {where} has no bin/java. {advice}")
    else:
        found = shutil.which("java")
        if not found:
            raise RequirementError(
                f"{user} needs Java: there is no java on PATH, and JAVA_HOME is not set. {advice}"
            )
        where, program = found, Path(found)
    java = _ask(program, advice)
    if not oldest <= java.major <= (newest or java.major):
        raise RequirementError(
            f"{user} runs on Java {versions}; {where} is Java {java.version}. {advice}"
        )
    return java


def _ask(program: Path, advice: str) -> Java:
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequirementError(f"{program} does not run: {error}. {advice}") from error
    lines = (line.partition(" = ") for line in done.stderr.splitlines())
    settings = {name.strip(): value.strip() for name, _, value in lines}
    try:
        major = settings["java.specification.version"].removeprefix("1.").partition(".")[0]
        version = settings.get("java.vm.version") or settings["java.version"]
        hotspot = "OpenJ9" not in settings.get("java.vm.name", "")
        return Java(Path(settings["java.home"]), int(major), version, hotspot)
    except (KeyError, ValueError):
        raise RequirementError(
            f"{program} does not say its version as Java does: {done.stderr[:200]!r}. {advice}"
        ) from None


def options(java: Java) -> list[str]:
    """Options for every virtual machine of the cluster: small, quick to start, on IPv4."""
    return [
        # Other virtual machines than HotSpot do not know all of them.
        "-XX:+IgnoreUnrecognizedVMOptions",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Xss512k",
        "-Xshare:auto",
        # Mapped where it was made for, the archive needs no correction of every address in it.
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:ArchiveRelocationMode=0",
        "-Djava.net.preferIPv4Stack=true",
        # Hadoop's class loaders look into the JDK.
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        *(["-Djava.security.manager=allow"] if java.major >= 18 else []),
    ]
