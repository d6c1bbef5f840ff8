"""Triton's client asks as it does by default."""

import numpy as np
import pytest

import mapreduce

triton = pytest.importorskip(
    "tritonclient.http", reason="needs Triton's client: pip install 'gradreduce[triton]'"
)


@pytest.fixture
def client(service):
    found = triton.InferenceServerClient(f"localhost:{service.port}")
    yield found
    found.close()


def test_its_calls_are_answered(service, client):
    rows = np.random.default_rng(0).normal(size=(3, 130)).astype(np.float32)
    model = mapreduce.load(service.folder / "mlp.safetensors")
    expected = model.predict(rows, probabilities=True)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("mlp")
    assert client.get_server_metadata()["name"] == "gradreduce"
    assert "mlp" in [found["name"] for found in client.get_model_repository_index()]
    about = client.get_model_metadata("mlp")
    assert about["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 130]}]
    tensor = triton.InferInput("input", [3, 130], "FP32")
    for binary in (True, False):
        tensor.set_data_from_numpy(rows, binary_data=binary)
        wanted = triton.InferRequestedOutput("probabilities", binary_data=binary)
        for more in (
            {"outputs": [wanted]},
            {},
            {"request_compression_algorithm": "gzip"},
            {"request_compression_algorithm": "deflate"},
            {"model_version": "0", "request_id": "mine"},
        ):
            found = client.infer("mlp", [tensor], **more)
            assert found.as_numpy("probabilities").tobytes() == expected.tobytes(), more
            assert found.get_response().get("id") == more.get("request_id")
    with pytest.raises(triton.InferenceServerException, match="no version 9: expected 0"):
        client.infer("mlp", [tensor], model_version="9")
    wrong = triton.InferInput("input", [1, 1], "FP32")
    wrong.set_data_from_numpy(rows[:1, :1])
    with pytest.raises(triton.InferenceServerException, match=r"\[rows, 130\], found \[1, 1\]"):
        client.infer("mlp", [wrong])


def test_columns_of_texts(service, client):
    columns = {"x": np.array([0.5, -2.0]), "town": np.array(["Ulm", "NA"], object)}
    columns |= {"ok": np.array([True, False]), "day": np.array(["2024-05-06"] * 2, object)}
    tensors = []
    for name, values in columns.items():
        kind = {"O": "BYTES", "f": "FP64", "b": "BOOL"}[values.dtype.kind]
        tensors.append(triton.InferInput(name, [2], kind))
        tensors[-1].set_data_from_numpy(values)
    found = client.infer("kinds", tensors).as_numpy("prediction")
    assert found.tolist() == [b"yes", b"no"]
