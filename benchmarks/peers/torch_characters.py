"""The language model of bytes by PyTorch: an embedding, a GRU and a layer to the bytes.

``torch_characters.py FOLDER`` reads ``job.json`` (threads) and ``arrays.npz`` (parameters, texts as
rows of bytes, the rows of each round, and learning rates), and answers lines: ``learn`` by the
loss in nats a byte on the held-out rows after Adam's rounds, ``step`` by the seconds that the
gradient of the first round takes.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn


class Characters(nn.Module):
    """With the parameters of their names."""

    def __init__(self, arrays: Any) -> None:
        super().__init__()
        words, size = arrays["0.weight"].shape
        self.embedding = nn.Embedding(words, size)
        self.gru = nn.GRU(size, len(arrays["1.state_weight"]), batch_first=True)
        self.head = nn.Linear(*arrays["2.weight"].shape)
        given = {
            self.embedding.weight: arrays["0.weight"],
            self.gru.weight_ih_l0: arrays["1.weight"].T,
            self.gru.weight_hh_l0: arrays["1.state_weight"].T,
            self.gru.bias_ih_l0: arrays["1.bias"],
            self.gru.bias_hh_l0: arrays["1.state_bias"],
            self.head.weight: arrays["2.weight"].T,
            self.head.bias: arrays["2.bias"],
        }
        with torch.no_grad():
            for parameter, values in given.items():
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))

    def loss(self, texts: torch.Tensor) -> torch.Tensor:
        """The mean over the bytes of rows that have one byte more than steps."""
        states, _ = self.gru(self.embedding(texts[:, :-1]))
        return nn.functional.cross_entropy(self.head(states).flatten(0, 1), texts[:, 1:].flatten())


def learn(model: Characters, arrays: Any) -> float:
    train, tests = (torch.from_numpy(arrays[name]) for name in ("train", "tests"))
    optimizer = torch.optim.Adam(model.parameters())
    for rows, rate in zip(arrays["rounds"], arrays["rates"].tolist(), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        # The last round of an epoch may have fewer rows.
        model.loss(train[torch.from_numpy(rows[rows >= 0])]).backward()
        optimizer.step()
    with torch.no_grad():
        sums = [model.loss(part).item() * len(part) for part in tests.split(64)]
    return sum(sums) / len(tests)


def step(model: Characters, texts: torch.Tensor) -> float:
    started = time.perf_counter()
    model.zero_grad()
    model.loss(texts).backward()
    return time.perf_counter() - started


def main(folder: Path) -> None:
    job, arrays = json.loads((folder / "job.json").read_text()), np.load(folder / "arrays.npz")
    torch.set_num_threads(job["threads"])
    model = Characters(arrays)
    first = torch.from_numpy(arrays["train"][arrays["rounds"][0]])
    for line in sys.stdin:
        found = learn(model, arrays) if line.strip() == "learn" else step(model, first)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
