"""Parts are disjoint and complete, of the sizes asked for, and follow from the content alone."""

import csv
import gzip
import io
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

from mapreduce.cli.main import cli, main
from mapreduce.data.readers import csv as csv_reader
from mapreduce.data.splitting import records, split
from mapreduce.errors import DataError, MissingInputError, OutputError, UsageError
from quick import cases

FIELDS = st.text("ab\"',; é0\n\r", max_size=3)
TABLES = st.lists(st.tuples(FIELDS, FIELDS, st.sampled_from("uvw")), min_size=3, max_size=40)
NAMES = ("x", "y", "kind")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 40)


def as_csv(rows, names=NAMES, end="\n"):
    file = io.StringIO()
    # A carriage return is quoted by this, too.
    csv.writer(file, lineterminator="\r\n").writerows([names, *rows] if names else rows)
    parts = records_of(file.getvalue())
    return "".join(part[:-2] + end for part in parts)


def numbered(count):
    """A table of rows that all differ."""
    return as_csv([(i, i % 7, "uvw"[i % 3]) for i in range(count)])


def contents(folder):
    """The records of each part, and what precedes them, as bytes."""
    return {path.stem: records_of(path.read_bytes()) for path in folder.iterdir()}


def text_of(path):
    return io.StringIO(path.read_bytes().decode(), newline="")


def records_of(text):
    """The records of what csv writes: each line end within has an odd number of quotes before."""
    quote, end, found = ('"', "\n", "") if isinstance(text, str) else (b'"', b"\n", b"")
    records = []
    for line in io.StringIO(text, newline="\n") if quote == '"' else io.BytesIO(text):
        found += line
        if found.count(quote) % 2 == 0 and line.endswith(end):
            records.append(found)
            found = found[:0]
    return [*records, found] if found else records


def rows_of(folder):
    return {
        name: [dict(zip(NAMES, row, strict=True)) for row in csv.reader(map(bytes.decode, lines))]
        for name, (_, *lines) in contents(folder).items()
    }


@pytest.mark.usefixtures("small_blocks")
class TestEverySplit:
    @given(rows=TABLES, seed=st.integers(0, 2**63 - 1), end=st.sampled_from(["\n", "\r\n"]))
    @settings(max_examples=40)
    def test_records_are_copied_once_and_equal_ones_stay_together(
        self, tmp_path_factory, rows, seed, end
    ):
        folder = tmp_path_factory.mktemp("split")
        text = as_csv(rows, end=end)
        (folder / "a.csv").write_bytes(text.encode())
        if len(set(rows)) < 3:
            with pytest.raises(DataError, match=r"at least 3 different rows, one for each part"):
                split([folder / "a.csv"], folder / "out", test=0.3, validation=0.2, seed=seed)
            assert [path.name for path in folder.iterdir()] == ["a.csv"]
            return
        counts = split([folder / "a.csv"], folder / "out", test=0.3, validation=0.2, seed=seed)
        parts = contents(folder / "out")
        head, *lines = records_of(text.encode())
        assert all(part[0] == head for part in parts.values())
        assert counts == {f"{name}.csv": len(part) - 1 for name, part in parts.items()}
        assert sorted(line for part in parts.values() for line in part[1:]) == sorted(lines)
        # In the order of the source, and no line in two parts.
        for part in parts.values():
            assert part[1:] == [line for line in lines if line in set(part[1:])]

    @given(rows=TABLES, data=st.data())
    @settings(max_examples=40)
    def test_order_of_rows_files_columns_and_quotes_do_not_matter(
        self, tmp_path_factory, rows, data
    ):
        rows = [(i, *row) for i, row in enumerate(rows)]
        folder = tmp_path_factory.mktemp("split")
        shuffled = data.draw(st.permutations(rows))
        order = data.draw(st.permutations(range(4)))
        cut = data.draw(st.integers(0, len(rows)))
        names = ("i", *NAMES)
        (folder / "a.csv").write_text(as_csv(rows, names), newline="")
        for path, some in (("b.csv", shuffled[:cut]), ("c.csv", shuffled[cut:])):
            quoted = [
                [f'"{str(row[i]).replace(chr(34), chr(34) * 2)}"' for i in order] for row in some
            ]
            lines = [",".join(names[i] for i in order), *map(",".join, quoted)]
            (folder / path).write_text("\n".join(lines), newline="")
        split([folder / "a.csv"], folder / "one")
        split([folder / "c.csv", folder / "b.csv"], folder / "two")
        for part in ("train.csv", "test.csv"):
            one, two = (
                {row["i"] for row in csv.DictReader(text_of(folder / where / part))}
                for where in ("one", "two")
            )
            assert one == two != set()

    @given(rows=st.integers(2, 300), test=st.floats(0.01, 0.99), seed=st.integers(0, 9))
    @settings(max_examples=30)
    def test_sizes_are_exact(self, tmp_path_factory, rows, test, seed):
        folder = tmp_path_factory.mktemp("split")
        (folder / "a.csv").write_text(numbered(rows))
        counts = split([folder / "a.csv"], folder / "out", test=test, seed=seed)
        wanted = min(max(round(test * rows), 1), rows - 1)
        assert counts == {"train.csv": rows - wanted, "test.csv": wanted}


class TestChoice:
    def test_other_seeds_choose_others(self, write, tmp_path):
        path = write(numbered(200))
        chosen = []
        for seed in range(20):
            split([path], tmp_path / str(seed), seed=seed)
            chosen.append({row["x"] for row in rows_of(tmp_path / str(seed))["test"]})
        # Each row is chosen by a fifth of the seeds: four of 20, with a standard deviation of 1.8.
        counts = Counter(x for rows in chosen for x in rows)
        assert len(set(map(frozenset, chosen))) == 20
        assert abs(np.mean([counts[str(i)] for i in range(200)]) - 4) < 1e-9
        assert 1.3 < np.std([counts[str(i)] for i in range(200)]) < 2.3

    def test_an_id_decides_alone(self, write, tmp_path):
        rows = [(i, random.Random(i).random(), "u") for i in range(50)]
        split([write(as_csv(rows))], tmp_path / "one", id="x")
        split([write(as_csv([(i, 0, "w") for i, _, _ in rows]))], tmp_path / "two", id="x")
        one, two = (
            {name: [row["x"] for row in part] for name, part in rows_of(tmp_path / where).items()}
            for where in ("one", "two")
        )
        assert one == two

    def test_an_id_in_several_classes_is_in_one_part(self, write, tmp_path):
        rows = [(i % 40, i, "abc"[i % 40 % 3 if i % 7 else 2]) for i in range(200)]
        split([write(as_csv(rows))], tmp_path / "out", stratify="kind", id="x")
        parts = {
            name: {row["x"] for row in part} for name, part in rows_of(tmp_path / "out").items()
        }
        assert not parts["test"] & parts["train"]
        assert sorted(parts["test"] | parts["train"]) == sorted(map(str, range(40)))

    def test_a_class_that_has_only_ids_of_another(self, write, tmp_path):
        table = write("x,kind\n1,b\n2,b\n1,a\n2,a\n3,a\n4,a\n")
        with pytest.raises(
            DataError, match=r"values in column x of the class 'b', and of none before it.*found 0"
        ):
            split([table], tmp_path / "out", stratify="kind", id="x")

    @given(
        kinds=st.lists(st.sampled_from("uvw"), min_size=9, max_size=120), seed=st.integers(0, 99)
    )
    @settings(max_examples=30)
    def test_each_class_is_split_by_itself(self, tmp_path_factory, kinds, seed):
        from sklearn.model_selection import StratifiedShuffleSplit

        kinds += 3 * ["u", "v", "w"]
        folder = tmp_path_factory.mktemp("split")
        (folder / "a.csv").write_text(as_csv([(i, 0, kind) for i, kind in enumerate(kinds)]))
        split([folder / "a.csv"], folder / "out", test=0.3, stratify="kind", seed=seed)
        found = Counter(row["kind"] for row in rows_of(folder / "out")["test"])
        for kind, count in Counter(kinds).items():
            assert found[kind] == max(round(0.3 * count), 1)
        # scikit-learn's counts are of the same shares, rounded so that the sum fits.
        splitter = StratifiedShuffleSplit(1, test_size=sum(found.values()), random_state=0)
        ((_, test),) = splitter.split(kinds, kinds)
        theirs = Counter(kinds[i] for i in test)
        assert all(abs(theirs[kind] - found[kind]) <= 1 for kind in "uvw")

    @given(groups=st.lists(st.integers(0, 12), min_size=3, max_size=100), seed=st.integers(0, 99))
    @settings(max_examples=30)
    def test_groups_stay_whole(self, tmp_path_factory, groups, seed):
        groups += [13, 14]
        folder = tmp_path_factory.mktemp("split")
        (folder / "a.csv").write_text(as_csv([(i, g, "u") for i, g in enumerate(groups)]))
        split([folder / "a.csv"], folder / "out", test=0.3, group="y", seed=seed)
        parts = rows_of(folder / "out")
        train, test = ({row["y"] for row in parts[name]} for name in ("train", "test"))
        assert train and test and not train & test and len(train | test) == len(set(groups))
        # No nearer number of rows is at the end of a group.
        largest = max(Counter(groups).values())
        assert abs(len(parts["test"]) - round(0.3 * len(groups))) <= largest

    @cases(
        "write_time",
        lambda day: str(day),
        lambda day: f"{day / 8:.3e}",
        lambda day: f"2024-03-{1 + day:02}",
        lambda day: f"2024-03-{1 + day:02} 12:00:00.123456789",
        lambda day: f"2024-03-{1 + day:02}T02:00:00+{day % 12:02}:00",
    )
    def test_the_latest_rows_are_the_test(self, write, tmp_path, write_time):
        days = random.Random(1).sample(range(30), 30)
        text = as_csv([(day, write_time(day), "u") for day in days])
        split([write(text)], tmp_path / "out", test=0.2, validation=0.1, time="y")
        parts = {
            name: {int(row["x"]) for row in rows}
            for name, rows in rows_of(tmp_path / "out").items()
        }
        assert parts == {
            "train": {*range(21)},
            "validation": {*range(21, 24)},
            "test": {*range(24, 30)},
        }

    def test_ties_in_time_stay_together(self, write, tmp_path):
        text = as_csv([(i, "2024-01-01" if i < 6 else "2024-01-02", "u") for i in range(10)])
        assert split([write(text)], tmp_path / "out", test=0.1, time="y")["test.csv"] == 4


class TestParquet:
    def table(self, rows=300):
        generator = np.random.default_rng(0)
        codes = pa.array(generator.integers(0, 3, rows), pa.int32())
        return pa.table(
            {
                "i": np.arange(rows),
                "x": pa.array(generator.normal(size=rows), mask=generator.random(rows) < 0.1),
                "kind": pa.DictionaryArray.from_arrays(codes, ["u", "v", "w"]),
                "day": pa.array(generator.integers(0, 900, rows), pa.int32()).cast(pa.date32()),
                "when": pa.array(np.arange(rows) * 1_000_003, pa.timestamp("ns", "UTC")),
            }
        ).replace_schema_metadata({"origin": "here"})

    @cases("options", {}, {"stratify": "kind"}, {"group": "day"}, {"time": "when"})
    def test_rows_and_schema_are_kept(self, tmp_path, monkeypatch, options):
        monkeypatch.setattr(records, "GROUP_ROWS", 50)
        table = self.table()
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=64)
        counts = split([tmp_path / "a.parquet"], tmp_path / "out", **options)
        parts = {name: pq.read_table(tmp_path / "out" / name) for name in counts}
        assert {name: len(part) for name, part in parts.items()} == counts
        assert all(part.schema.equals(table.schema, check_metadata=True) for part in parts.values())
        together = pa.concat_tables(parts.values()).unify_dictionaries().sort_by("i")
        for name in table.column_names:
            assert together[name].cast(pa.string()).equals(table[name].cast(pa.string()))
        if "time" in options:
            assert parts["test.parquet"]["i"].to_pylist() == [*range(240, 300)]

    def test_files_whose_schemas_differ_in_no_type(self, tmp_path):
        table = self.table(30)
        schema = table.schema.set(0, pa.field("i", pa.int64(), nullable=False))
        pq.write_table(table, tmp_path / "a.parquet")
        other = table.set_column(0, "i", pa.array(range(30, 60))).cast(schema)
        pq.write_table(other.replace_schema_metadata(None), tmp_path / "b.parquet")
        for paths in (["a.parquet", "b.parquet"], ["b.parquet", "a.parquet"]):
            out = tmp_path / paths[0][0]
            split([tmp_path / path for path in paths], out, time="i")
            assert pq.read_table(out / "test.parquet")["i"].to_pylist() == [*range(48, 60)]

    @pytest.mark.parametrize("options", [{}, {"id": "i"}])
    def test_numbers_of_rows_that_one_file_lacks(self, tmp_path, options):
        """Those that pandas adds are no part of a table, but are copied."""
        table = self.table(30).select(["i"])
        pq.write_table(table.append_column("__index_level_0__", table["i"]), tmp_path / "a.parquet")
        pq.write_table(table, tmp_path / "b.parquet")
        paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
        with pytest.raises(DataError, match=r"b.parquet and /.*: __index_level_0__ is a column"):
            split(paths, tmp_path / "out", **options)

    def test_columns_of_lists_need_an_id(self, tmp_path):
        table = pa.table({"x": [[1, 2], [3, 4], [5, 6]], "i": [1, 2, 3]})
        pq.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(UsageError, match="Name a column of IDs with --id"):
            split([tmp_path / "a.parquet"], tmp_path / "out")
        split([tmp_path / "a.parquet"], tmp_path / "out", id="i")
        assert len(pq.read_table(tmp_path / "out" / "test.parquet")) == 1


class TestFiles:
    def test_gzip_bom_and_empty_lines(self, write, tmp_path):
        plain = write("\n".join(["x,y", *(f"{i},{i}" for i in range(20))]))
        text = "\ufeffx,y\r\n" + "\r\n\r\n".join(f"{i},{i}" for i in range(20))
        packed = write(gzip.compress(text.encode()), "b.csv")
        split([plain], tmp_path / "one")
        split([packed], tmp_path / "two")
        one, two = (contents(tmp_path / name) for name in ("one", "two"))
        for name in ("train", "test"):
            assert two[name][0] == "\ufeffx,y\r\n".encode()
            assert [line.rstrip() for line in one[name][1:]] == [x.rstrip() for x in two[name][1:]]
            assert all(line.endswith(b"\r\n") for line in two[name])

    def test_no_header(self, write, tmp_path):
        path = write("\n".join(f"{i},{i % 2}" for i in range(20)))
        # Numbers alone are a row, and so is a line whose column is named by its number.
        for name, options in (("said", {"header": False}), ("seen", {})):
            assert split([path], tmp_path / name, stratify="2", **options)["test.csv"] == 4
            assert len((tmp_path / name / "train.csv").read_text().split()) == 16
        mixed = write("\n".join(f"a{i},{i % 2}" for i in range(20)), "b.csv")
        with pytest.raises(UsageError, match="--header or --no-header"):
            split([mixed], tmp_path / "out")
        assert split([mixed], tmp_path / "out", stratify="2")["test.csv"] == 4

    @pytest.mark.usefixtures("small_blocks")
    @pytest.mark.parametrize("columns", [("x",), ("x", "y")])
    @cases(
        "bad, message",
        ('1,"a\nb"c', r'row 31: a quote, ", is left open\. Close it, or say --quote'),
        ('1,"a', r'row 31: a quote, ", is left open\. Close it, or say --quote'),
        ("1,2,3", "row 31: expected 2 fields, found 3"),
        ("1", "row 31: expected 2 fields, found 1"),
        ("1,a\rb", "row 32: expected 2 fields, found 1"),
    )
    def test_malformed_rows(self, write, tmp_path, bad, message, columns):
        lines = [f"{i},{i}" for i in range(30)]
        path = write("\n".join([",".join(("x", "y")), *lines, bad, *lines]) + "\n")
        with pytest.raises(DataError, match=message):
            split([path], tmp_path / "out", id=columns[0] if len(columns) == 1 else None)
        assert not (tmp_path / "out").exists()

    @pytest.mark.usefixtures("small_blocks")
    @cases("deciding", {}, {"stratify": "größe"}, {"group": "größe"}, {"time": "x"}, {"id": "x"})
    def test_other_signs_and_encodings_give_the_same_parts(self, write, tmp_path, deciding):
        rows = [(i / 8, ("ä", "é;", "ö'", "ü")[i % 4], i * i % 7) for i in range(60)]
        names = ("x", "größe", "y")
        plain = as_csv(rows, names)
        file = io.StringIO()
        signs = {"delimiter": ";", "quote": "'", "encoding": "latin-1", "decimal": ","}
        writer = csv.writer(file, delimiter=";", quotechar="'", lineterminator="\r\n")
        shown = [(str(x).replace(".", ","), *rest) for x, *rest in rows]
        writer.writerows([names, *(shown if "time" in deciding else rows)])
        raw = file.getvalue().encode("latin-1")
        split([write(plain)], tmp_path / "one", **deciding)
        split([write(gzip.compress(raw), "b.csv")], tmp_path / "two", **deciding, **signs)
        one, two = (contents(tmp_path / name) for name in ("one", "two"))
        place = dict(zip(plain.encode().splitlines(True), raw.splitlines(True), strict=True))
        assert {name: [*map(place.get, part)] for name, part in one.items()} == two

    def test_tabs_of_tsv(self, write, tmp_path):
        text = numbered(40).replace(",", "\t")
        paths = [write(text, "a.tsv"), write(gzip.compress(text.encode()), "b.tsv.gz")]
        assert split(paths, tmp_path / "out", stratify="kind").keys() == {"train.tsv", "test.tsv"}
        assert b"kind\n" in contents(tmp_path / "out")["test"][0]
        assert split([write(text)], tmp_path / "other", delimiter="\t", group="kind")["test.tsv"]

    def test_a_decimal_comma_shows_a_row(self, write, tmp_path):
        path = write("1,5;2,5\n3,5;4,5\n")
        counts = split([path], tmp_path / "out", delimiter=";", decimal=",")
        assert sum(counts.values()) == 2

    def test_signs_are_not_for_parquet(self, tmp_path):
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
        with pytest.raises(UsageError, match="--delimiter is for csv, not for parquet"):
            split([tmp_path / "a.parquet"], tmp_path / "out", delimiter=";")

    WRONG_OPTIONS = (
        ("x,y\n1,2\n3,4\n", {"stratify": "Y"}, r"--stratify Y: .*has no such column, but x, y"),
        ("first,y\n1,2\n3,4\n", {"id": "frist"}, r"Did you mean first\?"),
        ("x,y\n1,2\n3,4\n", {"test": 0.0}, "expected shares between 0 and 1"),
        ("x,y\n1,2\n3,4\n", {"test": float("nan")}, "expected shares between 0 and 1"),
        ("x,y\n1,2\n3,4\n", {"test": 0.7, "validation": 0.3}, "leave rows to train on"),
        ("x,y\n1,2\n3,4\n", {"group": "x", "time": "y"}, "expected one of --stratify, --group"),
        ("x,y\n1,2\n", {"encoding": "utf-16"}, "lines cannot be found in it"),
        ("x,y\n1,2\n", {"delimiter": ";;"}, "expected one ASCII character"),
        ("x,y\n1,2\n", {"quote": ","}, "a quote that is none of the others"),
        ("x,y\n1,2\n", {"decimal": ";"}, "decimal: expected one of"),
    )
    WRONG_DATA = (
        ("x,y\n1,2\n3,\n", {"stratify": "y"}, "row 2, column y: expected a value, found nothing"),
        ("x,y\n1,2\n ,4\n", {"group": "x"}, "row 2, column x: expected a value, found nothing"),
        ("x,y\n1,2\n3,\n", {"time": "y"}, "row 2, column y: expected a value, found nothing"),
        (
            "x,y\n1,2\n3,a\n",
            {"time": "y"},
            "row 2, column y: expected a time such as 12.5, found 'a'",
        ),
        ("x,y\n1,2\n3,nan\n", {"time": "y"}, "row 2, column y: expected a time, found nan"),
        ("x,y\n1,then\n", {"time": "y"}, "row 1, column y: expected a time such as 2024"),
        ("x,y\n1,2024-02-30\n", {"time": "y"}, "row 1, column y: expected a time such as 2024"),
        ("x,y\n1,2\n3,2\n", {"group": "y"}, "at least 2 different values in column y, .*found 1"),
        ("x,y\n1,2\n3,2\n", {"time": "y"}, "at least 2 different values in column y, .*found 1"),
        ("x,y\n1,2\n3,2\n4,5\n", {"stratify": "y"}, "different rows of the class '5'.*found 1"),
        ("x,y\n1,2\n1,2\n", {}, "at least 2 different rows, one for each part, found 1"),
        ("x,y\n", {}, "has no rows"),
        ("", {}, "is empty"),
        ("x,x\n1,2\n3,4\n", {}, "two columns have the same name"),
        ("x;y\n1;2\n", {}, "has one column, 'x;y'. Say --delimiter ';' if"),
        ("x\ty\n1\t2\n", {}, r"Say --delimiter \$'\\t' if"),
        ("x;y\n1;2\n1;2;3\n", {"delimiter": ";"}, "row 2: expected 2 fields"),
        (b"x,y\n1,2\n1,\xff\n", {}, "row 2, column y: .* is not UTF-8 text. Say --encoding"),
        ("x,y\n1,ü\n", {"encoding": "ascii"}, "row 1: it is not ascii text: .* Say --encoding"),
        ("ü,y\n1,2\n", {"encoding": "ascii"}, "a.csv is not ascii text: .* Say --encoding"),
        ("x,y\n1,'2,5'\n", {"quote": "'", "time": "y"}, "'2,5'. Say --decimal ,"),
        (
            "x;y\n1;2,5\n2;z\n",
            {"delimiter": ";", "decimal": ",", "time": "y"},
            "row 2, column y: expected a time such as 12.5, found 'z'",
        ),
    )

    @cases(
        "error, text, options, message",
        *((UsageError, *row) for row in WRONG_OPTIONS),
        *((DataError, *row) for row in WRONG_DATA),
    )
    def test_wrong_options_and_data(self, write, tmp_path, error, text, options, message):
        with pytest.raises(error, match=message):
            split([write(text)], tmp_path / "out", **options)
        assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]

    def test_files_that_do_not_fit(self, write, tmp_path):
        first, other = write(numbered(5)), write("x,z\n1,2\n", "b.csv")
        with pytest.raises(DataError, match="they cannot be in one dataset"):
            split([first, other], tmp_path / "out")
        pq.write_table(pa.table({"x": [1]}), tmp_path / "c.parquet")
        with pytest.raises(UsageError, match="some files are Parquet"):
            split([first, tmp_path / "c.parquet"], tmp_path / "out")
        with pytest.raises(MissingInputError):
            split([tmp_path / "d.csv"], tmp_path / "out")
        with pytest.raises(OutputError, match="exists already"):
            split([first], other)

    def test_a_file_that_changes(self, write, tmp_path, monkeypatch):
        path, copy = write(numbered(50)), records.copy

        def change(*arguments):
            write(numbered(60))
            copy(*arguments)

        monkeypatch.setattr("mapreduce.data.splitting.copy", change)
        with pytest.raises(DataError, match="changed while they were read"):
            split([path], tmp_path / "out")
        assert not (tmp_path / "out").exists()


class TestCommand:
    def test_says_what_it_wrote(self, write, tmp_path):
        out = tmp_path / "out"
        done = CliRunner().invoke(cli, ["data", "split", str(write(numbered(50))), str(out)])
        assert done.output == f"{out}/train.csv: 40 rows\n{out}/test.csv: 10 rows\n"

    def test_errors(self, write, tmp_path, answer):
        path = str(write(numbered(50)))
        assert (
            "Did you mean kind?"
            in answer(2, "data", "split", path, tmp_path / "out", "--stratify", "kinds").err
        )
        assert main(["data", "split", path, path]) == 73
