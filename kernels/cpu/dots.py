"""Scalar products of rows with one vector, whose bits are a function of the row and the vector.

A row has :data:`LANES` sums, where the number at ``k`` goes to that at ``k % LANES``, and one more
of what is left after the last whole turn; they are added up by halves. Four rows at once share what
is read of the vector. As in :mod:`kernels.cpu.tiles`, the loop is written in LLVM's language.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu import jit
from kernels.cpu.shapes import Array, expect
from kernels.cpu.tiles import lanes, multiply_add

#: Sums of a row.
LANES = 16
#: Rows at once.
_ROWS = 4


def dots(x: Array, weight: Array, out: Array) -> Array:
    """``out = x @ weight`` for one output.

    ``x`` is (rows, features), ``weight`` (features,), ``out`` (rows,): C-contiguous
    and of one dtype, float32 or float64. Arrays that do not match are a ValueError.
    """
    expect("dots", "weight", weight, x.shape[1:])
    expect("dots", "out", out, x.shape[:1])
    if not (x.flags.c_contiguous and weight.flags.c_contiguous and out.flags.c_contiguous):
        raise ValueError("dots: expected C-contiguous arrays")
    _dots(x.reshape(-1), weight, out)
    return out


@jit
def _dots(x, weight, out):
    rows, terms = out.size, weight.size
    turns = terms // LANES
    row = 0
    while row < rows:
        # Of a row that stands alone, too, each sum is taken in the same order.
        count = _ROWS if rows - row >= _ROWS else 1
        _sums(x, row * terms, terms, weight, turns, out, row, count)
        for i in range(row, row + count):
            rest = x.dtype.type(0)
            for k in range(turns * LANES, terms):
                rest += x[i * terms + k] * weight[k]
            out[i] += rest
        row += count


def _write_sums(typing, x, x_at, stride, weight, turns, out, out_at, count):
    """``count`` rows from ``x_at`` on, which is 1 or :data:`_ROWS`."""
    signature = types.void(x, x_at, stride, weight, turns, out, out_at, count)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        x, x_at, stride, weight, turns, out, out_at, count = arguments
        data = [
            context.make_array(signature.args[place])(context, builder, array).data
            for place, array in ((0, x), (3, weight), (5, out))
        ]
        sums = _Sums(builder, signature.args[0].dtype.bitwidth // 8, turns)
        with builder.if_else(builder.icmp_signed("==", count, _INT(1))) as (one, several):
            with one:
                sums.write(data, x_at, stride, out_at, 1)
            with several:
                sums.write(data, x_at, stride, out_at, _ROWS)
        return context.get_dummy_value()

    return signature, generate


_sums: Any = intrinsic(_write_sums)

_INT = ir.IntType(64)


class _Sums:
    """Writes the code of some rows at once."""

    def __init__(self, builder: ir.IRBuilder, itemsize: int, turns: Any) -> None:
        self.builder, self.itemsize, self.turns = builder, itemsize, turns
        self.lanes = lanes(itemsize)
        self.vectors = LANES // self.lanes
        self.vector, self.multiply_add = multiply_add(builder, itemsize)

    def write(self, data: list[Any], x_at: Any, stride: Any, out_at: Any, rows: int) -> None:
        builder, (x, weight, out) = self.builder, data
        starts = [builder.add(x_at, builder.mul(stride, _INT(row))) for row in range(rows)]
        zero = self.vector([0.0] * self.lanes)
        sums = [
            [cgutils.alloca_once_value(builder, zero) for _ in range(self.vectors)] for _ in starts
        ]
        # A loop may be entered again, and what is allocated is so once.
        for total in (one for row in sums for one in row):
            builder.store(zero, total)
        with cgutils.for_range(builder, self.turns) as loop:
            at = builder.mul(loop.index, _INT(LANES))
            for number in range(self.vectors):
                place = builder.add(at, _INT(number * self.lanes))
                factor = self._load(weight, place)
                for start, row in zip(starts, sums, strict=True):
                    other = self._load(x, builder.add(start, place))
                    held = builder.load(row[number])
                    builder.store(
                        builder.call(self.multiply_add, [other, factor, held]), row[number]
                    )
        for number, row in enumerate(sums):
            parts = [
                builder.extract_element(builder.load(total), ir.IntType(32)(lane))
                for total in row
                for lane in range(self.lanes)
            ]
            while len(parts) > 1:
                half = len(parts) // 2
                parts = [
                    builder.fadd(*pair) for pair in zip(parts[:half], parts[half:], strict=True)
                ]
            place = builder.gep(out, [builder.add(out_at, _INT(number))], inbounds=True)
            builder.store(parts[0], place)

    def _load(self, array: Any, at: Any) -> Any:
        place = self.builder.gep(array, [at], inbounds=True)
        place = self.builder.bitcast(place, self.vector.as_pointer())
        return self.builder.load(place, align=self.itemsize)
