"""Which reduce task a key belongs to, and in which order: Hadoop's partitioners and comparators.

Hadoop's own are Java classes. Two partitioners are built in here, bit for bit; a job that names
another one is run with the first, with a warning. The order of keys is part of a result: a
job that names another comparator than the two that are built in is refused.
"""

import re
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain, count, repeat
from operator import itemgetter, mod, mul
from os.path import commonprefix
from typing import Any, NamedTuple

from mapreduce.errors import UsageError

#: A function from the bytes of a key to the number of its partition.
Partitioner = Callable[[bytes], int]

_JOBCONF = ("mapreduce.job.partitioner.class", "mapred.partitioner.class")
_OPTIONS = ("mapreduce.partition.keypartitioner.options", "mapred.text.key.partitioner.options")
_SEPARATOR = ("mapreduce.map.output.key.field.separator", "map.output.key.field.separator")
_FIELDS = ("mapreduce.partition.keypartitioner.num.fields", "num.key.fields.for.partition")
_KEY_FIELDS = ("stream.num.map.output.key.fields",)
_LINE_SEPARATOR = ("stream.map.output.field.separator",)
_COMPARATOR = ("mapreduce.job.output.key.comparator.class", "mapred.output.key.comparator.class")
_ORDER = ("mapreduce.partition.keycomparator.options", "mapred.text.key.comparator.options")

#: Settings that say how many reduce tasks a step has.
REDUCES = ("mapreduce.job.reduces", "mapred.reduce.tasks")

#: Tasks of a kind in one step: to plan them takes memory and time, too.
MOST_TASKS = 100_000


class KeyField(NamedTuple):
    """A part of a key, as ``-k`` names it: fields and characters, both counted from 1.

    The last character 0 stands for the end of the field; the last field 0 for the end of the key.
    A comparator sorts it as a number, or in reverse.
    """

    first_field: int
    first_char: int
    last_field: int
    last_char: int
    numeric: bool = False
    reverse: bool = False


class Partitioning(NamedTuple):
    """How records are divided and sorted; made of lists, strings and numbers, to travel as JSON.

    Attributes
    ----------
    partitions : int
    key_fields : int
        Fields, up to a TAB each, that make a record's key.
    fields : sequence of KeyField, optional
        What KeyFieldBasedPartitioner looks at; empty for the whole key. None for HashPartitioner.
    separator : str
        Between the fields of a key.
    order : sequence of KeyField, optional
        What KeyFieldBasedComparator looks at; empty for the bytes of the key.
    """

    partitions: int
    key_fields: int = 1
    fields: tuple[KeyField, ...] | None = None
    separator: str = "\t"
    order: tuple[KeyField, ...] = ()


#: ``31 ** (n - 1), ..., 31, 1`` in 32 bits, by n.
_POWERS: list[tuple[int, ...]] = [()]


def hash_of(content: bytes, value: int) -> int:
    """``h = 31 h + byte`` over signed bytes, in 32 bits without sign.

    Hadoop's ``WritableComparator.hashBytes`` starts from 1, ``KeyFieldBasedPartitioner.hashCode``
    from 0.
    """
    if 0 < len(content) < len(_POWERS) and content.isascii():
        # A key of JSON: no byte has a sign.
        powers = _POWERS[len(content)]
        total: int = 31 * powers[0] * value + sum(map(mul, content, powers))
        return total & 0xFFFFFFFF
    for start in range(0, len(content), _PIECE):
        piece = memoryview(content)[start : start + _PIECE].cast("b")
        powers = _powers(len(piece))
        # A sum of products takes half the time of a loop.
        value = (31 * powers[0] * value + sum(map(mul, piece, powers))) & 0xFFFFFFFF
    return value


#: Bytes of a key that are hashed at once.
_PIECE = 256


def _powers(length: int) -> tuple[int, ...]:
    while len(_POWERS) <= length:
        last = _POWERS[-1]
        _POWERS.append(((31 * last[0] & 0xFFFFFFFF) if last else 1, *last))
    return _POWERS[length]


def hash_partition(key: bytes, partitions: int) -> int:
    """The partition of a key under HashPartitioner: ``(hash & 0x7fffffff) % partitions``."""
    return (hash_of(key, 1) & 0x7FFFFFFF) % partitions


def partition_numbers(keys: list[str], how: "Partitioning") -> list[int]:
    """The partition of each key, whose characters stand for bytes."""
    hashed = keys if how.fields is None else _hashed_parts(keys, how)
    if hashed is None or len(keys) < _FEW:
        find = partitioner(how)
        return [find(key.encode("latin-1")) for key in keys]
    divide = partial(_hash_partitions, partitions=how.partitions, start=int(how.fields is None))
    some = [hashed[at : at + _LANES] for at in range(0, len(hashed), _LANES)]
    if sum(max(map(len, one)) - len(_prefix(one)) for one in some) <= _NARROW * len(some):
        return list(chain.from_iterable(map(divide, some)))
    of_length: dict[int, list[int]] = defaultdict(list)
    deque(map(list.append, map(of_length.__getitem__, map(len, hashed)), count()), 0)
    found = [0] * len(hashed)
    for every in of_length.values():
        for at in range(0, len(every), _LANES):
            rows = every[at : at + _LANES]
            numbers = divide(list(map(hashed.__getitem__, rows)))
            deque(map(found.__setitem__, rows, numbers), 0)
    return found


def _hashed_parts(keys: list[str], how: "Partitioning") -> list[str] | None:
    """What KeyFieldBasedPartitioner hashes of each key; None if that is not easily told."""
    if not how.fields:
        # Of ASCII, UTF-16 has the same units.
        return keys if "".join(keys).isascii() else None
    parts = whole_fields(keys, how.fields, how.separator)
    if None in parts:
        return None
    return list(map("".join, zip(*parts, strict=True)))


def whole_fields(
    keys: list[str], fields: Iterable[KeyField], separator: str
) -> list[list[str] | None]:
    """Each of some ranges of whole fields, of each key; None for a range of characters.

    A key that has none of a range's fields has "".
    """
    is_single = len(separator) == 1 and separator.isascii()
    columns = _columns(keys, separator) if keys and is_single else []
    return [
        _whole_field(keys, KeyField(*field), separator, columns) if is_single else None
        for field in fields
    ]


def _whole_field(
    keys: list[str], field: KeyField, separator: str, columns: list[list[str]]
) -> list[str] | None:
    if field.first_char != 1 or field.last_char:
        return None
    which = slice(field.first_field - 1, field.last_field or None)
    if field.last_field == field.first_field <= len(columns):
        return columns[which.start]
    if separator not in "".join(keys):
        return [""] * len(keys) if which.start else keys
    if field.last_field == field.first_field:
        # Keys may have fewer fields.
        with suppress(IndexError):
            parts = map(str.split, keys, repeat(separator), repeat(field.last_field))
            return list(map(itemgetter(which.start), parts))
    parts = map(str.split, keys, repeat(separator))
    return list(map(separator.join, map(itemgetter(which), parts)))


def _columns(keys: list[str], separator: str) -> list[list[str]]:
    """The first field of each key, the second one, and so on; [] if keys differ in their number."""
    number = keys[0].count(separator) + 1
    # A line feed is in no key.
    fields = f"{separator}\n".join(keys).split(separator)
    firsts = "".join(fields[::number]).split("\n")
    if len(fields) != number * len(keys) or len(firsts) != len(keys):
        return []
    return [firsts, *(fields[at::number] for at in range(1, number))]


#: Fewer keys are hashed one by one; so many are hashed together at most; and keys of so many
#: characters at most are, also if their lengths differ; a longer common beginning is hashed once.
_FEW, _LANES, _NARROW, _LONG_PREFIX = 32, 1 << 12, 32, 6


def _prefix(keys: list[str]) -> str:
    """The characters that keys begin with, by some of them: of pickles many."""
    return commonprefix(keys[:: 1 + len(keys) // 16])  # noqa: RUF071  (these are no paths)


def _hash_partitions(keys: list[str], partitions: int, start: int) -> Iterable[int]:
    """The partitions of keys of equal lengths, or of short ones; hashes start from 1 or 0."""
    prefix = _prefix(keys)
    if len(prefix) > _LONG_PREFIX and "\n".join(("", *keys)).count(f"\n{prefix}") == len(keys):
        start = hash_of(prefix.encode("latin-1"), start)
        keys = list(map(str.removeprefix, keys, repeat(prefix)))
    lengths = list(map(len, keys))
    longest, rows = max(lengths), len(keys)
    joined = "".join(map(str.rjust, keys, repeat(longest), repeat("\0"))).encode("latin-1")
    if rows < _FEW or longest > _PIECE or not joined.isascii():
        hashes = (hash_of(key.encode("latin-1"), start) for key in keys)
        return [(one & 0x7FFFFFFF) % partitions for one in hashes]
    if 32 % partitions == 0:
        # 31 is -1 modulo 32: only the difference of every second byte to the others matters. Lanes
        # of 16 bits hold the sums of a piece; 1 << 14, a multiple of 32, keeps them from borrowing.
        sums, lanes = [int.from_bytes(b"\0\x40" * rows, "little"), 0], bytearray(2 * rows)
        for at in range(longest):
            lanes[::2] = joined[at::longest]
            sums[(longest - 1 - at) % 2] += int.from_bytes(lanes, "little")
        offsets = array(
            "H", map((start % 32, -start % 32).__getitem__, map(mod, lengths, repeat(2)))
        )
        total = sums[0] - sums[1] + int.from_bytes(offsets.tobytes(), "little")
        masked = bytes(byte % partitions for byte in range(256))
        return total.to_bytes(2 * rows, "little")[::2].translate(masked)
    # All hashes lie in one long integer, each in 64 bits of it. Of these it needs 32, and after six
    # more bytes of its key, not yet more than 64. Keys are filled up with zeros in front, which
    # change nothing, since what each hash starts from is added last, times 31 ** length.
    low = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * rows, "little")
    total = 0
    column = bytearray(8 * rows)
    for at in range(longest):
        column[::8] = joined[at::longest]
        total = total * 31 + int.from_bytes(column, "little")
        if at % 6 == 5:
            total &= low
    powers = [start * pow(31, length, 1 << 32) for length in range(longest + 1)]
    starts = array("Q", map(powers.__getitem__, lengths)).tobytes()
    total = (total & low) + int.from_bytes(starts, "little")
    total &= int.from_bytes(b"\xff\xff\xff\x7f\0\0\0\0" * rows, "little")
    return map(mod, memoryview(total.to_bytes(8 * rows, "little")).cast("Q"), repeat(partitions))


def key_field_partition(
    key: bytes, partitions: int, fields: tuple[KeyField, ...], separator: bytes
) -> int:
    """The partition of a key under KeyFieldBasedPartitioner.

    Source: ``org.apache.hadoop.mapreduce.lib.partition.KeyFieldBasedPartitioner``.
    """
    if not key:
        return 0
    starts = starts_of(key, separator)
    value = 0
    for field in fields:
        found = span_of(key, starts, field, len(separator))
        if found is not None:
            value = hash_of(key[slice(*found)], value)
    return (value & 0x7FFFFFFF) % partitions


def starts_of(key: bytes, separator: bytes) -> list[int]:
    """Where Hadoop's ``KeyFieldHelper`` sees the fields of a key begin.

    It looks for the next separator from the second byte of the last one on: with more than one
    byte, all but the first two fields are not where one would expect them.
    """
    starts, at = [0], 0
    while (found := key.find(separator, at)) >= 0:
        starts.append(starts[-1] + found - at + len(separator))
        at = found + 1
    return starts


def span_of(
    key: bytes, starts: list[int], field: KeyField, separator: int
) -> tuple[int, int] | None:
    """Where a part of a key begins and ends; None if the key does not reach so far."""
    begin = _offset(starts, field.first_field, field.first_char - 1)
    if begin is None or begin >= len(key):
        return None
    last = None
    if field.last_char:
        last = _offset(starts, field.last_field, field.last_char)
    elif field.last_field:
        last = _offset(starts, field.last_field + 1, -separator)
    return begin, len(key) if last is None else min(last, len(key))


def _offset(starts: list[int], field: int, characters: int) -> int | None:
    return starts[field - 1] + characters if field <= len(starts) else None


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
    # JSON has made lists of them.
    fields = tuple(KeyField(*field) for field in how.fields)
    return _key_field_partitioner(how.partitions, fields, how.separator.encode())


@lru_cache(maxsize=1)
def _key_field_partitioner(
    partitions: int, fields: tuple[KeyField, ...], separator: bytes
) -> Partitioner:
    """KeyFieldBasedPartitioner, which remembers short keys; long ones would take much memory."""

    def find(key: bytes) -> int:
        if fields:
            return key_field_partition(key, partitions, fields, separator)
        return whole_key_partition(key, partitions)

    known = lru_cache(maxsize=_REMEMBERED)(find)
    return lambda key: (known if len(key) <= _SHORT else find)(key)


#: Keys that are remembered, and bytes of each, at most.
_REMEMBERED, _SHORT = 1 << 15, 64


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
        Gets a warning about a partitioner that is not built in.

    Raises
    ------
    UsageError
        Options that cannot be understood.
    """
    name = _first(jobconf, _JOBCONF) or name or ""
    short = name.rpartition(".")[2]
    fields = None
    if short == "KeyFieldBasedPartitioner":
        number = jobconf_number(jobconf, *_FIELDS)
        whole = (KeyField(1, 1, number, 0),) if number else ()
        fields = _key_fields(jobconf, _OPTIONS) or whole
    elif short not in ("", "HashPartitioner"):
        warn(
            f"{name} is a Java class that only Hadoop can run; records are divided by "
            "HashPartitioner instead. HashPartitioner and KeyFieldBasedPartitioner are built in"
        )
    return Partitioning(
        partitions,
        jobconf_number(jobconf, *_KEY_FIELDS) or 1,
        fields,
        _first(jobconf, _SEPARATOR) or "\t",
        _order(jobconf),
    )


def comparator_of(jobconf: Mapping[str, Any]) -> str:
    """The Java class that sorts keys, unless it sorts by their bytes."""
    name = _first(jobconf, _COMPARATOR)
    return "" if name.endswith("Text$Comparator") else name


def is_map_only(jobconf: Mapping[str, Any]) -> bool:
    """Whether a step shall have no reduce tasks, whatever methods it has."""
    given = [str(jobconf[name]) for name in REDUCES if jobconf.get(name) not in (None, "")]
    return bool(given) and not given[0].strip("0 ")


def ignored(jobconf: Mapping[str, Any]) -> list[str]:
    """The settings that mrjob's runners of one machine ignore, of those that change a result."""
    found = {_COMPARATOR[0]: comparator_of(jobconf), REDUCES[0]: "0" * is_map_only(jobconf)}
    return [f"{name}={value}" for name, value in found.items() if value]


def _order(jobconf: Mapping[str, Any]) -> tuple[KeyField, ...]:
    if _first(jobconf, _LINE_SEPARATOR) not in ("", "\t"):
        raise UsageError(
            f"-D {_LINE_SEPARATOR[0]}: mrjob writes a TAB between key and value; with another "
            "separator, Hadoop would read a different key. Leave the option out"
        )
    name = comparator_of(jobconf)
    if name.rpartition(".")[2] not in ("", "KeyFieldBasedComparator"):
        raise UsageError(
            f"-D {_COMPARATOR[0]}: {name} is a Java class that only Hadoop can run, with -r "
            "hadoop. KeyFieldBasedComparator is built in"
        )
    return _key_fields(jobconf, _ORDER) if name else ()


def _key_fields(jobconf: Mapping[str, Any], names: tuple[str, ...]) -> tuple[KeyField, ...]:
    """The parts of a key that options name, in the form of ``sort(1)``."""
    options = re.sub(r"(^|\s)-k\s+", r"\1-k", _first(jobconf, names)).split()
    flags = [option for option in options if option in ("-n", "-r", "-nr")]
    fields = [_parse(option, names[0]) for option in options if option not in flags]
    if options and not fields:
        fields = [KeyField(1, 1, 0, 0)]
    # They are for the parts that have none of their own.
    numeric, reverse = ("n" in "".join(flags)), ("r" in "".join(flags))
    return tuple(
        one if one.numeric or one.reverse else one._replace(numeric=numeric, reverse=reverse)
        for one in fields
    )


def _parse(option: str, setting: str) -> KeyField:
    match = re.fullmatch(r"-k(\d+)(?:\.(\d+))?([nr]*)(?:,(\d+)(?:\.(\d+))?([nr]*))?", option)
    if not match or int(match[1]) < 1 or int(match[2] or 1) < 1:
        raise UsageError(
            f"-D {setting}: expected -n, -r, -nr, or -kFIELD[.CHAR][nr][,FIELD[.CHAR][nr]] with "
            f"fields and characters counted from 1, found {option!r}"
        )
    flags = match[3] + (match[6] or "")
    numbers = (int(match[1]), int(match[2] or 1), int(match[4] or 0), int(match[5] or 0))
    return KeyField(*numbers, "n" in flags, "r" in flags)


def jobconf_number(jobconf: Mapping[str, Any], *names: str) -> int:
    """The first of some settings that is given; 0 if none is."""
    for name in names:
        value = jobconf.get(name)
        if value:
            if not str(value).strip().isdecimal():
                raise UsageError(f"-D {name}: expected a number of at least 0, found {value!r}")
            if int(value) > MOST_TASKS and "timeout" not in name:
                raise UsageError(f"-D {name}: expected at most {MOST_TASKS:,}, found {value}")
            return int(value)
    return 0


def _first(jobconf: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if jobconf.get(name):
            return str(jobconf[name])
    return ""
