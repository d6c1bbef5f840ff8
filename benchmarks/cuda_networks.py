"""Convolutional networks on a GPU, beside cuDNN where torch brings it, and beside the CPU.

``python -m benchmarks cuda_networks.kernels`` measures each kernel on arrays that lie on the
device; ``cuda_networks.step`` the loss and gradient of a whole network, and from how many rows on
the GPU takes less time than one thread of the CPU. Without a CUDA device nothing is measured.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.cuda import crossing, name, peak_flops, seconds
from benchmarks.networks import described
from benchmarks.paired import Result, in_turn
from kernels import arrays, dispatch
from mapreduce import models
from mapreduce.data.batch import Batch
from mapreduce.models.context import Context, Key, Workspace
from mapreduce.models.layers.sequential import Sequential

Array = np.ndarray[Any, np.dtype[Any]]
Call = Callable[[], object]

#: Rows, height and width, channels in and out: of convolutions of 3 x 3, and what follows them.
SHAPES = ((128, 32, 16, 16), (128, 32, 64, 64), (128, 16, 128, 128), (128, 8, 256, 256))
SIZE, PADDING = 3, 1
NETWORK = "conv:16x5,batchnorm,relu,pool:2,conv:32x5,relu,pool:2,dense:128,relu,dropout:0.5"
ROWS = (32, 128, 512, 2048, 8192)
CUDNN = "cuDNN, by torch"
_REPEATS = 20


@dataclass
class Case:
    """A kernel's call on some arrays.

    Attributes
    ----------
    name : str
    flops : int
        Multiplications and additions.
    bytes : int
        What has to be read from the device's memory and written to it, if nothing is read again
        that a cache could have kept.
    call : callable
    """

    name: str
    flops: int
    bytes: int
    call: Call

    def least_seconds(self, peak: float, bandwidth: float) -> float:
        """The time below which a device cannot be: S. Williams et al., Roofline, 2009."""
        return max(self.flops / peak, self.bytes / bandwidth)


def operands(rows: int, side: int, channels: int, filters: int) -> dict[str, Array]:
    """Arrays of a layer: images, weights, outputs with a gradient, and a pooled gradient."""
    shapes = {
        "x": (rows, side, side, channels),
        "weight": (SIZE, SIZE, channels, filters),
        "y": (rows, side, side, filters),
        "delta": (rows, side, side, filters),
        "pooled": (rows, side // 2, side // 2, filters),
        "scale": (filters,),
    }
    generator = np.random.default_rng(1)
    return {key: generator.standard_normal(shape, np.float32) for key, shape in shapes.items()}


def cases(given: dict[str, Array], device: str) -> list[Case]:
    """The kernels of a convolutional layer, of max pooling and of batch norm, both ways."""
    there = {key: arrays.to_device(array.copy(), device) for key, array in given.items()}
    x, weight, y, delta, pooled, scale = there.values()
    below, above = (arrays.to_device(np.empty_like(given[key]), device) for key in ("x", "y"))
    weight_grad = arrays.to_device(np.empty_like(given["weight"]), device)
    places = arrays.to_device(np.zeros(pooled.shape, np.uint8), device)
    mean, squares = (arrays.to_device(np.ones(scale.shape), device) for _ in range(2))
    sums, scale_grad = (arrays.to_device(np.ones_like(given["scale"]), device) for _ in range(2))
    channels = scale.shape[0]
    flat, delta_flat, above_flat = (
        each.reshape((each.size // channels, channels)) for each in (y, delta, above)
    )

    def kernel(name: str, *arguments: object) -> Call:
        function = dispatch.get(name, device)
        return lambda: function(*arguments)

    def batch_norm() -> None:
        dispatch.get("channel_moments", device)(flat, mean, squares)
        dispatch.get("scale_shift", device)(y, scale, scale, above, None, False, 1)

    window = 1, PADDING
    work = 2 * y.size * SIZE**2 * x.shape[3]
    moved = 4 * (x.size + weight.size + y.size)
    pooling = 4 * (y.size + pooled.size) + places.size
    backward = flat, mean, squares, scale, scale_grad, sums, above_flat, True
    return [
        Case("convolve", work, moved, kernel("convolve", x, weight, y, *window)),
        Case(
            "convolve_weight_gradient",
            work,
            moved,
            kernel("convolve_weight_gradient", x, delta, weight_grad, *window),
        ),
        Case(
            "convolve_input_gradient",
            work,
            moved,
            kernel("convolve_input_gradient", delta, weight, below, *window),
        ),
        Case("max_pool", 0, pooling, kernel("max_pool", y, pooled, places, 2, 2)),
        Case(
            "max_pool_backward",
            0,
            pooling,
            kernel("max_pool_backward", pooled, places, above, 2, 2),
        ),
        # The images have to be read twice: their moments are known at their end.
        Case("channel_moments and scale_shift", 0, 12 * y.size, batch_norm),
        Case(
            "batch_norm_backward",
            0,
            20 * y.size,
            kernel("batch_norm_backward", delta_flat, *backward),
        ),
    ]


def torch_calls(given: dict[str, Array], device: str) -> list[Call]:
    """What torch computes instead of each of :func:`cases`, with channels last in memory."""
    import torch

    torch.backends.cudnn.allow_tf32 = False
    aten = torch.ops.aten
    turned = given | {"weight": given["weight"].transpose(3, 0, 1, 2)}
    there = [torch.tensor(array, device=device) for array in turned.values()]
    x, weight, y, delta, pooled = (each.permute(0, 3, 1, 2) for each in there[:5])
    scale = there[5]
    mean, variance = torch.zeros_like(scale), torch.ones_like(scale)
    ones, zeros = [1, 1], [0, 0]
    _, places = aten.max_pool2d_with_indices(y, [2, 2], [2, 2])
    moments = aten.native_batch_norm(y, scale, scale, mean, variance, True, 0.1, 1e-5)[1:]

    def backward(*wanted: bool) -> object:
        padding = [PADDING, PADDING]
        how = None, ones, padding, ones, False, zeros, 1, list(wanted)
        return aten.convolution_backward(delta, x, weight, *how)

    return [
        lambda: torch.nn.functional.conv2d(x, weight, padding=PADDING),
        lambda: backward(False, True, False),
        lambda: backward(True, False, False),
        lambda: aten.max_pool2d_with_indices(y, [2, 2], [2, 2]),
        lambda: aten.max_pool2d_with_indices_backward(
            pooled, y, [2, 2], [2, 2], zeros, ones, False, places
        ),
        lambda: aten.native_batch_norm(y, scale, scale, mean, variance, True, 0.1, 1e-5),
        lambda: aten.native_batch_norm_backward(
            delta, y, scale, mean, variance, *moments, True, 1e-5, [True, True, True]
        ),
    ]


def has_cudnn() -> bool:
    """Whether torch is installed and finds a device."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def kernels(quick: bool) -> Result:
    """The table of kernels, or that there is no device."""
    title = "Kernels of convolutional networks on a GPU, float32"
    if dispatch.lacking():
        return Result(title, "ms", "", [], skipped={"this toolkit": "no CUDA device"})
    from numba import cuda

    device = cuda.get_current_device()
    peak, bandwidth = peak_flops(device), peak_bandwidth(device)
    lines = [
        f"On {name(device)}, which at most gives {peak / 1e12:.3g} TFLOP/s without tensor cores "
        f"and moves {bandwidth / 1e9:.4g} GB/s.",
        "",
        f"| rows × side², channels | kernel | ms | TFLOP/s | of the peak | {CUDNN}, ms |",
        "|---|---|---|---|---|---|",
    ]
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    for shape in SHAPES[:1] if quick else SHAPES:
        given = operands(*shape)
        calls = torch_calls(given, "cuda") if has_cudnn() else []
        for place, case in enumerate(cases(given, "cuda")):
            peers = {CUDNN: timed(calls[place])} if calls else {}
            mine, others = in_turn(timed(case.call), peers, 5)
            ours.append(mine)
            theirs += others.values()
            lines.append(row(shape, case, mine, others.get(CUDNN), peak, bandwidth))
    sums = [1e3 * sum(each) for each in zip(*ours, strict=True)]
    peers_sums = [1e3 * sum(each) for each in zip(*theirs, strict=True)]
    found = {CUDNN: peers_sums} if peers_sums else {}
    return Result(title, "ms", "\n".join([*lines, "", "All together:"]), sums, found)


def timed(call: Call) -> Callable[[], float]:
    return lambda: seconds(call, _REPEATS)


def row(
    shape: Sequence[int],
    case: Case,
    mine: Sequence[float],
    theirs: Sequence[float] | None,
    peak: float,
    bandwidth: float,
) -> str:
    """A line of the table."""
    middle = statistics.median(mine)
    rows, side, channels, filters = shape
    cells = [
        f"{rows} × {side}², {channels} → {filters}",
        f"`{case.name}`",
        f"{middle * 1e3:.3g}",
        f"{case.flops / middle / 1e12:.3g}" if case.flops else "",
        f"{case.least_seconds(peak, bandwidth) / middle:.0%}",
        "" if theirs is None else f"{statistics.median(theirs) * 1e3:.3g}",
    ]
    return "| " + " | ".join(cells) + " |"


def peak_bandwidth(device: Any) -> float:
    """Bytes a second between the device and its memory, which moves two words in each cycle."""
    return float(2 * device.MEMORY_CLOCK_RATE * 1e3 * device.GLOBAL_MEMORY_BUS_WIDTH / 8)


def step(quick: bool) -> Result:
    """The table of a network's gradients, or that there is no device."""
    title = "Loss and gradient of a convolutional network on a GPU"
    if dispatch.lacking():
        return Result(title, "ms", "", [], skipped={"this toolkit": "no CUDA device"})
    from numba import cuda

    peak = peak_flops(cuda.get_current_device())
    sizes = ROWS[:2] if quick else ROWS
    lines = [
        f"| rows | CPU, one thread, ms | GPU, ms | TFLOP/s | of the peak | {CUDNN}, ms |",
        "|---|---|---|---|---|---|",
    ]
    columns: list[tuple[float, float]] = []
    mine: list[float] = []
    theirs: dict[str, list[float]] = {}
    for rows in sizes:
        host, device = network("cpu"), network("cuda")
        peers = {CUDNN: timed(torch_step(device, rows, "cuda"))} if has_cudnn() else {}
        mine, theirs = in_turn(timed(gradient(device, rows)), peers, 5)
        columns.append((seconds(gradient(host, rows), 3), statistics.median(mine)))
        flops = operations(device, rows)
        cells = [f"{value * 1e3:.3g}" for value in columns[-1]]
        cells += [f"{flops / columns[-1][1] / 1e12:.3g}", f"{flops / columns[-1][1] / peak:.0%}"]
        cells += [f"{statistics.median(each) * 1e3:.3g}" for each in theirs.values()] or [""]
        lines.append(f"| {rows} | " + " | ".join(cells) + " |")
    cpu, gpu = zip(*columns, strict=True)
    note = [
        f"`{NETWORK}` on images of 28 × 28 bytes, which are copied to the device.",
        "",
        *lines,
        "",
        f"The GPU beats one thread of the CPU {crossing(sizes, cpu, gpu)}.",
        "",
        f"Of {sizes[-1]} rows:",
    ]
    found = {who: [1e3 * value for value in taken] for who, taken in theirs.items()}
    return Result(title, "ms", "\n".join(note), [1e3 * value for value in mine], found)


def network(device: str) -> Sequential:
    model = models.create(NETWORK, (28, 28), 10, "float32", device)
    assert isinstance(model, Sequential)
    return model


def operations(model: Sequential, rows: int) -> int:
    """Multiplications and additions of a loss and its gradient by parameters and inputs.

    A product has two gradients, each of as many operations as itself. The gradient by the images
    that the network gets is not needed, and counts nothing.
    """
    work = [layer.work for _, layer in model.stack.named()]
    first = next(each for each in work if each)
    return 2 * rows * (3 * sum(work) - first)


def gradient(model: Sequential, rows: int) -> Call:
    """The loss and gradient of a batch, by the model's kernels."""
    params = arrays.to_device(model.init(1), model.device)
    context = Context(Workspace(model.device), key=Key(1), training=True)
    out = context.workspace.array("gradient", (model.size,), model.dtype)
    images, labels = batch(model, rows)
    given = Batch(images, labels, scale=1 / 255)
    return lambda: model.gradient(params, given, out, context)


def torch_step(model: Sequential, rows: int, device: str) -> Call:
    """The same of a network with the same layers and parameters, by torch."""
    import torch

    from benchmarks.peers.torch_network import network as torch_network

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    named = model.named(model.init(1))
    twin = torch_network(described(model.stack), named).to(
        device, memory_format=torch.channels_last
    )
    images, labels = batch(model, rows)
    x, y = torch.tensor(images).view(rows, 1, *model.shape), torch.tensor(labels).long()

    def call() -> float:
        twin.zero_grad()
        scaled = x.to(device) / 255
        loss = torch.nn.functional.cross_entropy(twin(scaled), y.to(device), reduction="sum")
        loss.backward()
        return loss.item()

    return call


def batch(model: Sequential, rows: int) -> tuple[Array, Array]:
    """Random images, and labels."""
    generator = np.random.default_rng(rows)
    images = generator.integers(0, 256, (rows, model.features)).astype(np.uint8)
    return images, generator.integers(0, model.classes, rows).astype(np.int32)
