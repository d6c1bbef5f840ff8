"""PyTorch in one process, or on two: DistributedDataParallel with Gloo, or Horovod's optimizer."""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

LEARNING_RATE = 0.1


def train(rank: int, path: Path, epochs: int, kind: str, batch: int) -> None:
    processes = 1 if kind == "alone" else 2
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    # A network on images of 28 × 28, instead of the perceptron.
    if (path / "job.json").exists():
        from torch_network import of_folder

        model = nn.Sequential(nn.Unflatten(1, (1, 28, 28)), of_folder(path))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif kind == "horovod":
        import horovod.torch as hvd

        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    # Each process has its part of the rows, in memory.
    features = torch.from_numpy(np.load(path / "features.npy")[rank::processes])
    labels = torch.from_numpy(np.load(path / "labels.npy")[rank::processes].astype(np.int64))
    loss_of = nn.CrossEntropyLoss()
    share = batch // processes
    times, loss = [], torch.zeros(())
    for _ in range(epochs):
        started = time.perf_counter()
        order = torch.randperm(len(features) // share)
        for number in order.tolist():
            rows = slice(number * share, (number + 1) * share)
            optimizer.zero_grad()
            loss = loss_of(model(features[rows]), labels[rows])
            loss.backward()
            optimizer.step()
        times.append(time.perf_counter() - started)
    if rank == 0:
        seconds = statistics.median(times[1:])
        found = {"seconds": seconds, "loss": loss.item(), "torch": torch.__version__}
        print(json.dumps(found), flush=True)


def ddp(rank: int, path: Path, epochs: int, batch: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PEER_PORT"])
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    train(rank, path, epochs, "ddp", batch)
    # Or one process may close what the other is still using, and that one aborts.
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main() -> None:
    kind, path, epochs, batch = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    if kind == "alone":
        train(0, path, epochs, kind, batch)
        return
    if kind == "horovod":
        import horovod.torch as hvd

        hvd.init()
        train(hvd.rank(), path, epochs, kind, batch)
        return
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["PEER_PORT"] = str(probe.getsockname()[1])
    torch.multiprocessing.spawn(ddp, (path, epochs, batch), 2)


if __name__ == "__main__":
    main()
