"""The language model of bytes by PyTorch: an embedding, a GRU and a layer to the bytes.

``torch_characters.py FOLDER`` reads ``arrays.npz`` (parameters, and texts as rows of bytes), and
answers each line by the seconds that their gradient takes.
"""

import os
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


def step(model: Characters, texts: torch.Tensor) -> float:
    started = time.perf_counter()
    model.zero_grad()
    model.loss(texts).backward()
    return time.perf_counter() - started


def main(folder: Path) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    arrays = np.load(folder / "arrays.npz")
    model, texts = Characters(arrays), torch.from_numpy(arrays["texts"])
    for _ in sys.stdin:
        print(step(model, texts), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
