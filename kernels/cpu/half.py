"""Arrays stored as float16: kernels compute with them in float32, and round once what they store.

Neither Numba nor BLAS computes with float16 on a CPU, so arguments are widened before a call and
results narrowed after it. The product of two float16 numbers is exact in float32; sums are those of
float32. These are the values of mixed precision as of Micikevicius et al. (2018), without its
speed, which needs instructions that a CPU does not have.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

HALF = np.dtype(np.float16)


def widened(*results: str) -> Callable[[Kernel], Kernel]:
    """Decorate a kernel so that any of its arrays may be of float16.

    ``results`` names the arguments that it overwrites: numbers beyond 65,504 become infinities
    there, and those below 2**-25 zeros.
    """

    def decorate(kernel: Kernel) -> Kernel:
        signature = inspect.signature(kernel)

        @functools.wraps(kernel)
        def call(*arguments: Any, **options: Any) -> Any:
            for value in arguments:
                if getattr(value, "dtype", None) is HALF:
                    break
            else:
                return kernel(*arguments, **options)
            bound = signature.bind(*arguments, **options)
            given = dict(bound.arguments)
            for name, array in given.items():
                if getattr(array, "dtype", None) is HALF:
                    make = np.empty_like if name in results else np.array
                    bound.arguments[name] = make(array, np.float32)
            returned = kernel(*bound.args, **bound.kwargs)
            for name in results:
                computed, stored = bound.arguments[name], given[name]
                if computed is not stored:
                    with np.errstate(over="ignore"):
                        stored[...] = computed
                    returned = stored if returned is computed else returned
            return returned

        return call  # type: ignore[return-value]

    return decorate
