"""The libsvm reader; oracle: scikit-learn's."""

import io
import math

import numpy as np
import pytest
import scipy.sparse
from hypothesis import example, given, strategies as st

from mapreduce.data.importer import import_rows
from mapreduce.data.readers import libsvm
from mapreduce.errors import DataError, UsageError
from reading import rows_in, theirs

FILE = "a.svm"


def decode(paths, task="regression", dtype="float64", **options):
    chunks = list(libsvm.source(paths, task, dtype, **options).chunks)
    features = [theirs(chunk.features) for chunk in chunks]
    labels = [chunk.labels for chunk in chunks]
    return scipy.sparse.vstack(features, "csr"), None if task is None else np.concatenate(labels)


def equal(found, expected):
    """Bit for bit, with stored zeros."""
    return (
        found.shape == expected.shape
        and np.array_equal(found.indptr, expected.indptr)
        and np.array_equal(found.indices, expected.indices)
        and found.data.tobytes() == expected.data.tobytes()
    )


TEXTS = {
    "plain": "1 1:0.5 3:2\n-1 2:1e-3\n",
    "plus": "+1 1:+0.5 3:+2\n-1 2:+1e-3\n",
    "no last line feed": "1 1:0.5 3:2\n-1 2:7",
    "carriage returns": "1 1:0.5 3:2\r\n-1 2:7\r\n",
    "tabs and spaces": "  1\t1:0.5   3:2 \n\t-1 2:7\t\n",
    "comments": "# head: 3:4\n1 1:0.5 3:2 # 9:9\n-1 2:7#x\n#\n",
    "empty lines": "\n\n1 1:0.5\n\n  \n-1 3:7\n\n",
    "rows without entries": "1\n-1 3:7\n1\n0 \n",
    "stored zeros": "1 1:0 3:-0.0\n-1 2:0\n",
    "short numbers": "1. 1:.5 3:2.\n-.0 2:1E5\n",
    "leading zeros": "01 001:0.5 3:2\n",
    "many digits": "1 1:0.1000000000000000055511151231257827 3:123456789012345678901234567890\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_texts_that_both_readers_take(write, monkeypatch, text, block):
    from sklearn.datasets import load_svmlight_file

    monkeypatch.setattr(libsvm, "BLOCK_BYTES", block)
    features, labels = load_svmlight_file(io.BytesIO(text.encode()), zero_based=False)
    found, found_labels = decode([write(text)])
    assert equal(found, features)
    assert found_labels.tobytes() == labels.tobytes()
    assert equal(decode([write(text)], zero_based=True)[0][:, 1:], features)


# The oracle writes 16 digits, which makes the largest number an infinite one.
values = st.floats(-1e308, 1e308) | st.sampled_from([0.0, -0.0, 1.0])
rows = st.lists(
    st.tuples(values, st.dictionaries(st.integers(0, 12), values, max_size=6)), min_size=1
)


@given(rows=rows, zero_based=st.booleans(), block=st.integers(1, 200))
def test_what_the_oracle_writes(tmp_path_factory, rows, zero_based, block):
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file

    # The oracle wants at least one entry.
    rows = [*rows, (1.0, {12: 1.0})]
    lengths = [len(entries) for _, entries in rows]
    indices = [index for _, entries in rows for index in sorted(entries)]
    data = [entries[index] for _, entries in rows for index in sorted(entries)]
    matrix = scipy.sparse.csr_array(
        (np.float64(data), np.int32(indices), np.cumsum([0, *lengths], dtype=np.int32)),
        (len(rows), 13),
    )
    labels = np.array([label for label, _ in rows])
    path = tmp_path_factory.getbasetemp() / "drawn.svm"
    # The oracle adds all numbers, to see whether they are finite.
    with np.errstate(invalid="ignore"):
        dump_svmlight_file(matrix, labels, str(path), zero_based=zero_based)
    expected, expected_labels = load_svmlight_file(str(path), n_features=13, zero_based=zero_based)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libsvm, "BLOCK_BYTES", block)
        found, found_labels = decode([path], features=13, zero_based=zero_based)
    assert equal(found, expected)
    assert found_labels.tobytes() == expected_labels.tobytes()


@given(st.text(alphabet="0123 :.-+e\n\tx", max_size=30))
@example("1 1e2:3\n")
@example(".")
@example("1e")
@example("1 1:")
@example("1 1:.")
@example("1 +1:3\n")
@example("+-1 1:+-3\n")
@example("1 1 :2\n")
@example(":1\n")
@example("1 :\n")
@example("1 99999999999:1\n")
@example("1e20 1:1\n")
def test_a_block_has_rows_or_a_line_with_a_fault(text):
    block = text.encode() + b"\n"
    form = libsvm.Form("classification", "float32", 20, 1)
    faults = [form._fault_of(*fields) for line in block.split(b"\n") if (fields := line.split())]
    rows = form.parse(block)
    assert (rows is None) == any(faults)
    if rows is not None:
        assert len(rows.labels) == len(rows.features) == len(faults)


BAD = [
    ("1 0:2\n", {}, "line 1: expected an index from 1 on (--zero-based, if the first is 0), found"),
    ("1 1:2\n1 3:1 2:1\n", {}, "line 2: expected an index above the one before, 3, found '2:1'"),
    ("1 1:2\n1 2:1 2:1\n", {}, "line 2: expected an index above the one before, 2, found '2:1'"),
    ("1 1:2 9:1\n", {"features": 8}, "line 1: expected an index from 1 to 8 (--features 8), found"),
    ("1 7:2 8:1\n", {"features": 8, "zero_based": True}, "expected an index from 0 to 7 (--fea"),
    ("1 -1:2\n1 1:1\n", {}, "line 1: expected index:value, found '-1:2'"),
    ("1 1.0:2\n", {}, "line 1: expected index:value, found '1.0:2'"),
    ("1 1e1:2 11:1\n", {}, "line 1: expected index:value, found '1e1:2'"),
    ("1 x:2 11:1\n", {}, "line 1: expected index:value, found 'x:2'"),
    ("1 1:2\n\n# x\n1 3\n1 1:1\n", {}, "line 4: expected index:value, found '3'"),
    ("1 1:2:3\n", {}, "expected index:value with a number as value, found '1:2:3'"),
    ("1 1:\n", {}, "expected index:value with a number as value, found '1:'"),
    ("1 1: 2\n", {}, "expected index:value with a number as value, found '1:'"),
    ("1 1:1_0\n", {}, "expected index:value with a number as value, found '1:1_0'"),
    ("1 1:0x1\n", {}, "expected index:value with a number as value, found '1:0x1'"),
    ("1 1:--1\n", {}, "expected index:value with a number as value, found '1:--1'"),
    ("1 1:nan\n", {}, "expected index:value with a finite float32 as value, found '1:nan'"),
    ("1 1:-INF\n", {}, "expected index:value with a finite float32 as value, found '1:-INF'"),
    ("1 1:1e39\n", {}, "expected index:value with a finite float32 as value, found '1:1e39'"),
    ("1 1:1e309\n", {"dtype": "float64"}, "with a finite float64 as value, found '1:1e309'"),
    ("1:2 2:3\n", {}, "line 1: expected a label before the first index:value, found '1:2'"),
    ("1 1:1\nspam 1:2\n", {}, "line 2: expected a finite number as label, found 'spam'"),
    ("1,2 1:2\n", {}, "line 1: expected a finite number as label, found '1,2'"),
    ("nan 1:2\n", {"task": "regression"}, "line 1: expected a finite number as label, found 'nan'"),
    ("1e309 1:2\n", {"task": "regression"}, "expected a finite number as label, found '1e309'"),
    ("0.5 1:2\n", {}, "expected an integer as class (numbers to be predicted need --task regres"),
    ("1 qid:3 1:2\n", {}, "line 1: expected no qid, since there are no groups of rows"),
    (b"\x80\xff 1:2\n", {}, r"expected a finite number as label, found '\\x80\\xff'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options", "expected"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("block", [3, 1 << 20])
def test_bad_line(write, monkeypatch, text, options, expected, block):
    monkeypatch.setattr(libsvm, "BLOCK_BYTES", block)
    options = {"task": "classification", "dtype": "float32", **options}
    with pytest.raises(DataError) as caught:
        decode([write("1 1:1\n", "good.svm"), write(text)], **options)
    assert "a.svm, line " in str(caught.value)
    assert expected in str(caught.value)


def test_classes_weights_of_the_oracle_and_float32(write, tmp_path):
    from sklearn.datasets import load_svmlight_file

    text = "+1 1:0.1 3:2\n-1 2:1\n1.0 1:3\n"
    written = import_rows(
        libsvm.source([write(text)], "classification", "float32"), tmp_path / "out", seed=0
    )
    assert (written.classes, written.class_rows, written.dtype) == ((-1, 1), (1, 2), "float32")
    assert (written.layout, written.features, written.nonzeros) == ("sparse", 3, 4)
    assert written.source == {"format": "libsvm", "files": ["a.svm"], "zero_based": False}
    expected = load_svmlight_file(io.BytesIO(text.encode()), dtype=np.float32)[0].toarray()
    found = rows_in(tmp_path / "out").features.to_dense()
    assert sorted(found.tolist()) == sorted(expected.tolist())


def test_several_files_gzipped_or_not_share_their_features(write):
    paths = [write("1 5:1\n", "a.svm"), write("2 2:1 9:3\n", "b.svm.gz", packed=True)]
    found, labels = decode(paths, "classification")
    assert found.shape == (2, 9)
    assert labels.tolist() == [1, 2]
    assert decode(paths, features=20)[0].shape == (2, 20)
    assert decode(paths, None)[1] is None


@pytest.mark.parametrize("text", ["", "\n\n", "# 1 2:3\n", "1\n0 # 1:2\n"])
def test_no_rows(write, tmp_path, text):
    path = write(text)
    with pytest.raises(DataError, match=r"a\.svm: found no row with an index, so that"):
        libsvm.source([path], "classification", "float32")
    if text[:1] != "1":
        with pytest.raises(DataError, match=r"a\.svm: expected at least one row"):
            import_rows(libsvm.source([path], "classification", "float32", 3), tmp_path / "out", 0)
        assert not (tmp_path / "out").exists()


def test_bad_options_and_a_long_line(write, monkeypatch):
    for features in (0, -1, 2**31):
        with pytest.raises(UsageError, match=f"--features: expected 1 to .*, found {features}"):
            libsvm.source([write("1 1:1\n")], "classification", "float32", features)
    monkeypatch.setattr(libsvm, "MOST_LINE_BYTES", 100)
    monkeypatch.setattr(libsvm, "BLOCK_BYTES", 10)
    with pytest.raises(DataError, match="line 2: expected at most 100 bytes in a line"):
        decode([write("1 1:1\n" + "1 1:1 " * 50)])


def test_an_index_too_large_for_any_dataset(write):
    with pytest.raises(DataError, match=r"line 1: expected an index from 1 to 2147483647"):
        decode([write("1 4000000000:1\n")])


def test_numbers_are_rounded_once(write):
    texts = ["0.1", "1e-45", "3.4028235e38", "1.00000017881393432617187499"]
    found, _ = decode([write("1 1:" + "\n1 1:".join(texts) + "\n")], dtype="float32")
    assert found.data.tolist() == [float(np.float32(float(text))) for text in texts]
    assert not math.isnan(found.data.sum())
