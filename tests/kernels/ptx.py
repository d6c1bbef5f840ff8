"""Compile every CUDA kernel to PTX: ``python tests/kernels/ptx.py [COMPUTE_CAPABILITY]``.

What comes out is looked at, and one variant of each kernel is assembled for the device. The first
capability gets every variant; what differs between the others is the compiler's last pass, which
one variant for each size of floating-point numbers shows. Needs the toolkit of the extra ``cuda``
but no GPU: ``make ptx`` installs it into an environment of its own. Each compute capability has a
process of its own, since Numba keeps device functions for one only.
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[2]))

from numba import cuda, types
from numba.cuda import dispatcher

from kernels.cuda import (
    activations,
    channels,
    columns,
    convolution,
    dense,
    linear,
    normalisation,
    pooling,
    random,
    reduce,
    softmax,
    sparse,
)
from kernels.cuda.launch import Kernel

CAPABILITIES = ("7.5", "8.0", "9.0")
MODULES = (
    *(dense, activations, random, convolution, pooling, channels, columns, normalisation),
    *(softmax, reduce, linear, sparse),
)
#: The labels of a batch, and the targets of a regression.
LABELS = (types.uint8, types.int32, types.int64)
INT, BOOL, WORD = types.int64, types.boolean, types.uint64


def signatures(real: types.Type) -> dict[str, list[tuple[types.Type, ...]]]:
    """Argument types of every kernel, for parameters of float32 or float64."""
    flat, matrix, images = real[::1], real[:, ::1], real[:, :, :, ::1]
    double, doubles, integers = types.float64[::1], types.float64[:, ::1], types.int64[::1]
    places = types.uint8[:, :, :, ::1]
    labels = [label[::1] for label in LABELS]
    # Stored as float16, summed in float32.
    half, halves = types.float16[::1], types.float16[:, ::1]
    mixed = real == types.float32
    return {
        "_scale": [(stored[::1], real, flat) for stored in (types.uint8, types.float32, real)],
        "_store": [(flat, half), (double, flat)],
        "_channels_last": [(stored[::1], real, INT, INT, flat) for stored in (types.uint8, real)],
        "_add_bias": [(flat, flat, flat), *[(flat, half, half), (flat, half, flat)] * mixed],
        "_add_bias_relu": [(flat, flat, flat), *[(flat, half, half)] * mixed],
        "_column_sums": [(matrix, flat), *[(halves, flat)] * mixed],
        "_mask": [(flat, flat, flat), *[(flat, half, half)] * mixed],
        "_product": [
            (matrix, flat, matrix, flat, BOOL, BOOL, matrix),
            *[(halves, half, halves, half, BOOL, BOOL, matrix)] * mixed,
        ],
        "_softmax": [(matrix, INT)],
        "_softmax_cross_entropy": [(matrix, label, double, INT, double) for label in labels],
        "_count_correct": [(matrix, label, integers) for label in labels],
        "_add": [(flat, flat)],
        "_first_non_finite": [(flat, integers)],
        "_linear_loss": [(INT, flat, label, double, double) for label in (*labels, double)],
        "_sigmoids": [(flat,)],
        "_activate": [(INT, flat, real, flat)],
        "_activate_backward": [(INT, flat, flat, real, flat)],
        "_uniform": [(WORD, WORD, types.float64[:, ::1])],
        "_convolve": [(images, flat, matrix, flat, *[INT] * 8, matrix)],
        "_wide_convolve": [(images, flat, matrix, flat, *[INT] * 8, matrix)],
        "_large_convolve": [(images, flat, matrix, flat, *[INT] * 8, matrix)],
        "_turn": [(images, flat)],
        "_weight_gradient": [(images, flat, matrix, flat, *[INT] * 8, real[:, :, ::1])],
        "_wide_weight_gradient": [(images, flat, matrix, flat, *[INT] * 8, real[:, :, ::1])],
        "_large_weight_gradient": [(images, flat, matrix, flat, *[INT] * 8, real[:, :, ::1])],
        "_add_parts": [(matrix, flat)],
        "_max_pool": [(images, images, places, INT, INT)],
        "_max_pool_backward": [(images, places, images, INT, INT)],
        "_average_pool": [(images, images, INT, INT, real)],
        "_average_pool_backward": [(images, images, INT, INT, real)],
        "_global_average": [(images, matrix, real)],
        "_global_average_backward": [(matrix, images, real)],
        "_scale_shift": [(matrix, flat, flat, matrix, BOOL, BOOL, INT)],
        "_scale_shift_pool": [(images, flat, flat, images, places, BOOL, BOOL, INT)],
        "_scale_shift_backward": [(matrix, matrix, matrix, BOOL, INT)],
        "_scale_shift_pool_backward": [(images, images, places, images, BOOL, INT)],
        "_sum_parts": [
            (INT, matrix, matrix, double, double, INT, types.float64, doubles),
            (INT, doubles, doubles, double, double, INT, types.float64, matrix),
        ],
        "_batch_norm_backward": [
            (matrix, matrix, double, double, flat, flat, double, types.float64, INT, matrix)
        ],
        "_dropout": [(matrix, WORD, WORD, WORD, real, matrix)],
        "_csr_scores": [(integers, index, flat, flat, real, flat) for index in labels[1:]],
        "_sum_columns": [(integers, integers, integers, flat, flat, flat)],
    }


def kernels(module: ModuleType) -> dict[str, dispatcher.CUDADispatcher]:
    """What a module has for the host to launch."""
    return {
        name: value.dispatcher
        for name, value in vars(module).items()
        if isinstance(value, Kernel) and value.dispatcher.py_func.__module__ == module.__name__
    }


def assemble(ptx: str, name: str, target: str) -> None:
    """Make machine code of PTX, as the driver would; registers that spill to memory fail."""
    ptxas = Path(sysconfig.get_path("purelib"), "nvidia", "cuda_nvcc", "bin", "ptxas")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ptx")
        path.write_text(ptx)
        command = [ptxas, "-v", f"-arch={target}", path, "-o", path.with_suffix(".cubin")]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or " 0 bytes spill stores" not in done.stderr:
        raise SystemExit(f"{name}: {done.stderr}")


def check(capability: str) -> None:
    """Compile everything for one compute capability, and look at what came out."""
    major, minor = map(int, capability.split("."))
    target = f"sm_{major}{minor}"
    # Asked for when a kernel calls a device function: there is no device to say so.
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(major, minor))
    found = {name: kernel for module in MODULES for name, kernel in kernels(module).items()}
    compiled = 0
    for real in (types.float32, types.float64):
        table = signatures(real)
        if table.keys() != found.keys():
            raise SystemExit(f"kernels without a signature here: {table.keys() ^ found.keys()}")
        for name, kernel in found.items():
            variants = table[name] if capability == CAPABILITIES[0] else table[name][:1]
            for number, signature in enumerate(variants):
                ptx, _ = cuda.compile_ptx(kernel.py_func, signature, cc=(major, minor))
                if f".target {target}" not in ptx:
                    raise SystemExit(f"{name}{signature} is not for {target}")
                if "__local_depot" in ptx:
                    raise SystemExit(f"{name}{signature} keeps arrays of a thread in memory")
                # Their order would be that in which threads come.
                if re.search(r"\b(atom|red)\b[.\w]*\.add[.\w]*\.f\d", ptx):
                    raise SystemExit(f"{name}{signature} adds floating-point numbers atomically")
                if number == 0:
                    assemble(ptx, name, target)
                compiled += 1
    print(f"{target}: {compiled} variants of {len(found)} kernels compiled", flush=True)


def main() -> int:
    if len(sys.argv) > 1:
        check(sys.argv[1])
        return 0
    started = [subprocess.Popen([sys.executable, __file__, each]) for each in CAPABILITIES]
    return max(abs(process.wait()) for process in started)


if __name__ == "__main__":
    sys.exit(main())
