"""Comma-separated values: tables in text files."""

import contextlib
import csv as csv_module
import hashlib
import io
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from hdfs_utils.paths import AnyPath, size_of
from mapreduce.data import ipc
from mapreduce.data.batch import Array
from mapreduce.data.columns import renamings
from mapreduce.data.fields import MISSING
from mapreduce.data.readers.edges import edges_of, leaves_at
from mapreduce.data.readers.files import (
    check_sources,
    is_packed,
    open_stretch,
    read_fully,
    unpacked_size,
)
from mapreduce.data.readers.header import ENCODINGS, first_line, has_header, names_in
from mapreduce.data.readers.records import BOM, RecordEnds, check_line, row_ends, rows_in
from mapreduce.data.readers.table import (
    BadField,
    Leaf,
    Stretch,
    edges_of_all,
    leaves_of_all,
    preview,
    whole,
)
from mapreduce.data.recipes import kinds
from mapreduce.data.recipes.recipe import Recipe, Rule
from mapreduce.errors import DataError
from mapreduce.support.threads import ordered_map

#: A block is the lines that begin in so many bytes of a file.
BLOCK_BYTES = 4 << 20
#: A task looks for the edges of blocks in so many bytes at once, a multiple of them.
PIECE_BYTES = 64 << 20
_EMPTY = pa.array([b"\n", b"\r", b"\r\n"], pa.large_binary())


class CsvTable:
    """CSV files of the same columns; those with a header may have them in another order."""

    format = "csv"
    is_typed = False
    categories: Collection[str] = ()

    def __init__(self, paths: Sequence[AnyPath], recipe: Recipe, known: Sequence[str] = ()) -> None:
        check_sources(paths, "the CSV files")
        self.paths = paths
        self._recipe = recipe
        self._firsts = {path: first_line(path, recipe, BLOCK_BYTES) for path in paths}
        self._ends = {path: first.end for path, first in self._firsts.items()}
        first = self._firsts[paths[0]]
        self.has_names = has_header(first.fields, recipe, paths[0], known)
        self.has_rows = not self.has_names or any(f.is_followed for f in self._firsts.values())
        self._own = {p: names_in(f, p, self.has_names) for p, f in self._firsts.items()}
        self.names = self._own[paths[0]]
        for path, other in self._own.items():
            new = renamings({*other}, {*self.names})
            self._own[path] = other = [new.get(name, name) for name in other]
            if sorted(other) != sorted(self.names):
                raise DataError(
                    f"{path} has the columns {preview(other)}, {paths[0]} {preview(self.names)}: "
                    f"they cannot be in one dataset"
                )

    def rename(self, names: Mapping[str, str]) -> None:
        self._own = {p: [names.get(name, name) for name in own] for p, own in self._own.items()}
        self.names = self._own[self.paths[0]]

    @property
    def all_names(self) -> list[str]:
        return self.names

    @property
    def size(self) -> int:
        return sum(map(unpacked_size, self.paths))

    @property
    def head(self) -> bytes:
        """The header of the first file as it stands there; empty if it has none."""
        first = self._firsts[self.paths[0]].record
        return first.removesuffix(self._line_end) + self._line_end if self.has_names else b""

    @property
    def _line_end(self) -> bytes:
        """What lines of the first file end with."""
        first = self._firsts[self.paths[0]]
        return b"\r\n" if first.record.endswith(b"\r\n") else first.end

    def leaves(self, stretch: Stretch | None = None) -> Iterator[Leaf]:
        if stretch is not None:
            yield from self._leaves(self.paths[stretch.file], stretch.start, stretch.stop)
            return
        for path in self.paths:
            yield from self._leaves(path, 0, sys.maxsize)

    def _leaves(self, path: AnyPath, at: int, stop: int) -> Iterator[Leaf]:
        """The blocks of a file that begin from a byte on, where one does, up to another."""
        starts, begin = not at, at
        records = RecordEnds(self._recipe, self._ends[path])
        # The last record that begins in a block ends in the next, or in a later one.
        rest: list[bytes] = []
        with open_stretch(path, at) as file:
            while part := file.read(min(BLOCK_BYTES - at % BLOCK_BYTES, stop - at)):
                at += len(part)
                is_first = starts and not rest
                end = records.first(part.removeprefix(BOM) if is_first else part)
                if rest:
                    cut = end or len(part)
                    rest.append(part[:cut])
                    if not end:
                        check_line(path, sum(map(len, rest)) - BLOCK_BYTES, records.is_open)
                        continue
                    yield Leaf(path, starts, b"".join(rest), begin, records.wrong is not None)
                    starts, rest, part, begin = False, [], part[cut:], at - len(part) + cut
                if part and records.is_between:
                    yield Leaf(path, starts, part, begin, records.wrong is not None)
                    starts, begin = False, at
                elif part:
                    rest = [part]
        if rest:
            doubtful = records.wrong is not None or records.is_open
            yield Leaf(path, starts, b"".join(rest), begin, doubtful)

    @cached_property
    def _sizes(self) -> list[int]:
        """The bytes of each file that can be read from any place on; 0 for one that is gzipped."""
        return [0 if is_packed(path) else size_of(path) for path in self.paths]

    def pieces(self) -> Sequence[Stretch]:
        return [
            Stretch(number, start, min(start + PIECE_BYTES, size), 0) if size else whole(number)
            for number, size in enumerate(self._sizes)
            for start in range(0, size or 1, PIECE_BYTES)
        ]

    def edges(self, piece: Stretch) -> Array:
        path = self.paths[piece.file]
        if not self._sizes[piece.file]:
            return edges_of_all(self.leaves(piece))
        found = []
        with open_stretch(path, piece.start) as file:
            for start in range(piece.start, piece.stop, BLOCK_BYTES):
                part = read_fully(file, min(BLOCK_BYTES, piece.stop - start))
                part = part if start else part.removeprefix(BOM)
                found.append(edges_of(part, self._recipe, self._ends[path]))
        return np.stack(found)

    def leaves_at(self, edges: Sequence[Array]) -> Iterator[Leaf]:
        own: list[list[Array]] = [[] for _ in self.paths]
        for piece, found in zip(self.pieces(), edges, strict=True):
            own[piece.file].append(found)
        for path, size, all_of_it in zip(self.paths, self._sizes, own, strict=True):
            found = np.concatenate(all_of_it)
            leaves = leaves_at(path, found, size, BLOCK_BYTES)
            yield from leaves if size else leaves_of_all(path, found)

    def scan(self, names: Sequence[str]) -> Iterator[tuple[Leaf, int, Any]]:
        return self._each(lambda leaf: self.parse(leaf, {}, names))

    def _each(self, read: Callable[[Leaf], dict[str, Any]]) -> Iterator[tuple[Leaf, int, Any]]:
        """The blocks, the rows before each in its file, and record batches of what is read."""

        def tried(leaf: Leaf) -> tuple[Leaf, Any]:
            try:
                return leaf, pa.record_batch(read(leaf))
            except BadField as error:
                return leaf, error

        first = 0
        for leaf, found in ordered_map(tried, self.leaves()):
            first = 0 if leaf.starts else first
            if isinstance(found, BadField):
                raise found.error(leaf.path, first)
            yield leaf, first, found
            first += len(found)

    def index(self, name: str | None, digest: Any) -> Iterator[tuple[Stretch, Any]]:
        number = -1
        for leaf, _, found in self.scan([name or self.names[0]]):
            number += leaf.starts
            # Of digests, since tasks may compute those of blocks.
            digest.update(hashlib.sha256(leaf.content).digest())
            assert leaf.at is not None, "all blocks of text have a place"
            stop = leaf.at + len(leaf.content)
            yield Stretch(number, leaf.at, stop, len(found)), found.column(0) if name else None

    def typed(self) -> Iterator[Any]:
        """Record batches of the types that the first rows show, of which texts are as they are.

        Raises DataError (a row is malformed, or a field is not of its column's type).
        """
        first = self._first_rows(lambda leaf: self._inferred(leaf, dict.fromkeys(self.names)))
        types = dict(zip(first.schema.names, first.schema.types, strict=True))
        for _, _, batch in self._each(lambda leaf: self._inferred(leaf, types)):
            if len(batch):
                yield batch

    def _first_rows(self, read: Callable[[Leaf], dict[str, Any]]) -> Any:
        """What is read of the first block that has rows."""
        for leaf in self.leaves():
            try:
                found = pa.record_batch(read(leaf))
            except BadField as error:
                raise error.error(leaf.path, 0) from error
            if len(found):
                break
        return found

    def _inferred(self, leaf: Leaf, types: Mapping[str, Any]) -> dict[str, Any]:
        content, names = self._content(leaf), self._own[leaf.path]
        missing = ["", *MISSING, *self._recipe.na]
        found = self._parsed(content, names, types, missing)
        if any(pa.types.is_binary(column.type) for column in found.values()):
            # They are no text: this says so.
            self._parsed(content, names, dict.fromkeys(names, pa.string()))
        return found

    def records(self) -> Iterator[Any]:
        """The rows of each block as they stand in their files, to be written behind :attr:`head`.

        Those of files whose columns, or line ends, are not those of the first are written anew.
        """
        return ordered_map(self._records, self.leaves())

    def _records(self, leaf: Leaf) -> Any:
        own, end = self._own[leaf.path], self._ends[leaf.path]
        if (own, end) != (self.names, self._ends[self.paths[0]]):
            return pa.array(self._anew(leaf), pa.large_binary())
        content = self._rows(leaf)
        if content and not content.endswith((b"\r", b"\n")):
            content += self._line_end
        ends = row_ends(content, self._recipe)
        buffers = [None, pa.py_buffer(np.append(np.int64(0), ends)), pa.py_buffer(content)]
        lines = pa.Array.from_buffers(pa.large_binary(), len(ends), buffers)
        if (np.diff(ends, prepend=0) <= 2).any():
            lines = lines.filter(pc.invert(pc.is_in(lines, _EMPTY)))
        return lines

    def _anew(self, leaf: Leaf) -> Iterator[bytes]:
        recipe, found = self._recipe, self.parse(leaf, {}, self.names)
        for row in zip(*(found[name].to_pylist() for name in self.names), strict=True):
            file = io.StringIO(newline="")
            # Line ends of either kind are in quotes then.
            csv_module.writer(
                file, delimiter=recipe.delimiter, quotechar=recipe.quote, lineterminator="\r\n"
            ).writerow(row)
            yield file.getvalue().removesuffix("\r\n").encode(recipe.encoding) + self._line_end

    def sniff(self, names: Sequence[str], plain: Callable[[str, Any], Any]) -> dict[str, str]:
        first = self._first_rows(lambda leaf: self.parse(leaf, {}, names))
        return {name: kinds.kind_of(plain(name, first.column(name))) for name in names}

    def kind_of(self, texts: Any) -> str:
        return kinds.kind_of(texts)

    def parse(
        self, leaf: Leaf, expected: Mapping[str, str], others: Sequence[str]
    ) -> dict[str, Any]:
        content, names = self._content(leaf), self._own[leaf.path]
        texts = dict.fromkeys((*expected, *others), pa.string())
        typed = {
            name: pa.float64()
            for name, kind in expected.items()
            if kind.startswith("number") and not self._recipe.thousands
            if self._recipe.columns.get(name, Rule()).kind != "number"
        }
        if typed:
            # Looking for many words takes longer, and mostly there are none.
            for words in ([""], ["", *MISSING, *self._recipe.na]):
                with contextlib.suppress(pa.ArrowInvalid):
                    found = self._read(content, names, {**texts, **typed}, words)
                    if not _may_have_codes(content):
                        return found
                    # Numbers would not tell.
                    codes = dict.fromkeys(typed, pa.string())
                    return {**found, **self._read(content, names, codes)}
        return self._parsed(content, names, texts)

    def _content(self, leaf: Leaf) -> bytes:
        """The rows of a block, in UTF-8."""
        content, encoding = self._rows(leaf), self._recipe.encoding
        if encoding.lower() not in ("utf-8", "utf8"):
            try:
                content = content.decode(encoding).encode()
            except UnicodeDecodeError as error:
                row = rows_in(content[: error.start], self._recipe)
                why = f"it is not {encoding} text: {error}. {ENCODINGS}"
                raise BadField(row, "", why) from error
        return content

    def _rows(self, leaf: Leaf) -> bytes:
        """The rows of a block, without the header."""
        content: bytes = leaf.content
        text = content.removeprefix(BOM) if leaf.starts else content
        has_header = leaf.starts and self.has_names
        if leaf.is_doubtful:
            records, quote = RecordEnds(self._recipe, self._ends[leaf.path]), self._recipe.quote
            ends = records.of(text)
            if records.is_open or records.wrong is not None:
                ends = np.append(0, ends if records.wrong is None else ends[: records.wrong])
                row = rows_in(text[: int(ends[-1])], self._recipe) - has_header
                raise BadField(row, "", f"a quote, {quote}, is left open. Close it, or say --quote")
        return content[len(self._firsts[leaf.path].record) :] if has_header else text

    def _parsed(
        self,
        content: bytes,
        names: list[str],
        types: Mapping[str, Any],
        missing: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Like :meth:`_read`, with errors that name the row."""
        try:
            return self._read(content, names, types, missing)
        except pa.ArrowInvalid as error:
            self._find_bad_row(content, names)
            decided = any(kind not in (None, pa.string()) for kind in types.values())
            advice = ". The first 4 MiB of a file decide the types of its columns" * decided
            raise BadField(0, "", f"in the rows from here on: {error}{advice}") from error

    def _read(
        self,
        content: bytes,
        names: list[str],
        types: Mapping[str, Any],
        missing: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Columns of a block, of these types, or, where it is None, of one that fits all fields."""
        if not content.strip():
            return {name: pa.array([], kind or pa.string()) for name, kind in types.items()}
        recipe = self._recipe
        table = csv.read_csv(
            ipc.stream(content),
            csv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=names),
            csv.ParseOptions(delimiter=recipe.delimiter, quote_char=recipe.quote),
            csv.ConvertOptions(
                column_types={name: kind for name, kind in types.items() if kind},
                null_values=missing,
                include_columns=[*types],
                decimal_point=recipe.decimal,
            ),
        )
        return {name: _one(table.column(name)) for name in types}

    def _find_bad_row(self, content: bytes, names: list[str]) -> None:
        """Raise an error that names the first malformed row of a block, if there is one."""
        text = io.StringIO(content.decode("utf-8", "surrogateescape"), newline="")
        reader = csv_module.reader(
            text, delimiter=self._recipe.delimiter, quotechar=self._recipe.quote
        )
        # What a quote left open takes for a field is longer than the module's limit.
        csv_module.field_size_limit(max(csv_module.field_size_limit(), len(content)))
        with contextlib.suppress(csv_module.Error):
            for row, found in enumerate(line for line in reader if line):
                if len(found) != len(names):
                    raise BadField(row, "", f"expected {len(names)} fields, found {len(found)}")
                for name, field in zip(names, found, strict=True):
                    if re.search("[\ud800-\udfff]", field):
                        raise BadField(row, name, f"{field!r} is not UTF-8 text. {ENCODINGS}")


def _may_have_codes(content: bytes) -> bool:
    """Whether a 0 that begins a field, as far as one sees, stands before another digit."""
    signs = np.frombuffer(content, np.uint8)
    at = np.flatnonzero((signs[:-1] == ord("0")) & (signs[1:] - ord("0") < 10))
    before = np.where(at, signs[at - 1], ord("\n"))
    return not np.isin(before, np.frombuffer(b"0123456789.+-", np.uint8)).all()


def _one(column: Any) -> Any:
    """A chunked array as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
