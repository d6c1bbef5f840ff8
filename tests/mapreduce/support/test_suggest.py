"""What was meant by a mistyped name."""

import pytest

from mapreduce.support.suggest import did_you_mean, missing, names_in
from quick import cases


def test_the_name_that_is_most_alike():
    assert did_you_mean("atam", ["sgd", "adam", "adamw"]) == " Did you mean adam?"
    assert did_you_mean("sgdd", ["sgd"], "--{}") == " Did you mean --sgd?"
    assert did_you_mean("kye", ["key"]) == " Did you mean key?"
    assert did_you_mean("forest", ["resnet8"]) == ""
    assert did_you_mean("x", ["sgd", "adam"]) == did_you_mean("x", []) == ""


@cases(
    "path, folder, said",
    ("hdfs://host:1/data/on", "hdfs://host:1/data/", "Did you mean hdfs://host:1/data/one?"),
    ("hdfs:///on", "hdfs:///", "Did you mean hdfs:///one?"),
    ("s3://bucket/in/on/", "s3://bucket/in/", "Did you mean s3://bucket/in/one?"),
    ("on", ".", "Did you mean one?"),
    ("/on", "/", "Did you mean /one?"),
)
def test_an_input_that_is_not_there(path, folder, said):
    asked = []

    def names(place):
        asked.append(place)
        return ["one", "two"]

    assert missing(path, names) == f"does not exist. {said}"
    assert asked == [folder]


def test_a_pattern_asks_for_no_names():
    assert missing("data/*.csv", lambda folder: pytest.fail(folder)) == "matches no file."


def test_names_in_a_folder(tmp_path):
    (tmp_path / "file").touch()
    assert names_in(str(tmp_path)) == ["file"]
    assert names_in(str(tmp_path / "none")) == names_in("hdfs://host/none") == []
