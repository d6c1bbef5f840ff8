"""Oracles: what the packages compute, by loops over plain numbers and from the definitions.

Nothing here imports from the packages or calls BLAS. Arrays are indexed element by element; sums
are exact (``math.fsum``), unless their order is what is tested.
"""

import math
import re
import struct

import numpy as np

# Images


def augment(x, flips, shifts):
    """Images (rows, channels, height, width), mirrored and then shifted on a ground of zeros."""
    rows, channels, height, width = x.shape
    out = np.zeros(x.shape, x.dtype)
    for row in range(rows):
        up, left = shifts[row]
        for channel in range(channels):
            for i in range(height):
                for j in range(width):
                    y, place = i + up, j + left
                    if 0 <= y < height and 0 <= place < width:
                        mirrored = width - 1 - place if flips[row] else place
                        out[row, channel, i, j] = x[row, channel, y, mirrored]
    return out


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


# Convolutions: images are (rows, height, width, channels)


def convolve(x, weight, stride=1, padding=0):
    rows, height, width, channels = x.shape
    high, wide, _, filters = weight.shape
    tall = windows(height + 2 * padding, high, stride)
    broad = windows(width + 2 * padding, wide, stride)
    out = np.zeros((rows, tall, broad, filters))
    for n, i, j, f in np.ndindex(out.shape):
        terms = []
        for u, v in np.ndindex(high, wide):
            y, z = i * stride + u - padding, j * stride + v - padding
            if 0 <= y < height and 0 <= z < width:
                terms += [float(x[n, y, z, c]) * float(weight[u, v, c, f]) for c in range(channels)]
        out[n, i, j, f] = total(terms)
    return out


def convolve_gradients(x, weight, delta, stride=1, padding=0):
    """Gradients by the weights, summed over rows, and by the images."""
    _, height, width, channels = x.shape
    by_weight = [[] for _ in range(weight.size)]
    by_input = [[] for _ in range(x.size)]
    for n, i, j, f in np.ndindex(delta.shape):
        for u, v, c in np.ndindex(weight.shape[:3]):
            y, z = i * stride + u - padding, j * stride + v - padding
            if 0 <= y < height and 0 <= z < width:
                place = ((u * weight.shape[1] + v) * channels + c) * weight.shape[3] + f
                by_weight[place].append(float(x[n, y, z, c]) * float(delta[n, i, j, f]))
                place = ((n * height + y) * width + z) * channels + c
                by_input[place].append(float(weight[u, v, c, f]) * float(delta[n, i, j, f]))
    sums = [np.array([total(terms) for terms in places]) for places in (by_weight, by_input)]
    return sums[0].reshape(weight.shape), sums[1].reshape(x.shape)


def windows(length, size, stride):
    """How many windows lie within a length."""
    return len(range(0, length - size + 1, stride))


def max_pool(x, size, stride):
    """The largest value of each window, and where in it the first of them is; NaN is larger."""
    rows, height, width, channels = x.shape
    shape = (rows, windows(height, size, stride), windows(width, size, stride), channels)
    out, places = np.zeros(shape, x.dtype), np.zeros(shape, np.uint8)
    for n, i, j, c in np.ndindex(shape):
        values = [x[n, i * stride + u, j * stride + v, c] for u, v in np.ndindex(size, size)]
        ranks = [math.inf if math.isnan(value) else float(value) for value in values]
        nans = [place for place, value in enumerate(values) if math.isnan(value)]
        places[n, i, j, c] = nans[0] if nans else ranks.index(max(ranks))
        out[n, i, j, c] = values[places[n, i, j, c]]
    return out, places


def max_pool_backward(delta, places, shape, size, stride):
    terms = [[] for _ in range(math.prod(shape))]
    for n, i, j, c in np.ndindex(delta.shape):
        u, v = divmod(int(places[n, i, j, c]), size)
        place = ((n * shape[1] + i * stride + u) * shape[2] + j * stride + v) * shape[3] + c
        terms[place].append(float(delta[n, i, j, c]))
    return np.array([total(values) for values in terms]).reshape(shape)


def average_pool(x, size, stride):
    rows, height, width, channels = x.shape
    shape = (rows, windows(height, size, stride), windows(width, size, stride), channels)
    out = np.zeros(shape)
    for n, i, j, c in np.ndindex(shape):
        places = np.ndindex(size, size)
        values = [float(x[n, i * stride + u, j * stride + v, c]) for u, v in places]
        out[n, i, j, c] = total(values) / size**2
    return out


def average_pool_backward(delta, shape, size, stride):
    terms = [[] for _ in range(math.prod(shape))]
    for n, i, j, c in np.ndindex(delta.shape):
        for u, v in np.ndindex(size, size):
            place = ((n * shape[1] + i * stride + u) * shape[2] + j * stride + v) * shape[3] + c
            terms[place].append(float(delta[n, i, j, c]) / size**2)
    return np.array([total(values) for values in terms]).reshape(shape)


def global_average(x):
    rows, height, width, channels = x.shape
    out = np.zeros((rows, channels))
    for n, c in np.ndindex(out.shape):
        values = [float(x[n, i, j, c]) for i, j in np.ndindex(height, width)]
        out[n, c] = total(values) / (height * width)
    return out


def scale_shift(z, scale, shift, relu_after, pool):
    """Scaled, shifted and, if asked, rectified; then pooled as by :func:`max_pool`."""
    out = np.zeros(z.shape)
    for place in np.ndindex(z.shape):
        value = float(z[place]) * float(scale[place[3]]) + float(shift[place[3]])
        out[place] = relu(value) if relu_after else value
    return max_pool(out, pool, pool)


def scale_shift_backward(delta, out, places, shape, relu_after, pool):
    """The gradient by what was rectified and pooled, and its sums over all places."""
    kept = np.zeros(delta.shape)
    for place in np.ndindex(delta.shape):
        off = relu_after and out[place] <= 0
        kept[place] = 0.0 if off else float(delta[place])
    dz = max_pool_backward(kept, places, shape, pool, pool)
    return dz, np.array([total(dz[..., c].ravel().tolist()) for c in range(shape[3])])


# Normalisation


def channel_moments(x):
    """The mean of each column, and the sum of squared differences from it."""
    rows, channels = x.shape
    means, squares = [], []
    for c in range(channels):
        mean = total([float(x[i, c]) for i in range(rows)]) / rows
        means.append(mean)
        squares.append(total([(float(x[i, c]) - mean) ** 2 for i in range(rows)]))
    return np.array(means), np.array(squares)


def batch_norm(z, weight, bias, epsilon):
    """Columns less their mean, by their standard deviation (Ioffe and Szegedy 2015)."""
    rows, channels = z.shape
    mean, squares = channel_moments(z)
    out = np.zeros(z.shape)
    for i, c in np.ndindex(rows, channels):
        zhat = (float(z[i, c]) - mean[c]) / math.sqrt(squares[c] / rows + epsilon)
        out[i, c] = float(weight[c]) * zhat + float(bias[c])
    return out


# Activations


def activation(name, x, slope=0.0):
    if name == "relu":
        return relu(x)
    if name == "leaky-relu":
        return slope * x if x <= 0 else x
    if name == "tanh":
        return math.tanh(x)
    if name == "sigmoid":
        return sigmoid(x)
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


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


def dropout(x, key, row, rate):
    factor = x.dtype.type(1 / (1 - rate))
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if random_word(key, row + i, j) >= math.floor(rate * 2**32):
                out[i, j] = x[i, j] * factor
    return out


def layer_norm(x, weight, bias):
    rows, n = x.shape
    out = np.zeros((rows, n))
    for i in range(rows):
        row = [float(value) for value in x[i]]
        mean = total(row) / n
        variance = total([(value - mean) ** 2 for value in row]) / n
        for j in range(n):
            z = (row[j] - mean) / math.sqrt(variance + 1e-5)
            out[i, j] = float(weight[j]) * z + float(bias[j])
    return out


# Sequences


def embed(tokens, weight):
    rows, steps = tokens.shape
    out = np.zeros((rows, steps, weight.shape[1]))
    for i in range(rows):
        for s in range(steps):
            for j in range(weight.shape[1]):
                out[i, s, j] = weight[tokens[i, s], j]
    return out


def embed_gradient(tokens, delta, words):
    out = np.zeros((words, delta.shape[2]))
    for word in range(words):
        places = list(zip(*np.nonzero(tokens == word), strict=True))
        for j in range(delta.shape[2]):
            out[word, j] = total([float(delta[i, s, j]) for i, s in places])
    return out


def recurrent(kind, x, weight, state_weight, bias, state_bias):
    """The states of all steps, as PyTorch's page of each layer has them."""
    rows, steps, _ = x.shape
    units = len(state_weight)
    out = np.zeros((rows, steps, units))
    for i in range(rows):
        state, cell = np.zeros((1, units)), np.zeros(units)
        for s in range(steps):
            a = affine(x[i, s : s + 1], weight, bias)[0]
            p = affine(state, state_weight, state_bias)[0]
            for j in range(units):
                if kind == "rnn":
                    out[i, s, j] = math.tanh(a[j] + p[j])
                elif kind == "gru":
                    r, z, n = j, units + j, 2 * units + j
                    reset, keep = sigmoid(a[r] + p[r]), sigmoid(a[z] + p[z])
                    new = math.tanh(a[n] + reset * p[n])
                    out[i, s, j] = (1 - keep) * new + keep * state[0, j]
                else:
                    i_, f, g, o = j, units + j, 2 * units + j, 3 * units + j
                    kept = sigmoid(a[f] + p[f]) * cell[j]
                    cell[j] = kept + sigmoid(a[i_] + p[i_]) * math.tanh(a[g] + p[g])
                    out[i, s, j] = sigmoid(a[o] + p[o]) * math.tanh(cell[j])
            state = out[i, s : s + 1]
    return out


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


#: Elements of a page.
PAGE = 16_384


def half_pages(values):
    """Numbers of 16 bits, scaled by a power of two for each page.

    They are those of ``struct``, rounded to the nearest, and of two to the even one.
    """
    out = []
    for start in range(0, len(values), PAGE):
        page = values[start : start + PAGE].tolist()
        exponent = 15 - math.frexp(max(abs(value) for value in page))[1]
        for value in page:
            (half,) = struct.unpack("e", struct.pack("e", math.ldexp(value, exponent)))
            out.append(math.ldexp(half, -exponent))
    return np.array(out).astype(values.dtype)


def one_bit_pages(values):
    """For each element the mean of those of its page that have its sign; 0 is positive."""
    out = []
    for start in range(0, len(values), PAGE):
        page = values[start : start + PAGE].tolist()
        groups = [v for v in page if v < 0], [v for v in page if v >= 0]
        means = [total(group) / len(group) if group else 0.0 for group in groups]
        out += [means[value >= 0] for value in page]
    return np.array(out)


def largest(values, count):
    """Indices, ascending, of the largest magnitudes; of equal ones the first."""
    order = sorted(range(len(values)), key=lambda i: (-abs(float(values[i])), i))
    return sorted(order[:count])


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
