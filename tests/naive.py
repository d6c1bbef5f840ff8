"""Oracles: what the packages compute, by loops over plain numbers and from the definitions.

Nothing here imports from the packages or calls BLAS. Arrays are indexed element by element; sums
are exact (``math.fsum``), unless their order is what is tested.
"""

import math
import re

import numpy as np

# Dense layers


def scale(x, factor, dtype):
    """``x * factor``, rounded once."""
    factor = float(np.dtype(dtype).type(factor))
    out = np.zeros(x.shape, dtype)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = float(x[i, j]) * factor
    return out


def affine(x, weight, bias, relu_after=False):
    rows, inputs = x.shape
    outputs = weight.shape[1]
    out = np.zeros((rows, outputs))
    for i in range(rows):
        for j in range(outputs):
            terms = [float(x[i, k]) * float(weight[k, j]) for k in range(inputs)]
            out[i, j] = total([*terms, float(bias[j])])
            if relu_after:
                out[i, j] = relu(float(out[i, j]))
    return out


def affine_gradient(x, delta):
    """``x.T @ delta`` and the column sums of ``delta``."""
    rows, inputs = x.shape
    outputs = delta.shape[1]
    weight_grad = np.zeros((inputs, outputs))
    bias_grad = np.zeros(outputs)
    for j in range(outputs):
        for k in range(inputs):
            weight_grad[k, j] = total([float(x[i, k]) * float(delta[i, j]) for i in range(rows)])
        bias_grad[j] = total([float(delta[i, j]) for i in range(rows)])
    return weight_grad, bias_grad


def relu(x):
    return 0.0 if x <= 0 else x


def relu_backward(delta, weight, activation):
    rows, inputs = activation.shape
    out = np.zeros((rows, inputs))
    for i in range(rows):
        for k in range(inputs):
            terms = [float(delta[i, j]) * float(weight[k, j]) for j in range(delta.shape[1])]
            out[i, k] = 0.0 if activation[i, k] <= 0 else total(terms)
    return out


def column_sums(a):
    """Row after row, each addition rounded to the array's dtype."""
    out = [a.dtype.type(0)] * a.shape[1]
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j] = out[j] + a[i, j]
    return np.array(out, a.dtype)


def total(terms):
    """Exact sum, rounded once; NaN and infinities as IEEE 754 adds them."""
    if all(math.isfinite(term) for term in terms):
        return math.fsum(terms)
    result = 0.0
    for term in terms:
        result += term
    return result


# Softmax


def softmax_row(logits):
    """Probabilities of one row, and the logarithm of each."""
    logits = [float(logit) for logit in logits]
    top = max(logits)
    if any(math.isnan(logit) for logit in logits) or math.isinf(top):
        return [math.nan] * len(logits), [math.nan] * len(logits)
    exponentials = [math.exp(logit - top) for logit in logits]
    log_sum = math.log(math.fsum(exponentials))
    logs = [logit - top - log_sum for logit in logits]
    return [value / math.fsum(exponentials) for value in exponentials], logs


def softmax(logits):
    return np.array([softmax_row(row)[0] for row in logits]).reshape(logits.shape)


def softmax_cross_entropy(logits, labels):
    """Loss, summed over rows, and its gradient with respect to the logits."""
    gradient = softmax(logits)
    losses = []
    for i, label in enumerate(labels):
        losses.append(-softmax_row(logits[i])[1][label])
        gradient[i, label] -= 1.0
    return total(losses), gradient


def correct(logits, labels):
    """Rows in which the first of the largest logits is the label's."""
    count = 0
    for row, label in zip(logits, labels, strict=True):
        row = [float(logit) for logit in row]
        count += row.index(max(row)) == label
    return count


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
        # log(1 + exp(-m)) = -m + log(1 + exp(m)): of the two, the one that cannot overflow.
        value = math.log1p(math.exp(-margin)) if margin > 0 else softplus(-margin)
        return value, sigmoid(score) - target
    slack = max(0.0, 1.0 - margin)
    if loss == "squared_hinge":
        return slack * slack, -2.0 * sign * slack
    return slack, -sign if slack else 0.0


def softplus(x):
    """``log(1 + exp(x))`` for x >= 0."""
    return x + math.log1p(math.exp(-x))


def sigmoid(score):
    if score >= 0:
        return 1 / (1 + math.exp(-score))
    return math.exp(score) / (1 + math.exp(score))


def linear_loss_and_gradient(loss, x, targets, weight, bias, weights=None):
    """Loss and gradient (weight, then bias) of ``x @ weight + bias``, summed over rows."""
    rows, inputs = x.shape
    losses, deltas = [], []
    for i in range(rows):
        terms = [float(x[i, k]) * float(weight[k]) for k in range(inputs)]
        value, delta = linear_loss(loss, total([*terms, float(bias)]), float(targets[i]))
        factor = 1.0 if weights is None else float(weights[i])
        losses.append(factor * value)
        deltas.append(factor * delta)
    gradient = [total([float(x[i, k]) * deltas[i] for i in range(rows)]) for k in range(inputs)]
    return total(losses), np.array([*gradient, total(deltas)])


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


def add(left, right):
    """Element by element, rounded to the arrays' dtype."""
    return np.array([a + b for a, b in zip(left, right, strict=True)], left.dtype)


def first_non_finite(values):
    for i, value in enumerate(values):
        if not math.isfinite(value):
            return i
    return -1


# Blocks of bytes


def mask(block):
    """The smallest mask, neither LF nor CR, that leaves neither in a block."""
    for candidate in range(256):
        if candidate in b"\n\r":
            continue
        if not any(byte ^ candidate in b"\n\r" for byte in block):
            return candidate
    raise ValueError("there is no mask")


# Optimizers: one parameter, from the gradients of all steps to its values after each


def sgd(value, gradients, rates, weight_decay):
    values = []
    for gradient, rate in zip(gradients, rates, strict=True):
        value = value - rate * (gradient + weight_decay * value)
        values.append(value)
    return values


def momentum(value, gradients, rates, weight_decay, decay):
    """Polyak 1964, as torch.optim.SGD has it."""
    values, velocity = [], 0.0
    for gradient, rate in zip(gradients, rates, strict=True):
        velocity = decay * velocity + (gradient + weight_decay * value)
        value = value - rate * velocity
        values.append(value)
    return values


def adagrad(value, gradients, rates, weight_decay, epsilon=1e-8):
    """Duchi, Hazan and Singer 2011."""
    values, squares = [], 0.0
    for gradient, rate in zip(gradients, rates, strict=True):
        gradient = gradient + weight_decay * value
        squares += gradient**2
        value -= rate * gradient / (math.sqrt(squares) + epsilon)
        values.append(value)
    return values


def adamw(value, gradients, rates, weight_decay, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Loshchilov and Hutter 2019, algorithm 2, with the decay times the learning rate."""
    values, mean, square = [], 0.0, 0.0
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        scaled = mean / (1 - beta1**step) / (math.sqrt(square / (1 - beta2**step)) + epsilon)
        value = value - rate * scaled - rate * weight_decay * value
        values.append(value)
    return values


def adam(value, gradients, rates, weight_decay, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Kingma and Ba 2015, algorithm 1."""
    values, m, v = [], 0.0, 0.0
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        g = gradient + weight_decay * value
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        value = value - rate * m_hat / (math.sqrt(v_hat) + epsilon)
        values.append(value)
    return values


def clip(gradient, most):
    """Scaled down to a Euclidean norm (Pascanu, Mikolov and Bengio 2013)."""
    norm = math.sqrt(math.fsum(float(g) ** 2 for g in gradient))
    return [float(g) * (most / norm if norm > most else 1.0) for g in gradient]


def proximal(value, threshold):
    """The point ``u`` with the least ``(u - value)**2 / 2 + threshold * abs(u)``."""
    if value > threshold:
        return value - threshold
    if value < -threshold:
        return value + threshold
    return 0.0


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
