"""JSON files that anybody may have written: read with a limit, and checked field by field."""

import json
import os
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from hdfs_utils.folders import kind_of
from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import storage_errors
from mapreduce.errors import DataError

T = TypeVar("T")

#: Bytes of this machine's memory.
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

#: No file of JSON comes near it. A sparse one of a terabyte takes no room on a stranger's disk.
MOST_BYTES = 256 << 20


def require_file(path: AnyPath, most: int = MEMORY // 2) -> None:
    """Refuse what has no end, as a pipe, or more bytes; of this machine, where such things are.

    Raises
    ------
    DataError
        The path is there, and neither a file nor a link to one, or the file is too large.
    """
    if isinstance(path, Path):
        status = path.stat()
        if (kind := kind_of(status)) != "a file":
            raise DataError(f"{path} is {kind}: expected a file")
        if status.st_size > most:
            raise DataError(f"{path} has {status.st_size:,} bytes: expected {most:,} at most")


def read(path: AnyPath) -> dict[str, Any] | None:
    """The object that a file holds, or None if there is no file.

    Raises
    ------
    DataError
        It holds something else, or is no file that can be read to its end.
    """
    try:
        with storage_errors("read", path):
            try:
                require_file(path, MOST_BYTES)
                content = json.loads(path.read_bytes())
            except (FileNotFoundError, NotADirectoryError):
                return None
        if not isinstance(content, dict):
            raise ValueError(f"expected an object, found {content!r:.60}")
        return content
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def build(kind: type[T], content: object) -> T:
    """A dataclass from a JSON object; lists become tuples.

    Raises
    ------
    ValueError
        A field is missing, unknown, not finite or of another type than the class says.
    """
    found: T = _checked(kind, content, "its content")
    return found


def _checked(kind: Any, value: object, name: str) -> Any:
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        hints = get_type_hints(kind)
        needed = {field.name for field in fields(kind) if field.default is MISSING}
        for key in sorted((value.keys() - hints) | (needed - value.keys())):
            raise ValueError(f"the field {key!r} is {'unknown' if key in value else 'missing'}")
        return kind(**{key: _checked(hints[key], part, key) for key, part in value.items()})
    is_union = get_origin(kind) not in (None, tuple)
    for option in get_args(kind) if is_union else (kind,):
        if get_origin(option) is tuple and isinstance(value, list):
            return tuple(_checked(get_args(option)[0], part, name) for part in value)
        if option is float and isinstance(value, int | float) and type(value) is not bool:
            if abs(value) <= sys.float_info.max:
                return value
        elif type(value) is option:
            return value
    raise ValueError(f"{name}: expected {getattr(kind, '__name__', kind)}, found {value!r:.60}")
