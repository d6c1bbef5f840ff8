"""A graph of ONNX while it is built: inputs, constants, operators and outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, helper, numpy_helper, printer

from mapreduce.data.batch import Array
from mapreduce.errors import UsageError

#: Versions of the format and of its operators, and the domain of those for texts.
IR_VERSION, OPERATORS, ML_OPERATORS, ML = 9, 20, 3, "ai.onnx.ml"


class Graph:
    """A graph whose values have names; a method that computes something returns its name.

    ``dtype``: That of the model's numbers. ``layers``: The outputs of a network's layers, by name.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.layers: dict[str, str] = {}
        self._inputs: dict[str, Any] = {}
        self._outputs: list[Any] = []
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._count = 0

    def input(self, name: str, dtype: npt.DTypeLike, shape: Sequence[int], about: str = "") -> str:
        """Declare an input (rows, *shape), before anything is computed."""
        self._inputs[name] = _declared(name, dtype, shape, about)
        return name

    def output(self, name: str, value: str, dtype: npt.DTypeLike, shape: Sequence[int]) -> None:
        """A value (rows, *shape) as an output. Raises UsageError (an input has its name)."""
        if name in self._inputs:
            raise UsageError(
                f"column {name} has the name of an output of the graph, and ONNX tells inputs and "
                f"outputs apart by their names. Rename the column, and train again"
            )
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(_declared(name, dtype, shape))

    def constant(self, values: Any, dtype: npt.DTypeLike | None = None) -> str:
        """An array, by default in its own dtype."""
        name = self._name("constant")
        array: Array = np.array(values, dtype, order="C")
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *values: str, domain: str = "", **attributes: Any) -> str:
        """The output of an operator."""
        name, more = self._name(operator), {"domain": domain, **attributes}
        self._nodes.append(helper.make_node(operator, [*values], [name], **more))
        return name

    def add_single(self, operator: str, x: str, *values: str, **attributes: Any) -> str:
        """The output of an operator that onnxruntime has for float32 alone."""
        result = self.add(operator, self.cast(x, np.float32), *values, **attributes)
        return self.cast(result, self.dtype)

    def cast(self, value: str, dtype: npt.DTypeLike) -> str:
        """A value in another dtype."""
        return self.add("Cast", value, to=_kind(dtype))

    def reshape(self, value: str, *shape: int) -> str:
        """A value in another shape; -1 stands for the rows."""
        return self.add("Reshape", value, self.constant(shape, np.int64))

    def to_bytes(self, about: Mapping[str, str]) -> bytes:
        """The file of the graph, with texts ``about`` it: the same bytes for the same graph."""
        inputs, constants = [*self._inputs.values()], self._constants
        graph = helper.make_graph(self._nodes, "gradreduce", inputs, self._outputs, constants)
        versions = [helper.make_opsetid("", OPERATORS), helper.make_opsetid(ML, ML_OPERATORS)]
        model = helper.make_model(
            graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="gradreduce"
        )
        helper.set_model_props(model, dict(about))
        content: bytes = model.SerializeToString(deterministic=True)
        return content

    def _name(self, operator: str) -> str:
        self._count += 1
        name = f"{operator}:{self._count}"
        # A column may have any name.
        return self._name(operator) if name in self._inputs else name


def signature(content: bytes) -> str:
    """What the graph in a file takes and gives, as ONNX writes it."""
    whole = ModelProto.FromString(content).graph
    text: str = printer.to_text(GraphProto(name="graph", input=whole.input, output=whole.output))
    return text.rpartition("{")[0].strip()


def _declared(name: str, dtype: npt.DTypeLike, shape: Sequence[int], about: str = "") -> Any:
    return helper.make_tensor_value_info(name, _kind(dtype), ["rows", *shape], about)


def _kind(dtype: npt.DTypeLike) -> Any:
    """ONNX's number of a dtype; ``object`` stands for texts."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
