import json
import shlex
import tracemalloc

import numpy as np
import pytest

from mapreduce.data.importer import import_rows
from mapreduce.data.readers import csv, opening, records
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.data.splitting import split
from mapreduce.errors import DataError, UsageError
from quick import cases
from reading import rows_in, rows_of, source_of


def decode(paths, label=None, labelled=True, **fields):
    found = rows_of("csv", paths, label, labelled=labelled, **fields)
    labels = None if found.labels is None else found.labels.tolist()
    assert (labels is None) == (not labelled)
    return found.features.tolist(), labels


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(csv, "BLOCK_BYTES", 64)


@cases(
    "text, label, expected, column",
    ("x,y,z\n1,2,3\n", None, ([[1, 2]], ["3"]), "z"),
    ("x,label,z\n1,2,3\n", None, ([[1, 3]], ["2"]), "label"),
    ("x,label,z\n1,2,3\n", "x", ([[2, 3]], ["1"]), "x"),
    (" x , y\n1,2\n", "x", ([[2]], ["1"]), "x"),
    ("z,label,a\n1,2,3\n", None, ([[1, 3]], ["2"]), "label"),
    # A column without a name is called "column 1".
    (",a,label\n0,5,u\n1,6,v\n", None, ([[0, 5], [1, 6]], ["u", "v"]), "label"),
    ("1,2,3\n4,5,6\n", None, ([[1, 2], [4, 5]], ["3", "6"]), "3"),
    ("1,2,3\n4,5,6\n", "1", ([[2, 3], [5, 6]], ["1", "4"]), "1"),
    # Words and numbers in one line: a header by the label's name, a row by its number.
    ("label,0,1\nu,5,6\n", None, ([[5, 6]], ["u"]), "label"),
    ("0,1,kind\n5,6,u\n", "kind", ([[5, 6]], ["u"]), "kind"),
    ("5,6,u\n7,8,v\n", "3", ([[5, 6], [7, 8]], ["u", "v"]), "3"),
    # Numbers alone: a column's name or number tells, if it is not both.
    ("1990,2015,2020\n5,6,7\n", "2020", ([[5, 6]], ["7"]), "2020"),
    ("land,2015,2020\n4,5,6\n", "2020", ([[4, 5]], ["6"]), "2020"),
    ("0.5,7,9\n5,6,8\n", "7", ([[5, 8]], ["6"]), "7"),
    ("0,1,2\n5,6,7\n", "3", ([[0, 1], [5, 6]], ["2", "7"]), "3"),
)
def test_header_and_label(write, text, label, expected, column):
    path = write(text)
    assert decode([path], label) == expected
    source = source_of("csv", [path], label)
    assert source.description == {"format": "csv", "files": ["a.csv"]}
    list(source.chunks)
    assert json.loads(source.finish().recipe)["recipe"]["label"] == column


NO_LABEL = (
    "{}: no column is called label. Name the column to be predicted, --label NAME, or say "
    "--unlabelled. The columns are "
)
NO_COLUMN = "{} has no such column; it has "
NO_HEADER = "1, 2. Say --header if its first line has the names"


@cases(
    "text, fields, message",
    ("x,y\n1,2\n", {}, f"{NO_LABEL}x, y"),
    ("x,Label\n1,2\n", {}, f"{NO_LABEL}x, Label"),
    ("1,2\n3,4\n", {}, NO_LABEL + NO_HEADER),
    ("x,y\n1,2\n", {"label": "z"}, f"--label z: {NO_COLUMN}x, y."),
    ("1,2\n3,4\n", {"label": "3"}, f"--label 3: {NO_COLUMN}{NO_HEADER}"),
    ("x,y\n1,2\n", {"label": "y", "weights": "z"}, f"--weights z: {NO_COLUMN}x, y."),
    (
        *("x,y\n1,2\n", {"label": "y", "weights": "y"}),
        "--label and --weights are both y: name two columns",
    ),
)
def test_columns_that_are_not_there_or_have_two_roles(write, text, fields, message):
    path = write(text)
    with pytest.raises(UsageError) as caught:
        opening.table([path], "csv", Recipe(**fields))
    assert str(caught.value) == message.format(path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("text", "rows"), [("x,label\n1,2\n", 1), ("1,2\n3,4\n", 2)])
def test_without_labels(write, text, rows):
    features, _ = decode([write(text)], labelled=False)
    assert np.shape(features) == (rows, 2)


@cases(
    "text",
    "x,y,label\r\n1,2,a\r\n3,4,b\r\n",
    "x,y,label\r1,2,a\r3,4,b\r",
    "\ufeffx,y,label\n1,2,a\n3,4,b\n",
    "x,y,label\n1,2,a\n3,4,b",
    "x,y,label\n\n1,2,a\n\n\n3,4,b\n\n",
    'x,"y",label\n"1",2,"a"\n3,"4",b\n',
    "x,y,label\n 1, 2, a\n3 ,4\t,b \n",
    "x,y,label\n+1,2e0,a\n3.,0.4e1,b\n",
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_ways_to_write_the_same(write, text, packed):
    expected = [[1, 2], [3, 4]], ["a", "b"]
    assert decode([write(text, packed=packed)]) == expected


def test_byte_order_mark_without_header(write):
    assert decode([write("\ufeff1,2\n3,4\n")]) == ([[1], [3]], ["2", "4"])
    with pytest.raises(DataError, match=r"column 1: 2 of its 3 fields are numbers, .* 'x'"):
        decode([write("\ufeff1,2\n5,6\nx,4\n")])


def test_quoted_labels(write):
    text = 'x,label\n1,"a,b"\n2,"say ""hi"""\n3,Zürich\n4,NA\n5,null\n'
    assert decode([write(text)])[1] == ["a,b", 'say "hi"', "Zürich", "NA", "null"]


@cases(
    "labels, classes",
    (["10", "9", " 2"], (2, 9, 10)),
    (["10", "9", "2.0"], (2, 9, 10)),
    (["1", "-0.0", "1.0", "1.", "0"], (0, 1)),
    (["1.5", "1.0", "x"], ("1.0", "1.5", "x")),
    (["10", "09", "2"], ("09", "10", "2")),
    (["b", "a", "10"], ("10", "a", "b")),
    (["1", "9223372036854775809"], ("1", "9223372036854775809")),
    (["-1", "9223372036854775808", "10", "9"], ("-1", "10", "9", "9223372036854775808")),
    (["9223372036854775807", "-9223372036854775808"], (-(2**63), 2**63 - 1)),
    (["1" * 900, "2"], ("1" * 900, "2")),
    (["1", "01", "true"], ("01", "1", "true")),
)
def test_classes(write, tmp_path, labels, classes):
    text = "x,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels))
    written = import_rows(source_of("csv", [write(text)]), tmp_path / "out", 0)
    assert written.classes == classes
    features, found, *_ = rows_in(tmp_path / "out")
    kind = (
        str if type(classes[0]) is str else lambda text: int(float(text) if "." in text else text)
    )
    assert [kind(labels[int(i)].strip()) for i in features[:, 0]] == found.tolist()
    assert sum(written.class_rows) == len(labels)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_parsed_exactly(write, dtype):
    numbers = ["0.1", "-1e-30", "3.14159265358979", "16777217", "1e38", "5e-324", "-0.0"]
    path = write(",".join(numbers) + "\n")
    features = rows_of("csv", [path], labelled=False, dtype=dtype).features
    assert features.dtype == dtype
    assert features.tobytes() == np.array([numbers]).astype("f8").astype(dtype).tobytes()


def test_several_files(write):
    one = write("x,label\n1,a\n2,b\n", "one.csv")
    two = write("x,label\r\n3,a\r\n", "two.csv.gz", packed=True)
    assert decode([one, two, one])[0] == [[1], [2], [3], [1], [2]]
    assert source_of("csv", [one, two]).bytes > one.stat().st_size


@cases(
    "first, second",
    ("x,label\n1,2\n", "x,z,label\n1,2,3\n"),
    ("x,label\n1,2\n", "1,2\n3,4\n"),
    ("1,2\n3,4\n", "1,2,3\n4,5,6\n"),
)
def test_files_of_other_columns(write, first, second):
    paths = [write(first, "one.csv"), write(second, "two.csv")]
    with pytest.raises(DataError, match=f"{paths[1]} has the columns .*, {paths[0]} ") as caught:
        source_of("csv", paths)
    assert caught.value.exit_code == 65


def test_header_only_in_a_later_file(write):
    paths = [write("1,2\n3,4\n", "one.csv"), write("x,label\n1,2\n", "two.csv")]
    with pytest.raises(DataError, match=r"one\.csv, two\.csv, column 1: 3 of its 4 .*: 'x'"):
        decode(paths)


@pytest.mark.parametrize("before", [0, 1, 60], ids="{} rows before".format)
@pytest.mark.parametrize("word", ["x", "1.2.3", "1_000", "0x1F", "-", "1 2", "١", "?"])
def test_word_among_numbers(write, small_blocks, before, word):
    path = write("x,y,label\n" + "1,2,a\n" * before + f"1,{word},b\n" + "1,2,c\n" * 100)
    with pytest.raises(DataError) as caught:
        decode([path])
    advice = "--thousands _" if word == "1_000" else "--number y"
    assert str(caught.value) == (
        f"a.csv, column y: {before + 100:,} of its {before + 101:,} fields are numbers, others are "
        f"not: {word!r}. Say {advice} if these are numbers with other signs in "
        f"them, --na {shlex.quote(word)} if that stands for a missing number, --category y "
        f"if all are names, or --drop y"
    )
    features, _ = decode([path], na=(word,))
    assert [row[1:] for row in features] == [[2, 0]] * before + [[2, 1]] + [[2, 0]] * 100


@pytest.mark.parametrize("before", [0, 1, 60], ids="{} rows before".format)
@pytest.mark.parametrize("word", ["", '""', " ", "NA", "null", "nan", "NaN", "-nan", " N/A "])
def test_missing_number(write, small_blocks, before, word):
    path = write("x,y,label\n" + "1,2,a\n" * before + f"1,{word},b\n" + "1,5,c\n" * 200)
    features, _ = decode([path])
    assert [row[1:] for row in features] == [[2, 0]] * before + [[5, 1]] + [[5, 0]] * 200
    with pytest.raises(DataError) as caught:
        decode([path], missing="error")
    assert str(caught.value) == (
        f"{path}, row {before + 1}, column y: the field is missing. Say what to do with --missing, "
        f"or leave the column out: --drop y"
    )
    features, labels = decode([path], missing="drop")
    assert features == [[1, 2]] * before + [[1, 5]] * 200
    assert labels == ["a"] * before + ["c"] * 200


@pytest.mark.parametrize("before", [0, 1, 60], ids="{} rows before".format)
@cases(
    "rows, told",
    (["1"], ": expected 3 fields, found 1"),
    (["1,2"], ": expected 3 fields, found 2"),
    (["1,2,a,4", "1,2,a,"], ": expected 3 fields, found 4"),
    (["1,inf,a", "1,1e400,a"], ", column y: expected a finite number, found inf"),
    (["1,-Infinity,a"], ", column y: expected a finite number, found -inf"),
    (["1,2,", "1,2, ", '1,2,""'], ", column label: expected a label"),
)
def test_bad_row(write, small_blocks, before, rows, told):
    for row in rows:
        path = write("x,y,label\n" + "1,2,a\n" * before + f"{row}\n" + "1,2,c\n" * 100)
        with pytest.raises(DataError) as caught:
            decode([path])
        assert str(caught.value).startswith(f"{path}, row {before + 1}{told}")


@cases(
    "first",
    *("0,1,2,3", "0,1", "1,2,3,4", ",0,1,2", '"0","1"', "5.1,3.5,setosa", "0,1,kind", "?,1,2"),
    *("2019,2020,2021", ",1990,2020"),
)
def test_line_that_may_be_header_or_row_is_not_guessed(write, first):
    columns = first.split(",")
    path = write(first + "\n" + ",".join("5" * len(columns)) + "\n")
    for labelled in (True, False):
        with pytest.raises(
            UsageError, match=f"{path}: the first line, .* may be a header or a row"
        ):
            opening.table([path], "csv", Recipe(labelled=labelled))
    assert decode([path], header=True)[1] == ["5"]
    if columns[0]:
        assert decode([path], header=False)[1] == [columns[-1].strip('"'), "5"]


def test_text_in_the_column_of_labels(write):
    path = write("x,label\n" + "1,a\n" * 20_000 + f"2,{'b' * 300_000}\n")
    tracemalloc.start()
    with pytest.raises(DataError) as caught:
        decode([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(caught.value).startswith(
        f"{path}, row 20001, column label: expected a class of at most 1,000 characters, found 300,"
    )
    assert peak < 20 << 20
    # Each text takes its own room, not that of the longest.
    (chunk,) = source_of("csv", [write(f"x,label\n1,a\n2,{'b' * 999}\n")]).chunks
    assert chunk.labels.dtype == object


def test_row_numbers_without_header_and_with_blank_lines(write):
    path = write("1,2,3\n\n4,5,6\n\n7,inf,9\n")
    with pytest.raises(DataError, match="row 3, column 2: expected a finite number, found inf"):
        decode([path])


@pytest.mark.parametrize(("block", "after"), [(64, 50), (4 << 20, 50), (4 << 20, 25_000)])
@pytest.mark.parametrize("close", ["", 'b"\n1,2,c\n'], ids=["open", "closed later"])
def test_quote_left_open_does_not_swallow_rows(write, monkeypatch, block, after, close):
    monkeypatch.setattr(csv, "BLOCK_BYTES", block)
    path = write("x,y,label\n" + "1,2,a\n" * 50 + '1,2,"a\n' + "1,2,b\n" * after + close)
    with pytest.raises(DataError, match=f"^{path}, row 51") as caught:
        decode([path])
    assert ("close its quote" if close else "is left open. Close it") in str(caught.value)


@pytest.mark.parametrize("content", ["", "x,label\n", "x,label\n1,a\n2,b\n"])
def test_a_line_that_does_not_end(write, monkeypatch, tmp_path, small_blocks, content):
    monkeypatch.setattr(records, "LONGEST_LINE", 256)
    path = write(content + "1" * 999)
    for read in (lambda: decode([path]), lambda: split([path], tmp_path / "out")):
        with pytest.raises(DataError, match=f"{path}: a line is longer than 0 MiB. Is it a text"):
            read()


def test_a_long_line_comes_whole(write, small_blocks):
    found = decode([write("x,label\n1,a\n" + "2" + " " * 999 + ",b\n3,c\n")])
    assert found == ([[1], [2], [3]], ["a", "b", "c"])


@cases(
    "content, complaint",
    ("", "is empty: expected rows of fields"),
    ("\n1,2\n", "starts with an empty line"),
    (b"PK\x03\x04" + bytes(99), "ZIP, or a workbook of Excel"),
    ('"x\ny,label\n1,2\n', 'line 1: a quote, ", is left open'),
    ('"x\ny"z,label\n1,2\n', 'line 1: a quote, ", is left open'),
    ("x,y,label\n", "has no rows after its header, x, y, label"),
    ("x,y,label", "has no rows after its header"),
    ("x,y,label\n\n\r\n", "has no rows after its header"),
    ("x,y,x\n1,2,3\n", "two columns have the same name, x, in x, y, x"),
    ("label\n1\n", "has no column that can be a feature: label"),
    ("1\n2\n", "has no column that can be a feature: 1"),
    (bytes(range(256)), "is UTF-16 text, or none"),
    ("é,label\n1,2\n".encode("latin-1"), "is not utf-8 text: .* Say --encoding, such as la"),
    ("x,label\n1,é\n".encode("utf-16"), "is UTF-16 text, or none. .* iconv -f utf-16 -t utf"),
    ("x,label\n1,é\n".encode("utf-16-le"), "is UTF-16 text, or none"),
    ('"' + "x" * 200_000 + '",y\n', "has no rows after its header"),
    ids=lambda value: repr(value[:12]),
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_file_that_is_no_table(write, content, complaint, packed):
    path = write(content, packed=packed)
    with pytest.raises(DataError, match=complaint) as caught:
        source_of("csv", [path])
    assert str(caught.value).startswith(str(path))


@cases(
    "row, complaint",
    (b"1,2,caf\xe9\n", "row 5001, column label: 'caf.udce9' is not UTF-8 text"),
    (b"1,\xe9,cafe\n", "row 5001, column y: '.udce9' is not UTF-8 text"),
    ids=["label", "feature"],
)
def test_other_encoding_far_into_the_file(write, row, complaint):
    path = write(b"x,y,label\n" + b"1,2,c\n" * 5000 + row)
    with pytest.raises(DataError, match=f"{path}, {complaint}"):
        decode([path])


@cases(
    "text, fields, expected",
    # Numbers to be predicted keep the digits of the file, whatever the features' type.
    ("x,w,label,y\n1,2,0.1,3\n4,0,-1e3,6\n", {"weights": "w"}, [[[1, 3], [4, 6]], [0.1, -1e3]]),
    ("1,0.1,2\n4,0.2,0\n", {"weights": "3"}, [[[1], [4]], [0.1, 0.2]]),
    ("x,y,w\n1,a,2\n4,b,0\n", {"label": "y", "weights": "w"}, [[[1], [4]], ["a", "b"]]),
)
def test_numbers_to_be_predicted_and_weights(write, text, fields, expected):
    task = "classification" if "a" in expected[1] else "regression"
    found = rows_of("csv", [write(text)], task=task, **fields)
    assert [found.features.tolist(), found.labels.tolist()] == expected
    assert (found.weights.tolist(), found.weights.dtype) == ([2, 0], np.float64)


@cases(
    "text, expected",
    ("x,y,w\n1,2,1\n1,a,1\n", "row 2, column y: expected a finite number, found 'a'"),
    ("x,y,w\n1,2,1\n1,,1\n", "row 2, column y: expected a finite number, found nothing"),
    ("x,y,w\n1,nan,1\n", "row 1, column y: expected a finite number, found nan"),
    ("x,y,w\n1,2,inf\n", "row 1, column w: expected a finite number, found inf"),
    ("x,y,w\n1,2,\n", "row 1, column w: expected a finite number, found nothing"),
    ("x,y,w\n1,2,heavy\n", "row 1, column w: expected a finite number, found 'heavy'"),
)
def test_bad_numbers_to_be_predicted_and_weights(write, text, expected):
    path = write(text)
    with pytest.raises(DataError) as caught:
        rows_of("csv", [path], label="y", task="regression", weights="w")
    assert f"{path}, {expected}" in str(caught.value)


def test_a_label_and_weights_are_no_features(write):
    with pytest.raises(DataError, match="no column that can be a feature: x, y"):
        source_of("csv", [write("x,y\n1,2\n")], label="y", weights="x")
