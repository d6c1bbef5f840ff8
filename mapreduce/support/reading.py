"""Errors of reading files."""

import zlib
from pathlib import Path
from types import TracebackType

from hdfs_utils.atomic import storage_errors
from mapreduce.errors import DataError


class reading:
    """Turns exceptions of reading a file into errors that name it.

    As a class and not by ``contextlib``: it may surround ``yield``, through which exceptions of
    others do not pass, but ``GeneratorExit`` does.

    ``what``: The words for a damaged file: "PATH is damaged"; empty for files without a format.
    ``advice``: What the user can try then.
    ``kinds``: Exceptions that mean damage, beside an ``OSError`` without a number, which several
      libraries raise for damaged bytes.
    """

    def __init__(self, path: str, what: str, *kinds: type[BaseException], advice: str = "") -> None:
        self._path = path
        self._what = what
        self._advice = advice
        self._kinds = kinds
        self._storage = storage_errors("read", path)

    def __enter__(self) -> None:
        self._storage.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        unnumbered = isinstance(error, OSError) and error.errno is None
        if self._what and (unnumbered or isinstance(error, self._kinds)):
            self._storage.__exit__(None, None, None)
            raise DataError(f"{self._path} {self._what}: {error}{self._advice}") from error
        return self._storage.__exit__(kind, error, trace)


def reading_compressed(path: str) -> reading:
    """As above, for a file whose name says how it is compressed."""
    advice = (
        f". Its name says that it is {Path(path).suffix[1:]}; unpack it by hand to see how far it "
        "can be read"
    )
    return reading(path, "is damaged or cut off", EOFError, zlib.error, advice=advice)
