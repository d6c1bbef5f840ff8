"""The arguments of kernels, at whose shapes those of both devices look first."""

import numpy as np
import numpy.typing as npt

#: What most kernels take: of float32 or float64.
Array = npt.NDArray[np.floating]


def expect(
    kernel: str, argument: str, array: npt.NDArray[np.generic], shape: tuple[int, ...]
) -> None:
    """Refuse an argument of another shape by a ValueError: a loop would read beyond its end."""
    if array.shape != shape:
        raise ValueError(f"{kernel}: {argument} has shape {array.shape}, expected {shape}")


def expect_all(kernel: str, shape: tuple[int, ...], **arrays: npt.NDArray[np.generic]) -> None:
    """As :func:`expect`, of arguments that all have one shape."""
    for argument, array in arrays.items():
        expect(kernel, argument, array, shape)
