"""Errors of reading files."""

import lzma
import re
import zlib
from pathlib import Path, PurePath
from types import TracebackType

from hdfs_utils import codecs
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
    kinds = (EOFError, zlib.error, lzma.LZMAError)
    return reading(path, "is damaged or cut off", *kinds, advice=advice)


def refuse_compressed(path: str, head: bytes, reader: str = "runner") -> None:
    """Raise a DataError if a file is compressed, and its reader would take the bytes for text.

    ``head``: The first bytes of the file. ``reader``: ``runner``, of this machine; ``cluster``, for
    which ``.GZ`` ends no name; ``import``, which decompresses gzip alone, whatever the name.
    """
    codec = codecs.by_content(path, head)
    if codec is None or (reader == "import" and codec.suffix == ".gz"):
        return
    is_read = codec.on_hadoop if reader == "cluster" else codec.opener and reader != "import"
    end = PurePath(path).suffix
    if is_read and codec.suffix == (end if reader == "cluster" else end.lower()):
        return
    what, advice = path, f"Decompress it, as by: {codec.tool}"
    if re.fullmatch(r"\.t(gz|bz2?|xz|zst)", end.lower()):
        advice = "Unpack it, as by: tar -xf"
    elif path == "-":
        what, advice = "standard input", f"{advice} FILE | gradreduce ..."
    elif is_read:
        stem = PurePath(path).stem if end.lower() == codec.suffix else PurePath(path).name
        advice = f"Rename it to {stem}{codec.suffix}, or d{advice[1:]}"
    raise DataError(f"{what} is compressed ({codec.name}), and would be read as text. {advice}")
