"""JSON files that anybody may have written: read with a limit, and checked field by field."""

import functools
import json
import os
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hdfs_utils.atomic import storage_errors
from hdfs_utils.folders import kind_of
from hdfs_utils.paths import AnyPath
from mapreduce.errors import DataError

T = TypeVar("T")

#: Bytes of this machine's memory.
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

#: No JSON file of ours comes near it. A stranger's sparse file of a terabyte takes no disk space.
MOST_BYTES = 256 << 20


def require_file(path: AnyPath, most: int = MEMORY // 2) -> None:
    """Refuse a local path that is endless, as a pipe, or larger than ``most`` bytes."""
    if isinstance(path, Path):
        status = path.stat()
        if (kind := kind_of(status)) != "a file":
            raise DataError(f"{path} is {kind}: expected a file")
        if status.st_size > most:
            raise DataError(f"{path} has {status.st_size:,} bytes: expected {most:,} at most")


def content_of(path: AnyPath) -> bytes | None:
    """The content of a file of JSON, or None if it does not exist."""
    with storage_errors("read", path):
        try:
            require_file(path, MOST_BYTES)
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


def read(path: AnyPath) -> dict[str, Any] | None:
    """The object that a file holds, or None if the file does not exist; else a DataError."""
    text = content_of(path)
    return None if text is None else parsed(text, path)


def parsed(text: bytes, path: AnyPath) -> dict[str, Any]:
    """The object that is the content of a file; else a DataError, which names its path."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError(f"expected an object, found {content!r:.60}")
        return content
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def build(kind: type[T], content: object) -> T:
    """A dataclass from a JSON object; lists become tuples, and named ones if the class says so.

    Raises ValueError (a field is missing, unknown, not finite or of another type than the class
    says).
    """
    found: T = checked(kind, content, "its content")
    return found


def checked(kind: Any, value: Any, name: str) -> Any:
    """A value of JSON as the type that it has to be of; ``name`` is for the error of :func:`build`.

    The type may be a dataclass, a named tuple, a tuple, a dict, a scalar, or a union of them.
    """
    for option, of, is_class in _options(kind):
        if is_class and isinstance(value, dict):
            return option(**_fields(option, value))
        if of is tuple and isinstance(value, list):
            return tuple(checked(get_args(option)[0], part, name) for part in value)
        if hasattr(of, "_fields") and isinstance(value, list) and len(value) == len(of._fields):
            return option(*map(checked, _hints(option).values(), value, of._fields))
        if of is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
            return value
        if of is not float and type(value) is of:
            return value
    raise ValueError(f"{name}: expected {getattr(kind, '__name__', kind)}, found {value!r:.60}")


def _fields(kind: Any, value: dict[str, Any]) -> dict[str, Any]:
    hints = _hints(kind)
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    for key in sorted((value.keys() - hints) | (needed - value.keys())):
        raise ValueError(f"the field {key!r} is {'unknown' if key in value else 'missing'}")
    return {key: checked(hints[key], part, key) for key, part in value.items()}


@functools.cache
def _options(kind: Any) -> list[tuple[Any, Any, bool]]:
    """The types that a type allows: each with the class of its values, and if that is of data."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    classes = [(option, get_origin(option) or option) for option in options]
    return [(option, of, is_dataclass(of)) for option, of in classes]


#: Types of each field of a class: finding them takes longer than checking them.
_hints = functools.cache(get_type_hints)
