"""Models that Python hands over as objects: the specification by which tasks find their code."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from mapreduce.data.batch import Array
from mapreduce.errors import UsageError
from mapreduce.models import LAYERS
from mapreduce.models.base import Model
from mapreduce.models.layers.base import Layer
from mapreduce.models.layers.residual import Residual


def specification(model: Any) -> tuple[str, Mapping[str, Array] | None]:
    """What ``--model`` takes for a model, and its parameters if it has some already.

    ``model``: A specification; or the layers of a network; or what returns a ``torch.nn.Module``
    when it is called without arguments; or such a module, whose class can be called so; or a class
    of models of one's own.

    The parameters are the module's floating-point arrays by the names of its ``state_dict``,
    float64. Raises UsageError (tasks could not import it, or would make another module).
    """
    if isinstance(model, str):
        return model, None
    if isinstance(model, Layer):
        model = [model]
    if isinstance(model, Sequence):
        _check_layers(model)
        return ",".join(map(str, model)), None
    # Whoever has a module has loaded torch.
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(model, torch.nn.Module)
    made = type(model) if is_module else model
    name = _importable(made)
    if isinstance(made, type) and issubclass(made, Model):
        return name, None
    return f"torch:{name}", _parameters(model, made) if is_module else None


def _check_layers(layers: Sequence[Any]) -> None:
    """Refuse what the text of the layers would not stand for."""
    if not layers:
        raise UsageError("model: expected layers, found an empty list")
    for layer in layers:
        known = isinstance(layer, Layer) and layer.name() in LAYERS.builtin
        if not (known and type(layer) is LAYERS.find(layer.name())):
            raise UsageError(
                f"model: expected layers of gradreduce such as ReLU(), found {layer!r:.60}. For "
                f"layers of your own write a torch.nn.Module, or a Model"
            )
        if isinstance(layer, Residual):
            _check_layers(layer.layers)


def _importable(made: Any) -> str:
    """``MODULE:NAME`` of a function or class."""
    module, name = getattr(made, "__module__", None), getattr(made, "__qualname__", "")
    if not callable(made) or not module or not name:
        raise UsageError(
            f"model: expected a specification, a function, a class or a torch.nn.Module, found "
            f"{made!r:.60}"
        )
    if module == "__main__":
        raise UsageError(
            f"model: {name} is defined in the script or notebook itself, which tasks cannot "
            f"import. Put it into a file of its own, such as networks.py, and import it from there"
        )
    if getattr(sys.modules.get(module), name, None) is not made:
        raise UsageError(
            f"model: tasks import a model by its name, and {module} has no {name} that is the "
            f"model given. Define the model at the top of the file"
        )
    return f"{module}:{name}"


def _parameters(module: Any, kind: Any) -> dict[str, Array]:
    found = {name: one for name, one in module.state_dict().items() if one.is_floating_point()}
    try:
        fresh = kind().state_dict()
    except Exception as error:
        raise UsageError(
            f"model: tasks make the module anew, and {kind.__qualname__}() raised "
            f"{type(error).__name__}: {error}. Pass a function without arguments that makes it"
        ) from error
    shapes, others = (
        {name: tuple(one.shape) for name, one in state.items()}
        for state in (module.state_dict(), fresh)
    )
    if shapes != others:
        name = min(shapes.items() ^ others.items())[0]
        raise UsageError(
            f"model: tasks make the module anew, and {kind.__qualname__}() has other parameters: "
            f"{name} is {others.get(name, 'missing')}, expected {shapes.get(name, 'none')}. Pass a "
            f"function without arguments that makes it"
        )
    return {name: one.detach().cpu().double().numpy() for name, one in found.items()}


@contextlib.contextmanager
def in_a_file(arrays: Mapping[str, Array] | None) -> Iterator[str | None]:
    """The path of a temporary safetensors file; None if there are no arrays."""
    if arrays is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
        path = Path(folder, "model.safetensors")
        save_file({name: np.asarray(one, order="C") for name, one in arrays.items()}, path)
        yield str(path)
