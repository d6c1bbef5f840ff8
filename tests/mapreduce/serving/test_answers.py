"""An answer has the bytes of ``gradreduce predict``: in any encoding, beside any other caller."""

import contextlib
import io
import json
import secrets
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import mapreduce
from mapreduce.cli.main import main
from services import ARRAYS, NUMERIC, TABLES, with_holes
from wide_tables import table_of

pytestmark = pytest.mark.usefixtures("pinned")
ARROW = "application/vnd.apache.arrow.stream"


def predict(*arguments):
    """Run the command in this process."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["predict", *map(str, arguments), "-q", "-r", "inline"]) == 0


def tensor(name, values, binary):
    """A tensor of an array or a list of texts, and its bytes if it is binary."""
    is_text = isinstance(values, list)
    kind = "BYTES" if is_text else f"FP{8 * values.itemsize}"
    shape = [len(values)] if is_text else [*values.shape]
    found = {"name": name, "shape": shape, "datatype": kind}
    if not binary:
        data = values if is_text else np.where(np.isnan(values), None, values).tolist()
        return found | {"data": data}, b""
    texts = [(text or "").encode() for text in values] if is_text else []
    packed = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    content = packed if is_text else values.tobytes()
    return found | {"parameters": {"binary_data_size": len(content)}}, content


def request(tensors, binary, chance):
    """Body and headers of a request of tensors, and whether its answer is binary."""
    parts = [tensor(name, values, binary) for name, values in tensors.items()]
    is_out = bool(chance.integers(2))
    content = {"inputs": [part for part, _ in parts]}
    content["parameters"] = {"binary_data_output": is_out}
    head = json.dumps(content).encode()
    headers = {"Inference_Header_Content_Length": len(head)} if binary else {}
    return head + b"".join(blob for _, blob in parts), headers


def values_of(answer, dtype):
    """Numbers of an answer: probabilities, or predictions of a model that predicts numbers."""
    status, headers, body = answer
    assert status == 200, body
    length = headers["Inference-Header-Content-Length"]
    head = json.loads(body[: int(length)] if length else body)
    at, found = len(body) if length is None else int(length), {}
    for output in head["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            found[output["name"]] = np.array(output["data"])
        else:
            if output["datatype"].startswith("FP"):
                kind = f"<f{int(output['datatype'][2:]) // 8}"
                found[output["name"]] = np.frombuffer(body[at : at + size], kind)
            at += size
    values = found.get("probabilities", found.get("prediction"))
    return values.astype(dtype)


def ask_table(client, path, rows, chance):
    """Probabilities, or predictions, of the rows of a table, in an encoding that is drawn."""
    encoding = chance.choice(["columns", "binary", "rows", "csv", "arrow"])
    if encoding in ("csv", "arrow"):
        sink = io.BytesIO()
        if encoding == "csv":
            pyarrow.csv.write_csv(rows, sink)
        else:
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
        kind = "text/csv" if encoding == "csv" else ARROW
        status, headers, body = client.ask(path, sink.getvalue(), Content_Type=kind, Accept=ARROW)
        assert status == 200, body
        assert len(headers["gradreduce-model-sha256"]) == 64
        found = pa.ipc.open_stream(body).read_all()
        name = "probabilities" if "probabilities" in found.column_names else "prediction"
        return np.array(found[name].to_pylist(), np.float32).ravel()
    if encoding == "rows":
        body = {"rows": rows.to_pylist()}
        return values_of(client.ask(path, body), np.float32)
    columns = {
        name: column.to_pylist()
        if pa.types.is_string(column.type)
        else column.cast(pa.float64()).to_numpy()
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    body, headers = request(columns, encoding == "binary", chance)
    return values_of(client.ask(path, body, **headers), np.float32)


def ask_array(client, path, rows, chance):
    """The same of the rows of an array."""
    rows = rows.reshape(len(rows), -1) if chance.integers(2) else rows
    body, headers = request({"input": rows}, bool(chance.integers(2)), chance)
    return values_of(client.ask(path, body, **headers), np.float32)


def asked(service, name, data, seed):
    """Bytes of what is answered of all rows, which 16 callers ask of in an order that is drawn."""
    chance = np.random.default_rng(seed)
    ask = ask_table if isinstance(data, pa.Table) else ask_array
    cuts = np.unique(np.append(0, chance.integers(1, len(data), 40).cumsum() % len(data)))
    parts = [(int(a), int(b)) for a, b in zip(cuts, [*cuts[1:], len(data)], strict=True)]
    order, found = chance.permutation(len(parts)), {}

    def caller(number):
        own = np.random.default_rng([seed, number])
        client = service.client()
        with contextlib.closing(client):
            for at in order[number::16]:
                rows = data[slice(*parts[at])]
                found[at] = ask(client, f"/v2/models/{name}/infer", rows, own)

    with ThreadPoolExecutor(16) as pool:
        [*pool.map(caller, range(16))]
    return np.concatenate([found[at] for at in range(len(parts))]).tobytes()


def check(service, name, seed, folder):
    """Compare answers with predictions of the command, or of its function for arrays."""
    chance = np.random.default_rng(seed)
    count = int(chance.integers(100, 400))
    if name in TABLES:
        data = table_of(count, seed, TABLES[name] in NUMERIC).drop_columns("label")
        data = with_holes(data, seed)
        pyarrow.csv.write_csv(data, folder / "rows.csv")
        for out in ("out.parquet", "out.csv"):
            predict(service.folder / name, folder / "rows.csv", folder / out)
        table = pq.read_table(folder / "out.parquet")
        column = "probabilities" if "probabilities" in table.column_names else "prediction"
        expected = np.array(table[column].to_pylist(), np.float32).tobytes()
        content = (folder / "rows.csv").read_bytes()
        path = f"/v2/models/{name}/infer"
        _, _, body = service.ask(path, content, Content_Type="text/csv; charset=utf-8")
        assert body == (folder / "out.csv").read_bytes()
    else:
        _, shape, classes = ARRAYS[name.removesuffix("-by-blas")]
        data = chance.normal(size=(count, *shape)).astype(np.float32)
        if name == "embedding":
            data = chance.integers(0, 4, (count, *shape)).astype(np.float32)
        model = mapreduce.load(service.folder / f"{name}.safetensors")
        expected = model.predict(data, probabilities=bool(classes), here=True).tobytes()
    assert asked(service, name, data, seed) == expected, (name, seed)


@pytest.mark.parametrize("name", ["table-0", "table-4", "mlp", "conv", "embedding"])
def test_answers_are_predictions(service, name, tmp_path):
    check(service, name, 7, tmp_path)


@pytest.mark.parametrize("name", ["mlp-by-blas", "conv-by-blas"])
def test_with_blas_they_are_not(service, name, tmp_path):
    with pytest.raises(AssertionError, match=name):
        check(service, name, 7, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("draw", range(20))
def test_answers_are_predictions_in_draws(service, draw, tmp_path):
    seed = secrets.randbits(31)
    name = str(np.random.default_rng(seed).choice([*ARRAYS, *TABLES]))
    check(service, name, seed, tmp_path)
