"""From the name of a kernel and a device to the function that computes it."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

#: Which module holds a kernel, the same under every device's package.
KERNELS = {
    "scale": "dense",
    "affine": "dense",
    "affine_gradient": "dense",
    "relu_backward": "dense",
    "softmax_cross_entropy": "softmax",
    "softmax": "softmax",
    "score": "softmax",
    "linear_loss": "linear",
    "sigmoid": "linear",
    "csr_scores": "sparse",
    "csr_gradient": "sparse",
    "csr_gradient_sparse": "sparse",
    "add_into": "reduce",
    "first_non_finite": "reduce",
    "mask_blocks": "wire",
    "unmask_blocks": "wire",
    "WordCounter": "text",
    "hash_partitions": "text",
}

DEVICES = ("cpu",)


def get(kernel: str, device: str = "cpu") -> Callable[..., Any]:
    """The function that computes ``kernel`` on ``device``.

    A device's package is imported when it is first asked for.

    Parameters
    ----------
    kernel : str
        A key of :data:`KERNELS`.
    device : str
        One of :data:`DEVICES`.

    Raises
    ------
    ValueError
        The kernel or the device is unknown.
    """
    if device not in DEVICES:
        raise ValueError(f"unknown device {device!r}: expected one of {', '.join(DEVICES)}")
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: expected one of {', '.join(KERNELS)}")
    function: Callable[..., Any] = getattr(
        import_module(f"kernels.{device}.{KERNELS[kernel]}"), kernel
    )
    return function
