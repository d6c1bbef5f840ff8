"""Files that a job brings along, by its options: looked at before anything runs."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import mapreduce.job  # noqa: F401  (makes mrjob import, and teaches it our runners)

from mrjob.parse import is_uri  # isort: skip
from mrjob.setup import parse_legacy_hash_path  # isort: skip

from mapreduce.errors import MissingInputError, UsageError
from mapreduce.hints import missing, names_in

#: mrjob's options of files, each with the flag that adds to it.
_OPTIONS = {"upload_files": "--file", "upload_archives": "--archive", "py_files": "--py-files"}


def check_uploads(runner: Any) -> None:
    """Raise an error that names the option if what it brings is missing, or a folder.

    Raises
    ------
    MissingInputError, UsageError
    """
    given = [
        (flag, value["path"])
        for flag, value in pairwise(runner._extra_args)
        if isinstance(value, dict)
    ]
    for name, flag in _OPTIONS.items():
        paths = runner._opts.get(name) or ()
        given += [(flag, parse_legacy_hash_path("file", path)["path"]) for path in paths]
    for flag, path in given:
        local = path.removeprefix("file://")
        if is_uri(local):
            continue
        place = Path(local)
        if not place.exists():
            raise MissingInputError(f"{flag} {path} {missing(str(place), names_in)}")
        if place.is_dir():
            raise UsageError(f"{flag} {path}: expected a file, found a folder")
