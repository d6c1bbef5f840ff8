"""Oracles: what the packages compute, from the definitions, in plain numbers or NumPy's float64.

Nothing here imports from the packages or calls BLAS. Rounding and the order of additions are those
of the packages where they promise the bits, and NumPy's elsewhere.
"""

import math
import re
from functools import partial

import numpy as np

# Images


def augment(x, flips, shifts):
    """Images (rows, channels, height, width), mirrored and then shifted on a ground of zeros."""
    out = np.zeros(x.shape, x.dtype)
    for row, (up, left) in enumerate(shifts):
        image = x[row, :, :, ::-1] if flips[row] else x[row]
        for i, j in np.ndindex(x.shape[2:]):
            if 0 <= i + up < x.shape[2] and 0 <= j + left < x.shape[3]:
                out[row, :, i, j] = image[:, i + up, j + left]
    return out


# Dense layers


def float64(array):
    return np.asarray(array, np.float64)


def scale(x, factor, dtype):
    """``x * factor``, rounded once."""
    return (float64(x) * float(np.dtype(dtype).type(factor))).astype(dtype)


def product(a, b):
    """``a @ b``."""
    return np.einsum("ik,kj->ij", float64(a), float64(b))


def affine(x, weight, bias, relu_after=False):
    out = product(x, weight) + float64(bias)
    return relu(out) if relu_after else out


def affine_gradient(x, delta):
    """``x.T @ delta`` and the column sums of ``delta``."""
    return product(x.T, delta), float64(delta).sum(axis=0)


def relu(x):
    return np.where(x <= 0, 0.0, x)


def relu_backward(delta, weight, activation):
    return np.where(activation <= 0, 0.0, product(delta, weight.T))


def column_sums(a):
    """Row after row, each addition rounded to the array's dtype."""
    out = np.zeros(a.shape[1], a.dtype)
    for row in a:
        out += row
    return out


# Convolutions: images are (rows, height, width, channels)


def windows(x, size, stride, padding=0):
    """Those of a height and a width: (rows, tall, broad, height, width, channels)."""
    tall, broad = (max(0, x.shape[at + 1] + 2 * padding - size[at] + 1) for at in (0, 1))
    # As much room as the largest window needs, also where none lies within.
    room = [(padding, padding + length) for length in size]
    x = np.pad(float64(x), [(0, 0), *room, (0, 0)])
    found = np.lib.stride_tricks.sliding_window_view(x, size, axis=(1, 2))
    return np.moveaxis(found[:, :tall:stride, :broad:stride], 3, 5)


def overlaid(parts, shape, stride, padding=0):
    """Images of such a shape whose windows are added up."""
    rows, height, width, channels = shape
    out = np.zeros((rows, height + 2 * padding, width + 2 * padding, channels))
    high, wide = parts.shape[3:5]
    for i, j in np.ndindex(parts.shape[1:3]):
        y, z = i * stride, j * stride
        out[:, y : y + high, z : z + wide] += parts[:, i, j]
    return out[:, padding : padding + height, padding : padding + width]


def convolve(x, weight, stride=1, padding=0):
    seen = windows(x, weight.shape[:2], stride, padding)
    return np.einsum("nijuvc,uvcf->nijf", seen, float64(weight))


def convolve_gradients(x, weight, delta, stride=1, padding=0):
    """Gradients by the weights, summed over rows, and by the images."""
    seen = windows(x, weight.shape[:2], stride, padding)
    by_weight = np.einsum("nijuvc,nijf->uvcf", seen, float64(delta))
    by_window = np.einsum("uvcf,nijf->nijuvc", float64(weight), float64(delta))
    return by_weight, overlaid(by_window, x.shape, stride, padding)


def max_pool(x, size, stride):
    """The largest value of each window, and where in it the first of them is; NaN is larger."""
    seen = windows(x, (size, size), stride)
    values = seen.reshape(*seen.shape[:3], size**2, seen.shape[5])
    # NumPy takes the first NaN for the largest value, too.
    places = values.argmax(axis=3)
    out = np.take_along_axis(values, places[:, :, :, None], axis=3)[:, :, :, 0]
    return out, places.astype(np.uint8)


def max_pool_backward(delta, places, shape, size, stride):
    taken = places[:, :, :, None] == np.arange(size**2)[:, None]
    parts = np.where(taken, delta[:, :, :, None], 0.0)
    parts = parts.reshape(*delta.shape[:3], size, size, delta.shape[3])
    return overlaid(parts, shape, stride)


def average_pool(x, size, stride):
    return windows(x, (size, size), stride).mean(axis=(3, 4))


def average_pool_backward(delta, shape, size, stride):
    parts = np.repeat(float64(delta)[:, :, :, None, None] / size**2, size, axis=3)
    return overlaid(np.repeat(parts, size, axis=4), shape, stride)


def scale_shift(z, scale, shift, relu_after, pool):
    """Scaled, shifted and, if asked, rectified; then pooled as by :func:`max_pool`."""
    out = float64(z) * float64(scale) + float64(shift)
    return max_pool(relu(out) if relu_after else out, pool, pool)


def scale_shift_backward(delta, out, places, shape, relu_after, pool):
    """The gradient by what was rectified and pooled, and its sums over all places."""
    kept = np.where(relu_after & (out <= 0), 0.0, float64(delta))
    dz = max_pool_backward(kept, places, shape, pool, pool)
    return dz, dz.sum(axis=(0, 1, 2))


# Normalisation


def channel_moments(x):
    """The mean of each column, and the sum of squared differences from it."""
    mean = float64(x).mean(axis=0)
    return mean, ((x - mean) ** 2).sum(axis=0)


def batch_norm(z, weight, bias, epsilon):
    """Columns less their mean, by their standard deviation (Ioffe and Szegedy 2015)."""
    mean, squares = channel_moments(z)
    return weight * (z - mean) / np.sqrt(squares / len(z) + epsilon) + bias


def layer_norm(x, weight, bias):
    """The same of rows (Ba, Kiros and Hinton 2016)."""
    return batch_norm(float64(x).T, weight[:, None], bias[:, None], 1e-5).T


# Activations


def activation(name, x, slope=0.0):
    if name == "relu":
        return relu(x)
    if name == "leaky-relu":
        return np.where(x <= 0, slope * x, x)
    if name == "tanh":
        return np.tanh(x)
    if name == "sigmoid":
        return sigmoid(x)
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x):
    power = np.exp(-abs(x))
    return np.where(x >= 0, 1, power) / (1 + power)


# Random numbers


def philox(counter, key):
    """Philox 4x32-10 in plain numbers, as its authors describe it."""
    mask = 2**32 - 1
    words, keys = list(counter), list(key)
    for _ in range(10):
        left, right = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [
            *(right >> 32 ^ words[1] ^ keys[0], right & mask),
            *(left >> 32 ^ words[3] ^ keys[1], left & mask),
        ]
        keys = [keys[0] + 0x9E3779B9 & mask, keys[1] + 0xBB67AE85 & mask]
    return words


def random_word(key, row, place):
    """The 32 random bits of a place of a row."""
    mask = 2**32 - 1
    block = place // 4
    counter = (block & mask, block >> 32, row & mask, row >> 32)
    return philox(counter, (key & mask, key >> 32))[place % 4]


def random_words(key, row, shape):
    """Those of all places of some rows."""
    words = [random_word(key, row + i, j) for i, j in np.ndindex(shape)]
    return np.array(words, np.uint64).reshape(shape)


def dropout(x, key, row, rate):
    kept = random_words(key, row, x.shape) >= math.floor(rate * 2**32)
    return np.where(kept, x * x.dtype.type(1 / (1 - rate)), x.dtype.type(0))


# Sequences


def embed(tokens, weight):
    return weight[tokens]


def embed_gradient(tokens, delta, words):
    out = np.zeros((words, delta.shape[2]))
    np.add.at(out, tokens, delta)
    return out


def recurrent(kind, x, weight, state_weight, bias, state_bias):
    """The states of all steps, as PyTorch's page of each layer has them."""
    rows, steps, _ = x.shape
    units = len(state_weight)
    state, cell, states = np.zeros((rows, units)), np.zeros((rows, units)), []
    for s in range(steps):
        a = affine(x[:, s], weight, bias).reshape(rows, -1, units).swapaxes(0, 1)
        p = affine(state, state_weight, state_bias).reshape(rows, -1, units).swapaxes(0, 1)
        if kind == "rnn":
            state = np.tanh(a[0] + p[0])
        elif kind == "gru":
            reset, keep = sigmoid(a[:2] + p[:2])
            state = (1 - keep) * np.tanh(a[2] + reset * p[2]) + keep * state
        else:
            take, keep, _, give = sigmoid(a + p)
            cell = keep * cell + take * np.tanh(a[2] + p[2])
            state = give * np.tanh(cell)
        states.append(state)
    return np.stack(states, axis=1)


# Softmax


def softmax_and_log(logits):
    """Probabilities of each row and their logarithms: NaN if its largest logit is not finite."""
    top = float64(logits).max(axis=1, keepdims=True)
    below = logits - np.where(np.isfinite(top), top, math.nan)
    powers = np.exp(below)
    sums = powers.sum(axis=1, keepdims=True)
    return powers / sums, below - np.log(sums)


def softmax(logits):
    return softmax_and_log(logits)[0]


def softmax_cross_entropy(logits, labels):
    """Loss, summed over rows, and its gradient with respect to the logits."""
    gradient, logs = softmax_and_log(logits)
    each = np.arange(len(logits)), labels
    gradient[each] -= 1.0
    return -logs[each].sum(), gradient


def correct(logits, labels):
    """Rows in which the first of the largest logits is the label's."""
    return int((np.argmax(logits, axis=1) == labels).sum())


# Models


def mlp_loss_and_gradient(x, labels, layers):
    """Loss and gradient of affine layers with ReLU between them, summed over rows.

    ``layers`` are pairs (weight, bias); the gradients come as such pairs too.
    """
    activations = [x]
    for number, (weight, bias) in enumerate(layers, 1):
        activations.append(affine(activations[-1], weight, bias, number < len(layers)))
    loss, delta = softmax_cross_entropy(activations.pop(), labels)
    gradients = []
    for weight, _ in reversed(layers):
        below = activations.pop()
        gradients.insert(0, affine_gradient(below, delta))
        delta = relu_backward(delta, weight, below)
    return loss, gradients


# Linear models


def linear_loss(loss, score, target):
    """Loss of one row and its derivative by the score; targets of classes are 0 and 1."""
    if math.isnan(score):
        return math.nan, math.nan
    if loss == "squared":
        return (score - target) ** 2 / 2, score - target
    sign = 1.0 if target == 1 else -1.0
    margin = sign * score
    if loss == "logistic":
        value = max(0.0, -margin) + math.log1p(math.exp(-abs(margin)))
        return value, sigmoid(score) - target
    slack = max(0.0, 1.0 - margin)
    if loss == "squared_hinge":
        return slack * slack, -2.0 * sign * slack
    return slack, -sign if slack else 0.0


def linear_losses(loss, scores, targets, weights=None):
    """The losses of rows, and their derivatives by the scores."""
    pairs = [linear_loss(loss, *map(float, pair)) for pair in zip(scores, targets, strict=True)]
    return np.array(pairs).reshape(-1, 2).T * (1.0 if weights is None else weights)


def linear_loss_and_gradient(loss, x, targets, weight, bias, weights=None):
    """Loss and gradient (weight, then bias) of ``x @ weight + bias``, summed over rows."""
    scores = affine(x, weight[:, None], bias)[:, 0]
    losses, deltas = linear_losses(loss, scores, targets, weights)
    return losses.sum(), np.append(product(x.T, deltas[:, None]), deltas.sum())


def csr_to_dense(indptr, indices, values, columns):
    dense = np.zeros((len(indptr) - 1, columns), values.dtype)
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            dense[i, indices[k]] += values[k]
    return dense


# Sums


def tree_sum(leaves, combine):
    """The canonical tree from its top: the left part is the largest power of two below all."""
    if len(leaves) == 1:
        return leaves[0]
    left = 1
    while left * 2 < len(leaves):
        left *= 2
    return combine(tree_sum(leaves[:left], combine), tree_sum(leaves[left:], combine))


#: Elements of a page.
PAGE = 16_384


def pages(values):
    """Copies of a vector's pages, in float64."""
    return [values[at : at + PAGE].astype(np.float64) for at in range(0, len(values), PAGE)]


def half_pages(values):
    """Numbers of 16 bits, scaled by a power of two for each page."""
    out = []
    for page in pages(values):
        exponent = 15 - math.frexp(abs(page).max())[1]
        halves = np.ldexp(page, exponent).astype(np.float16)
        out.append(np.ldexp(halves.astype(np.float64), -exponent))
    return np.concatenate(out).astype(values.dtype)


def one_bit_pages(values):
    """For each element the mean of those of its page that have its sign; 0 is positive."""
    out = pages(values)
    for page in out:
        for group in (page < 0, page >= 0):
            if group.any():
                page[group] = page[group].mean()
    return np.concatenate(out)


def largest(values, count):
    """Indices, ascending, of the largest magnitudes; of equal ones the first."""
    return sorted(np.argsort(-abs(values), kind="stable")[:count].tolist())


def first_non_finite(values):
    return next(iter(np.flatnonzero(~np.isfinite(values))), -1)


# Blocks of bytes


def mask(block):
    """The smallest mask, neither LF nor CR, that leaves neither in a block."""
    ends = {*b"\n\r"}
    return next(m for m in range(256) if m not in ends and not ends & {byte ^ m for byte in block})


# Optimizers: one parameter, from the gradients of all steps to its values after each


def momentum(value, gradients, rates, weight_decay, decay):
    """Polyak 1964, as torch.optim.SGD has it."""
    values, velocity = [], 0.0
    for gradient, rate in zip(gradients, rates, strict=True):
        velocity = decay * velocity + (gradient + weight_decay * value)
        value = value - rate * velocity
        values.append(value)
    return values


sgd = partial(momentum, decay=0.0)


def adagrad(value, gradients, rates, weight_decay, epsilon=1e-8):
    """Duchi, Hazan and Singer 2011."""
    values, squares = [], 0.0
    for gradient, rate in zip(gradients, rates, strict=True):
        gradient = gradient + weight_decay * value
        squares += gradient**2
        value -= rate * gradient / (math.sqrt(squares) + epsilon)
        values.append(value)
    return values


def adam(
    value, gradients, rates, weight_decay, beta1=0.9, beta2=0.999, epsilon=1e-8, decoupled=False
):
    """Kingma and Ba 2015, algorithm 1."""
    values, m, v = [], 0.0, 0.0
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        g = gradient if decoupled else gradient + weight_decay * value
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        decay = rate * weight_decay * value if decoupled else 0.0
        value = value - rate * m_hat / (math.sqrt(v_hat) + epsilon) - decay
        values.append(value)
    return values


#: Loshchilov and Hutter 2019, algorithm 2, with the decay times the learning rate.
adamw = partial(adam, decoupled=True)


def clip(gradient, most):
    """Scaled down to a Euclidean norm (Pascanu, Mikolov and Bengio 2013)."""
    norm = math.sqrt(math.fsum(float(g) ** 2 for g in gradient))
    return [float(g) * (most / norm if norm > most else 1.0) for g in gradient]


def two_loops(gradient, steps, changes):
    """L-BFGS's direction (Nocedal and Wright, Numerical Optimization, algorithm 7.4), in float64.

    ``steps`` and ``changes`` are the last ones, the oldest first.
    """
    q = np.array(gradient, np.float64)
    alphas = []
    for s, y in reversed(list(zip(steps, changes, strict=True))):
        alphas.append(float(s @ q) / float(y @ s))
        q = q - alphas[-1] * y
    if steps:
        q = q * (float(steps[-1] @ changes[-1]) / float(changes[-1] @ changes[-1]))
    for s, y in zip(steps, changes, strict=True):
        q = q + (alphas.pop() - float(y @ q) / float(y @ s)) * s
    return -q


# Texts


def word_counts(block):
    """How often each word, in UTF-8, occurs in lines decoded as mrjob's RawValueProtocol does."""
    counts = {}
    for line in block.split(b"\n"):
        try:
            text = line.decode("utf_8")
        except UnicodeDecodeError:
            text = line.decode("latin_1")
        for word in re.findall(r"[\w']+", text.lower()):
            key = word.encode("utf_8")
            counts[key] = counts.get(key, 0) + 1
    return counts


def hash_partition(key, partitions):
    """Hadoop's HashPartitioner of a Text."""
    value = 1
    for byte in key:
        value = 31 * value + (byte if byte < 128 else byte - 256)
    return value % 2**32 % 2**31 % partitions


def fnv1a(string):
    """The 64-bit hash of Fowler, Noll and Vo."""
    value = 0xCBF29CE484222325
    for byte in string:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def mixed(value):
    """The finaliser of SplitMix64."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31
