"""A bare handler on uvicorn with httptools, one process, which answers rows in JSON by a model.

``serve_bare.py (onnxruntime|scikit-learn|pipeline) FILE PORT``: FILE has the network, as
``gradreduce export`` writes it, or the table to fit; scikit-learn's network reads the digits.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import orjson
import uvicorn

Predict = Callable[[Any], dict[str, Any]]
Call = Callable[..., Awaitable[Any]]


def onnxruntime(file: str) -> Predict:
    """The network of some weights as a graph; one thread."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    with np.load(file) as arrays:
        weights = {name: arrays[name] for name in arrays if name != "classes_"}
    first, first_bias, second, second_bias = weights
    nodes = [
        helper.make_node("Gemm", ["rows", first, first_bias], ["sums"]),
        helper.make_node("Relu", ["sums"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", second, second_bias], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, width])
        for name, width in (("rows", len(weights[first])), ("probabilities", 10))
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], constants)
    opset = helper.make_opsetid("", 20)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def predict(request: Any) -> dict[str, Any]:
        (tensor,) = request["inputs"]
        rows = np.array(tensor["data"], np.float32).reshape(tensor["shape"])
        (found,) = session.run(None, {"rows": rows})
        return {"prediction": found.argmax(axis=1), "probabilities": found}

    return predict


def scikit_learn(_: str) -> Predict:
    """A network of the same shape, fitted to the digits."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    network = MLPClassifier((128,)).fit((images / 16).astype(np.float32), labels)

    def predict(request: Any) -> dict[str, Any]:
        (tensor,) = request["inputs"]
        rows = np.array(tensor["data"], np.float32).reshape(tensor["shape"])
        found = network.predict_proba(rows)
        return {"prediction": network.classes_[found.argmax(axis=1)], "probabilities": found}

    return predict


def pipeline(file: str) -> Predict:
    """A table's columns filled in, scaled and encoded, and a logistic regression on these."""
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    table = pd.read_csv(file)
    label, rows = table.columns[0], table.iloc[:, 1:]
    numbers = rows.select_dtypes("number").columns
    texts = rows.columns.difference(numbers)
    encode = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
    )
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers), (encode, texts)
    )
    model = make_pipeline(columns, LogisticRegression(max_iter=1000))
    model.fit(rows, table[label])

    def predict(request: Any) -> dict[str, Any]:
        found = model.predict_proba(pd.DataFrame(request["rows"]))
        prediction = model.classes_[found.argmax(axis=1)].tolist()
        return {"prediction": prediction, "probabilities": found}

    return predict


def handler(predict: Predict) -> Call:
    """The application: a body in, an answer out, and no path, limit or error looked at."""

    async def application(_: dict[str, Any], receive: Call, send: Call) -> None:
        body, is_more = b"", True
        while is_more:
            message = await receive()
            body += message.get("body", b"")
            is_more = message.get("more_body", False)
        answer = orjson.dumps(predict(orjson.loads(body)), option=orjson.OPT_SERIALIZE_NUMPY)
        length = str(len(answer)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return application


if __name__ == "__main__":
    kind, path, port = sys.argv[1:]
    make = {"onnxruntime": onnxruntime, "scikit-learn": scikit_learn, "pipeline": pipeline}[kind]
    uvicorn.run(
        handler(make(path)),
        port=int(port),
        loop="asyncio",
        http="httptools",
        lifespan="off",
        access_log=False,
    )
