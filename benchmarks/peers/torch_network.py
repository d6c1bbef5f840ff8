"""The network of another library, by PyTorch, with the same parameters."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn


class Positions(nn.Module):
    """An image as a vector, channels last."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)


class Block(nn.Module):
    """A residual block."""

    def __init__(self, inner: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.inner, self.shortcut = inner, shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = self.inner(x) + self.shortcut(x)
        return total


def network(layers: list[dict[str, Any]], arrays: Any) -> nn.Sequential:
    """The layers with the parameters of their names."""
    return nn.Sequential(*[module for layer in layers for module in modules(layer, arrays)])


def of_folder(folder: Path) -> nn.Sequential:
    """The network that ``job.json`` and ``arrays.npz`` have."""
    arrays = np.load(folder / "arrays.npz")
    layers = json.loads((folder / "job.json").read_text())["layers"]
    return network(layers, {name: arrays[name] for name in arrays.files})


def modules(layer: dict[str, Any], arrays: Any) -> list[nn.Module]:
    kind, shape, output = layer["kind"], layer["shape"], layer["output"]
    weight, bias = (arrays.get(f"{layer['name']}.{part}") for part in ("weight", "bias"))
    if kind == "conv":
        window = layer["size"], layer["stride"], layer["padding"]
        conv = nn.Conv2d(shape[2], output[2], *window, bias=bias is not None)
        return [filled(conv, weight.transpose(3, 2, 0, 1), bias)]
    if kind == "dense":
        before: list[nn.Module] = [Positions()] if len(shape) == 3 else []
        dense = nn.Linear(weight.shape[0], output[0], bias=bias is not None)
        return [*before, filled(dense, weight.T, bias)]
    if kind == "batchnorm":
        return [nn.BatchNorm2d(shape[2]) if len(shape) == 3 else nn.BatchNorm1d(shape[0])]
    if kind == "residual":
        stride = shape[0] // output[0]
        aside: nn.Module = nn.Identity()
        if (weight := arrays.get(f"{layer['name']}.shortcut.weight")) is not None:
            aside = nn.Conv2d(shape[2], output[2], 1, stride, bias=False)
            filled(aside, weight.transpose(3, 2, 0, 1), None)
        return [Block(network(layer["layers"], arrays), aside)]
    if kind == "global-average-pool":
        return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if kind == "dropout":
        return [nn.Dropout(layer["rate"])]
    return [nn.MaxPool2d(layer["size"]) if kind == "pool" else nn.ReLU()]


def filled(module: Any, weight: Any, bias: Any) -> nn.Module:
    """A module with these parameters."""
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
        if bias is not None:
            module.bias.copy_(torch.from_numpy(bias))
    found: nn.Module = module
    return found
