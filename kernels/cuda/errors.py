"""Errors of a CUDA device, each with what was expected and found, and what to do next."""

import re


class CudaError(RuntimeError):
    """Base class: a kernel could not run on a CUDA device."""


class NoDeviceError(CudaError):
    """There is no CUDA device, or no driver for it, or it is hidden from this process."""


class ToolkitError(CudaError):
    """The driver and the CUDA toolkit are too old for each other, or the toolkit is missing."""


class OutOfDeviceMemoryError(CudaError):
    """The arrays of a call do not fit the device's free memory."""


class ForkedError(CudaError):
    """CUDA was used before this process was forked, which no CUDA program survives."""


#: What the driver's or Numba's message says, the error it means, and what to do.
_MEANINGS = (
    (
        r"CUDA_ERROR_OUT_OF_MEMORY",
        OutOfDeviceMemoryError,
        "expected room for all arrays of the call. Next: take fewer rows a slice, or fewer "
        "processes that share the device; `nvidia-smi` shows who uses it",
    ),
    (
        r"before forking|CUDA_ERROR_NOT_INITIALIZED",
        ForkedError,
        "expected a process that starts CUDA itself. Next: ask for the device in the workers "
        "alone, not in the process that forks them",
    ),
    (
        r"CUDA_ERROR_(UNSUPPORTED_PTX_VERSION|SYSTEM_DRIVER_MISMATCH|NO_BINARY_FOR_GPU|INVALID_PTX"
        r"|COMPAT_NOT_SUPPORTED_ON_DEVICE)|[Nn][Vv][Vv][Mm]|nvrtc|libdevice|nvJitLink|too new",
        ToolkitError,
        "expected a CUDA toolkit that is not newer than the driver. Next: compare `nvidia-smi` "
        "with `python -m numba -s`, and install the toolkit of pip install 'gradreduce[cuda]'",
    ),
    (
        r"driver library cannot be found|CUDA_ERROR_(NO_DEVICE|INVALID_DEVICE|DEVICE_UNAVAILABLE"
        r"|STUB_LIBRARY|SYSTEM_NOT_READY)|CUDA is disabled",
        NoDeviceError,
        "expected an NVIDIA GPU and its driver. Next: look what `nvidia-smi` shows and at "
        "$CUDA_VISIBLE_DEVICES, or compute on the device 'cpu'",
    ),
)


def explained(error: BaseException, doing: str) -> CudaError | None:
    """The typed error for one of Numba's or the driver's; None if it is not about the device.

    ``doing`` says what was tried, a kernel's name for example.
    """
    # Numba's errors about types and arguments are not errors of the device.
    if not type(error).__module__.startswith(("numba.cuda", "cuda.", "nvmath.")):
        return None
    found = " ".join(str(error).split())
    for pattern, kind, advice in _MEANINGS:
        if re.search(pattern, found):
            return kind(f"{doing}: {advice}. Found: {found}")
    return CudaError(
        f"{doing}: expected the CUDA driver to succeed. Next: look at `nvidia-smi` and, for faults "
        f"of the hardware, at `dmesg`. Found: {found}"
    )
