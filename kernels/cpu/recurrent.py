"""Recurrent layers through time: products by BLAS, the gates by compiled loops.

Sequences are C-contiguous arrays (rows, steps, n); ``dtype`` is float32 or float64, the same for
all arguments of a call. A layer has ``units`` units; its state ``h`` before the first step is 0.
With ``a = x W + b`` of a step's input and ``p = h U + c`` of the state before it, each cut into as
many parts as there are gates, the next state is, as in PyTorch,

- *rnn* (J. Elman, "Finding structure in time", 1990): ``tanh(a + p)``;
- *gru* (K. Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014), gates r,
  z, n: ``r = sigmoid(a + p)``, ``z = sigmoid(a + p)``, ``n = tanh(a + r p)``; ``(1 - z) n + z h``;
- *lstm* (S. Hochreiter and J. Schmidhuber, "Long short-term memory", 1997, with the forget gate of
  F. Gers et al., 2000), gates i, f, g, o: sigmoids of ``a + p``, but ``g = tanh(a + p)``; the cell,
  at first 0, becomes ``f cell + i g``; ``o tanh(cell)``.

One product takes the inputs of all steps, and so do the gradients by weights; the state takes a
product for each step.
"""

from collections.abc import Callable

import numpy as np

from kernels import scalar
from kernels.cpu import inline, jit
from kernels.cpu.scratch import scratch
from kernels.cpu.shapes import Array, expect, expect_all

#: Gates of each kind of layer: the weights have so many times its units as columns.
GATES = {"rnn": 1, "gru": 3, "lstm": 4}

#: What the forward pass keeps of a step, in units: a gru its gates and the third part of ``p``, an
#: lstm its gates, its cell and the cell's tanh.
KEPT = {"rnn": 1, "gru": 4, "lstm": 6}

_exp = inline(scalar.exp)
_sigmoid = inline(scalar.sigmoid)
_tanh = inline(scalar.tanh)


def recurrent(
    kind: str,
    x: Array,
    weight: Array,
    state_weight: Array,
    bias: Array,
    state_bias: Array,
    out: Array,
    kept: Array,
    product: Callable[[Array, Array, Array], object] = np.matmul,
) -> Array:
    """The states (rows, steps, units) of all steps of a layer.

    ``weight``, (inputs, gates * units), ``state_weight``, (units, gates * units), ``bias`` and
    ``state_bias``, (gates * units,), are ``W``, ``U``, ``b`` and ``c`` above; :data:`GATES` has the
    number of gates. ``kept``, (rows, steps, n * units), is overwritten by what
    :func:`recurrent_backward` needs; ``n`` is that of :data:`KEPT`. ``product(x, weight, out)``
    overwrites ``out`` by ``x @ weight``.
    """
    _check(kind, x, weight, state_weight, bias, state_bias, out, kept)
    rows, steps, width = len(x), x.shape[1], weight.shape[1]
    product(_flat(x), weight, _flat(kept)[:, :width])
    by_state = scratch("recurrent product", rows * width, out.dtype).reshape(rows, width)
    forward = _FORWARD[kind]
    for step in range(steps):
        if step:
            product(out[:, step - 1], state_weight, by_state)
        else:
            by_state.fill(0)
        forward(kept, by_state, bias, state_bias, out, step)
    return out


def recurrent_backward(
    kind: str,
    delta: Array,
    x: Array,
    weight: Array,
    state_weight: Array,
    out: Array,
    kept: Array,
    weight_grad: Array,
    state_weight_grad: Array,
    bias_grad: Array,
    state_bias_grad: Array,
    x_grad: Array | None = None,
) -> None:
    """The gradients of a layer, summed over rows and steps, and the gradient by its input.

    ``out`` and ``kept`` are as :func:`recurrent` has left them. ``kept`` is overwritten, and so are
    the gradients by ``x`` and the four parameters.
    """
    _check(kind, x, weight, state_weight, bias_grad, state_bias_grad, out, kept)
    expect("recurrent", "delta", delta, out.shape)
    expect("recurrent", "weight_grad", weight_grad, weight.shape)
    expect("recurrent", "state_weight_grad", state_weight_grad, state_weight.shape)
    if x_grad is not None:
        expect("recurrent", "x_grad", x_grad, x.shape)
    units, width = state_weight.shape
    _through_time(kind, delta, state_weight, out, kept)
    gates = _flat(kept)
    _sum_rows(gates, state_bias_grad)
    bias_grad[:] = state_bias_grad
    _state_weight_gradient(out, kept, state_weight_grad)
    if kind == "gru":
        # From here on the third gate's gradient is that by a and not that by p.
        gates[:, 2 * units : width] = gates[:, width:]
        _sum_rows(gates[:, 2 * units :], bias_grad[2 * units :])
    np.matmul(_flat(x).T, gates[:, :width], out=weight_grad)
    if x_grad is not None:
        np.matmul(gates[:, :width], weight.T, out=_flat(x_grad))


def _through_time(kind: str, delta: Array, state_weight: Array, out: Array, kept: Array) -> None:
    """Put the gradient by ``p`` in the place of what is kept, from the last step to the first."""
    rows, steps, units = out.shape
    width = state_weight.shape[1]
    # The gradient by a step's state, but for what it has from its output, comes by two ways:
    # through the product of the step after it, and past it. That of the cell is the latter alone.
    through = scratch("recurrent through", rows * units, out.dtype).reshape(rows, units)
    past = scratch("recurrent past", rows * units, out.dtype).reshape(rows, units)
    through.fill(0)
    past.fill(0)
    transposed = scratch("recurrent transposed", width * units, out.dtype).reshape(width, units)
    transposed[...] = state_weight.T
    backward = _BACKWARD[kind]
    for step in reversed(range(steps)):
        backward(kept, delta, out, through, past, step)
        if step:
            np.matmul(kept[:, step, :width], transposed, out=through)


def _state_weight_gradient(out: Array, kept: Array, state_weight_grad: Array) -> None:
    """The sum of ``h.T @ gates`` over all steps but the first, where ``h`` is 0."""
    width = state_weight_grad.shape[1]
    first = kept[:, 0, :width].copy()
    # So the row before in memory, the last step of another sequence, adds nothing.
    kept[:, 0, :width] = 0
    np.matmul(_flat(out)[:-1].T, _flat(kept)[1:, :width], out=state_weight_grad)
    kept[:, 0, :width] = first


def _flat(sequences: Array) -> Array:
    return sequences.reshape(-1, sequences.shape[2])


@jit
def _rnn_forward(kept, product, bias, state_bias, out, step):
    for i in range(len(out)):
        state, a, p = out[i, step], kept[i, step], product[i]
        for j in range(state.size):
            state[j] = (a[j] + bias[j]) + (p[j] + state_bias[j])
        _tanhs(state)


@jit
def _gru_forward(kept, product, bias, state_bias, out, step):
    rows, _, units = out.shape
    one = out.dtype.type(1)
    p_bias, n_bias = state_bias[2 * units :], bias[2 * units :]
    for i in range(rows):
        state, p = out[i, step], product[i, 2 * units :]
        gates, n = kept[i, step, : 2 * units], kept[i, step, 2 * units : 3 * units]
        third = kept[i, step, 3 * units :]
        _add(gates, bias, product[i], state_bias)
        _sigmoids(gates)
        r, z = gates[:units], gates[units:]
        for j in range(units):
            third[j] = p[j] + p_bias[j]
            n[j] = n[j] + n_bias[j] + r[j] * third[j]
        _tanhs(n)
        for j in range(units):
            state[j] = (one - z[j]) * n[j]
        if step:
            before = out[i, step - 1]
            for j in range(units):
                state[j] += z[j] * before[j]


@jit
def _lstm_forward(kept, product, bias, state_bias, out, step):
    rows, _, units = out.shape
    for i in range(rows):
        gates, cell = kept[i, step, : 4 * units], kept[i, step, 4 * units : 5 * units]
        into, forget = gates[:units], gates[units : 2 * units]
        new, show = gates[2 * units : 3 * units], gates[3 * units :]
        _add(gates, bias, product[i], state_bias)
        _sigmoids(gates[: 2 * units])
        _tanhs(new)
        _sigmoids(show)
        for j in range(units):
            cell[j] = into[j] * new[j]
        if step:
            before = kept[i, step - 1, 4 * units : 5 * units]
            for j in range(units):
                cell[j] += forget[j] * before[j]
        shown, state = kept[i, step, 5 * units :], out[i, step]
        shown[:] = cell
        _tanhs(shown)
        for j in range(units):
            state[j] = show[j] * shown[j]


@jit
def _add(gates, bias, product, state_bias):
    for j in range(gates.size):
        gates[j] = (gates[j] + bias[j]) + (product[j] + state_bias[j])


@jit
def _sigmoids(z):
    for j in range(z.size):
        score = np.float64(z[j])
        z[j] = _sigmoid(score, _exp(-abs(score)))


@jit
def _tanhs(z):
    for j in range(z.size):
        score = np.float64(z[j])
        z[j] = _tanh(score, _exp(2.0 * abs(score)))


@jit
def _rnn_backward(kept, delta, out, through, past, step):
    one = out.dtype.type(1)
    for i in range(len(out)):
        state, gate, by_out, by_state = out[i, step], kept[i, step], delta[i, step], through[i]
        for j in range(state.size):
            gate[j] = (by_out[j] + by_state[j]) * (one - state[j] * state[j])


@jit
def _gru_backward(kept, delta, out, through, past, step):
    rows, _, units = out.shape
    one = out.dtype.type(1)
    for i in range(rows):
        r, z = kept[i, step, :units], kept[i, step, units : 2 * units]
        n, third = kept[i, step, 2 * units : 3 * units], kept[i, step, 3 * units :]
        by_out, by_state, by_past = delta[i, step], through[i], past[i]
        # The state before the first is 0.
        before, has_before = out[i, max(step - 1, 0)], out.dtype.type(min(step, 1))
        for j in range(units):
            by_past[j] += by_out[j] + by_state[j]
        for j in range(units):
            by_n = by_past[j] * (one - z[j]) * (one - n[j] * n[j])
            by_z = by_past[j] * (has_before * before[j] - n[j]) * (z[j] * (one - z[j]))
            by_past[j] *= z[j]
            z[j] = by_z
            n[j] = by_n * r[j]
            r[j] = by_n * third[j] * (r[j] * (one - r[j]))
            third[j] = by_n


@jit
def _lstm_backward(kept, delta, out, through, past, step):
    rows, _, units = out.shape
    one = out.dtype.type(1)
    for i in range(rows):
        gates, shown = kept[i, step, : 4 * units], kept[i, step, 5 * units :]
        into, forget = gates[:units], gates[units : 2 * units]
        new, show = gates[2 * units : 3 * units], gates[3 * units :]
        by_out, by_state, by_cell = delta[i, step], through[i], past[i]
        # The cell before the first is 0.
        before, has_before = kept[i, max(step - 1, 0), 4 * units :], out.dtype.type(min(step, 1))
        for j in range(units):
            by = by_out[j] + by_state[j]
            by_cell[j] += by * show[j] * (one - shown[j] * shown[j])
            show[j] = by * shown[j] * (show[j] * (one - show[j]))
        for j in range(units):
            by_into = by_cell[j] * new[j] * (into[j] * (one - into[j]))
            by_forget = by_cell[j] * (has_before * before[j]) * (forget[j] * (one - forget[j]))
            new[j] = by_cell[j] * into[j] * (one - new[j] * new[j])
            by_cell[j] *= forget[j]
            into[j], forget[j] = by_into, by_forget


_FORWARD = {"rnn": _rnn_forward, "gru": _gru_forward, "lstm": _lstm_forward}
_BACKWARD = {"rnn": _rnn_backward, "gru": _gru_backward, "lstm": _lstm_backward}


@jit
def _sum_rows(gates, out):
    out[:] = 0
    for i in range(len(gates)):
        for j in range(out.size):
            out[j] += gates[i, j]


def _check(
    kind: str,
    x: Array,
    weight: Array,
    state_weight: Array,
    bias: Array,
    state_bias: Array,
    out: Array,
    kept: Array,
) -> None:
    if x.ndim != 3 or out.ndim != 3 or not x.shape[1]:
        raise ValueError(
            f"recurrent: x {x.shape} and out {out.shape}: expected (rows, steps, inputs) and "
            f"(rows, steps, units), with a step at least"
        )
    rows, steps, inputs = x.shape
    units = out.shape[2]
    width = GATES[kind] * units
    expect("recurrent", "out", out, (rows, steps, units))
    expect("recurrent", "kept", kept, (rows, steps, KEPT[kind] * units))
    expect("recurrent", "weight", weight, (inputs, width))
    expect("recurrent", "state_weight", state_weight, (units, width))
    expect_all("recurrent", (width,), bias=bias, state_bias=state_bias)
