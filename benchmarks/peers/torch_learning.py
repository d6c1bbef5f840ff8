"""What PyTorch learns from the same parameters, rows and learning rates.

``torch_learning.py FOLDER`` reads ``job.json`` and ``arrays.npz``. The job has a kind, ``images``
with layers or ``texts``, momentum, dtype and seed. The program prints the loss of each round, the
loss on the test rows and, of images, the accuracy.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_characters import Characters
from torch_network import of_folder


class Images(nn.Module):
    """A network of images, which takes them as they are stored."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.network = of_folder(folder)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, int]:
        logits = self.network(images.to(torch.get_default_dtype()) / 255)
        correct = int((logits.argmax(1) == labels).sum())
        return nn.functional.cross_entropy(logits, labels), correct


class Texts(nn.Module):
    """The language model, whose labels are the last bytes of each row."""

    def __init__(self, arrays: Any) -> None:
        super().__init__()
        self.network = Characters(arrays)

    def forward(self, texts: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, int]:
        return self.network.loss(torch.cat([texts, labels[:, None]], 1)), 0


def main(folder: Path) -> None:
    job, arrays = json.loads((folder / "job.json").read_text()), np.load(folder / "arrays.npz")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_default_dtype(getattr(torch, job["dtype"]))
    torch.manual_seed(job["seed"])
    model: nn.Module = Images(folder) if job["kind"] == "images" else Texts(arrays)
    optimizer: Any = torch.optim.Adam(model.parameters())
    if job["kind"] == "images":
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=job["momentum"])
    rows, labels, tests, truth = (
        torch.from_numpy(arrays[name]) for name in ("rows", "labels", "tests", "truth")
    )
    losses = []
    for numbers, rate in zip(arrays["rounds"], arrays["rates"].tolist(), strict=True):
        # The last round of an epoch may have fewer rows.
        chosen = torch.from_numpy(numbers[numbers >= 0])
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss, _ = model(rows[chosen], labels[chosen])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    total, correct = 0.0, 0
    with torch.no_grad():
        for part, expected in zip(tests.split(64), truth.split(64), strict=True):
            loss, right = model(part, expected)
            total, correct = total + loss.item() * len(part), correct + right
    count = len(tests)
    print(json.dumps({"losses": losses, "loss": total / count, "accuracy": correct / count}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
