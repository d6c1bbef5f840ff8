"""Fields in quotes that go over several lines: as in the same table without text, everywhere."""

import csv
import gzip
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import programs
from mapreduce.data.importer import import_rows
from mapreduce.data.readers import csv as csv_reader, opening, records
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.data.shards import Dataset
from mapreduce.data.splitting import split
from mapreduce.errors import DataError
from quick import cases

NAMES = ("id", "review", "kind", "Total\n(USD)", "label")


def rows(count):
    for i in range(count):
        mood = ("good", "bad", "awful", "fine")[i * i % 7 % 4]
        text = f"He said \"{mood}\",\nthen left.\r\n\n{i % 11}; 'x'" if i % 3 else f"plain {mood}"
        kind = ("a", "b\nc", 'd"\r', "")[i % 4]
        yield (f"no. {i}", text, kind, i / 7, "up" if mood in ("good", "fine") else "down")


def write(folder, count=300, **dialect):
    """The table as CSV, and as Parquet."""
    table = list(rows(count))
    file = io.StringIO()
    csv.writer(file, **dialect).writerows([NAMES, *table])
    (folder / "a.csv").write_bytes(file.getvalue().encode())
    columns = dict(zip(NAMES, zip(*table, strict=True), strict=True))
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder / "a.csv", folder / "a.parquet"


def imported(path, kind, **fields):
    out = path.with_name(f"{kind}-{path.suffix[1:]}")
    source = opening.table([path], kind, Recipe(id="id", category_bits=4, **fields))
    manifest = import_rows(source, out, 0)
    data = Dataset(out)
    shards = [data.shard(i).rows(0, entry.rows) for i, entry in enumerate(manifest.shards)]
    features = np.concatenate([shard.features for shard in shards])
    return features, [shard.labels.tolist() for shard in shards], manifest.columns


def read_of(path, **fields):
    import_rows(opening.table([path], "csv", Recipe(**fields)), path.with_name("out"), 0)


def split_of(path, **fields):
    split([path], path.with_name("parts"), **fields)


DIALECTS = [
    {},
    {"quoting": csv.QUOTE_ALL},
    {"delimiter": ";", "quotechar": "'"},
    {"delimiter": "\t", "quoting": csv.QUOTE_ALL},
]


@pytest.mark.parametrize("block", [64, 1000, 4 << 20])
@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
def test_csv_is_read_as_parquet(tmp_path, monkeypatch, dialect, block):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", block)
    path, other = write(tmp_path, 120, **dialect)
    signs = {"delimiter": "delimiter", "quotechar": "quote"}
    fields = {signs[name]: value for name, value in dialect.items() if name in signs}
    if block == 1000:
        content = path.read_bytes()
        # As spreadsheets export it, and packed.
        path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + content))
    found, expected = imported(path, "csv", **fields), imported(other, "parquet")
    assert found[0].tobytes() == expected[0].tobytes()
    assert found[1:] == expected[1:]
    assert "kind=b\nc" in found[2]


@pytest.mark.parametrize("block", [64, 4 << 20])
@cases(
    "bad, row",
    # Nothing closes it; the next field's quote does; that of a later row does.
    ('9,"open,b,3,up\n10,x,b,3,up\n', 9),
    ('9,"open,b,3,up\n10,"x",b,3,up\n', 9),
    ('9,"op\nen",b,3,up\n10,"x,b,3,up\n11,y,b,3,up\n12,y,"b",3,up\n', 10),
)
def test_a_quote_left_open_is_named(tmp_path, monkeypatch, bad, row, block):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", block)
    good = "".join(f'{i},"two\nlines",b,3,down\n' for i in range(1, 9))
    path = tmp_path / "a.csv"
    path.write_text(f"id,review,kind,total,label\n{good}{bad}")
    with pytest.raises(DataError, match=rf'a.csv, row {row}: a quote, ", is left open. Close it'):
        imported(path, "csv")


@pytest.mark.parametrize("read", [read_of, split_of])
@cases(
    "content, fields, place",
    # Empty lines are no rows.
    (b'x,label\na,1\n\n\r\n\nb,0\n"c,1\n', {}, 'row 3: a quote, ", is left open'),
    (b'x,label\na,1\n\n"b\nb"b,0\nc,1\n', {}, 'row 2: a quote, ", is left open'),
    (b'"x,label\n' + b"1,2\n" * 50_000, {}, 'line 1: a quote, ", is left open'),
    (b'"x\ny"z,label\na,1\n', {}, 'line 1: a quote, ", is left open'),
    ('x,label\n"a\nb\nc",1\n\ne,0\n€,1\n'.encode(), {"encoding": "ascii"}, "row 3"),
    ids=["empty lines", "closed in a field", "header", "closed in the header", "encoding"],
)
def test_errors_name_rows(tmp_path, read, content, fields, place):
    (path := tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=f"a.csv, (after )?{place}"):
        read(path, **fields)


@pytest.mark.parametrize("block", [64, 4 << 20])
@cases("content, fields, expected",
        (b'x,label\n"a\nb" ,1\nc,0\n"d\n"\t \t,1\n', {}, ["a\nb ", "c", "d\n\t \t"]),
        (b'"' + b"a\n" * 70_000 + b'",1\nb,0\n', {"header": False}, ["a\n" * 70_000, "b"]),
        ('x|label\nスポ|1\nポ"|0\n"ポ"|1\n'.encode("shift_jis"),
         {"encoding": "shift_jis", "delimiter": "|"}, ["スポ", 'ポ"', "ポ"]),
ids=["blanks behind quotes", "a long first field", "halves of signs"],)  # fmt: skip
def test_what_is_no_open_quote(tmp_path, monkeypatch, content, fields, expected, block):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", block)
    (path := tmp_path / "a.csv").write_bytes(content)
    table = csv_reader.CsvTable([path], Recipe(**fields))
    found = [table.parse(leaf, {}, [table.names[0]]) for leaf in table.leaves()]
    assert [x for one in found for x in one[table.names[0]].to_pylist()] == expected
    found = [batch.column(0).to_pylist() for _, _, batch in table.scan([table.names[0]])]
    assert [x for one in found for x in one] == expected


def test_the_first_quote_is_left_open(tmp_path, monkeypatch):
    """The header does not end: no more of the file is read than a field may have."""
    monkeypatch.setattr(records, "LONGEST_LINE", 1 << 17)
    path = tmp_path / "a.csv"
    path.write_text('"x,label\n' + "1,2\n" * 50_000)
    message = "a.csv: a field in quotes is longer than 0 MiB. Is a quote left open"
    with pytest.raises(DataError, match=message):
        imported(path, "csv")


@pytest.mark.slow
def test_from_the_table_to_predictions(tmp_path):
    """Split, described, trained on and predicted: of both files the same."""
    for path in write(tmp_path, 400):
        folder = tmp_path / path.suffix[1:]
        told = programs.succeed("data", "describe", path)
        assert r"Total\n(USD)" in told
        assert "300 rows" not in told
        programs.succeed("data", "split", "--id", "id", path, folder / "parts")
        parts = [folder / "parts" / f"{name}{path.suffix}" for name in ("train", "test")]
        programs.succeed("data", "import", "--id", "id", parts[0], folder / "train")
        programs.succeed(
            *("train", folder / "train", "--run", folder / "run", "-q"),
            *("--model", "softmax", "--epochs", 3, "-r", "inline"),
        )
        programs.succeed("predict", folder / "run", parts[1], folder / "out.csv", "-r", "inline")
    texts = [(tmp_path / kind / "out.csv").read_text() for kind in ("csv", "parquet")]
    assert texts[0] == texts[1]
    assert len(texts[0].splitlines()) == 81
