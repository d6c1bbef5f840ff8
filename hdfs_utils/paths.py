"""Paths in any filesystem: ``pathlib.Path`` for this machine's, :class:`RemotePath` for others.

:func:`path_of` makes the one or the other of what a user wrote. A remote path has those methods of
``pathlib`` that make sense in all filesystems, under the same names, so that most code takes both.
It is not an ``os.PathLike``: code that would open it as a local file fails at once.
"""

import fnmatch
import glob
import io
import os.path
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from hdfs_utils.atomic import octets
from hdfs_utils.errors import StorageError
from hdfs_utils.filesystem import Storage, is_remote, reached, remote_errors, storage


class RemotePath:
    """A path in a filesystem that is not this machine's, such as ``hdfs://host:port/path``.

    What the filesystem refuses, or does not answer, is a :class:`hdfs_utils.errors.StorageError`;
    that something exists or does not is Python's ``FileNotFoundError`` or ``FileExistsError``.

    Raises
    ------
    AddressError, StorageError
        See :func:`hdfs_utils.filesystem.filesystem`.
    """

    __slots__ = ("_given", "_path", "_root")

    def __init__(self, uri: str) -> None:
        found, path = storage(uri)
        scheme, _, rest = uri.partition("://")
        self._root = found.root
        self._given = f"{scheme}://" if rest[:1] in ("", "/") else found.root
        self._path = PurePosixPath(path)

    def _at(self, path: PurePosixPath) -> "RemotePath":
        made = object.__new__(RemotePath)
        made._root, made._given, made._path = self._root, self._given, path
        return made

    @property
    def storage(self) -> Storage:
        """The filesystem; asked for anew, since after a fork the connection is another one."""
        return reached(self.uri)

    @property
    def uri(self) -> str:
        """The URI with its host, also if ``hdfs:///path`` was given, which the text of it is."""
        return f"{self._root}{self._path}"

    @property
    def path(self) -> str:
        """The path in the filesystem, as pyarrow takes it."""
        return str(self._path)

    def __str__(self) -> str:
        return f"{self._given}{self._path}"

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __lt__(self, other: "RemotePath") -> bool:
        return self.uri < other.uri

    # Names

    def __truediv__(self, name: "str | RemotePath") -> "RemotePath":
        return self._at(self._path / str(name))

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def stem(self) -> str:
        return self._path.stem

    @property
    def parent(self) -> "RemotePath":
        return self._at(self._path.parent)

    def with_name(self, name: str) -> "RemotePath":
        return self._at(self._path.with_name(name))

    def absolute(self) -> "RemotePath":
        """The same with its host, for other processes and machines."""
        return RemotePath(self.uri)

    # Looking

    def _info(self) -> Any:
        with remote_errors(self):
            return self.storage.filesystem.get_file_info(self.path)

    def _kind(self) -> str:
        return str(self._info().type.name)

    def exists(self) -> bool:
        return self._kind() != "NotFound"

    def is_file(self) -> bool:
        return self._kind() == "File"

    def is_dir(self) -> bool:
        return self._kind() == "Directory"

    def size(self) -> int:
        """Bytes of the file.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        """
        info = self._info()
        if info.type.name != "File":
            raise FileNotFoundError(2, "No such file", str(self))
        return int(info.size)

    def stamps(self) -> dict[str, tuple[int, int | None]]:
        """Of the file, or of all files in the folder and in those within: bytes, last change.

        By their URIs. The change is in nanoseconds since 1970, or None where it is not known.
        """
        info = self._info()
        found = self._listed(recursive=True) if info.type.name == "Directory" else [info]
        return {
            self._at(PurePosixPath(one.path)).uri: (int(one.size), one.mtime_ns)
            for one in found
            if one.type.name == "File"
        }

    def iterdir(self) -> Iterator["RemotePath"]:
        for info in self._listed(recursive=False):
            yield self._at(PurePosixPath(info.path))

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """What lies in the folder itself, by the pattern of a name."""
        for path in self.iterdir():
            if fnmatch.fnmatchcase(path.name, pattern):
                yield path

    def rglob(self, pattern: str) -> Iterator["RemotePath"]:
        """What lies in the folder and in those within, by the pattern of a name."""
        for info in self._listed(recursive=True):
            path = self._at(PurePosixPath(info.path))
            if fnmatch.fnmatchcase(path.name, pattern):
                yield path

    def walk(self) -> Iterator[tuple["RemotePath", str, int]]:
        """All that lies in the folder and in those within: path, kind of pyarrow's, size."""
        for info in self._listed(recursive=True):
            yield self._at(PurePosixPath(info.path)), info.type.name, info.size or 0

    def _listed(self, recursive: bool) -> list[Any]:
        """A folder that does not exist is empty, as in pathlib's globs and as on S3."""
        from pyarrow import fs

        selector = fs.FileSelector(self.path, allow_not_found=True, recursive=recursive)
        with remote_errors(self):
            return sorted(self.storage.filesystem.get_file_info(selector), key=lambda i: i.path)

    # Reading

    def open_native(self) -> Any:
        """The file, for reading: a ``pyarrow.NativeFile``, which can seek."""
        with remote_errors(self):
            return self.storage.filesystem.open_input_file(self.path)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """The same as a file of Python's, whose errors name the path."""
        assert mode == "rb", "a remote file is written at once"
        return io.BufferedReader(_Raw(self, self.open_native()), _BUFFER_BYTES)

    def read_bytes(self) -> bytes:
        with remote_errors(self), self.open_native() as file:
            return bytes(file.read())

    def read_range(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes of the file from an offset on; fewer only at its end."""
        with remote_errors(self), self.open_native() as file:
            file.seek(offset)
            return bytes(file.read(length))

    def read_text(self) -> str:
        return self.read_bytes().decode()

    # Changing

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        if not exist_ok and self.exists():
            raise FileExistsError(17, "File exists", str(self))
        with remote_errors(self):
            self.storage.filesystem.create_dir(self.path, recursive=parents or exist_ok)

    def make_private(self) -> None:
        """Make a folder that only its owner may read; restrict one that exists."""
        make_private = self.storage.make_private
        if make_private is None:
            self.mkdir(exist_ok=True)
            return
        with remote_errors(self):
            make_private(self.path)

    def write_bytes(self, *content: Any) -> None:
        """Write a file, in pieces, in the place of any earlier one.

        When it returns, all data nodes of HDFS that received the file have it. If a node was
        lost meanwhile, a few attempts may be needed until the name node chooses others.
        """
        for pause in (*_PAUSES, None):
            try:
                self._write(*content)
                return
            except StorageError as error:
                if pause is None or not any(word in str(error) for word in _LOST):
                    raise
            time.sleep(pause)

    def _write(self, *content: Any) -> None:
        with remote_errors(self):
            # Not closed after an error: that would wait for what was lost.
            file = self.storage.open(self.path)
            for piece in map(octets, content):
                # A client makes a copy of what it is given.
                for start in range(0, len(piece), _WRITTEN_BYTES):
                    file.write(piece[start : start + _WRITTEN_BYTES])
            file.close()

    @property
    def can_rename(self) -> bool:
        """Whether files and folders can take another name in one step."""
        return self.storage.rename is not None

    def rename(self, target: "RemotePath", *, overwrite: bool = False) -> None:
        """Give the file or folder another name in one step, where :attr:`can_rename`.

        Raises
        ------
        FileExistsError
            The name is taken, and is not to be overwritten.
        """
        rename = self.storage.rename
        assert rename is not None, f"{self} cannot be renamed"
        try:
            with remote_errors(self):
                rename(self.path, target.path, overwrite)
        except FileExistsError:
            # Hadoop's message has a stack.
            raise FileExistsError(17, "File exists", str(target)) from None

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            with remote_errors(self):
                self.storage.filesystem.delete_file(self.path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmtree(self) -> None:
        """Delete a folder and all in it; one that does not exist is not an error."""
        with remote_errors(self):
            if self.is_dir():
                self.storage.filesystem.delete_dir(self.path)


class _Raw(io.RawIOBase):
    """A remote file, for reading."""

    def __init__(self, path: RemotePath, file: Any) -> None:
        self._path, self._file = path, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with remote_errors(self._path):
            return int(self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = 0) -> int:
        with remote_errors(self._path):
            return int(self._file.seek(offset, whence))

    def close(self) -> None:
        super().close()
        self._file.close()


#: Bytes that are read at once, and at most written at once.
_BUFFER_BYTES = 1 << 20
_WRITTEN_BYTES = 64 << 20

#: What hdfs-native says of a data node that is lost, and seconds before it is asked again.
_LOST = ("DataTransferError", "Failed to complete file", "Connection re", "early eof", "roken pipe")
_PAUSES = (0.5, 1, 2, 4)

#: A path in any filesystem.
AnyPath = Path | RemotePath


def matching(pattern: str) -> list[RemotePath]:
    """What a URI with wildcards means, in order: ``*``, ``?``, ``[a-z]`` and ``{one,two}``.

    A wildcard stands for no ``/``, as in Hadoop's own globs. What does not exist is left out. What
    exists under the very name is meant, whatever characters stand in it.
    """
    known, wild = split_pattern(pattern)
    if not wild:
        return [known] if known.exists() else []
    choices = (plain.strip("/").split("/") for plain in _alternatives(wild))
    return sorted({path for parts in choices for path in _descend(known, parts)})


def split_pattern(pattern: str) -> tuple[RemotePath, str]:
    """What of a URI's path exists under its very name or has no wildcards, and what follows it."""
    known = whole = RemotePath(pattern)
    while _PATTERN.search(known.path) and not known.exists():
        known = known.parent
    return known, whole.path.removeprefix(known.path)


def hadoop_pattern(uri: str) -> str:
    """A URI, which may be a pattern, as a pattern of Hadoop's inputs, which commas separate."""
    known, wild = split_pattern(uri)
    return escaped(known.uri, is_listed=True) + _OUTER_COMMA.sub(
        r"{\\,}", wild.replace("\\", r"\\")
    )


def escaped(uri: str, *, is_listed: bool = False) -> str:
    """A URI as a pattern of Hadoop's for itself alone; of inputs, if it is listed among them."""
    pattern = re.sub(r"[*?\[\]{}\\]", r"\\\g<0>", uri)
    return pattern.replace(",", r"{\,}") if is_listed else pattern


#: A comma that is not between braces.
_OUTER_COMMA = re.compile(r",(?![^{}]*\})")

_WILD, _PATTERN = re.compile(r"[*?\[]"), re.compile(r"[*?\[{]")


def _alternatives(pattern: str) -> Iterator[str]:
    """A pattern for each choice of what stands between braces."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        yield pattern
        return
    for choice in match[1].split(","):
        yield from _alternatives(pattern[: match.start()] + choice + pattern[match.end() :])


def _descend(folder: RemotePath, parts: list[str]) -> Iterator[RemotePath]:
    name, rest = parts[0], parts[1:]
    matches = folder.glob(name) if _WILD.search(name) else iter([folder / name])
    for path in matches:
        if rest:
            yield from _descend(path, rest)
        elif _WILD.search(name) or path.exists():
            yield path


def local_matching(pattern: str) -> list[str]:
    """What a pattern means among the files of this machine, in no order.

    What exists under the very name is meant, whatever characters stand in it: the file
    ``table[1].csv``, and all in the folder ``data[2]`` by ``data[2]/*``.
    """
    known = pattern
    while known and not os.path.lexists(known):
        known = known.rstrip("/").rpartition("/")[0]
    if known == pattern:
        return [pattern]
    return glob.glob(glob.escape(known) + pattern[len(known) :])  # noqa: PTH207  (as mrjob reads)


def files_in(path: RemotePath) -> list[tuple[RemotePath, int]]:
    """All files in a folder and in those within, or the file itself, with their sizes in bytes."""
    if path.is_dir():
        return [(found, size) for found, kind, size in path.walk() if kind == "File"]
    return [(path, path.size())]


def size_of(path: AnyPath) -> int:
    """Bytes of a file."""
    return path.size() if isinstance(path, RemotePath) else path.stat().st_size


def stamp_of(path: AnyPath) -> str:
    """What changes if a file is written to, or replaced, as far as its filesystem tells.

    Raises FileNotFoundError (there is none).
    """
    if isinstance(path, RemotePath):
        path.size()
        # Clients of one filesystem differ in fractions of milliseconds.
        return repr([(size, time and round(time / 1e6)) for size, time in path.stamps().values()])
    status = path.stat()
    return repr([status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino])


def named_by(path: AnyPath) -> list[AnyPath]:
    """The files that a path with wildcards means, in order, if it is a URI, which no shell expands.

    If it means none, or a file has the very name, the path itself.
    """
    if not isinstance(path, RemotePath) or not _PATTERN.search(path.path):
        return [path]
    return [*matching(str(path))] or [path]


def ordered(paths: Iterable[AnyPath]) -> list[AnyPath]:
    """Paths by their names, as text."""
    return sorted(paths, key=str)


def path_of(place: str) -> AnyPath:
    """The path that a user's text means, of this machine or of another filesystem.

    Raises
    ------
    AddressError
        A URI whose scheme is not known, or that makes no sense.

    Examples
    --------
    >>> path_of("data/train")
    PosixPath('data/train')
    >>> path_of("hdfs://namenode:8020/data") / "train"
    RemotePath('hdfs://namenode:8020/data/train')
    """
    if is_remote(place):
        return RemotePath(place)
    return Path(place.removeprefix("file://"))
