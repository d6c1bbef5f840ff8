"""Forward kernels that are batch-invariant: a row has the same bits whatever rows are beside it.

BLAS takes other loops for other numbers of rows, and other orders of a sum at the edges of a
matrix, so that the bits of a row depend on the batch that it is in. Here each number is one sum
whose order follows from the shape of the weights: by :mod:`kernels.cpu.tiles`, or for one output by
:mod:`kernels.cpu.dots`. The other kernels of a forward pass are batch-invariant by themselves.
"""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from kernels.cpu import dense, jit
from kernels.cpu.convolution import fill_panels
from kernels.cpu.dots import dots
from kernels.cpu.patches import whole
from kernels.cpu.recurrent import recurrent
from kernels.cpu.shapes import Array, expect
from kernels.cpu.tiles import VECTORS, gathered_products, lanes

#: Rows that stay in the second-level cache while all panels pass.
_ROWS = 96
#: Terms of a panel that stays in the first-level cache. A sum of more is taken in parts, so that
#: another number would give other bits.
_TERMS = 1024


#: Arrays whose tiles are found without a look at their memory.
_MOST_KNOWN = 256


class Invariant:
    """Kernels for the weights of one model, which it keeps as tiles read them.

    An instance belongs to one thread.
    """

    def __init__(self) -> None:
        self.hold(np.empty(0))

    def hold(self, params: npt.NDArray[Any]) -> None:
        """Take parts of ``params`` as weights that stay as they are until the next call of this.

        Others may change between two calls of a kernel.
        """
        self._params = params
        start = params.__array_interface__["data"][0]
        self._held = range(start, start + params.nbytes)
        self._kept: dict[tuple[int, tuple[int, ...]], Array] = {}
        #: The same by the number of the array, which stays as long as it is here.
        self._known: dict[int, tuple[Array, Array]] = {}

    def affine(self, x: Array, weight: Array, bias: Array, out: Array, relu: bool) -> Array:
        """As :func:`kernels.cpu.dense.affine`, of arrays of any layout."""
        expect("affine", "bias", bias, weight.shape[1:])
        if not x.dtype == weight.dtype == out.dtype or x.dtype.char not in "fd":
            # As BLAS would.
            kind = np.result_type(np.float32, x, weight, out)
            wide = np.empty(out.shape, kind)
            self.affine(x.astype(kind), weight.astype(kind), bias.astype(kind), wide, relu)
            out[...] = wide
            return out
        if not (out.flags.c_contiguous and x.flags.c_contiguous):
            flat = np.empty(out.shape, out.dtype)
            out[...] = self.affine(np.ascontiguousarray(x), weight, bias, flat, relu)
            return out
        if weight.shape[1] == 1:
            dots(x, np.ascontiguousarray(weight).reshape(-1), out.reshape(-1))
        else:
            self.product(x, weight, out)
        dense.add_bias(out, bias, relu)
        return out

    def recurrent(self, *arguments: Any) -> Array:
        """As :func:`kernels.cpu.recurrent.recurrent`."""
        return partial(recurrent, product=self.product)(*arguments)

    def product(self, x: Array, weight: Array, out: Array) -> None:
        """``out = x @ weight``, where the rows of ``x`` and ``out`` may be apart in memory."""
        terms, outputs = weight.shape
        if x.shape[1:] != (terms,) or out.shape != (len(x), outputs):
            raise ValueError(
                f"product: expected (rows, terms), (terms, outputs) and (rows, outputs), found "
                f"{x.shape}, {weight.shape} and {out.shape}"
            )
        size, strides = x.itemsize, (x.strides[0], out.strides[0])
        panels, step = self._in_panels(weight), lanes(x.itemsize)
        shape = strides[0] // size, strides[1] // size, len(x), terms, outputs
        _product(_flat(x), panels, _flat(out), step, *shape)

    def _in_panels(self, weight: Array) -> Array:
        """The weights as the tiles read them."""
        known = self._known.get(id(weight))
        if known is not None:
            return known[1]
        # Others may begin where some that are kept do, and have their shape, as transposed ones.
        key = address, _ = _address(weight), weight.shape
        is_kept = address in self._held and weight.flags.c_contiguous
        found = self._kept.get(key) if is_kept else None
        if found is None:
            columns = whole(weight.shape[1], lanes(weight.itemsize))
            found = np.empty(len(weight) * columns, weight.dtype)
            fill_panels(np.ascontiguousarray(weight), found)
            if is_kept:
                self._kept[key] = found
        if is_kept and len(self._known) < _MOST_KNOWN:
            self._known[id(weight)] = weight, found
        return found


@jit
def _address(array):
    return array.ctypes.data


@jit
def _product(x, panels, out, step, x_stride, out_stride, rows, terms, outputs):
    columns = (outputs + step - 1) // step * step
    target, stride = out, out_stride
    if columns > outputs:
        target, stride = np.empty(rows * columns, out.dtype), columns
    starts = np.arange(min(rows, _ROWS))
    x_rows, out_rows = starts * x_stride, starts * stride
    job = np.zeros((1, 15), np.int64)
    # Two of the three loops have one turn.
    job[0, 6] = job[0, 9] = job[0, 13] = 1
    for row in range(0, rows, _ROWS):
        for term in range(0, max(terms, 1), _TERMS):
            for column in range(0, columns, VECTORS * step):
                vectors = min(VECTORS, (columns - column) // step)
                job[0, 0] = row * x_stride + term
                job[0, 1] = column * terms + term * vectors * step
                job[0, 2] = row * stride + column
                job[0, 3], job[0, 4] = min(_ROWS, rows - row), vectors
                job[0, 5] = term > 0
                job[0, 12], job[0, 14] = min(_TERMS, terms - term), vectors * step
                gathered_products(x, panels, target, x_rows, out_rows, job)
    if columns > outputs:
        for i in range(rows):
            for j in range(outputs):
                out[i * out_stride + j] = target[i * columns + j]


def _flat(matrix: Array) -> Array:
    """A matrix with its rows, and what is between them, one after the other; no copy."""
    if matrix.flags.c_contiguous:
        return matrix.reshape(-1)
    stride, rest = divmod(matrix.strides[0], matrix.itemsize)
    if matrix.strides[1] != matrix.itemsize or stride < 0 or rest:
        raise ValueError("product: expected the numbers of a row side by side")
    size = (len(matrix) - 1) * stride + matrix.shape[1]
    base = matrix.base
    if isinstance(base, np.ndarray) and base.flags.c_contiguous:
        # A tenth of the time.
        return np.ndarray((size,), matrix.dtype, base, _address(matrix) - _address(base))
    return as_strided(matrix, (size,), (matrix.itemsize,))
