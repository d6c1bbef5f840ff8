"""Matrix products whose left factor is gathered from memory, a tile of results in registers.

A convolution is a product of patches by weights. The patches overlap, so that writing them all down
first takes longer than reading them where they are: ``result[r] = sum over k of x[start_r + step_k]
* b[k]``, where the steps are those of up to three nested loops. A tile has up to six rows ``r`` and
two vectors of columns, as many as the registers of a processor with vectors of 256 bits hold; each
number of the left factor is spread over a vector and multiplied by vectors of ``b``, which is how
K. Goto and R. van de Geijn (Anatomy of high-performance matrix multiplication, 2008) arrange a
product's innermost loop. The loops are written in LLVM's language, since nothing makes Numba keep
an array in registers.

Each result is one sum, taken in the order of the loops: its bits do not depend on the tile that it
is in, nor on where the arrays are. The compiler joins a multiplication and an addition into one
instruction where the processor has one, as it does for all processors of one numeric profile.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu import jit

#: Rows of a tile, and its vectors of columns: 12 sums, two vectors of ``b`` and one number spread
#: over a third make 15 of the 16 registers.
ROWS, VECTORS = 6, 2
_VECTOR_BYTES = 32


def lanes(itemsize: int) -> int:
    """Numbers of so many bytes in a vector."""
    return _VECTOR_BYTES // itemsize


def multiply_add(builder: ir.IRBuilder, itemsize: int) -> tuple[ir.VectorType, Any]:
    """The type of a vector, and the function that multiplies two and adds a third."""
    scalar = ir.FloatType() if itemsize == 4 else ir.DoubleType()
    kind = ir.VectorType(scalar, lanes(itemsize))
    name = f"llvm.fmuladd.v{kind.count}f{8 * itemsize}"
    signature = ir.FunctionType(kind, [kind] * 3)
    return kind, cgutils.get_or_insert_function(builder.module, signature, name)


def splat(builder: ir.IRBuilder, number: Any, kind: ir.VectorType) -> Any:
    """Write code for a vector of equal numbers."""
    none, index = kind(ir.Undefined), ir.IntType(32)
    first = builder.insert_element(none, number, index(0))
    return builder.shuffle_vector(first, none, ir.VectorType(index, kind.count)([0] * kind.count))


@jit
def gathered_products(x, b, out, x_rows, out_rows, jobs):
    """Products of gathered rows by panels of a matrix, one for each job.

    ``out[out_at + out_rows[r] + j] = sum(x[x_at + x_rows[r] + k] * b[b_at + l + j])``, where three
    nested loops move on ``k`` and ``l``. Nothing checks that the places are within the arrays.

    ``x``, ``b`` and ``out`` are flat, of one dtype; ``x_rows`` and ``out_rows``, int64, are where
    the rows begin. ``jobs`` is (jobs, 15), int64. A row of it has ``x_at``, ``b_at`` and
    ``out_at``; the number of rows ``r``; the number of vectors of columns ``j``, 1 or 2, which are
    read and written as a whole; 1 to add to what ``out`` holds, 0 to overwrite it; and for each of
    the loops, the outermost first, its length, and by how much a turn of it moves on ``k`` and
    ``l``.
    """
    for job in range(len(jobs)):
        at, loops = jobs[job, :6], jobs[job, 6:]
        x_at, b_at, out_at, count, vectors, add = at[0], at[1], at[2], at[3], at[4], at[5] > 0
        nest = (
            (loops[0], loops[1], loops[2]),
            (loops[3], loops[4], loops[5]),
            (loops[6], loops[7], loops[8]),
        )
        # The sums of a small tile wait for each other: tiles are as equal as they can be.
        tiles = (count + ROWS - 1) // ROWS
        row = 0
        while tiles:
            size = (count - row + tiles - 1) // tiles
            _tile(x, x_at, x_rows, row, size, b, b_at, nest, vectors, out, out_at, out_rows, add)
            row += size
            tiles -= 1


def _write_tile(
    typing, x, x_at, x_rows, row, size, b, b_at, loops, vectors, out, out_at, out_rows, add
):
    """``size`` rows from ``row`` on, of which there are at most :data:`ROWS`."""
    signature = types.void(
        x, x_at, x_rows, row, size, b, b_at, loops, vectors, out, out_at, out_rows, add
    )

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        names = "x x_at x_rows row size b b_at loops vectors out out_at out_rows add".split()  # noqa: SIM905
        values = dict(zip(names, arguments, strict=True))
        for name, kind in zip(names, signature.args, strict=True):
            if isinstance(kind, types.Array):
                values[name] = context.make_array(kind)(context, builder, values[name]).data
        _Tile(builder, values, signature.args[0].dtype.bitwidth // 8).generate()
        return context.get_dummy_value()

    return signature, generate


_tile: Any = intrinsic(_write_tile)

_INT = ir.IntType(64)


class _Tile:
    """Writes the code of all sizes of a tile, and the switch between them."""

    def __init__(self, builder: ir.IRBuilder, values: dict[str, Any], itemsize: int) -> None:
        self.builder = builder
        self.values = values
        self.lanes = lanes(itemsize)
        self.itemsize = itemsize
        self.vector, self.multiply_add = multiply_add(builder, itemsize)

    def generate(self) -> None:
        builder, end = self.builder, self.builder.append_basic_block("end")
        doubled = builder.mul(self.values["vectors"], _INT(ROWS + 1))
        switch = builder.switch(builder.add(doubled, self.values["size"]), end)
        for vectors in range(1, VECTORS + 1):
            for rows in range(1, ROWS + 1):
                block = builder.append_basic_block(f"tile{rows}x{vectors}")
                switch.add_case(_INT(vectors * (ROWS + 1) + rows), block)
                builder.position_at_end(block)
                self._size(rows, vectors)
                builder.branch(end)
        builder.position_at_end(end)

    def _size(self, rows: int, vectors: int) -> None:
        values = self.values
        starts = [self._start("x", row) for row in range(rows)]
        b = self._moved(values["b"], values["b_at"])
        loops = [
            cgutils.unpack_tuple(self.builder, loop, 3)
            for loop in cgutils.unpack_tuple(self.builder, values["loops"], 3)
        ]
        zeros = [self.vector([0.0] * self.lanes)] * (rows * vectors)
        sums = self._loop(loops, starts, b, _INT(0), _INT(0), zeros)
        for row in range(rows):
            start = self._start("out", row)
            for number, total in enumerate(sums[row * vectors : (row + 1) * vectors]):
                place = self._vector_at(start, _INT(number * self.lanes))
                held = self.builder.load(place, align=self.itemsize)
                more = self.builder.fadd(held, total)
                result = self.builder.select(values["add"], more, total)
                self.builder.store(result, place, align=self.itemsize)

    def _loop(
        self, loops: list[Any], starts: list[Any], b: Any, step: Any, other: Any, sums: list[Any]
    ) -> list[Any]:
        """The sums after some nested loops, which begin ``step`` after ``starts``."""
        builder = self.builder
        (length, move, move_b), *inner = loops
        before = builder.block
        body, after = (builder.append_basic_block(name) for name in ("body", "after"))
        builder.cbranch(builder.icmp_signed(">", length, _INT(0)), body, after)
        builder.position_at_end(body)
        carried = [self._phi(value, before) for value in (length, step, other, *sums)]
        left, step, other, *held = carried
        if inner:
            added = self._loop(inner, starts, b, step, other, held)
        else:
            added = self._multiply(starts, b, step, other, held)
        left = builder.sub(left, _INT(1))
        moved = (left, builder.add(step, move), builder.add(other, move_b), *added)
        last = builder.block
        for phi, value in zip(carried, moved, strict=True):
            phi.add_incoming(value, last)
        again = builder.cbranch(builder.icmp_signed(">", left, _INT(0)), body, after)
        again.set_metadata("llvm.loop", self._not_unrolled())
        builder.position_at_end(after)
        results = [self._phi(value, before) for value in sums]
        for phi, value in zip(results, added, strict=True):
            phi.add_incoming(value, last)
        return results

    def _not_unrolled(self) -> Any:
        """What tells LLVM to leave a loop as it is: unrolled, it lacks registers."""
        module = self.builder.module
        disable = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
        # A loop is named by metadata whose first operand is itself.
        loop = module.add_metadata([disable, _INT(len(module.metadata))])
        loop.operands = (loop, disable)
        return loop

    def _multiply(
        self, starts: list[Any], b: Any, step: Any, other: Any, sums: list[Any]
    ) -> list[Any]:
        builder, vectors = self.builder, len(sums) // len(starts)
        factors = []
        for number in range(vectors):
            place = self._vector_at(b, builder.add(other, _INT(number * self.lanes)))
            factors.append(builder.load(place, align=self.itemsize))
        added = []
        for row, start in enumerate(starts):
            spread = splat(builder, builder.load(self._moved(start, step)), self.vector)
            for number, factor in enumerate(factors):
                arguments = [spread, factor, sums[row * vectors + number]]
                added.append(builder.call(self.multiply_add, arguments))
        return added

    def _start(self, name: str, row: int) -> Any:
        """Where a row of ``x`` or of ``out`` begins."""
        builder, values = self.builder, self.values
        place = self._moved(values[f"{name}_rows"], builder.add(values["row"], _INT(row)))
        offset = builder.add(values[f"{name}_at"], builder.load(place))
        return self._moved(values[name], offset)

    def _moved(self, pointer: Any, elements: Any) -> Any:
        return self.builder.gep(pointer, [elements], inbounds=True)

    def _vector_at(self, pointer: Any, elements: Any) -> Any:
        return self.builder.bitcast(self._moved(pointer, elements), self.vector.as_pointer())

    def _phi(self, value: Any, block: Any) -> Any:
        phi = self.builder.phi(value.type)
        phi.add_incoming(value, block)
        return phi
