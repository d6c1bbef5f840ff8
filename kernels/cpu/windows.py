"""Max pooling of scaled and shifted images, a vector of channels at a time.

The loops over a window are written in LLVM's language: which of its values is the largest depends
on the data, and where Numba has branches the processor mostly guesses wrong.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu import jit
from kernels.cpu.tiles import lanes, splat


def pool_windows(z, scale, shift, low, out, places, size, stride):
    """``out = max_pool(max(z * scale + shift, low))``, and which of a window's values it is.

    ``z`` is (rows, height, width, channels), ``scale`` and ``shift`` are (channels,), all of one
    dtype. ``low`` takes the place of smaller values: 0 for ReLU, NaN for nothing. NaN counts as the
    largest. ``places``, uint8, of the shape of ``out``, is overwritten: where in its window, row by
    row, the first of the largest values is.
    """
    _pool_windows(z, scale, shift, z.dtype.type(low), out, places, size, stride, lanes(z.itemsize))


@jit
def _pool_windows(z, scale, shift, low, out, places, size, stride, step):
    rows, tall, broad, channels = out.shape
    _, height, width, _ = z.shape
    z, out, places = z.reshape(-1), out.reshape(-1), places.reshape(-1)
    whole = channels // step * step
    at = 0
    for n in range(rows):
        for i in range(tall):
            for j in range(broad):
                start = ((n * height + i * stride) * width + j * stride) * channels
                for c in range(0, whole, step):
                    _largest(
                        z,
                        start + c,
                        width * channels,
                        channels,
                        size,
                        scale,
                        shift,
                        c,
                        low,
                        out,
                        places,
                        at + c,
                    )
                for c in range(whole, channels):
                    best, best_place = -z.dtype.type(np.inf), 0
                    for place in range(size * size):
                        u, v = divmod(place, size)
                        value = z[start + (u * width + v) * channels + c] * scale[c] + shift[c]
                        value = low if value <= low else value
                        if best == best and not value <= best:
                            best, best_place = value, place
                    out[at + c] = best
                    places[at + c] = best_place
                at += channels


def unpool_windows(delta, out, places, low, dz, sums, size):
    """The gradient of :func:`pool_windows`, of stride ``size``, by ``z * scale + shift``.

    ``delta`` is the gradient by ``out``; ``out`` and ``places`` are what :func:`pool_windows` left
    there. Where ``out`` is at most ``low``, the gradient is 0. ``dz`` is overwritten, but for what
    lies beyond the last window; ``sums``, (channels,), are what the gradients are added to, window
    by window.
    """
    _unpool_windows(delta, out, places, delta.dtype.type(low), dz, sums, size, lanes(dz.itemsize))


@jit
def _unpool_windows(delta, out, places, low, dz, sums, size, step):
    rows, tall, broad, channels = delta.shape
    _, height, width, _ = dz.shape
    delta, out, places = delta.reshape(-1), out.reshape(-1), places.reshape(-1)
    dz = dz.reshape(-1)
    whole = channels // step * step
    at = 0
    for n in range(rows):
        for i in range(tall):
            for j in range(broad):
                start = ((n * height + i * size) * width + j * size) * channels
                for c in range(0, whole, step):
                    _spread(
                        delta,
                        out,
                        places,
                        at + c,
                        low,
                        dz,
                        start + c,
                        width * channels,
                        channels,
                        size,
                        sums,
                        c,
                    )
                for c in range(whole, channels):
                    value = delta.dtype.type(0) if out[at + c] <= low else delta[at + c]
                    sums[c] += value
                    for place in range(size * size):
                        u, v = divmod(place, size)
                        chosen = places[at + c] == place
                        dz[start + (u * width + v) * channels + c] = value if chosen else 0
                at += channels


class _Block:
    """What both intrinsics need to write code for a vector of channels."""

    def __init__(self, context: Any, builder: ir.IRBuilder, kinds: Any, arguments: Any) -> None:
        self.builder = builder
        self.values = [
            context.make_array(kind)(context, builder, value).data
            if isinstance(kind, types.Array)
            else value
            for kind, value in zip(kinds, arguments, strict=True)
        ]
        itemsize = kinds[0].dtype.bitwidth // 8
        self.lanes = lanes(itemsize)
        self.vector = ir.VectorType(
            ir.FloatType() if itemsize == 4 else ir.DoubleType(), self.lanes
        )
        #: Numbers of places, as wide as the numbers that are compared.
        self.places = ir.VectorType(ir.IntType(8 * itemsize), self.lanes)
        self.bytes = ir.VectorType(ir.IntType(8), self.lanes)

    def load(self, array: Any, at: Any, kind: Any = None) -> Any:
        return self.builder.load(self._place(array, at, kind or self.vector), align=1)

    def store(self, value: Any, array: Any, at: Any) -> None:
        self.builder.store(value, self._place(array, at, value.type), align=1)

    def _place(self, array: Any, at: Any, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(array, [at]), kind.as_pointer())

    def window(self, size: Any, at: Any, line: Any, place: Any) -> Any:
        """Loop over a window: yields the vector of a place's number, and where it is."""
        builder = self.builder
        with cgutils.for_range(builder, size) as down, cgutils.for_range(builder, size) as across:
            number = builder.add(builder.mul(down.index, size), across.index)
            number = builder.trunc(number, self.places.element) if self.lanes == 8 else number
            offset = builder.add(builder.mul(down.index, line), builder.mul(across.index, place))
            yield splat(builder, number, self.places), builder.add(at, offset)


def _write_largest(typing, z, z_at, line, place, size, scale, shift, c, low, out, places, at):
    """The largest of a window for a vector of channels from ``c`` on."""
    kinds = (z, z_at, line, place, size, scale, shift, c, low, out, places, at)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        block = _Block(context, builder, signature.args, arguments)
        z, z_at, line, place, size, scale, shift, c, low, out, places, at = block.values
        factor, more = block.load(scale, c), block.load(shift, c)
        least = splat(builder, low, block.vector)
        best = cgutils.alloca_once_value(builder, block.vector([float("-inf")] * block.lanes))
        chosen = cgutils.alloca_once_value(builder, block.places([0] * block.lanes))
        for number, where in block.window(size, z_at, line, place):
            value = builder.fadd(builder.fmul(block.load(z, where), factor), more)
            value = builder.select(builder.fcmp_ordered("<=", value, least), least, value)
            held = builder.load(best)
            # A NaN is larger than what is not, and nothing is larger than a NaN.
            takes = builder.and_(
                builder.fcmp_unordered(">", value, held), builder.fcmp_ordered("ord", held, held)
            )
            builder.store(builder.select(takes, value, held), best)
            builder.store(builder.select(takes, number, builder.load(chosen)), chosen)
        block.store(builder.load(best), out, at)
        block.store(builder.trunc(builder.load(chosen), block.bytes), places, at)
        return context.get_dummy_value()

    return types.void(*kinds), generate


def _write_spread(typing, delta, out, places, at, low, dz, z_at, line, place, size, sums, c):
    """A window's gradient to its largest values, for a vector of channels from ``c`` on."""
    kinds = (delta, out, places, at, low, dz, z_at, line, place, size, sums, c)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        block = _Block(context, builder, signature.args, arguments)
        delta, out, places, at, low, dz, z_at, line, place, size, sums, c = block.values
        none = block.vector([0.0] * block.lanes)
        least = splat(builder, low, block.vector)
        off = builder.fcmp_ordered("<=", block.load(out, at), least)
        value = builder.select(off, none, block.load(delta, at))
        chosen = builder.zext(block.load(places, at, block.bytes), block.places)
        block.store(builder.fadd(block.load(sums, c), value), sums, c)
        for number, where in block.window(size, z_at, line, place):
            here = builder.icmp_signed("==", chosen, number)
            block.store(builder.select(here, value, none), dz, where)
        return context.get_dummy_value()

    return types.void(*kinds), generate


_largest: Any = intrinsic(_write_largest)
_spread: Any = intrinsic(_write_spread)
