"""From the name of a kernel and a device to the function that computes it."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.cpu.invariant import Invariant

#: Which module holds a kernel, the same under every device's package.
KERNELS = {
    "scale": "dense",
    "channels_last": "dense",
    "affine": "dense",
    "affine_gradient": "dense",
    "affine_input_gradient": "dense",
    "relu_backward": "dense",
    "softmax_cross_entropy": "softmax",
    "softmax": "softmax",
    "score": "softmax",
    "linear_loss": "linear",
    "sigmoid": "linear",
    "convolve": "convolution",
    "convolve_weight_gradient": "convolution",
    "convolve_input_gradient": "convolution",
    "max_pool": "pooling",
    "max_pool_backward": "pooling",
    "average_pool": "pooling",
    "average_pool_backward": "pooling",
    "global_average": "pooling",
    "global_average_backward": "pooling",
    "scale_shift": "channels",
    "scale_shift_backward": "channels",
    "channel_moments": "normalisation",
    "batch_norm_backward": "normalisation",
    "layer_norm": "layer_norm",
    "layer_norm_backward": "layer_norm",
    "embed": "embedding",
    "embed_gradient": "embedding",
    "recurrent": "recurrent",
    "recurrent_backward": "recurrent",
    "csr_scores": "sparse",
    "csr_gradient": "sparse",
    "csr_gradient_sparse": "sparse",
    "activate": "activations",
    "activate_backward": "activations",
    "uniform": "random",
    "dropout": "random",
    "add_into": "reduce",
    "first_non_finite": "reduce",
    "mask_blocks": "wire",
    "unmask_blocks": "wire",
    "WordCounter": "text",
    "hash_partitions": "text",
    "add_hashes": "text",
    "murmur3": "text",
    "record_ends": "records",
    "augment": "augment",
    "count_cells": "bins",
    "bin_rows": "bins",
    "log_loss_gradients": "bins",
    "squared_gradients": "bins",
    "log_losses": "bins",
    "pack_histogram": "trees",
    "unpack_histogram": "trees",
    "split_rows": "trees",
    "best_split": "trees",
    "split_subset": "trees",
    "best_subset": "trees",
    "add_leaves": "trees",
    "add_trees": "trees",
    "eigh": "symmetric",
    "cholesky_solve": "symmetric",
    "extremes": "fixed_point",
    "to_grid": "fixed_point",
    "gram_parts": "fixed_point",
    "centred": "fixed_point",
    "nearest": "fixed_point",
    "closest": "fixed_point",
    "move_rows": "fixed_point",
    "row_chances": "fixed_point",
    "choose": "fixed_point",
}

DEVICES = ("cpu", "cuda")

#: Modules of kernels that have no twin on other devices. The first three read bytes that come from
#: a file or a pipe, so that copying them would take longer than the work.
HOST_ONLY = (
    *("wire", "text", "records", "augment", "layer_norm", "embedding", "recurrent"),
    *("symmetric", "fixed_point", "bins", "trees"),
)


def get(kernel: str, device: str = "cpu") -> Callable[..., Any]:
    """The function that computes one of :data:`KERNELS` on one of :data:`DEVICES`.

    A device's package is imported when it is first asked for.

    Raises
    ------
    ValueError
        The kernel or the device is unknown, or the kernel runs on the host alone.
    kernels.cuda.errors.CudaError
        ``device`` is ``cuda``, and there is none that this process can use.

    Examples
    --------
    >>> import numpy as np
    >>> get("first_non_finite")(np.array([1.0, np.nan, np.inf]))
    1
    """
    if device not in DEVICES:
        raise ValueError(f"unknown device {device!r}: expected one of {', '.join(DEVICES)}")
    if kernel not in KERNELS:
        # Loaded for errors alone.
        from difflib import get_close_matches

        known = get_close_matches(kernel, KERNELS) or KERNELS
        raise ValueError(f"unknown kernel {kernel!r}: expected one of {', '.join(known)}")
    if device != "cpu":
        if KERNELS[kernel] in HOST_ONLY:
            raise ValueError(
                f"{kernel} runs on the host: expected the device 'cpu', found {device!r}"
            )
        import_module(f"kernels.{device}").require()
    function: Callable[..., Any] = getattr(
        import_module(f"kernels.{device}.{KERNELS[kernel]}"), kernel
    )
    return function


def batch_invariant() -> "Invariant":
    """Kernels of the CPU by which a row has the same bits in any batch, for one thread."""
    found: Invariant = import_module("kernels.cpu.invariant").Invariant()
    return found


def choose(device: str) -> str:
    """The device that ``auto`` stands for here: ``cuda`` if there is one, else ``cpu``.

    Others are returned as they are.

    Raises
    ------
    ValueError
        The device is unknown.
    """
    if device in DEVICES:
        return device
    if device != "auto":
        raise ValueError(f"unknown device {device!r}: expected auto, {', '.join(DEVICES)}")
    return "cpu" if lacking() else "cuda"


def lacking() -> str | None:
    """Why no CUDA device can be used here, and what to do; None if one can.

    To find out, CUDA is started in a process of its own: one that has started it cannot hand it on
    to those that it forks.
    """
    # Imported here, since no job on the CPU needs them.
    import os
    import subprocess
    import sys
    from ctypes.util import find_library

    configured = {"NUMBA_CUDA_DRIVER", "NUMBA_ENABLE_CUDASIM"} & os.environ.keys()
    if find_library("cuda") is None and not configured:
        return (
            "expected an NVIDIA GPU and its driver, found no library libcuda. Next: look what "
            "`nvidia-smi` shows, or compute on the device 'cpu'"
        )
    program = "from kernels import cuda; cuda.require()"
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), *sys.path]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    if not done.returncode:
        return None
    # The last line of the traceback, without the name of the error.
    last = (done.stderr.strip().splitlines() or ["the process that tried it was killed"])[-1]
    return last.partition("Error: ")[2] or last
