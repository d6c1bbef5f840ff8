"""Which reduce task a key belongs to: Hadoop's partitioners, bit for bit.

Hadoop's own are Java classes. Two of them are built in here; a job that names another one is run
with the first, and the user is told.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from operator import mul
from typing import Any, NamedTuple

from mapreduce.errors import UsageError

#: A function from the bytes of a key to the number of its partition.
Partitioner = Callable[[bytes], int]

_JOBCONF = ("mapreduce.job.partitioner.class", "mapred.partitioner.class")
_OPTIONS = ("mapreduce.partition.keypartitioner.options", "mapred.text.key.partitioner.options")
_SEPARATOR = ("mapreduce.map.output.key.field.separator", "map.output.key.field.separator")
_FIELDS = ("mapreduce.partition.keypartitioner.num.fields", "num.key.fields.for.partition")
_KEY_FIELDS = ("stream.num.map.output.key.fields",)


class KeyField(NamedTuple):
    """A part of a key, as ``-k`` names it: fields and characters, both counted from 1.

    The last character 0 stands for the end of the field; the last field 0 for the end of the key.
    """

    first_field: int
    first_char: int
    last_field: int
    last_char: int


class Partitioning(NamedTuple):
    """How records are divided; made of lists, strings and numbers, so that it travels as JSON.

    Attributes
    ----------
    partitions : int
    key_fields : int
        Fields, up to a TAB each, that make a record's key.
    fields : sequence of KeyField, optional
        What KeyFieldBasedPartitioner looks at; empty for the whole key. None for HashPartitioner.
    separator : str
        Between the fields of a key.
    """

    partitions: int
    key_fields: int = 1
    fields: tuple[KeyField, ...] | None = None
    separator: str = "\t"


#: ``31 ** (n - 1), ..., 31, 1`` in 32 bits, by n.
_POWERS: list[tuple[int, ...]] = [()]


def hash_of(content: bytes, value: int) -> int:
    """``h = 31 h + byte`` over signed bytes, in 32 bits without sign.

    Hadoop's ``WritableComparator.hashBytes`` starts from 1, ``KeyFieldBasedPartitioner.hashCode``
    from 0.
    """
    for start in range(0, len(content), _PIECE):
        piece = memoryview(content)[start : start + _PIECE].cast("b")
        powers = _powers(len(piece))
        # A sum of products takes half the time of a loop.
        value = (31 * powers[0] * value + sum(map(mul, piece, powers))) & 0xFFFFFFFF
    return value


_PIECE = 256


def _powers(length: int) -> tuple[int, ...]:
    while len(_POWERS) <= length:
        last = _POWERS[-1]
        _POWERS.append(((31 * last[0] & 0xFFFFFFFF) if last else 1, *last))
    return _POWERS[length]


def hash_partition(key: bytes, partitions: int) -> int:
    """The partition of a key under HashPartitioner: ``(hash & 0x7fffffff) % partitions``."""
    return (hash_of(key, 1) & 0x7FFFFFFF) % partitions


@lru_cache(maxsize=1 << 16)
def key_field_partition(
    key: bytes, partitions: int, fields: tuple[KeyField, ...], separator: bytes
) -> int:
    """The partition of a key under KeyFieldBasedPartitioner.

    Source: ``org.apache.hadoop.mapreduce.lib.partition.KeyFieldBasedPartitioner``.
    """
    if not key:
        return 0
    starts = [0, *(match.end() for match in re.finditer(re.escape(separator), key))]
    value = 0
    for field in fields:
        begin = _offset(starts, field.first_field, field.first_char - 1)
        if begin is None or begin >= len(key):
            continue
        end = len(key)
        if field.last_field:
            if field.last_char:
                last = _offset(starts, field.last_field, field.last_char)
            else:
                last = _offset(starts, field.last_field + 1, -len(separator))
            end = len(key) if last is None else min(last, len(key))
        value = hash_of(key[begin:end], value)
    return (value & 0x7FFFFFFF) % partitions


def _offset(starts: list[int], field: int, characters: int) -> int | None:
    return starts[field - 1] + characters if field <= len(starts) else None


@lru_cache(maxsize=1 << 16)
def whole_key_partition(key: bytes, partitions: int) -> int:
    """The partition of a key under KeyFieldBasedPartitioner without options.

    It is Java's ``String.hashCode``, over UTF-16 code units.
    """
    value = 0
    units = key.decode("utf-8", "replace").encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % partitions


def partitioner(how: Partitioning) -> Partitioner:
    """The function that divides keys."""
    if how.partitions == 1:
        return lambda key: 0
    if how.fields is None:
        return partial(hash_partition, partitions=how.partitions)
    if not how.fields:
        return partial(whole_key_partition, partitions=how.partitions)
    return partial(
        key_field_partition,
        partitions=how.partitions,
        # JSON has made lists of them, which a cache cannot take.
        fields=tuple(KeyField(*field) for field in how.fields),
        separator=how.separator.encode(),
    )


def configured(
    name: str | None,
    jobconf: Mapping[str, Any],
    partitions: int,
    warn: Callable[[str], None],
) -> Partitioning:
    """How a job wants its records divided.

    Parameters
    ----------
    name : str, optional
        The job's ``PARTITIONER``.
    jobconf : mapping
    partitions : int
        Reduce tasks of the step.
    warn : callable
        Told of a partitioner that is not built in.

    Raises
    ------
    UsageError
        Options that cannot be understood.
    """
    key_fields = int(_first(jobconf, _KEY_FIELDS) or 1)
    name = _first(jobconf, _JOBCONF) or name or ""
    short = name.rpartition(".")[2]
    if short == "KeyFieldBasedPartitioner":
        return Partitioning(
            partitions, key_fields, _key_fields(jobconf), _first(jobconf, _SEPARATOR) or "\t"
        )
    if short not in ("", "HashPartitioner"):
        warn(
            f"{name} is a Java class that only Hadoop can run; records are divided by "
            "HashPartitioner instead. HashPartitioner and KeyFieldBasedPartitioner are built in"
        )
    return Partitioning(partitions, key_fields)


def _key_fields(jobconf: Mapping[str, Any]) -> tuple[KeyField, ...]:
    options = _first(jobconf, _OPTIONS)
    if options:
        return tuple(_parse(part) for part in _arguments(options))
    number = int(_first(jobconf, _FIELDS) or 0)
    return (KeyField(1, 1, number, 0),) if number else ()


def _arguments(options: str) -> list[str]:
    found = re.findall(r"-k\s*(\S+)", options)
    if not found or re.sub(r"-k\s*\S+|-n\b|-r\b", "", options).strip():
        raise UsageError(
            f"{_OPTIONS[0]}: expected -kFIELD[.CHAR][,FIELD[.CHAR]], found {options!r}"
        )
    return found


def _parse(spec: str) -> KeyField:
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?[nr]*(?:,(\d+)(?:\.(\d+))?[nr]*)?", spec)
    if not match or int(match[1]) < 1 or int(match[2] or 1) < 1:
        raise UsageError(
            f"{_OPTIONS[0]}: expected -kFIELD[.CHAR][,FIELD[.CHAR]] with fields and characters "
            f"counted from 1, found '-k{spec}'"
        )
    return KeyField(int(match[1]), int(match[2] or 1), int(match[3] or 0), int(match[4] or 0))


def _first(jobconf: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if jobconf.get(name):
            return str(jobconf[name])
    return ""
