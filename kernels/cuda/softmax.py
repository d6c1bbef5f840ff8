"""Softmax and cross-entropy in place on a matrix of logits: twins of :mod:`kernels.cpu.softmax`.

Arrays are on the host or on the device.

A row belongs to a power of two of a block's threads, its lanes, which take its classes in turns;
a block has one row or several. Everything from the largest logit to the gradient is one kernel.
"""

import math

import numpy as np
from numba import cuda

from kernels import scalar
from kernels.cpu.softmax import _check
from kernels.cuda import MOST_BLOCKS, THREADS, blocks, inline, jit
from kernels.cuda.memory import Array, Call

_exp = inline(scalar.exp)
_log = inline(scalar.log)

_NONE = np.empty(0, np.float64)


def softmax_cross_entropy(logits: Array, labels: Array, weights: Array | None = None) -> float:
    """Cross-entropy loss and, in place of the logits, its gradient with respect to them."""
    weights = _NONE if weights is None else weights
    _check("softmax_cross_entropy", logits, labels, weights)
    with Call("softmax_cross_entropy") as call:
        return _loss(call, call.update(logits), call.read(labels), call.read(weights))


def _loss(call: Call, z: Array, labels: Array, weights: Array) -> float:
    losses = call.scratch(labels.size, np.float64)
    grid, lanes = _shape(z)
    _softmax_cross_entropy[grid, THREADS](z, labels, weights, lanes, losses)
    return float(np.sum(losses.copy_to_host()))


def softmax(logits: Array) -> Array:
    """Probabilities of the classes, in place of the logits; returns its argument."""
    with Call("softmax") as call:
        z = call.update(logits)
        grid, lanes = _shape(z)
        _softmax[grid, THREADS](z, lanes)
    return logits


def score(logits: Array, labels: Array, weights: Array | None = None) -> tuple[float, int]:
    """Loss and number of rows whose largest logit is the label's; the logits are overwritten."""
    weights = _NONE if weights is None else weights
    _check("score", logits, labels, weights)
    correct = np.zeros(1, np.int64)
    with Call("score") as call:
        z, label = call.update(logits), call.read(labels)
        _count_correct[blocks(label.size), THREADS](z, label, call.update(correct))
        loss = _loss(call, z, label, call.read(weights))
    return loss, int(correct[0])


def _shape(z: Array) -> tuple[int, int]:
    """Blocks of the grid, and lanes of a row."""
    rows, classes = z.shape
    lanes = 1
    while lanes < min(classes, THREADS):
        lanes *= 2
    return max(1, min(-(-rows * lanes // THREADS), MOST_BLOCKS)), lanes


@jit
def _softmax(z, lanes):
    shared = cuda.shared.array(THREADS, np.float64)
    for first in range(_first_row(lanes), z.shape[0], _rows_of_grid(lanes)):
        _softmax_of_row(z, first + cuda.threadIdx.x // lanes, lanes, shared)


@jit
def _softmax_cross_entropy(z, labels, weights, lanes, losses):
    shared = cuda.shared.array(THREADS, np.float64)
    rows, classes = z.shape
    lane = cuda.threadIdx.x % lanes
    for first in range(_first_row(lanes), rows, _rows_of_grid(lanes)):
        i = first + cuda.threadIdx.x // lanes
        logit = np.float64(0)
        if i < rows:
            logit = np.float64(z[i, labels[i]])
        top, total = _softmax_of_row(z, i, lanes, shared)
        if i < rows:
            if lane == 0:
                losses[i] = _log(total) - (logit - top)
                if weights.size:
                    losses[i] *= weights[i]
            for j in range(lane, classes, lanes):
                if j == labels[i]:
                    z[i, j] -= 1
                if weights.size:
                    z[i, j] *= weights[i]


@jit
def _count_correct(z, labels, correct):
    rows, classes = z.shape
    for i in range(cuda.grid(1), rows, cuda.gridsize(1)):
        best = 0
        for j in range(1, classes):
            if z[i, j] > z[i, best]:
                best = j
        if best == labels[i]:
            # The summands are integers: any order gives the same sum.
            cuda.atomic.add(correct, 0, 1)


@inline
def _first_row(lanes):
    return cuda.blockIdx.x * (THREADS // lanes)


@inline
def _rows_of_grid(lanes):
    return cuda.gridDim.x * (THREADS // lanes)


@inline
def _softmax_of_row(z, i, lanes, shared):
    # Row i, if there is one, becomes its probabilities; what comes back is the largest logit and
    # the sum of the exponentials. All threads of a block come here: they wait for each other.
    rows, classes = z.shape
    lane = cuda.threadIdx.x % lanes
    stop = classes if i < rows else 0
    top = -math.inf
    for j in range(lane, stop, lanes):
        top = max(top, np.float64(z[i, j]))
    top = _over_lanes(top, lanes, shared, False)
    total = 0.0
    for j in range(lane, stop, lanes):
        z[i, j] = _exp(np.float64(z[i, j]) - top)
        total += np.float64(z[i, j])
    total = _over_lanes(total, lanes, shared, True)
    inverse = 1 / total if stop else 0.0
    for j in range(lane, stop, lanes):
        z[i, j] = z[i, j] * inverse
    return top, total


@inline
def _over_lanes(value, lanes, shared, is_sum):
    # The sum of the values of a row's lanes, or the largest.
    thread = cuda.threadIdx.x
    shared[thread] = value
    cuda.syncthreads()
    step = lanes // 2
    while step > 0:
        if thread % lanes < step:
            mine, other = shared[thread], shared[thread + step]
            shared[thread] = mine + other if is_sum else max(mine, other)
        cuda.syncthreads()
        step //= 2
    result = shared[thread - thread % lanes]
    # No thread may write before all have read.
    cuda.syncthreads()
    return result
