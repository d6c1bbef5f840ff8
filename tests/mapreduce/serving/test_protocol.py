"""Requests of the protocol, good and bad; every error is an object of JSON that names its place."""

import gzip
import io
import json
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import mapreduce
from mapreduce.errors import DataError
from mapreduce.inference.predictor import CLASSES, Predictor
from mapreduce.serving import http, tables
from mapreduce.serving.model import load
from mapreduce.serving.refusals import Refused
from quick import cases
from services import kinds_of, trained

KINDS, CONV, TABLE = (f"/v2/models/{name}/infer" for name in ("kinds", "conv", "table-0"))
ROW = {"x": 0.5, "town": "Ulm", "ok": True, "day": "2024-05-06"}
ARROW = "application/vnd.apache.arrow.stream"
#: Tables of more columns than anybody looks at.
MANY = pa.table({f"c{number}": [1] for number in range(2_000)})
TENSORS = {
    "inputs": [
        {"name": name, "datatype": "FP64", "shape": [1], "data": [1]} for name in MANY.column_names
    ]
}


def told(answer, status=200):
    """The content of an answer in JSON."""
    assert answer[0] == status, answer
    assert answer[1]["content-type"] == "application/json"
    found = json.loads(answer[2])
    assert status == 200 or [*found] == ["error"]
    return found


def tensor(kind, shape, data, **more):
    return {"inputs": [{"name": "input", "datatype": kind, "shape": shape, "data": data, **more}]}


def stream(table, **options):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, **options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def probabilities(answer):
    return told(answer)["outputs"][1]["data"]


def test_what_the_service_tells(service):
    assert told(service.ask("/v2"))["name"] == "gradreduce"
    assert told(service.ask("/v2/health/live")) == {"live": True}
    assert told(service.ask("/v2/health/ready")) == {"ready": True}
    assert told(service.ask("/v2/models/kinds/ready")) == {"name": "kinds", "ready": True}
    for body in (b"", b"{}"):
        index = told(service.ask("/v2/repository/index", body))
        assert {"name": "kinds", "version": "4", "state": "READY", "reason": ""} in index
    found = told(service.ask("/v2/models/kinds/versions/4"))
    about = {column["name"]: column for column in found["inputs"]}
    assert about["town"]["parameters"]["levels"] == ["Graz", "NA", "Ulm"]
    assert [about[name]["datatype"] for name in ROW] == ["FP64", "BYTES", "BOOL", "BYTES"]
    (found,) = told(service.ask("/v2/models/conv"))["inputs"]
    assert found["shape"] == [-1, 1, 12, 12]
    assert found["parameters"] == {"uint8_scale": 0.0625}


def test_stored_numbers_are_scaled(service):
    rows = np.random.default_rng(0).integers(0, 256, (3, 1, 12, 12)).astype(np.uint8)
    model = mapreduce.load(service.folder / "conv.safetensors")
    scaled = rows.astype(np.float32) * np.float32(0.0625)
    expected = model.predict(scaled, probabilities=True).ravel().tolist()
    for values, kind in ((rows, "UINT8"), (scaled, "FP32")):
        body = tensor(kind, [3, 144], values.ravel().tolist())
        assert np.array(probabilities(service.ask(CONV, body)), np.float32).tolist() == expected
    body = tensor("UINT8", [1, 130], [1] * 130)
    assert "not known" in told(service.ask("/v2/models/mlp/infer", body), 400)["error"]


def test_kinds_of_columns_are_those_of_files(service, tmp_path):
    rows = [ROW, {**ROW, "x": None, "town": "NA"}, {**ROW, "ok": False, "town": None, "x": 2**63}]
    table = pa.Table.from_pylist([{**row, "x": row["x"] and float(row["x"])} for row in rows])
    found = told(service.ask(KINDS, {"rows": rows, "id": "a"}))
    pq.write_table(table, tmp_path / "rows.parquet")
    run = mapreduce.open_run(service.folder / "kinds")
    with pytest.warns(UserWarning) as said:
        expected = run.predict(tmp_path / "rows.parquet", id="")
    assert found["id"] == "a"
    assert found["parameters"]["model_sha256"] == run.model_sha256
    assert [*map(str, said)] and len(found["parameters"]["warnings"]) == len(said)
    flat = [value for row in expected["probabilities"].to_pylist() for value in row]
    assert np.array(found["outputs"][1]["data"], np.float32).tolist() == flat
    assert found["outputs"][0]["data"] == expected["prediction"].to_pylist()


def test_files_have_their_ids(service):
    table = pa.Table.from_pylist([{**ROW, "key": "one"}, {**ROW, "key": "two", "town": "Rom"}])
    _, headers, body = service.ask(KINDS, stream(table), Content_Type=ARROW)
    found = pa.ipc.open_stream(body).read_all()
    assert found.column_names == ["row", "key", "prediction", "probability", "probabilities"]
    assert json.loads(found.schema.metadata[CLASSES]) == ["no", "yes"]
    assert "column town: 1 of the fields" in json.loads(headers["gradreduce-warnings"])[0]
    model = mapreduce.open_run(service.folder / "kinds")
    with pytest.warns(UserWarning, match="column town"):
        assert found.schema.equals(model.predict(table).schema)
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink)
    _, headers, body = service.ask(KINDS, sink.getvalue(), Content_Type="text/csv")
    assert body.splitlines()[1].startswith(b'0,"one",')
    wrong = sink.getvalue().replace(b"0.5", b"word")
    found = told(service.ask(KINDS, wrong, Content_Type="text/csv"), 400)["error"]
    assert found == "the file, row 1, column x: expected a number, found 'word'"
    twice = pa.concat_tables([table, table])
    assert "id 'one'" in told(service.ask(KINDS, stream(twice), Content_Type=ARROW), 400)["error"]


def test_a_row_that_would_be_left_out_is_named(service):
    rows = [{"x": x, **{name: ROW[name] for name in ("town", "ok", "day")}} for x in (1, None)]
    path = "/v2/models/dropping/infer"
    found = told(service.ask(path, {"rows": rows}), 400)["error"]
    assert found.startswith("the rows, row 2, column x: the field is missing.")
    found = told(service.ask(path, {"rows": rows[1:]}), 400)["error"]
    assert "row 1, column x" in found


@pytest.mark.parametrize("rows", [3, 200])
def test_many_rows_are_read_beside_the_loop(service, rows):
    assert told(service.ask(KINDS, {"rows": [ROW] * rows}))["outputs"][1]["shape"] == [rows, 2]
    wrong = {"rows": [ROW] * (rows - 1) + [{**ROW, "x": "word"}]}
    assert f"row {rows}, column x" in told(service.ask(KINDS, wrong), 400)["error"]


def test_rows_count_from_1_in_every_error(service, tmp_path):
    rows = [{**ROW, "key": "a"}, {**ROW, "key": "b", "x": "word"}]
    columns = {name: [str(row[name]) for row in rows] for name in rows[0]}
    del columns["key"]
    tensors = [
        {"name": name, "datatype": "BYTES", "shape": [2], "data": texts}
        for name, texts in columns.items()
    ]
    sink = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(columns), sink)
    file = sink.getvalue()
    answers = [
        service.ask(KINDS, {"rows": rows}),
        service.ask(KINDS, {"inputs": tensors}),
        service.ask(KINDS, file, Content_Type="text/csv"),
        service.ask(KINDS, stream(pa.table(columns)), Content_Type=ARROW),
    ]
    (tmp_path / "rows.csv").write_bytes(file)
    with pytest.raises(DataError, match="row 2, column x: expected a number, found 'word'"):
        mapreduce.open_run(service.folder / "kinds").predict(tmp_path / "rows.csv", id="")
    assert all("row 2, column x: expected" in told(answer, 400)["error"] for answer in answers)


@cases(
    "path, body, said",
    (KINDS, b"", "not JSON"),
    (KINDS, b"[" * 100_000, "depth"),
    (KINDS, b"x,town\n0.5,Ulm\n", "needs the header 'Content-Type: text/csv'"),
    (KINDS, b'{"rows": [{"x": NaN}]}', "not JSON"),
    (KINDS, b'{"rows": [{"x": 1e400}]}', "infinity"),
    (KINDS, b'{"rows": [{"town": "\\ud800"}]}', "surrogate"),
    (KINDS, [], "an object, found []"),
    (KINDS, {}, "inputs"),
    (KINDS, {"rows": []}, "at least one row"),
    (KINDS, {"rows": [3]}, "a list of objects"),
    (KINDS, {"rows": {"x": [0.5, 1]}}, "a list of objects, found {'x': [0.5, 1]}"),
    (KINDS, {"rows": [ROW, {**ROW, "z": 1}]}, "row 2: expected the same names"),
    (KINDS, {"rows": [{**ROW, "z": 1}]}, "extra: z"),
    (KINDS, {"rows": [{"x": 1}]}, "missing: town, ok, day"),
    (KINDS, {"rows": [{**ROW, "x": True}]}, "column x: expected numbers"),
    (KINDS, {"rows": [{**ROW, "x": 1e308 * 10}]}, "not JSON"),
    (KINDS, {"rows": [{**ROW, "x": [1]}]}, "row 1, column x: expected numbers, found [1]"),
    (KINDS, {"rows": [{**ROW, "town": {}}]}, "column town"),
    (
        KINDS,
        {"rows": [{**ROW, "town": 1}, ROW]},
        "row 1, column town: expected texts, found 1",
    ),
    (KINDS, {"rows": [{**ROW, "ok": "perhaps"}]}, "column ok"),
    (KINDS, {"rows": [{**ROW, "day": "tomorrow"}]}, "column day"),
    (KINDS, {"rows": [ROW], "id": 3}, "id: expected a text"),
    (KINDS, {"rows": [ROW], "outputs": [{"name": "x"}]}, "outputs[0]"),
    (KINDS, {"rows": [ROW], "parameters": 3}, "parameters"),
    (CONV, {"rows": [ROW]}, "not trained on a table"),
    (CONV, tensor("FP32", [1, 144], [1e39] * 144), "row 1, element 1: expected a finite number"),
    (CONV, tensor("UINT8", [1, 144], [256] * 144), "0 to 255"),
    (CONV, tensor("INT64", [1, 144], [2**63] * 144), "as INT64 has them"),
    (CONV, tensor("INT8", [1, 144], [1.5] * 144), "elements that are INT8"),
    (
        CONV,
        tensor("FP32", [2, 144], [0] * 150 + ["x"] * 138),
        "input, data: row 2, element 7: expected elements that are FP32, found 'x'",
    ),
    (
        TABLE,
        {"inputs": [{"name": "x01", "datatype": "UINT8", "shape": [2], "data": [3, 256]}]},
        "x01, data: row 2: expected 0 to 255, as UINT8 has them, found 256",
    ),
    (CONV, tensor("FP32", [1, 144], [True] * 144), "elements that are FP32, found True"),
    (CONV, tensor("FP32", [1, 144], [None] * 144), "numbers"),
    (CONV, tensor("BYTES", [1, 144], ["a"] * 144), "numbers"),
    (CONV, tensor("FP33", [1, 144], [1] * 144), "datatype"),
    (CONV, tensor([], [1, 144], [1] * 144), "datatype"),
    (CONV, tensor("FP32", [-1, 144], [1] * 144), "shape"),
    (CONV, tensor("FP32", [1.5, 144], [1] * 144), "shape"),
    (CONV, tensor("FP32", [True, 144], [1] * 144), "shape"),
    (CONV, tensor("FP32", [], []), "shape"),
    (CONV, tensor("FP32", [1] * 33, [1]), "shape: expected a list of 1 to 32 lengths"),
    (CONV, tensor("FP32", [0, 144], []), "at least one row"),
    (CONV, tensor("FP32", [9, *[2**31 - 1] * 9], [1]), "elements for the shape"),
    (CONV, tensor("FP32", [1, 143], [1] * 143), "[rows, 144] or [rows, 1, 12, 12]"),
    (CONV, tensor("FP32", [2, 144], [[1] * 143, [1] * 145]), "lists of the lengths"),
    (CONV, tensor("FP32", [2, 144], [[1] * 144, "a" * 144]), "lists of the lengths"),
    (CONV, tensor("FP32", [1, 144], 3), "a list"),
    (CONV, tensor("FP32", [1, 144], [1], parameters={"binary_data_size": -1}), "0 to 0"),
    (CONV, tensor("FP32", [1, 144], [1], parameters={"shared_memory_region": 1}), "offered"),
    ("/v2/models/lstm/infer", tensor("FP32", [1, 7, 5], [1] * 35), "[rows, 6, 5]"),
    ("/v2/models/embedding/infer", tensor("INT32", [1, 5], [9] * 5), "is 9.0"),
    (TABLE, {"inputs": tensor("FP64", [2], [1, 2])["inputs"] * 2}, "each name once"),
)
def test_bad_requests_are_refused(service, path, body, said):
    assert said in told(service.ask(path, body), 400)["error"]


@cases(
    "headers, body, status, said",
    ({"Inference_Header_Content_Length": 3}, b"{}", 400, "at most the 2 bytes"),
    ({"Inference_Header_Content_Length": "+2"}, b"{}", 400, "found '+2'"),
    ({"Inference_Header_Content_Length": "9" * 5_000}, b"{}", 400, "0 to 1048576, found '999"),
    ({"Inference_Header_Content_Length": 2}, b"{}more", 400, "inputs"),
    ({"Content_Encoding": "br"}, b"{}", 415, "gzip or deflate"),
    ({"Content_Type": "application/json; charset=latin-1"}, b"{}", 415, "found 'latin-1'"),
    ({"Content_Type": "text/csv;charset=UTF-16"}, b"a", 415, "expected charset=utf-8"),
    ({"Content_Type": 'application/json; charset="UTF-8"; q=1'}, b"{}", 400, "inputs"),
    ({"X": "y" * 65_000}, b"{}", 400, "inputs"),
    ({"X": "y" * 70_000}, b"{}", 431, "the header: expected at most 65,536 bytes"),
    ({"Content_Encoding": "gzip"}, b"{}", 400, "unpacked"),
    ({"Content_Encoding": "gzip"}, gzip.compress(b"{}", mtime=0)[:-1], 400, "all of it"),
    ({"Content_Encoding": "gzip"}, gzip.compress(b"{}", mtime=0) * 2, 400, "one stream"),
    ({"Content_Encoding": "deflate"}, zlib.compress(b" " * (1 << 24)), 413, "1,048,576"),
    ({}, b" " * ((1 << 20) + 1), 413, "in binary"),
    ({"Content_Type": "text/csv"}, b"", 400, "the file is empty"),
    ({"Content_Type": "text/csv"}, b"a,b\n1,2\n", 400, "missing: x, town, ok, day"),
    ({"Content_Type": "text/csv"}, b"1,Ulm\n2,Ulm\n", 400, "Put the names of the columns there"),
    ({"Content_Type": "text/csv"}, b"," * 5_000, 413, "the columns: expected at most 1,008"),
    ({"Content_Type": "text/csv"}, b'"\n"' + b"," * 5_000, 413, "at most 1,008, found 5,001"),
    ({"Content_Type": "text/csv"}, b"x\n" + b"," * (1 << 21), 413, "lines of at most 1,048,576"),
    ({"Content_Type": ARROW}, stream(MANY), 413, "the columns: expected at most 1,008"),
    ({}, json.dumps({"rows": MANY.to_pylist()}).encode(), 413, "the columns: expected at most"),
    ({}, json.dumps(TENSORS).encode(), 413, "the columns: expected at most 1,008, found 2,000"),
    ({"Content_Type": ARROW}, b"abc", 400, "no Arrow stream"),
    ({"Content_Type": ARROW}, stream(pa.table({"x": [1.0]}))[:-40], 400, "no Arrow stream"),
    ({"Host": "evil.example"}, b"{}", 403, "found 'evil.example'. Another name needs"),
    ({"Sec-Fetch-Site": "cross-site"}, b"{}", 403, "a page of another site"),
)
def test_bad_bodies_are_refused(service, headers, body, status, said):
    assert said in told(service.ask(KINDS, body, **headers), status)["error"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_file_of_many_lines_is_taken(service, end):
    count, line = 40_000, b"0.5,Ulm,true,2024-05-06" + end
    assert count * len(line) < 1 << 20 < 2 * count * len(line)
    file = b"x,town,ok,day" + end + 2 * count * line
    status, _, body = service.ask(KINDS, file, Content_Type="text/csv")
    assert status == 200 and body.splitlines()[-1].startswith(b"%d," % (2 * count - 1))


def test_streams_that_waste_memory_are_refused(service):
    table = pa.table({"x": np.zeros(1000)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    packed = stream(table, options=options)
    names = pa.table({"x": pa.array(["a"] * 9).dictionary_encode()})
    dictionary = stream(names, options=options)
    for body in (packed, dictionary):
        assert "not compressed" in told(service.ask(KINDS, body, Content_Type=ARROW), 400)["error"]
    nothing = pa.table({"x": pa.nulls(tables.MOST_ROWS + 1)})
    said = told(service.ask(KINDS, stream(nothing), Content_Type=ARROW), 413)["error"]
    assert "at most 100,000" in said


def test_unknown_places_are_named(service):
    for path in ("/nix", "/v2/models", "/v2/models/conv/nix", "/v2/repository/models/conv/load"):
        assert "nothing is here" in told(service.ask(path), 404)["error"]
    assert "no model nix" in told(service.ask("/v2/models/nix"), 404)["error"]
    assert "no version 5" in told(service.ask("/v2/models/kinds/versions/5/infer"), 404)["error"]
    assert "expected POST" in told(service.ask(KINDS), 405)["error"]
    assert "expected GET" in told(service.ask("/v2/health/live", b""), 405)["error"]


def test_an_answer_of_many_numbers_is_binary(service):
    rows, path = 70_000, "/v2/models/logistic/infer"
    count = http.MOST_JSON // 4
    assert rows * 2 < count
    content = np.zeros((rows, 50), np.float32).tobytes()
    more = {"binary_data_size": len(content)}
    body = {
        "inputs": [{"name": "input", "shape": [rows, 50], "datatype": "FP32", "parameters": more}]
    }
    head = json.dumps(body).encode()
    headers = {"Inference_Header_Content_Length": len(head)}
    assert service.ask(path, head + content, **headers)[0] == 200


def test_answers_have_ids_lines_and_counts(service):
    first = len(service.lines)
    _, headers, _ = service.ask(KINDS, {"rows": [ROW] * 7}, X_Request_ID="mine-7")
    assert headers["x-request-id"] == "mine-7"
    assert len(service.ask("/v2", X_Request_ID="\t")[1]["x-request-id"]) == 16
    line = service.line(r"mine-7 POST /v2/models/kinds/infer 200 rows=7 bytes=\d+ ms=", first)
    assert line
    counts = service.ask("/metrics")[2].decode()
    rows = [line for line in counts.splitlines() if line.startswith("gradreduce_rows_total{")]
    assert next(float(r.split()[1]) for r in rows if '"kinds"' in r) >= 7
    run = mapreduce.open_run(service.folder / "kinds")
    assert f'version="4",sha256="{run.model_sha256}"' in counts


def test_a_file_without_an_answer(service, tmp_path):
    rows = pa.table({"x": [None, None], **{n: [ROW[n]] * 2 for n in ("town", "ok", "day")}})
    rows = rows.set_column(0, "x", pa.nulls(2, pa.float64()))
    answer = service.ask("/v2/models/dropping/infer", stream(rows), Content_Type=ARROW)
    assert "without missing fields, found none in 2 rows" in told(answer, 400)["error"]
    table = kinds_of(90, 1)
    table = table.set_column(0, "x", pa.array([None, *table["x"].to_pylist()[1:]], pa.float64()))
    with pytest.warns(UserWarning, match="left out"):
        run = trained(table, tmp_path / "both", id="key", missing="drop")
    model = load(run)
    file = stream(table.drop_columns("label"))
    with pytest.raises(Refused, match="the file: expected no column of ids"):
        tables.answer_file(Predictor(model.fitted), model, file, ARROW, ARROW)


def test_nulls_among_booleans(service):
    columns = {
        "x": [1.0, 2.0],
        "town": ["Ulm", "Graz"],
        "ok": [True, None],
        "day": [ROW["day"]] * 2,
    }
    kinds = dict(zip(columns, ("FP64", "BYTES", "BOOL", "BYTES"), strict=True))
    tensors = [
        {"name": name, "shape": [2], "datatype": kinds[name], "data": values}
        for name, values in columns.items()
    ]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    found, expected = service.ask(KINDS, {"inputs": tensors}), service.ask(KINDS, {"rows": rows})
    assert told(found)["outputs"] == told(expected)["outputs"]
