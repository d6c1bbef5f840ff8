"""The network of another library, by PyTorch: the same parameters, rows and learning rates.

``torch_network.py FOLDER`` reads ``job.json`` (layers, momentum, weight decay, dtype, threads) and
``arrays.npz``, and prints the loss of each round and the accuracy on the test rows.
"""

import json
import sys
import time
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


def main(folder: Path) -> None:
    job, arrays = json.loads((folder / "job.json").read_text()), np.load(folder / "arrays.npz")
    torch.set_num_threads(job["threads"])
    torch.set_default_dtype(getattr(torch, job["dtype"]))
    torch.manual_seed(job["seed"])
    model = network(job["layers"], {name: arrays[name] for name in arrays.files})
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=job["momentum"])
    images, labels = torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"])
    losses, started = [], time.perf_counter()
    for rows, rate in zip(arrays["rounds"], arrays["rates"].tolist(), strict=True):
        # The last round of an epoch may have fewer rows.
        chosen = torch.from_numpy(rows[rows >= 0])
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        batch = images[chosen].to(torch.get_default_dtype()) / 255
        loss = nn.functional.cross_entropy(model(batch), labels[chosen])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - started
    model.eval()
    tests, truth = torch.from_numpy(arrays["tests"]), torch.from_numpy(arrays["truth"])
    correct = 0
    with torch.no_grad():
        for start in range(0, len(tests), 500):
            rows = slice(start, start + 500)
            logits = model(tests[rows].to(torch.get_default_dtype()) / 255)
            correct += int((logits.argmax(1) == truth[rows]).sum())
    print(
        json.dumps({"losses": losses, "accuracy": correct / len(tests), "seconds": seconds}),
        flush=True,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
