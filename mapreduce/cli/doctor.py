"""``gradreduce doctor``: checks that everything the toolkit needs is in place."""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from mapreduce.support import own
from mapreduce.support.printable import echo

REQUIRED = (
    *("mrjob", "numpy", "numba", "pyarrow", "safetensors", "threadpoolctl", "click", "rich"),
    "jinja2",
)
OPTIONAL = {"sklearn": "datasets: the digits"}


class Finding(NamedTuple):
    """The result of a check."""

    check: str
    fine: bool
    text: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def doctor(as_json: bool) -> int:
    """Check Python, packages, compiler and cores, and a Hadoop with Kerberos that is configured.

    If something is wrong, the exit code is 1.
    """
    findings: list[Finding] = []
    for check in CHECKS:
        try:
            findings += check()
        except ImportError as error:
            # Another package may have the name of one of ours.
            findings.append(
                Finding(check.__name__.strip("_"), False, f"cannot be checked: {error}")
            )
    if as_json:
        content = {"findings": [finding._asdict() for finding in findings]}
        echo(json.dumps(content, indent=1))
    else:
        for finding in findings:
            echo(f"{'ok' if finding.fine else 'WRONG':6}{finding.check:14}{finding.text}")
    return 0 if all(finding.fine for finding in findings) else 1


def _python() -> Iterator[Finding]:
    fine = sys.version_info >= (3, 11)
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", fine, f"{version}{'' if fine else ': 3.11 or later is needed'}")


def _shadowed() -> Iterator[Finding]:
    """Another distribution may bring packages of the same names: Hugging Face has a ``kernels``."""
    brought_by = importlib.metadata.packages_distributions()
    for package in own.NAMES:
        found, text = Path(own.HOME, package), None
        others = [
            name
            for name in sorted({*brought_by.get(package, ())} - {"gradreduce"})
            if importlib.metadata.distribution(name).locate_file(package) == found
        ]
        if not found.is_dir():
            text = f"is not found; expected {found}. Install gradreduce again"
        elif others:
            text = (
                f"comes from {', '.join(others)} too: one overwrites the other's files. Use a "
                f"virtual environment for each"
            )
        yield Finding(package, text is None, text or str(found))


def _packages() -> Iterator[Finding]:
    from mapreduce import compat

    compat.install()
    for package in REQUIRED:
        try:
            importlib.import_module("mrjob.job" if package == "mrjob" else package)
            yield Finding(package, True, importlib.metadata.version(package))
        except Exception as error:
            yield Finding(package, False, f"{error}. Install it: pip install gradreduce")
    for package, use in OPTIONAL.items():
        present = importlib.util.find_spec(package) is not None
        yield Finding(package, True, "present" if present else f"not installed ({use})")


def _compiler() -> Iterator[Finding]:
    import numpy as np

    from kernels import dispatch

    try:
        found = dispatch.get("first_non_finite")(np.array([1.0, np.nan]))
        yield Finding("compiler", found == 1, "Numba compiles and runs kernels")
    except Exception as error:
        yield Finding("compiler", False, f"a kernel does not compile or run: {error}")


def _blas() -> Iterator[Finding]:
    from mapreduce.support import numeric

    for blas in numeric.describe()["blas"]:
        yield Finding("blas", True, " ".join(str(value) for value in blas.values()))


def _machine() -> Iterator[Finding]:
    from mapreduce.support.cores import available_cores
    from mapreduce.support.traits import DEFAULT_START_METHOD

    yield Finding("cores", True, f"{available_cores()}, workers start by {DEFAULT_START_METHOD}")
    shm = Path("/dev/shm")  # noqa: S108
    if os.access(shm, os.W_OK):
        free = shutil.disk_usage(shm).free
        text = f"{free >> 20:,} MiB free in {shm}"
        yield Finding(
            "memory", free > 256 << 20, text + ("" if free > 256 << 20 else ", which is too little")
        )
    else:
        yield Finding("memory", True, f"no {shm}: the shuffle uses the folder of temporary files")


def _kerberos() -> Iterator[Finding]:
    """The ticket, and what the services of a Hadoop that asks for one answer, if one is used."""
    from hdfs_utils import filesystem, kerberos
    from hdfs_utils.errors import ClusterError, StorageError
    from hdfs_utils.paths import path_of
    from mapreduce.runners.hadoop import installation, rest

    try:
        yarn = rest.Yarn(installation.find())
        if not filesystem.is_secure():
            return
    except (ClusterError, StorageError):
        # Nobody has to have a Hadoop.
        return
    try:
        principal, seconds = kerberos.ticket()
    except StorageError as error:
        yield Finding("ticket", False, str(error))
        return
    left = f"{seconds // 3600}:{seconds // 60 % 60:02d} h"
    yield Finding("ticket", True, f"{principal}, valid for {left}, in {kerberos.cache_name()}")
    services: dict[str, Callable[[], object]] = {
        "HDFS": lambda: path_of("hdfs:///").is_dir(),
        "YARN": yarn.metrics,
        "nodes": yarn.node,
        "history": yarn.history,
    }
    for service, ask in services.items():
        try:
            ask()
            yield Finding(service, True, "accepts the ticket")
        except (ClusterError, StorageError) as error:
            yield Finding(service, False, str(error))


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _shadowed,
    _packages,
    _compiler,
    _blas,
    _machine,
    _kerberos,
)
