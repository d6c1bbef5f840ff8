"""PyTorch on two processes, by a plan of ours: post-local SGD, a pipeline of two stages, Horovod.

``torch_strategies.py KIND FOLDER`` reads ``job.json`` and ``arrays.npz``: layers, first parameters,
images, labels, and the rows of each step, in parts: of each process, or of each micro-batch. It
prints, as JSON, the median seconds of an epoch without the first, and the loss of each step.
"""

import json
import os
import socket
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch_network import network

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Job:
    """What is to be trained, by the process of a rank."""

    def __init__(self, folder: Path, rank: int) -> None:
        torch.set_num_threads(1)
        self.rank = rank
        self.told: dict[str, Any] = json.loads((folder / "job.json").read_text())
        self._arrays = np.load(folder / "arrays.npz")
        self._images = torch.from_numpy(self._arrays["images"])
        self._labels = torch.from_numpy(self._arrays["labels"])

    def network(self, first: int = 0, stop: int | None = None) -> nn.Sequential:
        """Some of the layers, with their first parameters."""
        arrays = {name: self._arrays[name] for name in self._arrays.files}
        return network(self.told["layers"][first:stop], arrays)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.told["learning_rate"])

    def train(
        self, step: Step, barrier: Callable[[], Any], part: int | None
    ) -> tuple[float, torch.Tensor]:
        """Take all steps, on one part of each step's rows or on all; the rows are at hand."""
        losses, times = [], []
        for rows in np.split(self._arrays["rows"], self.told["epochs"]):
            # The last batch of a shard may have fewer rows, which are -1.
            chosen = rows if part is None else [one[one >= 0] for one in rows[:, part]]
            batches = [self._batch(torch.from_numpy(one)) for one in chosen]
            barrier()
            started = time.perf_counter()
            losses += [step(*batch) for batch in batches]
            barrier()
            times.append(time.perf_counter() - started)
        return statistics.median(times[1:]), torch.stack(losses)

    def _batch(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._images[rows].float() * self.told["scale"], self._labels[rows]

    def tell(self, seconds: float, losses: torch.Tensor, **versions: str) -> None:
        """Print what was found, if this is the first process."""
        if self.rank == 0:
            found = {"seconds": seconds, "losses": losses.tolist(), "torch": torch.__version__}
            print(json.dumps(found | versions), flush=True)


def on_own_rows(model: nn.Module, optimizer: Any) -> Step:
    """A step on a process's own rows, which gives its share of the loss of two."""

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach() / 2

    return step


def averaging(job: Job) -> Step:
    """Steps of post-local SGD, which averages parameters after every few."""
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
        PostLocalSGDState,
        post_localSGD_hook,
    )
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    alone = [dist.new_group([rank]) for rank in range(2)][job.rank]
    model = nn.parallel.DistributedDataParallel(job.network())
    state = PostLocalSGDState(None, alone, 0, post_local_gradient_allreduce=False)
    model.register_comm_hook(state, post_localSGD_hook)
    # Which averages first after the step of the number of warmup_steps, counted from 0.
    period = job.told["local_steps"]
    averager = PeriodicModelAverager(period, warmup_steps=period - 1)
    return on_own_rows(model, PostLocalSGDOptimizer(job.optimizer(model), averager))


def first_stage(job: Job) -> Step:
    """The first stage of a pipeline: it goes back with one micro-batch after the next is sent."""
    model = job.network(0, job.told["cut"])
    optimizer = job.optimizer(model)

    def step(images: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        sent, going = [], deque()

        def back() -> None:
            outputs, gradient, coming = going.popleft()
            coming.wait()
            outputs.backward(gradient)

        for micro_batch in images:
            outputs = model(micro_batch)
            sent.append(dist.isend(outputs.detach(), 1))
            gradient = torch.empty_like(outputs)
            going.append((outputs, gradient, dist.irecv(gradient, 1)))
            if len(going) == 2:
                back()
        back()
        for one in sent:
            one.wait()
        optimizer.step()
        return torch.zeros(())

    return step


def last_stage(job: Job) -> Step:
    """The last stage of a pipeline: forward and back with each micro-batch."""
    model = job.network(job.told["cut"])
    optimizer = job.optimizer(model)

    def step(_: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        inputs = [torch.empty(len(one), *job.told["edge"]) for one in labels]
        coming = [dist.irecv(one, 0) for one in inputs]
        sent, total = [], torch.zeros(())
        for number, micro_batch in enumerate(inputs):
            coming[number].wait()
            micro_batch.requires_grad_()
            truth = labels[number]
            loss = cross_entropy(model(micro_batch), truth, reduction="sum") / labels.numel()
            loss.backward()
            sent.append(dist.isend(micro_batch.grad, 0))
            total += loss.detach()
        for one in sent:
            one.wait()
        optimizer.step()
        return total

    return step


def with_gloo(rank: int, kind: str, folder: Path, port: int) -> None:
    """The process of a rank."""
    meeting = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    job = Job(folder, rank)
    if kind == "averaging":
        seconds, losses = job.train(averaging(job), dist.barrier, rank)
    else:
        step = (first_stage, last_stage)[rank](job)
        seconds, losses = job.train(step, dist.barrier, None)
    dist.all_reduce(losses)
    job.tell(seconds, losses)
    # Or one process may close what the other is still using, and that one aborts.
    dist.barrier()
    dist.destroy_process_group()
    # Gloo's threads of messages that were sent at once may abort an interpreter that ends.
    sys.stdout.flush()
    os._exit(0)


def with_horovod(folder: Path) -> None:
    """A process that horovodrun has started."""
    import horovod
    import horovod.torch as hvd

    hvd.init()
    job = Job(folder, hvd.rank())
    model = job.network()
    optimizer = hvd.DistributedOptimizer(job.optimizer(model), model.named_parameters())
    seconds, losses = job.train(on_own_rows(model, optimizer), hvd.barrier, job.rank)
    losses = hvd.allreduce(losses, op=hvd.Sum)
    job.tell(seconds, losses, horovod=horovod.__version__)


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    if kind == "horovod":
        with_horovod(folder)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(with_gloo, (kind, folder, port), 2)


if __name__ == "__main__":
    main()
