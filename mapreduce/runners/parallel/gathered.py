"""Pairs gathered by key, as they would come back from their JSON, and the bytes of such groups.

Lists and dictionaries wait as bytes of ``marshal``, which keeps exactly what JSON text can hold,
takes a tenth of its time, and gives them no time to change.
"""

import marshal
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from json.encoder import encode_basestring_ascii as quote
from types import NoneType
from typing import Any

from mapreduce.batches.pairs import Write, encode_columns, from_json, is_columns, to_json
from mapreduce.batches.snapshots import HUGE, NOT_PLAIN, PLAIN
from mapreduce.job.calls import Pair, as_pair, refuse

#: Pairs whose integers have the size of the last one.
_CHUNK = 1 << 10

#: What a key takes beside its characters, and a value in a list beside itself.
_KEY_BYTES, _SLOT_BYTES = 300, 9

#: Types of keys that are remembered.
KEYS = (str, int, bool, NoneType)

#: What would be given time to change; a tuple, because it comes back as a list.
MUTABLE = frozenset({list, dict, tuple})

_QUOTE = ord('"')

#: Smaller integers are compared faster.
_SMALL = 1 << 29

#: The last version of marshal's format in which one list at two places comes back as two, as from
#: JSON.
MARSHAL = 2

#: What is raised for pairs that have to go through their text, if only to be refused.
CODED_OTHERWISE = (*NOT_PLAIN, TypeError)


class Gathered:
    """Pairs by key, in their order.

    Keys are equal if their JSON is: 1, 1.0 and True are three.

    ``write``: Of mrjob's JSON protocol by the standard library. ``columns``: Takes pairs of
    columns, which are not gathered.
    """

    def __init__(self, write: Write, columns: Callable[[Any, Any], None]) -> None:
        self._write = write
        self._columns = columns
        self._groups: dict[bytes, list[Any]] = {}
        # The same lists. Of keys of one of these types, those are equal whose JSON is.
        self._known: dict[type, dict[Any, list[Any]]] = {kind: {} for kind in KEYS}
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._groups)

    def fill(self, pairs: Iterator[Pair], limit: int) -> bool:
        """Take in pairs up to about ``limit`` bytes of memory; returns whether it stopped there.

        Raises TypeError, ValueError (an object is not a pair, or JSON refuses it).
        """
        # None is not a pair, but a mapper may yield it.
        nothing: Any = object()
        while (first := next(pairs, nothing)) is not nothing:
            self._add(chain((first,), islice(pairs, _CHUNK - 1)), limit)
            if self._bytes >= limit:
                return True
        return False

    def _add(self, pairs: Iterable[Pair], limit: int) -> None:
        known, used, dumps = self._known, 0, marshal.dumps
        value: Any = None
        texts, one, least, most = known[str], 1, -_SMALL, limit - self._bytes
        for pair in pairs:
            try:
                key, value = pair
            except (TypeError, ValueError):
                as_pair(pair)
                raise
            # Counts by text: nothing but text is put in, or equals it. Most counts are 1.
            if value is one or (type(value) is int and least < value < _SMALL):
                try:
                    texts[key].append(value)
                    continue
                except (KeyError, TypeError):
                    pass
            if type(pair) is not tuple:
                refuse(pair)
            kind = type(value)
            if kind is not int or not -HUGE < value < HUGE:
                try:
                    value = PLAIN[kind](value)
                    if kind in MUTABLE:
                        value = dumps(value, MARSHAL)
                except NOT_PLAIN:
                    self._add_text(key, value)
                    if self._bytes + used < limit:
                        continue
                    break
                used += sys.getsizeof(value)
                if used >= most:
                    # A chunk of long records would be too much.
                    self._add_key(key, value)
                    break
            try:
                known[type(key)][key].append(value)
            except (KeyError, TypeError):
                self._add_key(key, value)
        # Small integers are shared.
        each = 0 if type(value) is not int or -5 <= value <= 256 else sys.getsizeof(value)
        self._bytes += used + (_SLOT_BYTES + each) * _CHUNK

    def _add_key(self, key: Any, value: Any) -> None:
        """Take in a pair whose value is ready, with a key that is new or has to be encoded."""
        try:
            raw = raw_key(key)
        except CODED_OTHERWISE:
            self._add_text(key, value)
            return
        values = self._group(raw)
        values.append(value)
        same = self._known.get(type(key))
        if same is not None:
            same[key] = values

    def _add_text(self, key: Any, value: Any) -> None:
        if is_columns(key):
            self._columns(key, value)
            return
        for raw, kept in through_text(self._write, key, value):
            self._bytes += sys.getsizeof(kept)
            self._group(raw).append(kept)

    def _group(self, raw: bytes) -> list[Any]:
        values = self._groups.get(raw)
        if values is None:
            self._bytes += 2 * len(raw) + _KEY_BYTES
            values = self._groups[raw] = []
        return values

    def groups(self) -> Iterator[tuple[bytes, list[Any]]]:
        """The JSON of each key, in the order of its bytes, and its values as they wait."""
        groups = self._groups
        self._known.clear()
        for raw in sorted(groups):
            yield raw, groups.pop(raw)


def raw_key(key: Any) -> bytes:
    """The JSON of a key."""
    return (quote(key) if type(key) is str else to_json(key)).encode()


def key_from(raw: bytes) -> Any:
    """The key of a JSON that :func:`raw_key` or mrjob's protocol has written."""
    if raw[0] == _QUOTE and b"\\" not in raw:
        return raw[1:-1].decode()
    return from_json(raw)


def kept(value: Any) -> Any:
    """A plain value as it waits: a list or dictionary as bytes."""
    kind = type(value)
    value = PLAIN[kind](value)
    return marshal.dumps(value, MARSHAL) if kind in MUTABLE else value


def through_text(write: Write, key: Any, value: Any) -> Iterator[tuple[bytes, Any]]:
    """A pair by its JSON, or the pairs of columns: raw keys, and values as they wait.

    What is nested too deeply for marshal waits as its JSON in a tuple.

    Raises TypeError, ValueError (JSON refuses it).
    """
    has_columns = is_columns(key)
    lines = encode_columns(write, key, value).to_pylist() if has_columns else [write(key, value)]
    for line in lines:
        raw, _, text = line.partition(b"\t")
        found = from_json(text.rstrip(b"\n"))
        if type(found) is list or type(found) is dict:
            try:
                found = marshal.dumps(found, MARSHAL)
            except ValueError:
                found = (to_json(found),)
        yield raw, found


def _given_back(value: Any) -> Any:
    if type(value) is bytes:
        return marshal.loads(value)  # noqa: S302
    return from_json(value[0].encode()) if type(value) is tuple else value


def given_back(values: list[Any]) -> Iterable[Any]:
    """The objects of a group's values, each made when it is asked for."""
    kinds = set(map(type, values))
    if kinds == {bytes}:
        return map(marshal.loads, values)
    return map(_given_back, values) if kinds & {bytes, tuple} else values


def pairs_of(pack: bytes) -> Iterator[tuple[bytes, Any]]:
    """The keys and values of a pack, which has them in turn."""
    parts = iter(marshal.loads(pack))  # noqa: S302  (a file of this job's own)
    return zip(parts, parts, strict=True)


def lines_of_pack(pack: bytes) -> bytes:
    """The lines of a pack, as mrjob's protocol writes them."""
    return b"".join(
        b"%b\t%b\n" % (raw, to_json(_given_back(value)).encode()) for raw, value in pairs_of(pack)
    )
