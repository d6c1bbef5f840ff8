"""Tables on HDFS and S3: every command that takes a table here takes it there, to the same bits."""

import gzip
import io
import json
import os
import secrets
import struct

import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

import mapreduce
from hdfs_utils.paths import path_of
from programs import fails, gradreduce, succeed

CSV = "id,size,town,label\n" + "".join(
    f"{1000 + i},{i * 37 % 101 / 8},{'abc'[i % 3]},{'high' if i * 37 % 101 > 50 else 'low'}\n"
    for i in range(300)
)
HDFS = pytest.param("hdfs", marks=pytest.mark.cluster)


@pytest.fixture(params=["s3", HDFS])
def far(request):
    """A place for the tables, as a user writes it, and a runner."""
    if request.param == "s3":
        yield f"{request.getfixturevalue('s3')}/{secrets.token_hex(4)}", "parallel"
        return
    request.getfixturevalue("cluster")
    place = f"hdfs:///tests/tables-{secrets.token_hex(4)}"
    yield place, "hadoop"
    path_of(place).rmtree()


def put(place, name, content):
    path = path_of(f"{place}/{name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def flow(place, runner, train):
    """What the commands from a table to predictions find and write."""
    table = put(place, "table.csv.gz", gzip.compress(CSV.encode()))
    on, told = ("-r", runner), ("-q", "--json")
    described = succeed("data", "describe", table, "--label", "label", "--json", *on)
    put(place, "folder/part-00000.csv.gz", gzip.compress(CSV.encode()))
    folder = "data", "describe", f"{place}/folder", "--label", "label", "--json"
    assert described == succeed(*folder, *on)
    parts = succeed("data", "split", table, f"{place}/parts", "--id", "id", *told)
    options = "--label", "label", "--id", "id"
    data = json.loads(
        succeed("data", "import", f"{place}/parts/{train}", f"{place}/train", *options, *on, *told)
    )
    # tests/cluster/test_trainings_on_hadoop.py trains by Hadoop.
    by = "-r", "inline" if runner == "hadoop" else runner
    settings = "--model", "logistic", "--rounds", 2, "--run", f"{place}/run"
    trained = json.loads(succeed("train", f"{place}/train", *settings, *by, *told))
    test, out = f"{place}/parts/test.csv", f"{place}/predicted.csv"
    evaluated = succeed("evaluate", f"{place}/run", test, *on, *told)
    succeed("predict", f"{place}/run", test, out, *on, *told)
    assert not [*path_of(f"{place}/run").glob(".*")], "what the model read is gone"
    predicted = path_of(out).read_bytes()
    return described, parts, data["sha256"], trained["model_sha256"], evaluated, predicted


@pytest.mark.slow
def test_from_a_table_to_predictions(far, tmp_path):
    place, runner = far
    assert flow(place, runner, "tr*.csv") == flow(tmp_path, "inline", "train.csv")


def test_parquet_and_python(s3, tmp_path):
    table = arrow_csv.read_csv(io.BytesIO(CSV.encode()))
    for name, rows in (("a.parquet", table[:200]), ("b.parquet", table[200:])):
        pq.write_table(rows, tmp_path / name)
        put(s3, f"pq/{name}", (tmp_path / name).read_bytes())
    files = tmp_path / "a.parquet", tmp_path / "b.parquet"
    far = gradreduce("data", "import", f"{s3}/pq/[ab].parquet", tmp_path / "far", "--json")
    here = succeed("data", "import", *files, tmp_path / "here", "--json")
    assert far.stdout == here
    size = sum(path.stat().st_size for path in files)
    assert f"{s3}/pq/a.parquet and 1 more: {size:,} bytes pass through this machine\n" in far.stderr
    told = {"label": "label", "id": "id", "rounds": 2, "progress": False, "executor": "here"}
    predicted = []
    for name, place in (("here", tmp_path), ("far", f"{s3}/pq")):
        run = mapreduce.train(
            f"{place}/a.parquet", "logistic", run=tmp_path / f"run-{name}", **told
        )
        predicted.append(run.predict(f"{place}/b.parquet"))
    assert predicted[0] == predicted[1]


def test_a_recipe_and_labels(far, tmp_path):
    place, _ = far
    table = put(place, "table.csv", CSV.encode())
    images = put(place, "images", struct.pack(">4B3I", 0, 0, 8, 3, 2, 1, 2) + b"abcd")
    make, found = ("data", "import", "--format"), {}
    for here in (place, tmp_path):
        recipe = put(here, "recipe.toml", b'label = "town"\ndrop = ["id"]\n')
        labels = put(here, "labels", struct.pack(">4BI", 0, 0, 8, 1, 2) + b"\0\1")
        for kind, source, *option in (
            ("csv", table, "--recipe", recipe),
            ("idx", images, "--labels", labels),
        ):
            out = tmp_path / secrets.token_hex(4)
            made = json.loads(succeed(*make, kind, source, out, *option, "--json"))
            found.setdefault(kind, []).append((made["sha256"], made["classes"]))
    assert [of[0] == of[1] for of in found.values()] == [True, True]
    assert found["csv"][0][1] == [*"abc"]
    for kind, source, flag in (("csv", table, "--recipe"), ("idx", images, "--labels")):
        done = gradreduce(*make, kind, source, tmp_path / "x", flag, f"{place}/none")
        assert done.returncode == 66 and f"error: {place}/none does not exist" in done.stderr


@pytest.mark.fault
def test_bad_input_is_named_as_it_was_given(far):
    place, _ = far
    table = put(place, "table.csv", CSV.encode() + b"7,1,2,3,4\n")
    put(place, "out/part-00000.csv", CSV.encode())
    put(place, "out/_temporary/0", b"")
    put(place, "cut.csv.gz", gzip.compress(CSV.encode())[:500])
    put(place, "no.parquet", b"PAR1")
    describe = "data", "describe"
    wrong = place.replace(":///", "://127.0.0.1:1/") if "hdfs" in place else "s3://no-bucket"
    cases = [
        ((*describe, f"{place}/none.csv"), 66, f"{place}/none.csv does not exist"),
        ((*describe, f"{place}/n*.csv"), 66, f"{place}/n*.csv matches no file"),
        ((*describe, place, "--format", "csv"), 65, f"{place} holds another folder, out: name the"),
        ((*describe, f"{place}/out"), 65, f"{place}/out holds _temporary"),
        ((*describe, f"{place}/out/part-00000.csv"), 65, f"{place}/out holds _temporary"),
        ((*describe, f"{place}/cut.csv.gz"), 65, f"{place}/cut.csv.gz: the gzip stream is damaged"),
        ((*describe, f"{place}/no.parquet"), 65, f"{place}/no.parquet is not a Parquet file"),
        ((*describe, table), 65, f"{table}, row 301: expected 4 fields, found 5"),
        (("data", "split", table, f"{place}/out"), 73, f"{place}/out exists already"),
        ((*describe, f"{wrong}/t.csv"), (66, 74), f"{wrong}/t.csv"),
    ]
    for command, code, message in cases:
        done = gradreduce(*command)
        assert done.returncode in (code if isinstance(code, tuple) else (code,)), done.stderr
        assert f"error: {message}" in done.stderr


@pytest.mark.fault
@pytest.mark.parametrize("far", [HDFS], indirect=True)
def test_no_permission(far, tmp_path):
    table = put(far[0], "table.csv", CSV.encode())
    path = path_of(table)
    path.storage.filesystem.handler.fs.client.set_permission(path.path, 0o600)
    env = os.environ | {"HADOOP_USER_NAME": "stranger"}
    for command in (("describe", table), ("import", table, tmp_path / "data")):
        said = fails(74, "data", *command, env=env)
        assert f"error: {table}: AccessControlException: Permission denied" in said
    assert not (tmp_path / "data").exists()
