"""``python -m benchmarks cuda.products``: matrix products on a GPU, and where it beats the CPU.

The tiled kernel, cuBLAS and, where it is installed, torch multiply matrices that lie on the device;
then a layer is computed on the CPU and on the device, its arrays copied for every call or left
there. Without a CUDA device nothing is measured.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.paired import Result, in_turn
from kernels import dispatch

SIZES = (256, 512, 1024, 2048, 4096, 8192)
LAYERS = (32, 64, 128, 256, 512, 1024, 2048)
TITLE = "Matrix products on a GPU, float32, square"

#: Units for float32 in a multiprocessor, by compute capability (CUDA C++ Programming Guide,
#: "Arithmetic Instructions").
_UNITS = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
_UNITS_SINCE_8_6 = 128


def products(quick: bool) -> Result:
    """The table, or that there is no device."""
    if dispatch.lacking():
        return Result(TITLE, "ms", "", [], skipped={"this toolkit": "no CUDA device"})
    return measured(SIZES[:3] if quick else SIZES, LAYERS[:4] if quick else LAYERS)


def measured(sizes: Sequence[int], layers: Sequence[int]) -> Result:
    """Times at all sizes; the table of ratios is of the largest."""
    from numba import cuda

    device = cuda.get_current_device()
    peak = peak_flops(device)
    rows = [
        "| size | who | ms | TFLOP/s | of the peak |",
        "|---|---|---|---|---|",
    ]
    times: dict[str, list[float]] = {}
    for size in sizes:
        contenders = multipliers(size)
        ours = contenders.pop("tiled")
        mine, theirs = in_turn(ours, contenders, 5)
        times = {"tiled": mine, **theirs}
        for who, taken in times.items():
            middle = statistics.median(taken)
            flops = 2 * size**3 / middle
            rows.append(
                f"| {size} | {who} | {middle * 1e3:.3g} | {flops / 1e12:.3g} | {flops / peak:.0%} |"
            )
    note = [
        f"On {name(device)}, whose float32 units give {peak / 1e12:.3g} TFLOP/s at most.",
        "",
        *rows,
        "",
        *layer_lines(layers),
        "",
        f"Of {sizes[-1]} rows and columns:",
    ]
    milliseconds = {who: [1e3 * value for value in taken] for who, taken in times.items()}
    return Result(TITLE, "ms", "\n".join(note), milliseconds.pop("tiled"), milliseconds)


def multipliers(size: int) -> dict[str, Callable[[], float]]:
    """By name, what multiplies two matrices on the device and returns the seconds it took."""
    from kernels.cuda import cublas, dense, memory

    a, b = (memory.to_device(values(seed, size, size)) for seed in (1, 2))
    out = memory.to_device(np.zeros((size, size), np.float32))
    repeats = max(1, min(100, 2**33 // size**3))
    found = {
        "tiled": lambda: seconds(lambda: dense.tiled_product(a, b, out, False, False), repeats)
    }
    if cublas.available():
        found["cuBLAS"] = lambda: seconds(lambda: cublas.product(a, b, out, False, False), repeats)
    try:
        import torch
    except ImportError:
        return found
    if torch.cuda.is_available():
        left, right = (torch.tensor(values(seed, size, size), device="cuda") for seed in (1, 2))
        result = torch.empty_like(left)
        found["torch"] = lambda: seconds(lambda: torch.matmul(left, right, out=result), repeats)
    return found


def layer_lines(sizes: Sequence[int]) -> list[str]:
    """A layer with as many rows, inputs and outputs, on the CPU and on the device."""
    from kernels.cuda import memory

    lines = [
        "| layer | CPU, one thread, ms | GPU, copied, ms | GPU, left there, ms |",
        "|---|---|---|---|",
    ]
    columns: list[list[float]] = []
    for size in sizes:
        host = [values(1, size, size), values(2, size, size), values(3, 1, size)[0]]
        out = np.empty((size, size), np.float32)
        there = [memory.to_device(array) for array in host]
        out_there = memory.to_device(out)
        calls = [
            layer("cpu", [*host, out]),
            layer("cuda", [*host, out]),
            layer("cuda", [*there, out_there]),
        ]
        repeats = max(1, min(100, 2**27 // size**3))
        columns.append([seconds(call, repeats) for call in calls])
        lines.append(f"| {size} | " + " | ".join(f"{s * 1e3:.3g}" for s in columns[-1]) + " |")
    cpu, copied, left = zip(*columns, strict=True)
    return [
        *lines,
        "",
        f"The GPU beats the CPU {crossing(sizes, cpu, copied)} if arrays are copied for each call, "
        f"and {crossing(sizes, cpu, left)} if they are left there.",
    ]


def layer(device: str, arrays: list[Any]) -> Callable[[], object]:
    """A call of the kernel for a layer with ReLU."""
    affine = dispatch.get("affine", device)
    return lambda: affine(*arrays, relu=True)


def values(seed: int, rows: int, columns: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal((rows, columns), np.float32)


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Seconds that a call takes, of so many that are issued one after the other."""
    from numba import cuda

    call()
    cuda.synchronize()
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    cuda.synchronize()
    return (time.perf_counter() - started) / repeats


def peak_flops(device: Any) -> float:
    """Float32 operations a second: units times clock, a multiplication and an addition each."""
    capability = tuple(device.compute_capability)[:2]
    units = device.MULTIPROCESSOR_COUNT * _UNITS.get(capability, _UNITS_SINCE_8_6)
    return float(2 * units * device.CLOCK_RATE * 1e3)


def name(device: Any) -> str:
    found = device.name
    return found.decode() if isinstance(found, bytes) else str(found)


def crossing(sizes: Sequence[int], slower: Sequence[float], faster: Sequence[float]) -> str:
    """From which size on ``faster`` takes less time."""
    first = None
    for size, slow, fast in reversed(list(zip(sizes, slower, faster, strict=True))):
        if fast >= slow:
            break
        first = size
    return "at no size measured" if first is None else f"from {first} rows on"
