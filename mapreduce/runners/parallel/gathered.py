"""Pairs gathered by key in a map task, until they are written or combined.

While keys repeat, each has a list of values. When most are new, pairs wait as rows, which are
sorted at the end: that takes half the time, and no list for each key. Which of the two it is
depends on the pairs alone. Only the checks of each pair are Python's; what is done for each key is
done by functions of the interpreter.

Pairs wait until a quarter of ``--memory``, which the workers share, is full.
"""

import marshal
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, compress, count, islice, repeat
from json.encoder import encode_basestring_ascii as quote
from operator import add, itemgetter, ne
from typing import Any

from mapreduce.batches.pairs import (
    Write,
    encode_columns,
    from_json,
    is_columns,
    to_json,
)
from mapreduce.batches.snapshots import NOT_PLAIN, PLAIN
from mapreduce.job.calls import Pair, as_pair, refuse
from mapreduce.runners.parallel.codec import MARSHAL, MUTABLE, quoted, through_text
from mapreduce.runners.parallel.coders import Coder, NotCoded, latin, ordered, pickles

#: Pairs between two looks at the memory.
_CHUNK = 1 << 10

#: Pairs between two looks at the keys: rows are better, if such a share of them was new.
_LOOK, _NEW = 1 << 14, 0.4

#: The bytes before that between a key and its value.
_BEFORE_TAB = bytes(range(ord("\t")))

#: Bytes of lines that are taken in together.
_TOGETHER = 1 << 16

#: As measured: a key with its list, beside its characters; a place in a list; numbers; a string
#: beside its characters.
_KEY_BYTES, _SLOT_BYTES, _INT_BYTES, _FLOAT_BYTES, _TEXT_BYTES = 250, 9, 28, 24, 50

#: Integers of 64 bits, and those that are compared faster.
_LONG, _SMALL = 1 << 63, 1 << 29


class _Home:
    """Values of some keys: lists by key, and pairs that wait, or stay, as rows."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = defaultdict(list)
        self.keys: list[str] = []
        self.values: list[Any] = []
        #: Characters of the keys of rows, which are there once more when they are sorted.
        self.bytes = 0

    def clear(self) -> None:
        for part in (self.lists, self.keys, self.values):
            part.clear()

    def add(self, key: str, value: Any) -> None:
        """Take in a pair: with its key, where others of its chunk may have gone, or as a row."""
        if (known := self.lists.get(key)) is not None:
            known.append(value)
        else:
            self.keys.append(key)
            self.values.append(value)
            self.bytes += 2 * len(key)

    def distribute(self) -> None:
        """Put the rows to their keys."""
        deque(map(list.append, map(self.lists.__getitem__, self.keys), self.values), 0)
        self.keys.clear()
        self.values.clear()

    def turn_to_rows(self) -> None:
        for key, values in self.lists.items():
            self.keys += repeat(key, len(values))
            self.values += values
        self.lists.clear()


class Gathered:
    """Pairs by key, in their order; keys are equal if their JSON is: 1, 1.0 and True are three.

    Every JSON of a key has one home, which it alone decides: strings of ASCII go by themselves,
    all others by their JSON.

    ``write``: Of mrjob's JSON protocol by the standard library. ``columns``: Takes pairs of
    columns, which are not gathered; without it they are, row by row.
    """

    def __init__(self, write: Write, columns: Callable[[Any, Any], None] | None = None) -> None:
        self._write = write
        self._columns = columns or self._add_by_text
        self._strings, self._texts = self._homes = _Home(), _Home()
        self._in_rows = False
        self._bytes = self._pairs = self._seen = self._looked = 0

    def __bool__(self) -> bool:
        return any(home.lists or home.keys for home in self._homes)

    def fill(self, items: Iterator[Any], limit: int) -> bool:
        """Take in pairs up to about ``limit`` bytes of memory; returns whether it stopped there.

        Raises TypeError, ValueError (an object is not a pair, or JSON refuses it).
        """
        # None is not a pair, but a mapper may yield it.
        nothing: Any = object()
        while (first := next(items, nothing)) is not nothing:
            self._add(chain((first,), islice(items, _CHUNK - 1)), limit)
            if self._bytes >= limit:
                return True
        return False

    def _add(self, pairs: Iterable[Pair], limit: int) -> None:
        strings, texts = self._homes
        add_string, add_to_string = strings.keys.append, strings.values.append
        add_text, add_to_text = texts.keys.append, texts.values.append
        # Nothing is known while there are rows.
        known_string, known_text = strings.lists.get, texts.lists.get
        dumps, int_text, one = marshal.dumps, int.__repr__, 1
        used, most = 0, limit - self._bytes
        for pair in pairs:
            try:
                key, value = pair
            except (TypeError, ValueError):
                as_pair(pair)
                raise
            if type(pair) is not tuple:
                refuse(pair)
            kind = type(value)
            # Counts by text come first: most counts are 1, and small integers are compared faster.
            if value is one or (kind is int and -_SMALL < value < _SMALL):
                if type(key) is str and (known := known_string(key)) is not None:
                    known.append(value)
                    continue
            elif kind is float and not value - value:
                # It is finite.
                used += _FLOAT_BYTES
            elif value is not None and not (kind is int and -_LONG < value < _LONG):
                try:
                    value = PLAIN[kind](value)
                    if kind in MUTABLE:
                        value = dumps(value, MARSHAL)
                except NOT_PLAIN:
                    (self._columns if is_columns(key) else self._add_by_text)(key, value)
                    most = limit - self._bytes - self._texts.bytes
                    if used >= most:
                        break
                    continue
                used += sys.getsizeof(value)
            if type(key) is str and key.isascii():
                if (known := known_string(key)) is not None:
                    known.append(value)
                else:
                    add_string(key)
                    add_to_string(value)
                    used += 2 * len(key)
            elif type(key) is int and -_LONG < key < _LONG:
                text = int_text(key)
                if (known := known_text(text)) is not None:
                    known.append(value)
                else:
                    add_text(text)
                    add_to_text(value)
            else:
                self._add_other(key, value)
                most = limit - self._bytes - self._texts.bytes
            if used >= most:
                # A chunk of long records would be too much.
                break
        self._bytes += used
        self._count(_CHUNK)

    def _count(self, number: int) -> None:
        """Count a chunk of pairs, and put them to their keys, while these repeat."""
        self._pairs += number
        self._bytes += (_SLOT_BYTES + _INT_BYTES) * number
        for home in self._homes:
            self._bytes += home.bytes
            home.bytes = 0
        if self._in_rows:
            self._bytes += (_SLOT_BYTES + _TEXT_BYTES) * number
            return
        if not self._looked:
            self._bytes += _TEXT_BYTES * number
            if self._pairs < _LOOK:
                return
            self._in_rows = sum(len(set(home.keys)) for home in self._homes) > _NEW * self._pairs
            if self._in_rows:
                return
            self._bytes -= _TEXT_BYTES * self._pairs
        for home in self._homes:
            home.distribute()
        total = sum(len(home.lists) for home in self._homes)
        new, self._seen = total - self._seen, total
        self._bytes += new * _KEY_BYTES
        if self._pairs >= _LOOK:
            if total - self._looked > _NEW * self._pairs:
                self._in_rows = True
                for home in self._homes:
                    home.turn_to_rows()
            self._looked, self._pairs = total, 0

    def _add_other(self, key: Any, value: Any) -> None:
        """Take in a value that is ready, with a key that is no ASCII string and no integer."""
        try:
            if is_columns(key):
                self._columns(key, value)
                return
            text = quote(key) if type(key) is str else to_json(key)
        except (TypeError, ValueError, RecursionError):
            # Its error.
            self._write(key, None)
            raise
        self.add_text(text, value)

    def _add_by_text(self, key: Any, value: Any) -> None:
        """Take in what only the protocol can write: its JSON is read again."""
        for text, found in through_text(self._write, key, value):
            self._bytes += sys.getsizeof(found)
            self.add_text(text, found)

    def add_text(self, text: str, kept: Any) -> None:
        """Take in the JSON of a key, and a value as it waits."""
        if text[0] == '"':
            found = from_json(text.encode()) if "\\" in text else text[1:-1]
            if found.isascii():
                self._strings.add(found, kept)
                return
        self._texts.add(text, kept)

    def take(self) -> tuple[list[str], list[Any], bool]:
        """The JSON of keys, and for each a list of values as they wait; it is empty then.

        The last is whether there are no lists: some texts may then be equal, with one value each.
        """
        rows = self._in_rows
        if not rows:
            for home in self._homes:
                home.distribute()
        keys, items = (
            [[*(home.keys if rows else home.lists)] for home in self._homes],
            [home.values if rows else home.lists.values() for home in self._homes],
        )
        texts, values = [*quoted(keys[0]), *keys[1]], [*chain.from_iterable(items)]
        for home in self._homes:
            home.clear()
        self._bytes = self._pairs = self._seen = self._looked = 0
        self._in_rows = False
        return texts, values, rows

    def order(self, texts: list[str], items: list[Any], rows: bool) -> list[int]:
        """The places of keys in their order, and of rows whose values are sorted in theirs."""
        return sorted(range(len(texts)), key=texts.__getitem__)

    def take_groups(self) -> tuple[list[str], list[list[Any]]]:
        """As :meth:`take`, in their order, and always with lists."""
        texts, values, rows = self.take()
        places = self.order(texts, values, rows)
        texts, values = items_at(texts, places), items_at(values, places)
        return grouped(texts, values) if rows else (texts, values)


class GatheredLines(Gathered):
    """Lines by key, in their order; a value is the rest of its line, with the TAB before it.

    Each character stands for a byte. ``fields``: The key ends before that many TABs.
    ``sort_values``: Whether values are sorted by their bytes.
    """

    def __init__(self, fields: int = 1, sort_values: bool = False) -> None:
        super().__init__(lambda key, value: b"")
        self._fields = fields
        self._sort_values = sort_values

    def fill(self, items: Iterator[Any], limit: int) -> bool:
        """Take in lines up to about ``limit`` bytes of memory; returns whether it stopped there.

        Each ends with a line feed; one that has more is several.
        """
        some: list[bytes] = []
        used, most = 0, min(_TOGETHER, limit // 16)
        for line in items:
            some.append(line)
            used += len(line) + _TEXT_BYTES
            if used >= most:
                self._add_lines(some)
                some, used = [], 0
                if self._bytes >= limit:
                    return True
        if some:
            self._add_lines(some)
        return False

    def order(self, texts: list[str], items: list[Any], rows: bool) -> list[int]:
        """The places of keys in their order; their values are sorted, too, if they shall be."""
        by: list[Any] = texts
        if self._sort_values and rows:
            # What is before a TAB would come between a key and longer ones.
            raw = "".join(texts).encode("latin-1")
            is_between = len(raw.translate(None, _BEFORE_TAB)) < len(raw)
            by = list(zip(texts, items, strict=True) if is_between else map(add, texts, items))
        elif self._sort_values:
            deque(map(list.sort, items), 0)
        return super().order(by, items, rows)

    def _add_lines(self, lines: list[bytes]) -> None:
        self._add_texts(b"".join(lines)[:-1].decode("latin-1").split("\n"))

    def _add_texts(self, texts: list[str]) -> None:
        if self._fields > 1:
            parts = map(str.split, texts, repeat("\t"), repeat(self._fields))
            keys = list(map("\t".join, map(itemgetter(slice(self._fields)), parts)))
            self._add_rows(keys, list(map(str.removeprefix, texts, keys)))
        else:
            self._add_rows(*divided(texts))

    def _add_rows(self, keys: list[str], values: list[Any]) -> None:
        self._texts.keys += keys
        self._texts.values += values
        self._texts.bytes += 2 * sum(map(len, keys))
        # If they are sorted, they are there once more with their keys.
        times = 1 + self._sort_values
        self._bytes += (sum(map(len, values)) + _TEXT_BYTES * len(values)) * times
        self._count(len(keys))


class GatheredTexts(GatheredLines):
    """The same of pairs whose lines a protocol would write, without the lines."""

    def __init__(self, write: Write, coder: Coder, sort_values: bool, fields: int = 1) -> None:
        super().__init__(fields, sort_values)
        self._write = write
        self._coder = coder

    def fill(self, items: Iterator[Any], limit: int) -> bool:
        """Take in pairs up to about ``limit`` bytes of memory; returns whether it stopped there."""
        keys: list[Any] = []
        values: list[Any] = []
        used, most = 0, min(_TOGETHER, limit // 16)
        kinds, dumps, *_ = self._coder
        string, kind_of = kinds.get(str, dumps), kinds.get
        for pair in items:
            try:
                key, value = pair
            except (TypeError, ValueError):
                as_pair(pair)
                raise
            if type(pair) is not tuple:
                refuse(pair)
            try:
                name = string(key) if type(key) is str else self._key(key)
                code = kind_of(type(value), dumps)(value)
            except NotCoded:
                self._add_codes(keys, values)
                keys, values, used = [], [], most
                if is_columns(key):
                    self._add_columns(key, value)
                else:
                    self._add_lines([self._write(key, value) + b"\n"])
            except (TypeError, ValueError, RecursionError):
                # Its error.
                self._write(key, value)
                raise
            else:
                keys.append(name)
                values.append(code)
                used += len(name) + len(code) + _TEXT_BYTES
            if used >= most:
                self._add_codes(keys, values)
                keys, values, used = [], [], 0
                if self._bytes >= limit:
                    return True
        self._add_codes(keys, values)
        return False

    def _key(self, key: Any) -> bytes:
        if is_columns(key):
            raise NotCoded
        return self._coder.key(key)

    def _add_columns(self, keys: Any, values: Any) -> None:
        lines = encode_columns(self._write, keys, values).to_pylist()
        if self._coder.texts is not pickles:
            self._add_lines(lines)
            return
        protocol: Any = getattr(self._write, "__self__", None)
        self.fill(map(protocol.read, map(bytes.rstrip, lines)), sys.maxsize)

    def _add_codes(self, keys: list[Any], values: list[Any]) -> None:
        if not keys:
            return
        strings = [key for key in keys if type(key) is str]
        codes = self._coder.strings(strings) if strings else latin(keys)
        if 0 < len(strings) < len(keys):
            each = iter(codes)
            codes = [next(each) if type(key) is str else key.decode("latin-1") for key in keys]
        values = self._coder.texts(values)
        if self._coder.texts is pickles:
            # No pickle is the beginning of another one: a key needs no TAB behind it to be sorted.
            self._add_rows(codes, ordered(values) if self._sort_values else values)
            return
        lines = (f"{code}\t{value}" for code, value in zip(codes, values, strict=True))
        if self._coder.is_open:
            joined = "\n".join(chain(codes, values))
            if joined.count("\n") >= 2 * len(keys) or "\t" in "".join(codes):
                self._add_texts("\n".join(lines).split("\n"))
                return
        if self._fields == 1:
            self._add_rows(codes, list(map("\t".__add__, values)))
        elif "\t" in "".join(values):
            self._add_texts(list(lines))
        else:
            # No line has more fields than two.
            self._add_rows(list(lines), [""] * len(keys))


def items_at(items: list[Any], places: list[int]) -> list[Any]:
    """The items at some places."""
    return list(itemgetter(*places)(items)) if len(places) > 1 else [items[at] for at in places]


def divided(lines: list[str]) -> tuple[list[str], list[str]]:
    """What is before the first TAB of each line, and the rest."""
    joined = "\n".join(lines)
    if joined.count("\t") == len(lines) == joined.count("\n") + 1:
        parts = joined.replace("\t", "\n\t").split("\n")
        keys, rests = parts[::2], parts[1::2]
        # One line may have none, and another one two.
        if "\n".join(rests).count("\n\t") == len(rests) - 1 and rests[0].startswith("\t"):
            return keys, rests
    heads = list(map(str.partition, lines, repeat("\t")))
    tails = map(add, map(itemgetter(1), heads), map(itemgetter(2), heads))
    return list(map(itemgetter(0), heads)), list(tails)


def grouped(texts: list[str], values: list[Any]) -> tuple[list[str], list[list[Any]]]:
    """Each text once where neighbours are equal, and the list of their values."""
    is_last = [*map(ne, texts, islice(texts, 1, None)), True][: len(texts)]
    return list(compress(texts, is_last)), list(cut(values, list(compress(count(1), is_last))))


def cut(values: list[Any], ends: list[int]) -> Iterator[list[Any]]:
    """A list in parts that end at some places."""
    return map(values.__getitem__, map(slice, chain((0,), ends), ends))


def key_of(line: bytes, fields: int = 1) -> bytes:
    """The key of a record: all before the first TAB, or the whole line if there is none.

    With more ``fields``, all before that many TABs.
    """
    end = line.find(b"\t")
    for _ in range(fields - 1):
        if end < 0:
            break
        end = line.find(b"\t", end + 1)
    return line[:end] if end >= 0 else line.rstrip(b"\n")
