"""Files that a job brings along, by its options: looked at before anything runs."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import mapreduce.job  # noqa: F401  (makes mrjob import, and teaches it our runners)

from mrjob.parse import is_uri  # isort: skip
from mrjob.setup import parse_legacy_hash_path  # isort: skip

from mapreduce.errors import MissingInputError, UsageError
from mapreduce.hints import missing, names_in

#: mrjob's options, with the flag that adds to each and what is expected.
_OPTIONS = (
    ("upload_files", "--file", "file"),
    ("upload_archives", "--archive", "file"),
    ("upload_dirs", "--dir", "folder"),
    ("py_files", "--py-files", "file"),
)


def check_uploads(runner: Any, takes_uris: bool) -> None:
    """Raise an error that names the option, if what it brings cannot be read.

    Parameters
    ----------
    runner : MRJobRunner
    takes_uris : bool
        Whether it knows files that are not of this machine.

    Raises
    ------
    MissingInputError, UsageError
    """
    for flag, path, expected in _uploads(runner):
        if is_uri(path) and not path.startswith("file:///"):
            if takes_uris:
                continue
            raise UsageError(
                f"{flag} {path}: the runner {runner.alias} takes files of this machine. Copy it "
                f"here"
            )
        place = Path(path.removeprefix("file://"))
        if not place.exists():
            raise MissingInputError(f"{flag} {path} {missing(str(place), names_in)}")
        if place.is_dir() != (expected == "folder"):
            found = "folder" if place.is_dir() else "file"
            raise UsageError(f"{flag} {path}: expected a {expected}, found a {found}")
        if not os.access(place, os.R_OK):
            raise MissingInputError(f"{flag} {path}: cannot be read: Permission denied")


def _uploads(runner: Any) -> Iterator[tuple[str, str, str]]:
    for flag, value in pairwise(runner._extra_args):
        if isinstance(value, dict):
            yield flag, value["path"], "file"
    for name, flag, expected in _OPTIONS:
        for path in runner._opts.get(name) or ():
            kind = "dir" if expected == "folder" else "file"
            yield flag, parse_legacy_hash_path(kind, path)["path"], expected
