"""The Open Inference Protocol, V2: what requests say, and what answers do.

Specification: https://github.com/kserve/open-inference-protocol, and Triton's extension for tensors
in binary.
"""

import math
from array import array
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np
import orjson
import pyarrow as pa

from mapreduce.data.batch import Array
from mapreduce.data.recipes.fitted import Fitted
from mapreduce.serving import tables
from mapreduce.serving.model import Features, Rows, ServedModel
from mapreduce.serving.refusals import Refused, refuse

DTYPES = {
    "BOOL": np.dtype("?"),
    **{f"UINT{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    **{f"INT{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"FP{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
}
_NAMES = {kind: name for name, kind in DTYPES.items()}
#: Numbers of an answer in JSON; more are sent in binary.
MOST_NUMBERS = 1 << 18
#: Numbers of an answer.
_MOST_BINARY = 1 << 24
#: Lengths of the shape of a tensor.
_MOST_LENGTHS = 32
#: Parameters that would change what an answer means.
_NOT_OFFERED = ("classification", "shared_memory_region")


class Asked(NamedTuple):
    """What a request asks for: its rows, and the outputs, True for those in binary."""

    rows: Rows
    outputs: dict[str, bool]
    id: str | None


class Reply(NamedTuple):
    """An answer: its body, the type of that, and other headers; and what is counted of it."""

    body: bytes
    kind: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    status: int = 200
    rows: int = 0
    is_warned: bool = False


def loads(body: bytes) -> Any:
    """The content of JSON. Raises Refused (it is none)."""
    try:
        return orjson.loads(body)
    except (ValueError, RecursionError) as error:
        text = f"the body is not JSON: {error!s:.200}"
        if not body.lstrip().startswith((b"{", b"[")):
            text += f". The file of a table needs the header 'Content-Type: {tables.CSV}', or "
            text += f"{tables.ARROW} for a stream of Arrow"
        raise Refused(400, text) from error


def dumps(content: Any) -> bytes:
    """JSON of a content with arrays."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def metadata(model: ServedModel) -> dict[str, Any]:
    """What a model takes and gives."""
    if model.recipe is None:
        kind, own = _name(model.fitted.dtype), model.fitted.data.shape
        known = {} if model.scale is None else {"parameters": {"uint8_scale": model.scale}}
        inputs = [{"name": "input", "datatype": kind, "shape": [-1, *own], **known}]
    else:
        inputs = [_input_of(column) for column in model.recipe.columns]
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": "gradreduce",
        "inputs": inputs,
        "outputs": [
            {"name": name, "datatype": kind, "shape": [-1, *shape]}
            for name, (kind, shape) in _outputs(model).items()
        ],
        "parameters": {"model_sha256": model.sha256, "classes": model.classes},
    }


def _input_of(column: Fitted) -> dict[str, Any]:
    kind = column.kind.partition(":")[0]
    datatype = {"number": "FP64", "boolean": "BOOL"}.get(kind, "BYTES")
    about: dict[str, Any] = {"kind": column.kind}
    if kind == "category":
        about["levels"] = column.levels
    return {"name": column.name, "datatype": datatype, "shape": [-1], "parameters": about}


@lru_cache(maxsize=256)
def _outputs(model: ServedModel) -> dict[str, tuple[str, list[int]]]:
    """Type and shape of the outputs for a row, by name."""
    numbers = _name(model.fitted.dtype)
    if not model.classes:
        return {"prediction": (numbers, [])}
    labels = "INT64" if isinstance(model.classes[0], int) else "BYTES"
    return {"prediction": (labels, []), "probabilities": (numbers, [len(model.classes)])}


def _name(dtype: str) -> str:
    return _NAMES[np.dtype(dtype)]


def parse_request(model: ServedModel, body: bytes, head: int | None) -> Asked:
    """What a request asks for; its first ``head`` bytes, or all, are JSON.

    Raises Refused (something in it cannot be used).
    """
    binary = memoryview(b"") if head is None else memoryview(body)[head:]
    request = loads(body if head is None else body[:head])
    if type(request) is not dict:
        refuse("the body", "an object", request)
    id = request.get("id")
    if id is not None and type(id) is not str:
        refuse("id", "a text", id)
    outputs = _outputs_of(model, request)
    if "rows" in request:
        rows: Rows = tables.of_objects(model, request["rows"])
    else:
        rows = _rows_of(model, _tensors(request.get("inputs"), binary))
    numbers = len(rows) * model.outputs
    if numbers > _MOST_BINARY:
        most = _MOST_BINARY // model.outputs
        raise Refused(413, f"the rows: expected at most {most:,}, found {len(rows):,}. Send parts")
    if numbers > MOST_NUMBERS and not all(outputs.values()):
        raise Refused(
            413,
            f"the answer has {numbers:,} numbers: expected at most {MOST_NUMBERS:,} in JSON. Ask "
            f'for it in binary: "parameters": {{"binary_data_output": true}}',
        )
    return Asked(rows, outputs, id)


def _outputs_of(model: ServedModel, request: dict[str, Any]) -> dict[str, bool]:
    default = bool(_parameters(request, "the body").get("binary_data_output"))
    known, wanted = _outputs(model), request.get("outputs")
    if not wanted:
        return dict.fromkeys(known, default)
    if type(wanted) is not list:
        refuse("outputs", "a list", wanted)
    found = {}
    for number, output in enumerate(wanted):
        where = f"outputs[{number}]"
        if type(output) is not dict or output.get("name") not in [*known]:
            refuse(where, f"an object with a name, {' or '.join(known)}", output)
        found[output["name"]] = bool(_parameters(output, where).get("binary_data", default))
    return found


def _parameters(content: dict[str, Any], where: str) -> dict[str, Any]:
    found = content.get("parameters")
    if found is None:
        return {}
    if type(found) is not dict:
        refuse(f"{where}, parameters", "an object", found)
    for name in _NOT_OFFERED:
        if name in found:
            refuse(f"{where}, parameters", f"no {name}, which is not offered here")
    return found


class _Tensor(NamedTuple):
    where: str
    shape: list[int]
    kind: str
    values: Any


def _tensors(inputs: Any, binary: memoryview) -> dict[str, _Tensor]:
    """The tensors of a request by name; texts are lists."""
    if type(inputs) is not list or not inputs:
        refuse("the body", 'a list "inputs" of tensors, or for a table "rows"')
    found: dict[str, _Tensor] = {}
    at = 0
    for number, one in enumerate(inputs):
        where = f"inputs[{number}]"
        if type(one) is not dict or type(one.get("name")) is not str:
            refuse(where, "an object with a name", one)
        name, shape, kind = one["name"], one.get("shape"), one.get("datatype")
        where = f"{where} {name:.80}"
        if name in found:
            refuse(where, "each name once")
        if type(shape) is not list or not 0 < len(shape) <= _MOST_LENGTHS:
            refuse(f"{where}, shape", f"a list of 1 to {_MOST_LENGTHS} lengths", shape)
        for length in shape:
            if type(length) is not int or not 0 <= length < 1 << 31:
                refuse(f"{where}, shape", "whole lengths from 0 to 2147483647", shape)
        if kind != "BYTES" and (type(kind) is not str or kind not in DTYPES):
            refuse(f"{where}, datatype", f"BYTES, {', '.join(DTYPES)}", kind)
        tables.check_count(shape[0])
        size = _parameters(one, where).get("binary_data_size")
        if size is None:
            values = _values(one.get("data"), shape, kind, f"{where}, data")
        else:
            if type(size) is not int or not 0 <= size <= len(binary) - at:
                refuse(f"{where}, binary_data_size", f"0 to {len(binary) - at}", size)
            values = _unpacked(binary[at : at + size], shape, kind, where)
            at += size
        found[name] = _Tensor(where, shape, kind, values)
    if at < len(binary):
        refuse("the body", f"{at} bytes of tensors after its JSON", len(binary))
    return found


def _refuse_element(
    where: str, shape: list[int], at: int, expected: str, found: object
) -> NoReturn:
    """Refuse an element of a tensor; rows and elements are counted from 1, as files' rows are."""
    row, place = divmod(at, size := math.prod(shape[1:]))
    element = f", element {place + 1}" if size > 1 else ""
    refuse(f"{where}: row {row + 1}{element}", expected, found)


def _unpacked(content: memoryview, shape: list[int], kind: str, where: str) -> Any:
    """The values of a tensor in binary."""
    if kind == "BYTES":
        return _texts(bytes(content), shape, f"{where}, data")
    expected = math.prod(shape) * DTYPES[kind].itemsize
    if len(content) != expected:
        refuse(f"{where}, binary_data_size", f"{expected} bytes for its shape", len(content))
    if kind == "BOOL":
        return np.frombuffer(content, np.uint8) != 0
    return np.frombuffer(content, DTYPES[kind])


def _texts(content: bytes, shape: list[int], where: str) -> list[str]:
    found: list[str] = []
    at, count = 0, math.prod(shape)
    while at < len(content) and len(found) < count:
        size = int.from_bytes(content[at : at + 4], "little")
        at += 4 + size
        if at > len(content):
            refuse(where, "whole texts, each after its length in 4 bytes")
        try:
            found.append(content[at - size : at].decode())
        except UnicodeDecodeError:
            text = content[at - size : at]
            _refuse_element(where, shape, len(found), "text in UTF-8", text)
    if len(found) != count or at != len(content):
        refuse(where, f"{count} texts in {len(content)} bytes", len(found))
    return found


_NONE = type(None)
#: Types of the elements of a tensor in JSON, by the first letter of its own; null for missing.
_TYPES: dict[str, set[type]] = {
    "U": {int, _NONE},
    "I": {int, _NONE},
    "F": {int, float, _NONE},
    "BOOL": {bool, _NONE},
    "BYTES": {str, _NONE},
}


def _values(data: Any, shape: list[int], kind: str, where: str) -> Any:
    """The values of a tensor in JSON: an array, or a list if there are texts or nulls."""
    if type(data) is not list:
        refuse(where, "a list", data)
    if data and type(data[0]) is list:
        for length in shape[1:]:
            if any(type(row) is not list or len(row) != length for row in data):
                refuse(where, f"lists of the lengths of the shape {shape}")
            data = [value for row in data for value in row]
    if len(data) != math.prod(shape):
        refuse(where, f"{math.prod(shape)} elements for the shape {shape}", len(data))
    types, own = {*map(type, data)}, _TYPES.get(kind) or _TYPES[kind[0]]
    if not types <= own:
        at = next(at for at, value in enumerate(data) if type(value) not in own)
        _refuse_element(where, shape, at, f"elements that are {kind}", data[at])
    if kind == "BYTES" or _NONE in types:
        return data
    if kind in ("BOOL", "FP16"):
        return _cast(np.array(data), DTYPES[kind])
    try:
        # NumPy takes twice as long, and longer for numbers that become infinite.
        return np.frombuffer(array(DTYPES[kind].char, data), DTYPES[kind])
    except OverflowError:
        ends = np.iinfo(DTYPES[kind])
        at = next(at for at, value in enumerate(data) if not ends.min <= value <= ends.max)
        expected = f"{ends.min} to {ends.max}, as {kind} has them"
        _refuse_element(where, shape, at, expected, data[at])


def _cast(values: Array, dtype: Any) -> Array:
    """Numbers of another type, of which some may be infinite then."""
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _rows_of(model: ServedModel, tensors: dict[str, _Tensor]) -> Rows:
    if model.recipe is None:
        return _features_of(model, tensors)
    tables.check_columns(model, len(tensors))
    columns, lengths = {}, {}
    for name, (where, shape, kind, values) in tensors.items():
        if shape[1:] not in ([], [1]):
            refuse(f"{where}, shape", "[rows] or [rows, 1], a tensor for each column", shape)
        is_array = kind == "BOOL" and not isinstance(values, list)
        lengths[name], columns[name] = shape[0], values.tolist() if is_array else values
    if len({*lengths.values()}) > 1:
        refuse("inputs", "tensors of the same length", lengths)
    lists = {name: values for name, values in columns.items() if isinstance(values, list)}
    parsed = tables.of_columns(model, lists).table
    arrays = [parsed[n] if n in lists else pa.array(v) for n, v in columns.items()]
    return tables.TableRows(pa.table(arrays, names=[*columns]).combine_chunks())


def _features_of(model: ServedModel, tensors: dict[str, _Tensor]) -> Features:
    """The one tensor of a model of arrays: flat rows, or in their shape."""
    data = model.fitted.data
    if [*tensors] != ["input"]:
        refuse("inputs", 'one tensor, "input"', [*tensors])
    where, shape, kind, values = tensors["input"]
    if shape[1:] not in model.row_shapes:
        shapes = dict.fromkeys((f"[rows, {data.features}]", str(["rows", *data.shape])))
        refuse(f"{where}, shape", " or ".join(shapes).replace("'", ""), shape)
    if isinstance(values, list) or kind == "BOOL":
        refuse(f"{where}, data", "numbers", kind if kind in ("BYTES", "BOOL") else None)
    stored: Array = values.reshape(shape[0], data.features)
    if kind == "UINT8":
        if model.scale is None:
            refuse(
                f"{where}, datatype",
                "numbers as the model sees them, such as FP32: how the training data scaled what "
                "they stored as UINT8 is not known, or they were standardised",
                kind,
            )
        return Features(stored, model.scale)
    features = np.ascontiguousarray(_cast(stored, model.fitted.dtype))
    if np.count_nonzero(np.isfinite(features)) < features.size:
        at = int(np.isfinite(features).argmin())
        expected, value = f"a finite number of {model.fitted.dtype}", float(stored.flat[at])
        _refuse_element(f"{where}, data", shape, at, expected, value)
    return Features(features)


def answer(model: ServedModel, asked: Asked, values: Array, notes: list[str]) -> Reply:
    """The answer to a request; ``values`` and ``notes``: see :meth:`ServedModel.compute`.

    Raises Refused (a number is not finite, which JSON cannot say).
    """
    found: dict[str, Any] = {"probabilities": values} if model.classes else {"prediction": values}
    if model.classes:
        found["prediction"] = model.labels(values.argmax(axis=1))
    outputs, blobs, known = [], [], _outputs(model)
    for name, is_binary in asked.outputs.items():
        kind, shape = known[name]
        output: dict[str, Any] = {"name": name, "datatype": kind, "shape": [len(values), *shape]}
        if is_binary:
            blobs.append(_packed(found[name], kind))
            output["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            output["data"] = found[name] if isinstance(found[name], list) else found[name].ravel()
        outputs.append(output)
    about: dict[str, Any] = {"model_sha256": model.sha256}
    if notes:
        about["warnings"] = notes
    content: dict[str, Any] = {
        "model_name": model.name,
        "model_version": model.version,
        "parameters": about,
        "outputs": outputs,
    }
    if asked.id is not None:
        content["id"] = asked.id
    head = dumps(content)
    if b"null" in head:
        for name, is_binary in asked.outputs.items():
            numbers = found[name]
            if not (is_binary or isinstance(numbers, list) or np.isfinite(numbers).all()):
                raise Refused(500, f"output {name}: a number is not finite, which JSON cannot say")
    reply = Reply(head, rows=len(values), is_warned=bool(notes))
    if not blobs:
        return reply
    length = b"inference-header-content-length", b"%d" % len(head)
    body = b"".join([head, *blobs])
    return reply._replace(body=body, kind=b"application/octet-stream", headers=(length,))


def _packed(values: Any, kind: str) -> bytes:
    """The values of an output in binary."""
    if kind == "BYTES":
        known = {
            text: len(text.encode()).to_bytes(4, "little") + text.encode() for text in {*values}
        }
        return b"".join(map(known.__getitem__, values))
    return np.asarray(values, DTYPES[kind]).tobytes()
