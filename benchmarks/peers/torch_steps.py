"""Networks of layers in PyTorch, of the specifications that ``--model`` takes.

As a program: ``python torch_steps.py LAYERS CHANNELS SIZE BATCH STEPS [channels_last]`` prints,
as JSON, the median seconds of a step: forward, loss, backward.
"""

import json
import os
import re
import statistics
import sys
import time

import torch
from torch import nn


class Residual(nn.Module):
    """The sum of some layers' outputs and of their inputs, or of a projection of these."""

    def __init__(self, layers: str) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(layer(one) for one in split(layers)))
        stride = re.search(r"stride=(\d+)", layers)
        filters = int(re.findall(r"conv:(\d+)x", layers)[-1])
        self.shortcut = (
            nn.LazyConv2d(filters, 1, int(stride[1]), bias=False) if stride else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x) + self.shortcut(x)
        return found


def split(layers: str) -> list[str]:
    """The parts between commas that are not within parentheses."""
    return re.findall(r"(?:[^,(]|\([^)]*\))+", layers)


def layer(spec: str) -> nn.Module:
    """The module of one layer."""
    if spec.startswith("residual("):
        return Residual(spec.removeprefix("residual(").removesuffix(")"))
    name, *rest = spec.split(":")
    named = {key: int(value) for key, value in (one.split("=") for one in rest[1:])}
    if name == "conv":
        filters, size = map(int, rest[0].split("x"))
        return nn.LazyConv2d(filters, size, **named)
    if name == "dense":
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(int(rest[0])))
    simple = {
        "relu": nn.ReLU,
        "batchnorm": nn.LazyBatchNorm2d,
        "pool": lambda: nn.MaxPool2d(int(rest[0])),
        "dropout": lambda: nn.Dropout(float(rest[0])),
        "global-average-pool": lambda: nn.AdaptiveAvgPool2d(1),
    }
    return simple[name]()


def network(layers: str, channels: int, size: int, classes: int = 10) -> nn.Module:
    """The layers and one to the classes, with their parameters made."""
    modules = [layer(one) for one in split(layers)]
    is_flat = False
    for place, one in enumerate(modules):
        if is_flat and isinstance(one, nn.LazyBatchNorm2d):
            modules[place] = nn.LazyBatchNorm1d()
        is_flat |= isinstance(one, nn.Sequential)
    model = nn.Sequential(*modules, nn.Flatten(), nn.LazyLinear(classes))
    with torch.no_grad():
        model(torch.zeros(2, channels, size, size))
    return model


def main() -> None:
    layers, channels, size, batch, steps = sys.argv[1], *map(int, sys.argv[2:6])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    model, x = network(layers, channels, size), torch.rand(batch, channels, size, size)
    if "channels_last" in sys.argv:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    labels, loss_of, times = torch.randint(10, (batch,)), nn.CrossEntropyLoss(), []
    for _ in range(steps + 3):
        started = time.perf_counter()
        model.zero_grad()
        loss_of(model(x), labels).backward()
        times.append(time.perf_counter() - started)
    print(json.dumps({"seconds": statistics.median(times[3:]), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
