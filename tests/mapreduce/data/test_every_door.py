"""Odd tables: import, split, description, prediction and batches read the same rows, or say the
same of what is wrong."""

import csv
import gzip
import io
import math
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mapreduce
from builders import INLINE, tables_here
from mapreduce.batches.parts import parse, read_records, references
from mapreduce.data import importer
from mapreduce.data.readers import csv as csv_reader, opening
from mapreduce.data.readers.reading import Reading
from mapreduce.data.splitting import split
from mapreduce.errors import GradreduceError
from mapreduce.inference import cutting, files, raw
from mapreduce.inference.request import Request
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.tables import shuffle, summarise
from quick import pairwise
from reading import chunks_of

NAMES = ("id", "x", "kind", "label")
ROWS = [(f"r{i}", f"{i / 4}", "abc"[i % 3], "up" if i % 4 > 1 else "down") for i in range(12)]
BOM = b"\xef\xbb\xbf"


def text(rows=ROWS, names=NAMES, end="\n", order=range(4), **dialect):
    """A table as CSV."""
    found = []
    for row in [names, *rows] if names else rows:
        # Line ends of either kind are in quotes then.
        csv.writer(file := io.StringIO(), **dialect).writerow([row[i] for i in order])
        found.append(file.getvalue().removesuffix("\r\n") + end)
    return "".join(found).encode()


def lines(*some):
    return "\n".join(["id,x,kind,label", *some, ""]).encode()


def parquet(rows=ROWS, order=range(4), **options):
    columns = {name: [row[i] or None for row in rows] for i, name in enumerate(NAMES)}
    columns["x"] = [None if x is None else float(x) for x in columns["x"]]
    return parquet_of(pa.table({NAMES[i]: columns[NAMES[i]] for i in order}), **options)


def parquet_of(table, **options):
    pq.write_table(table, sink := pa.BufferOutputStream(), **options)
    return sink.getvalue().to_pybytes()


def with_kinds(*kinds):
    return [(*row[:2], kinds[i % len(kinds)], row[3]) for i, row in enumerate(ROWS)]


PARTS = [ROWS[:5], ROWS[5:8], ROWS[8:]]
LONG = with_kinds("two\nlines", "a\r\nb\r\n\nc", "plain", "\n")
QUOTED = [("q" + row[0], *row[1:]) for row in with_kinds('"', 'say "a"', '"",""\n', "'a'")]
MISSING = [
    (f"m{i}", x, kind, "up" if i % 2 else "down")
    for i, (x, kind) in enumerate([("1", "a"), ("", "b"), ("NA", ""), ("None", "a"), ("<NA>", "c")])
]
#: The content of files, how they are written, and what their names end with, if not with .csv.
TABLES = {
    "plain": ([text()], {}),
    "orders": (
        [text(PARTS[0]), text(PARTS[1], order=(3, 1, 0, 2)), text(PARTS[2], order=(1, 0, 2, 3))],
        {},
    ),
    "orders with quotes": ([text(LONG), text(QUOTED, order=(3, 2, 1, 0))], {}),
    "CR": ([text(end="\r")], {}),
    "CR in quotes, too": ([text(LONG, end="\r")], {}),
    "CRLF": ([text(end="\r\n")], {}),
    "CR in some lines": ([text().replace(b"up\n", b"up\r")], {}),
    "BOM": ([BOM + text()], {}),
    "BOM and quotes": ([BOM + text(LONG, quoting=csv.QUOTE_ALL)], {}),
    "line feeds in quotes": ([text(LONG)], {}),
    "line feeds in names": ([text(LONG).replace(b"x,", b'"x",', 1)], {}),
    "quotes in quotes": ([text(QUOTED)], {}),
    "gz": ([gzip.compress(text())], {}, ".csv.gz"),
    "several files": (
        [text(PARTS[0]), gzip.compress(BOM + text(PARTS[1], end="\r\n")), text(PARTS[2], end="\r")],
        {},
    ),
    "CR before LF": ([text(PARTS[0], end="\r"), text(PARTS[1]), text(PARTS[2], end="\r\n")], {}),
    "no header": ([text(names=())], {"header": False}),
    "no header, several": ([BOM + text(LONG, ()), text(QUOTED, (), "\r")], {"header": False}),
    "no header, BOM later": ([text(LONG, ()), BOM + text(QUOTED, ())], {"header": False}),
    "empty lines": ([text().replace(b"\n", b"\n\n") + b"\n\r\n\n"], {}),
    "empty lines of CR": ([text(end="\r") + b"\r\r"], {}),
    "no last line end": ([text(QUOTED).rstrip(b"\n"), text(LONG, end="\r\n").rstrip(b"\r\n")], {}),
    "a quote within a field": ([lines('a,1,5" pipe,up', 'b,2,5" "x",down', 'c,3,o"",up')], {}),
    "text after quotes": ([lines('a,1,"b"c,up', 'b,2,"b" ,down', "c,3,d,up")], {}),
    "one file without rows": ([text(PARTS[0]), text([]), text(PARTS[1])], {}),
    "the first file without rows": ([text([]), text(PARTS[1])], {}),
    "tabs": ([text(QUOTED, delimiter="\t", quotechar="'")], {"quote": "'"}, ".tsv"),
    "decimal commas": (
        [text(delimiter=";").replace(b".", b",")],
        {"delimiter": ";", "decimal": ","},
    ),
    "latin-1": (
        [text(with_kinds("é", "ü")).decode().encode("latin-1")],
        {"encoding": "latin-1"},
    ),
    "blanks": (
        [lines(" a , 1 , b , up ", "b,2 ,c,down", "c, 3,d ,up").replace(b",x", b" , x ")],
        {},
    ),
    "missing values": ([text(MISSING)], {}),
    "row groups": ([parquet(row_group_size=5)], {}, ".parquet"),
    "row groups, several": (
        [parquet(PARTS[0], row_group_size=2), parquet(PARTS[1]), parquet(PARTS[2])],
        {},
        ".pq",
    ),
    "Parquet's orders": ([parquet(PARTS[0]), parquet(PARTS[1], (3, 1, 0, 2))], {}, ".parquet"),
    "missing values of Parquet": ([parquet([*ROWS, ("z", "", "", "up")])], {}, ".parquet"),
}  # fmt: skip
GOOD = [f"a{i},{i},b,up" for i in range(30)]
#: What is wrong, and what all say of it.
WRONG = {
    "a field too many": ([lines(*GOOD, "b,1,c,up,", *GOOD)], {}, r"0\.csv, row 31: expected 4 f"),
    "a field too few": ([lines(*GOOD, "b,1,c", *GOOD)], {}, r"row 31: expected 4 fields, found 3"),
    "too few, of CR": ([lines("a,1,c,up", "b").replace(b"\n", b"\r")], {}, "row 2: expected 4"),
    "a quote left open": ([lines(*GOOD, 'b,1,"c,up', *GOOD)], {}, r'row 31: a quote, ", is left'),
    "open until the next": (
        [lines(*GOOD, 'b,1,"c,up', 'c,2,"d",up', *GOOD)], {}, r'row 31: a quote, ", is left open',
    ),
    "an open header": ([b'id,x,"kind,label\n' + text(names=())], {}, "line 1: a quote, .* left"),
    "not UTF-8": ([lines(*GOOD) + b"b,1,\xff,up\n"], {}, r"row 31, column kind: .* is not UTF-8"),
    "not ASCII": ([lines("a,1,b,up", "b,1,é,up")], {"encoding": "ascii"}, "row 2: it is not ascii"),
    "a header that is not ASCII": (
        [text(names=("é", *NAMES[1:]))], {"encoding": "ascii"}, r"0\.csv is not ascii text",
    ),
    "one name twice": ([text(names=("id", "x", "x", "label"))], {}, "two columns have the same n"),
    "one name twice, Parquet": (
        [parquet_of(pa.table([[1], [2]], ["a", "a"]))], {}, "two columns have the same", ".parquet",
    ),
    "another delimiter": ([text(delimiter=";")], {}, "has one column, .* Say --delimiter ';'"),
    "an empty line first": ([b"\n" + text()], {}, "starts with an empty line"),
    "a workbook": ([b"PK\x03\x04" + bytes(90)], {}, "ZIP, or a workbook of Excel"),
    "UTF-16": (["".join(map(chr, text())).encode("utf-16")], {}, "is UTF-16 text, or none"),
    "half a gz": ([gzip.compress(lines(*GOOD * 99))[:-99]], {}, "the gzip stream is damaged or"),
    "half a Parquet file": ([parquet()[:-99]], {}, "is not a Parquet file, or d", ".parquet"),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run for tables with a header, and one for those without."""
    folder, found = tmp_path_factory.mktemp("runs"), {}
    rows = [(f"t{i}", i % 9, "abcd"[i % 4], "up" if i % 9 > 4 else "down") for i in range(60)]
    for header, names in ((True, NAMES), (False, ())):
        (path := folder / f"{header}.csv").write_bytes(text(rows, names))
        named = dict(zip(("id", "label"), ("id", "label") if header else ("1", "4"), strict=True))
        recipe = {"header": header, "id": named["id"]}
        options = {"progress": False, "executor": "here", "rounds": 3, "label": named["label"]}
        mapreduce.train(path, "logistic", run=folder / str(header), recipe=recipe, **options)
        found[header] = checkpoint.fitted(RunDir(folder / str(header)))
    return found


def opened(paths, options, **fields):
    kind = opening.format_of(paths)
    return kind, opening.recipe_of({**options, **fields}, paths)


def names_of(options):
    return ("1", "2", "3", "4") if options.get("header") is False else NAMES


def plain(rows):
    """Rows whose numbers are numbers, without blanks around; None where a field is missing."""

    def number(x):
        if x is None or str(x).strip() in ("", "NA", "None", "<NA>", "nan"):
            return None
        return float(str(x).replace(",", "."))

    def word(x):
        return None if x is None or not str(x).strip() else str(x).strip()

    return [(word(a), number(x), word(b), word(c)) for a, x, b, c in rows]


def expected(paths, options):
    """The rows, as the csv module, or Arrow, reads them, one file after the other."""
    found, names = [], names_of(options)
    for path in paths:
        if path.suffix in (".parquet", ".pq"):
            found += [[row[name] for name in names] for row in pq.read_table(path).to_pylist()]
            continue
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        found += records_of(content, path.suffix == ".tsv", options)
    return plain(found)


def records_of(content, has_tabs, options):
    decoded = content.removeprefix(BOM).decode(options.get("encoding", "utf-8"))
    signs = options.get("delimiter", "\t" if has_tabs else ","), options.get("quote", '"')
    stream = io.StringIO(decoded, newline="")
    rows = [row for row in csv.reader(stream, delimiter=signs[0], quotechar=signs[1]) if row]
    names = names_of(options)
    heads = names if options.get("header") is False else [n.strip() for n in rows.pop(0)]
    return [[dict(zip(heads, row, strict=True))[name] for name in names] for row in rows]


def by_import(paths, options, runs):
    id, _, kind, label = names_of(options)
    kind_of, recipe = opened(
        paths, options, id=id, label=label, missing="mean", task="classification"
    )
    chunks = chunks_of(opening.table(paths, kind_of, recipe))
    found = []
    for rows in chunks:
        assert rows.features.numbers.shape[1] == 1
        numbers = [None if math.isnan(x) else x for x in rows.features.numbers[:, 0]]
        columns = rows.ids.to_pylist(), numbers, rows.features.texts[kind].to_pylist()
        found += zip(*columns, rows.labels.tolist(), strict=True)
    return plain(found)


def by_tasks(paths, options, runs):
    """An import by jobs writes the bytes of one that reads all here."""
    id, _, _, label = names_of(options)
    kind, recipe = opened(paths, options, id=id, label=label)
    place = paths[0].parent
    with pytest.MonkeyPatch.context() as patch:
        tables_here(patch)
        # Several shards.
        for module in (importer, shuffle):
            patch.setattr(module, "rows_per_shard", lambda row_bytes: 5)
        reading = Reading(opening.open_table(paths, kind, recipe), recipe)
        shuffle.import_table(reading, place / "by-tasks", 3, INLINE)
        importer.import_rows(opening.table(paths, kind, recipe), place / "here", 3)
    here, there = (
        {path.name: path.read_bytes() for path in (place / name).iterdir()}
        for name in ("here", "by-tasks")
    )
    assert here == there
    return by_import(paths, options, runs)


def by_split(paths, options, runs):
    out = paths[0].parent / "parts"
    counts = split(paths, out, test=0.3, **options)
    found = []
    for name, count in counts.items():
        part = expected([out / name], options)
        assert len(part) == count > 0
        assert by_import([out / name], options, runs) == part
        found.append(part)
    # Each part has the order of the source, which the sum has no more.
    return found


def by_description(paths, options, runs):
    kind, recipe = opened(paths, options)
    with pytest.MonkeyPatch.context() as patch:
        tables_here(patch)
        total, kinds, _ = summarise.described(paths, kind, recipe, INLINE)
    return total.rows, {
        name: (kinds[name].rstrip("?"), column.missing, getattr(column, "values", None) or {})
        for name, column in total.columns.items()
    }


def by_prediction(paths, options, runs):
    model, found = runs[options.get("header") is not False], []
    for number, path in enumerate(paths):
        given = {k: v for k, v in options.items() if k != "header"} | {"id": names_of(options)[0]}
        out = path.parent / f"predicted-{number}.parquet"
        request = Request(model, path, INLINE, out, reading=given)
        file = cutting.cut(request)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(raw, "is_read_there", lambda request: True)
            there = cutting.cut(request)
        assert replace(there, reading=file.reading) == file
        files.predict(request, file)
        found += zip(*(pq.read_table(out)[i].to_pylist() for i in (1, 2, 3)), strict=True)
    return found


def by_batches(paths, options, runs):
    lines = references([str(path) for path in paths]).splitlines()
    batches = [batch for line in lines for batch in read_records(parse(line), options)]
    assert not any(pa.types.is_string(b.column(names_of(options)[1]).type) for b in batches)
    columns = [[*chain(*(b.column(n).to_pylist() for b in batches))] for n in names_of(options)]
    return plain(zip(*columns, strict=True))


def predictions_of(rows, options, runs, folder):
    """Those of the same rows without anything odd."""
    words = [["" if field is None else field for field in row] for row in rows]
    is_named = options.get("header") is not False
    (path := folder / "plain" / "0.csv").parent.mkdir()
    path.write_bytes(text(words, NAMES if is_named else (), quoting=csv.QUOTE_ALL))
    return by_prediction([path], {"header": is_named}, runs)


def described_of(rows, options):
    columns = dict(zip(names_of(options), zip(*rows, strict=True), strict=True))
    found = {}
    for place, (name, column) in enumerate(columns.items()):
        missing, kind = column.count(None), "number" if place == 1 else "text"
        counts = {v: column.count(v) for v in column if v is not None} if kind == "text" else {}
        found[name] = (kind, missing, counts)
    return len(rows), found


DOORS = {
    "import": by_import,
    "tasks": by_tasks,
    "split": by_split,
    "describe": by_description,
    "predict": by_prediction,
    "batches": by_batches,
}


def write(folder, contents, suffix):
    paths = [folder / f"{number}{suffix}" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


#: Blocks of a row, or of the header alone, and blocks that hold all rows.
BLOCKS = [10, 4 << 20]


@pytest.mark.parametrize(("table", "door", "block"), pairwise(TABLES, DOORS, BLOCKS))
def test_the_same_rows(tmp_path, runs, monkeypatch, table, door, block):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", block)
    contents, options, *rest = TABLES[table]
    paths = write(tmp_path, contents, *(rest or [".csv"]))
    rows = expected(paths, options)
    assert len(rows) >= 3
    if door == "predict":
        # A model takes one file, which has rows.
        paths = [path for path in paths if expected([path], options)]
    found = DOORS[door](paths, options, runs)
    if door == "split":
        assert sorted(map(str, chain(*found))) == sorted(map(str, rows))
        assert all(part == [row for row in rows if row in part] for part in found)
    elif door == "describe":
        assert found == described_of(rows, options)
    elif door == "predict":
        assert [row[0] for row in found] == [row[0] for row in rows]
        assert found == predictions_of(rows, options, runs, tmp_path)
    else:
        assert found == rows


@pytest.mark.parametrize(("table", "door", "block"), pairwise(WRONG, DOORS, BLOCKS))
def test_the_same_error(tmp_path, runs, monkeypatch, table, door, block):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", block)
    contents, options, message, *rest = WRONG[table]
    paths = write(tmp_path, contents, *(rest or [".csv"]))
    told = []
    for one in {"import": by_import, door: DOORS[door]}.values():
        with pytest.raises(GradreduceError, match=message) as caught:
            one(paths, options, runs)
        told.append(str(caught.value))
    assert len({*told}) == 1
