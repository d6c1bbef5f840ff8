"""Steps of a network in PyTorch: forward, loss, backward.

``torch_steps.py FOLDER CHANNELS SIZE BATCH STEPS [channels_last]`` reads the network's ``job.json``
and ``arrays.npz``, and prints, as JSON, the median seconds of a step.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch_network import of_folder


def main() -> None:
    channels, size, batch, steps = map(int, sys.argv[2:6])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    model, x = of_folder(Path(sys.argv[1])), torch.rand(batch, channels, size, size)
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
