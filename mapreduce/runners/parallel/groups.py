"""Groups of a combiner or reducer, as its method takes them, and where it is among them."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate, chain, compress, groupby, islice, repeat
from operator import eq, itemgetter, length_hint, not_
from typing import Any

from mapreduce.batches.pairs import (
    Decoder,
    Read,
    from_json,
    is_json,
    is_text,
    line_reader,
)
from mapreduce.job.calls import Pair
from mapreduce.runners.parallel.codec import decoded as decoded_json
from mapreduce.runners.parallel.coders import fast_decoder, load, load_all
from mapreduce.runners.parallel.gathered import cut, divided, grouped, key_of
from mapreduce.runners.parallel.merge import Range
from mapreduce.support.records import record_text

#: Characters of values that are decoded together.
_TOGETHER = 1 << 16

Group = tuple[Any, Iterator[Any]]


class Groups:
    """Groups of ranges of keys; neighbours with equal keys, as 1 and 1.0, are one, as for mrjob.

    As with mrjob, who keeps a group's values finds none when the next group has come.

    ``watched``: Gives each value, and a sign of life with it; None if nobody looks for one.
    """

    def __init__(self, watched: Callable[[Iterable[Any]], Iterable[Any]] | None = None) -> None:
        self._watched = watched
        #: For messages: the key, the texts of keys and those that are left, what cannot be read.
        self._key: str | None = None
        self._texts: list[str] = []
        self._left: Any = None
        self._unread: bytes | None = None
        self._last = b""

    def where(self) -> str | None:
        """Which record or key was being worked on, for the message of an error."""
        if self._unread is not None:
            return f"the record {record_text(self._unread)}"
        text = self._text()
        return None if text is None else f"the key {record_text(text.encode('latin-1'))}"

    def _text(self) -> str | None:
        if self._left is None:
            return self._key
        index = len(self._texts) - length_hint(self._left) - 1
        return self._texts[index] if index >= 0 else None

    def of(
        self,
        ranges: Iterable[Range],
        keys_of: Callable[[list[str]], list[Any]],
        values_of: Callable[[Any], Iterable[Any]] | None = None,
    ) -> Iterator[Group]:
        """Groups with decoded keys and values.

        ``keys_of``: Decodes the texts of a range. ``values_of``: Decodes the values of a key; None
        if they are objects.
        """
        return chain.from_iterable(self._runs(self._parts(ranges, keys_of), values_of))

    def _runs(self, parts: Iterable[Any], values_of: Any) -> Iterator[Iterator[Group]]:
        """Groups, those of a part, or of several whose neighbours may be one, at once."""
        for is_apart, some in groupby(parts, itemgetter(0)):
            if not is_apart:
                items = chain.from_iterable(zip(*part[1:], strict=True) for part in some)
                yield self._joined(items, values_of)
                continue
            for _, keys, self._texts, lists in some:
                self._left = iter(keys)
                values = map(values_of, lists) if values_of else lists
                groups = zip(self._left, map(iter, values), strict=True)
                # Without a step of Python for each. Each list is cleared when the next one comes:
                # clear() returns None.
                yield compress(groups, map(not_, map(list.clear, chain(([],), lists))))
                for one in lists[-1:]:
                    one.clear()
                self._left = None
        self._key = None

    def _parts(self, ranges: Iterable[Range], keys_of: Callable[[list[str]], list[Any]]) -> Any:
        """Keys, texts and lists, and whether none of these keys is equal to a neighbour."""
        last: Any = None
        for texts, lists, is_streamed in ranges:
            if not texts:
                continue
            keys = keys_of(texts)
            are_apart = not any(map(eq, keys, islice(keys, 1, None)))
            start = stop = len(keys)
            if are_apart and not is_streamed and not self._watched:
                # The first and the last one may be equal to those of other ranges.
                start = int(keys[0] == last)
                stop = max(start, len(keys) - 1)
            for is_apart, some in (
                (False, slice(start)),
                (True, slice(start, stop)),
                (False, slice(stop, None)),
            ):
                if found := keys[some]:
                    yield is_apart, found, texts[some], lists[some]
            last = keys[-1]

    def _joined(self, items: Iterable[tuple[Any, str, Any]], values_of: Any) -> Iterator[Group]:
        """Groups of neighbours with equal keys, read on as their values are taken."""
        for key, group in groupby(items, itemgetter(0)):
            rest = iter(group)
            _, self._key, first = next(rest)
            each = chain((first,), map(itemgetter(2), rest))
            values = chain.from_iterable(map(values_of, each) if values_of else each)
            yield key, iter(self._watched(values) if self._watched else values)
            if type(first) is list:
                first.clear()
            deque(values, 0)

    def of_lines(
        self,
        ranges: Iterable[Range],
        read: Read,
        is_ours: bool = False,
        fields: int = 1,
        are_pickles: bool = False,
    ) -> Iterator[Group]:
        """Groups of lines, by a protocol that codes key and value each by itself, or as text.

        ``is_ours``: Whether all lines are of mrjob's JSON, as a task has written it. ``fields``:
        Those of the ranges' keys; the protocol's key is the first. ``are_pickles``: Whether values
        are pickles, perhaps ordered ones.
        """
        protocol: Any = getattr(read, "__self__", None)
        are_texts = is_text(read)
        loads = from_json if is_json(read) else bytes.decode if are_texts else protocol._loads
        decode: Any = Decoder(loads).__getitem__
        decode_all = decoded_json if is_ours else fast_decoder(read)

        def values_of(rests: Iterable[str]) -> Iterator[Any]:
            for rest in rests:
                if are_pickles:
                    yield load(rest)
                elif not rest:
                    # There is no TAB: the protocol has its own value, or error.
                    self._unread = (self._text() or "").encode("latin-1")
                    _, value = read(self._unread)
                    self._unread = None
                    yield value
                else:
                    yield decode(rest[1:].rstrip("\r").encode("latin-1"))

        def decode_values(rests: list[str]) -> list[Any] | None:
            if are_pickles:
                return load_all(rests)
            joined = "\n".join(rests)
            # One may have no TAB before it.
            values = joined[1:].split("\n\t")
            is_whole = joined.startswith("\t") and len(values) == len(rests)
            return decode_all(values) if is_whole else None

        def decoded(found: Range) -> Iterator[Range]:
            for texts, lists in _parts(found):
                joined = "".join(chain(texts, *lists)) if are_texts else ""
                if fields > 1 or not joined.isascii() or "\r" in joined:
                    texts, rests = _by_first_field(texts, lists, are_texts)
                    if (values := decode_values(rests)) is not None:
                        yield Range(*grouped(texts, values))
                        continue
                    texts, lists = grouped(texts, rests)
                else:
                    values = decode_values(list(chain.from_iterable(lists)))
                if values is None:
                    for text, some in zip(texts, lists, strict=True):
                        yield Range([text], [values_of(some)], is_streamed=True)
                else:
                    yield Range(texts, list(cut(values, list(accumulate(map(len, lists))))))

        keys_of = partial(self._keys_of, decode_all, loads)
        return self.of(chain.from_iterable(map(decoded, ranges)), keys_of)

    def _keys_of(self, decode_all: Any, loads: Any, texts: list[str]) -> list[Any]:
        if (decoded := decode_all(texts)) is not None:
            return decoded  # type: ignore[no-any-return]
        keys = []
        for self._key in texts:
            keys.append(loads(self._key.encode("latin-1")))
        return keys

    def pairs(self, lines: Iterable[bytes], read: Read) -> Iterator[Pair]:
        """Pairs of sorted lines."""
        read = line_reader(read)
        for line in lines:
            self._last = line
            try:
                pair = read(line.rstrip(b"\r\n"))
            except BaseException:
                self._unread = line
                raise
            yield pair

    def of_pairs(self, pairs: Iterable[Pair], fields: int) -> Iterator[Group]:
        """Groups of neighbours with equal keys, as mrjob makes them."""
        for key, group in groupby(pairs, itemgetter(0)):
            # When a group's values have been read, so has the first record of the next one.
            self._key = key_of(self._last, fields).decode("latin-1")
            values = map(itemgetter(1), group)
            yield key, iter(self._watched(values) if self._watched else values)
        self._key = None


def _parts(found: Range) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Keys with their lists, or parts of one that is streamed, as are decoded together."""
    start = used = 0
    texts, lists, is_streamed = found
    if is_streamed:
        part: list[str] = []
        for value in lists[0]:
            part.append(value)
            used += len(value) + 1
            if used > _TOGETHER:
                yield texts, [part]
                part, used = [], 0
        if part:
            yield texts, [part]
        return
    ends = list(accumulate(map(len, lists)))
    sizes = list(accumulate(map(len, chain.from_iterable(lists)), initial=0))
    while start < len(lists):
        before = sizes[ends[start - 1] if start else 0]
        values = bisect_right(sizes, before + _TOGETHER) - 1
        stop = max(start + 1, bisect_right(ends, values))
        yield texts[start:stop], lists[start:stop]
        start = stop


def _by_first_field(
    texts: list[str], lists: list[list[str]], are_texts: bool
) -> tuple[list[str], list[str]]:
    """What is before the first TAB of each line, and the rest; if they are texts, all as UTF-8."""
    lines = [text + value for text, some in zip(texts, lists, strict=True) for value in some]
    if are_texts:
        lines = list(map(_utf8, map(str.rstrip, lines, repeat("\r"))))
    return divided(lines)


def _utf8(line: str) -> str:
    """A line as mrjob's protocol for text reads it, in UTF-8."""
    try:
        line.encode("latin-1").decode()
    except UnicodeDecodeError:
        return line.encode().decode("latin-1")
    return line


def lines_of(ranges: Iterable[Range]) -> Iterator[bytes]:
    """The lines of ranges of lines."""
    for texts, lists, _ in ranges:
        for text, values in zip(texts, lists, strict=True):
            for value in values:
                yield (text + value).encode("latin-1")
