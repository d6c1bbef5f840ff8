"""The numeric profile: the settings that, beside the plan, decide the bits of a result.

BLAS picks its inner loops by the processor, and Numba the instructions. Under ``native`` they use
all that the processor has, and equal processors give equal bits. Under ``portable`` both are pinned
to one generation of processors, and all of that generation or later give the same bits. Either way
BLAS runs on one thread: products taken apart by several threads are rounded differently.

The variables must be set before NumPy is loaded, so this module imports nothing that loads it.
"""

import functools
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from mapreduce.errors import UsageError

PROFILES = ("native", "portable")

_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}

_ARM = {"OPENBLAS_CORETYPE": "ARMV8", "NUMBA_CPU_NAME": "generic", "ATEN_CPU_CAPABILITY": "default"}

#: BLAS core and Numba target of the portable profile, by machine; and PyTorch's own loops, those of
#: oneDNN and those of MKL, its BLAS.
_PORTABLE = {
    "x86_64": {
        "OPENBLAS_CORETYPE": "Haswell",
        "NUMBA_CPU_NAME": "haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        # On processors that are not Intel's, MKL takes AVX2 for AUTO.
        "MKL_CBWR": "COMPATIBLE",
    },
    "aarch64": _ARM,
    "arm64": _ARM,
}


def environment(profile: str) -> dict[str, str]:
    """The environment variables that a profile sets.

    Raises
    ------
    UsageError
        The profile is unknown, or ``portable`` is not defined for this machine.
    """
    if profile not in PROFILES:
        raise UsageError(
            f"--numeric-profile: expected one of {', '.join(PROFILES)}, found {profile!r}"
        )
    if profile == "native":
        return dict(_ONE_THREAD)
    machine = platform.machine()
    if machine not in _PORTABLE:
        raise UsageError(
            f"--numeric-profile portable is defined for {', '.join(_PORTABLE)}, not for {machine}"
        )
    return {**_ONE_THREAD, **_PORTABLE[machine]}


def pinned() -> dict[str, str]:
    """The variables of the profiles that the process has."""
    names = {name for variables in (_ONE_THREAD, *_PORTABLE.values()) for name in variables}
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


def inherited() -> dict[str, str]:
    """The variables for processes that this one has started on executors and nodes."""
    return {**environment("native"), **pinned()}


def is_set(variables: Mapping[str, str]) -> bool:
    """Whether the process has these variables."""
    return all(os.environ.get(name) == value for name, value in variables.items())


def pin(profile: str) -> None:
    """Set a profile's variables; if NumPy is loaded without them, start the program anew.

    Only the command line calls this: the program is started again with the arguments it had.
    """
    variables = environment(profile)
    if is_set(variables):
        return
    os.environ.update(variables)
    if "numpy" in sys.modules:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def describe() -> dict[str, Any]:
    """What the numbers of this process depend on: processor, libraries and their versions."""
    from mapreduce.support import blas

    # Loads NumPy, and thereby a BLAS.
    machine = _machine()
    names = ("internal_api", "version", "architecture")
    libraries = [{name: getattr(each, name, None) for name in names} for each in blas.libraries()]
    return {**machine, "numba_target": os.environ.get("NUMBA_CPU_NAME"), "blas": libraries}


@functools.cache
def _machine() -> dict[str, Any]:
    """What of :func:`describe` does not change while the process lives."""
    import llvmlite.binding
    import numba
    import numpy as np

    features = llvmlite.binding.get_host_cpu_features()
    return {
        "machine": platform.machine(),
        "cpu": llvmlite.binding.get_host_cpu_name(),
        "cpu_features": sorted(name for name, present in features.items() if present),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences between two descriptions, in words."""
    return [
        f"{name}: {_short(before.get(name))}, now {_short(now.get(name))}"
        for name in now
        if before.get(name) != now.get(name)
    ]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def mixed(profiles: list[dict[str, Any]], pinned: bool) -> list[str]:
    """How the numeric profiles of tasks differ from that of the first, in words.

    If the profiles are ``pinned``, the processors themselves do not matter.
    """
    ignored = {"cpu", "cpu_features"} if pinned else set()
    kept = [{name: p[name] for name in p if name not in ignored} for p in profiles]
    return [
        f"rank {rank}: {change}"
        for rank, profile in enumerate(kept)
        for change in difference(kept[0], profile)
    ]
