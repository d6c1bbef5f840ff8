"""Files that a user has named for an output."""

import contextlib
import os
from collections.abc import Iterator

from mapreduce.errors import OutputError


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have errors of the system name the file that a block writes.

    Raises OutputError (the file cannot be written).
    """
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
