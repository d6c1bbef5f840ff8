"""Tiles of a product, which a block of threads computes from strips of both factors.

A strip is DEPTH deep, and lies in the shared memory of the block: ``left[k, i]`` for HEIGHT lines,
``right[k, j]`` for WIDTH columns or half as many. Each thread computes squares of SIDE x SIDE
results: two below each other, and one or two beside each other (``halves``). While it multiplies,
the numbers of the next strips are on their way to its registers; they are then kept in the other
half of the shared memory, so that threads wait for each other once in a strip.

V. Volkov, J. Demmel, "Benchmarking GPUs to tune dense linear algebra", 2008: results in registers.
"""

import numpy as np
from numba import cuda, types

from kernels.cuda import SIMULATED, inline

DOWN, ACROSS, SIDE, DEPTH = (2, 2, 1, 2) if SIMULATED else (16, 8, 4, 8)
HALF_HEIGHT, HALF_WIDTH = DOWN * SIDE, ACROSS * SIDE
HEIGHT, WIDTH = 2 * HALF_HEIGHT, 2 * HALF_WIDTH
#: Threads of a block, as many as lines; and results of a thread down, or across.
THREADS, EACH = DOWN * ACROSS, 2 * SIDE

#: Numbers from one k to the next. The few that are not used keep what neighbours write at once in
#: different banks, and squares where four numbers are read at once.
LEFT, RIGHT = HEIGHT + SIDE, WIDTH + SIDE
LEFT_AREA, RIGHT_AREA = 2 * DEPTH * LEFT, 2 * DEPTH * RIGHT

#: How many numbers of a strip a thread brings.
LEFT_EACH, RIGHT_EACH = HEIGHT * DEPTH // THREADS, WIDTH * DEPTH // THREADS

if SIMULATED:

    def align():
        pass

    def _square(strips, at):
        return tuple(strips[at + i] for i in range(SIDE))

else:
    from llvmlite import ir
    from numba.cuda.cudadrv import nvvm
    from numba.cuda.extending import intrinsic

    #: Bytes that the places of what is read at once are multiples of.
    _ALIGNED = 16

    @intrinsic
    def align(context):
        # Numba's arrays in shared memory begin where one number may; now where four may.
        def code(context, builder, signature, arguments):
            for each in builder.module.global_values:
                if getattr(each, "addrspace", None) == nvvm.ADDRSPACE_SHARED:
                    each.align = _ALIGNED
            return context.get_dummy_value()

        return types.none(), code

    @intrinsic
    def _square(context, strips, at):
        # SIDE numbers from there on.
        def code(context, builder, signature, arguments):
            real = signature.return_type.dtype
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            first = builder.gep(array.data, [arguments[1]])
            four = ir.VectorType(context.get_data_type(real), SIDE)
            loaded = builder.load(builder.bitcast(first, four.as_pointer()), align=_ALIGNED)
            places = (ir.Constant(ir.IntType(32), i) for i in range(SIDE))
            each = [builder.extract_element(loaded, place) for place in places]
            return context.make_tuple(builder, signature.return_type, each)

        return types.UniTuple(strips.dtype, SIDE)(strips, at), code


def grid(rows: int, columns: int, halves: int = 2) -> tuple[int, int]:
    """The tiles of so many results."""
    return -(-rows // HEIGHT), -(-columns // (halves * HALF_WIDTH))


@inline
def clear(sums):
    for i in range(EACH):
        for j in range(EACH):
            sums[i, j] = 0


@inline
def multiply(left, right, strip, sums, halves):
    # Places are unsigned: others would be asked whether they are negative.
    down = np.uint64(strip * DEPTH * LEFT + cuda.threadIdx.x // ACROSS * SIDE)
    across = np.uint64(strip * DEPTH * RIGHT + cuda.threadIdx.x % ACROSS * SIDE)
    for _ in range(DEPTH // 2):
        _multiply(left, right, down, across, sums, halves)
        _multiply(left, right, down + np.uint64(LEFT), across + np.uint64(RIGHT), sums, halves)
        down += np.uint64(2 * LEFT)
        across += np.uint64(2 * RIGHT)


@inline
def _multiply(left, right, down, across, sums, halves):
    upper, lower = _square(left, down), _square(left, down + np.uint64(HALF_HEIGHT))
    near = _square(right, across)
    _add(sums, upper, near, 0, 0)
    _add(sums, lower, near, SIDE, 0)
    if halves > 1:
        far = _square(right, across + np.uint64(HALF_WIDTH))
        _add(sums, upper, far, 0, SIDE)
        _add(sums, lower, far, SIDE, SIDE)


@inline
def _add(sums, lines, columns, first_line, first_column):
    for i in range(SIDE):
        for j in range(SIDE):
            sums[first_line + i, first_column + j] += lines[i] * columns[j]


@inline
def store(sums, out, first_row, first_column, halves):
    down, across = cuda.threadIdx.x // ACROSS * SIDE, cuda.threadIdx.x % ACROSS * SIDE
    for i in range(EACH):
        row = first_row + i // SIDE * HALF_HEIGHT + down + i % SIDE
        for j in range(halves * SIDE):
            column = first_column + j // SIDE * HALF_WIDTH + across + j % SIDE
            if row < out.shape[0] and column < out.shape[1]:
                out[np.uint64(row), np.uint64(column)] = sums[i, j]


@inline
def way(matrix, is_depth_first, start, wide, step):
    # How a thread brings its numbers of strips of a matrix: matrix[k, i], or [i, k]. Neighbours
    # read neighbouring numbers either way. Its first k, and the next; the place of its first number
    # in the matrix, the next, and that of the next k; its first place in the strip, the next, and
    # that of the other strip; how many of its numbers there are before the matrix ends beside it.
    thread = cuda.threadIdx.x
    if is_depth_first:
        k, next_k, along, next_along = thread // wide, THREADS // wide, thread % wide, 0
        deep, beside, stop = matrix.shape[1], 1, matrix.shape[1]
        most = DEPTH if start + along < stop else 0
    else:
        k, next_k, along, next_along = thread % DEPTH, 0, thread // DEPTH, THREADS // DEPTH
        deep, beside, stop = 1, matrix.shape[1], matrix.shape[0]
        most = (stop - start - along + next_along - 1) // next_along
    read = k * deep + (start + along) * beside, next_k * deep + next_along * beside, deep
    kept = k * step + along, next_k * step + next_along, DEPTH * step
    return k, next_k, read, kept, most


@inline
def bring(ahead, numbers, first, stop, way, wide):
    # A thread's numbers of the strip that begins with matrix[first], 0 from stop on.
    k, next_k, (at, following, deep), _, most = way
    each = wide * DEPTH // THREADS
    at += first * deep
    if most >= each and first + DEPTH <= stop:
        for i in range(each):
            ahead[i] = numbers[np.uint64(at + i * following)]
    else:
        for i in range(each):
            ahead[i] = ahead.dtype.type(0)
            if i < most and first + k + i * next_k < stop:
                ahead[i] = numbers[np.uint64(at + i * following)]


@inline
def keep(ahead, strips, strip, way, wide):
    at, following, other = way[3]
    at += strip * other
    for i in range(wide * DEPTH // THREADS):
        strips[np.uint64(at + i * following)] = ahead[i]
