"""What a kernel refuses: a compiled loop would read and write wherever its arguments lead it."""

import math

import numpy as np
import pytest

from kernels import dispatch
from quick import cases

pytestmark = pytest.mark.every_case


def places(*shape):
    return np.zeros(shape, np.uint8)


def whole(*shape):
    return np.zeros(shape, np.int64)


def words(*values):
    return np.array(values, np.int32)


def some(*shape):
    return np.ones(shape, np.float32)


def calls():
    """For each kernel of several arrays: arguments that belong together."""
    images, pooled, filters, row = some(2, 4, 4, 3), some(2, 2, 2, 3), some(3, 3, 3, 5), some(3)
    convolved, double, flat = some(2, 2, 2, 5), np.ones(3), some(2, 3)
    sparse = words(0, 2, 3), words(0, 2, 1), some(3)
    weights = some(2, 12), some(4, 12), some(12), some(12)
    states = some(3, 5, 4), some(3, 5, 16)
    cells = np.full((3, 255), 2**32 - 1, np.uint32)
    cells[:, 0] = 0
    text, tokens = (words(0, 2, 3), places(3)), words([0, 1, 1], [1, 0, 1])
    return {
        "scale": (flat, 1.0, flat.copy()),
        "channels_last": (some(2, 48), 1.0, images),
        "softmax_cross_entropy": (flat, words(0, 1), np.ones(2)),
        "score": (flat, words(0, 1), np.ones(2)),
        "linear_loss": ("hinge", row, words(0, 1, 1), double),
        "convolve": (images, filters, convolved, 1, 0),
        "convolve_weight_gradient": (images, convolved, filters, 1, 0),
        "convolve_input_gradient": (convolved, filters, images, 1, 0),
        "max_pool": (images, pooled, places(2, 2, 2, 3), 2, 2),
        "max_pool_backward": (pooled, places(2, 2, 2, 3), images, 2, 2),
        "average_pool": (images, pooled, 2, 2),
        "average_pool_backward": (pooled, images, 2, 2),
        "global_average": (images, flat),
        "global_average_backward": (flat, images),
        "scale_shift": (images, row, row, pooled, places(2, 2, 2, 3), True, 2),
        "scale_shift_backward": (pooled, pooled, places(2, 2, 2, 3), images, row, True, 2),
        "channel_moments": (flat, double, double.copy()),
        "batch_norm_backward": (flat, flat, double, double, row, row.copy(), row, flat, True),
        "layer_norm": (flat, row, row, flat.copy(), np.ones(2), np.ones(2)),
        "layer_norm_backward": (flat, flat, row, np.ones(2), np.ones(2), row, row.copy(), flat),
        "embed": (tokens, some(4, 5), some(2, 3, 5)),
        "embed_gradient": (tokens, some(2, 3, 5), some(4, 5)),
        "recurrent": ("gru", some(3, 5, 2), *weights, *states),
        "recurrent_backward": (
            *("gru", states[0], some(3, 5, 2), *weights[:2], *states),
            *(*weights, some(3, 5, 2)),
        ),
        "csr_scores": (*sparse, row, 0.0, some(2)),
        "csr_gradient": (*sparse, some(2), row),
        "csr_gradient_sparse": (*sparse, some(2), 3),
        "activate": ("tanh", flat, flat.copy()),
        "activate_backward": ("tanh", flat, flat, flat, flat.copy()),
        "dropout": (flat, 0, 0, 0.5, flat.copy()),
        "add_into": (flat, flat.copy()),
        "mask_blocks": (places(2, 5), places(2), places(2, 5)),
        "unmask_blocks": (places(2), places(2, 5), places(2, 5)),
        "hash_partitions": (*text, 2),
        "add_hashes": (b"", *text, np.zeros(2, np.uint64)),
        "murmur3": (*text, 0),
        "augment": (images, np.zeros(2, bool), np.zeros((2, 2), np.int64), images.copy()),
        "cholesky_solve": (np.eye(3), double),
        "gram_parts": (flat, double, np.ones(4), np.ones(2), 20),
        "count_cells": (flat, 24, cells, np.zeros((1, 3, 256), np.int64)),
        "bin_rows": (flat, cells),
        "log_loss_gradients": (np.ones((2, 3)), 1, words(0, 1, 1), double, whole(3, 2)),
        "squared_gradients": (double, 8.0, double.copy(), double.copy(), whole(3, 2)),
        "log_losses": (np.ones((2, 3)), words(0, 1, 1)),
        "pack_histogram": (places(2, 3), words(0, 1), whole(2, 2), whole(3, 256, 2)),
        "unpack_histogram": (whole(3, 256, 2), whole(3, 256, 3)),
        "split_rows": (places(2, 3), words(0, 1), 2, 0, True, words(0, 0)),
        "best_split": (whole(3, 256, 3), whole(3), 1, 0.0, 1.0, 1.0, whole(9)),
        "split_subset": (places(2, 3), words(0, 1), 1, 3, whole(1), True, words(0, 0)),
        "best_subset": (whole(1, 256, 3), 0, 9, 1, 0.0, 1.0, 1.0, 0.0, whole(10)),
        "add_leaves": (words(1, 0, 2), words(0, 1), words(1, 3), np.ones(2), double),
        "add_trees": (flat, *(words(0, 0, 0) for _ in range(5)), double, np.ones((2, 1))),
        "to_grid": (flat, double, double.copy()),
        "centred": (whole(3, 3), whole(3, 3), whole(3, 3), 20),
        "choose": (np.ones((3, 3)), np.ones(3), np.zeros((2, 2, 2))),
        "nearest": (np.ones((2, 3)), np.ones((4, 3))),
        "closest": (flat, np.ones((4, 3))),
        "move_rows": (
            *(flat, np.ones(2), words(0, 1), words(2, 2), double, np.ones(4)),
            np.zeros((4, 4), np.int64),
        ),
    }


CALLS = calls()
#: Arguments and axes that no other argument has: classes, rows, pixels, words and offsets.
FREE = {
    *{("softmax_cross_entropy", 0, 1), ("score", 0, 1), ("channel_moments", 0, 0)},
    *{("global_average", 0, 1), ("global_average", 0, 2), ("embed", 1, 0)},
    *{("global_average_backward", 1, 1), ("global_average_backward", 1, 2)},
    *{
        ("to_grid", 0, 0),
        ("nearest", 0, 0),
        ("nearest", 1, 0),
        ("closest", 0, 0),
        ("closest", 1, 0),
        ("move_rows", 6, 0),
    },
    *{("choose", 2, 0), ("choose", 2, 1), ("choose", 2, 2)},
    *{("count_cells", 0, 0), ("bin_rows", 0, 0), ("log_loss_gradients", 0, 0)},
    *{("pack_histogram", 1, 0), ("split_rows", 1, 0), ("log_losses", 0, 0)},
    *{("split_subset", 1, 0), ("split_subset", 4, 0)},
    *{("add_trees", 0, 1), ("add_trees", 1, 0), ("add_trees", 7, 1)},
    *{("embed_gradient", 2, 0), ("hash_partitions", 0, 0), ("murmur3", 0, 0)},
}
#: What BLAS refuses by itself, and kernels of one array.
LEFT_OUT = {"affine", "affine_gradient", "affine_input_gradient", "relu_backward", "softmax"}
LEFT_OUT |= {"sigmoid", "uniform", "first_non_finite", "WordCounter", "record_ends"}
LEFT_OUT |= {"eigh", "extremes", "row_chances"}


def called(kernel, name, changes):
    """Call a kernel with its arguments of the table, but for some; each has memory of its own."""
    arguments = [changes.get(at, argument) for at, argument in enumerate(CALLS[name])]
    copies = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    return kernel(name)(*copies)


@pytest.fixture
def kernel(kernel, request, name):
    if dispatch.KERNELS[name] in dispatch.HOST_ONLY and "cuda" in request.node.callspec.id:
        pytest.skip("runs on the host")
    return kernel


def test_the_table_is_complete():
    assert CALLS.keys() == dispatch.KERNELS.keys() - LEFT_OUT


@pytest.mark.parametrize("name", CALLS)
def test_arrays_that_do_not_belong_together(kernel, name):
    called(kernel, name, {})
    for at, array in enumerate(CALLS[name]):
        for axis in range(np.ndim(array)):
            changes = {at: np.delete(array, 0, axis)}
            if (name, at, axis) in FREE:
                called(kernel, name, changes)
            else:
                with pytest.raises(ValueError, match=rf"^({name}|recurrent): .*\d"):
                    called(kernel, name, changes)


IMAGES, EMPTY = some(2, 4, 4, 3), some(2, 0, 0, 5)
WIDE = {0: places(1, 127), 1: places(1), 2: places(1, 127)}
LARGE = {0: some(1, 17, 17, 1), 1: some(1, 1, 1, 1), 2: places(1, 1, 1, 1), 3: 17, 4: 17}


@cases(
    "name, changes, message",
    ("activate", {0: "swish"}, "unknown activation 'swish': expected one of relu, lea"),
    *[("dropout", {3: rate}, "expected at least 0 and below 1") for rate in (-0.1, 1, 1.5)],
    ("dropout", {3: math.nan}, "dropout: rate nan, expected"),
    ("add_into", {1: np.ones((2, 3))}, "differ"),
    ("add_into", {1: some(1, 2, 3)}, "differ"),
    *[(name, {0: some(2)}, f"{name}: logits") for name in ("score", "softmax_cross_entropy")],
    # Filters and windows that are larger than an image.
    ("convolve", {1: some(7, 7, 3, 5), 2: EMPTY}, r"images \(2, 4, 4, 3\), weights .* found"),
    ("convolve_weight_gradient", {1: EMPTY, 2: some(7, 7, 3, 5)}, "images"),
    ("convolve_input_gradient", {0: EMPTY, 1: some(7, 7, 3, 5)}, "images"),
    ("max_pool", {1: EMPTY[..., :3], 2: places(2, 0, 0, 3), 3: 5, 4: 1}, "max_pool: "),
    ("max_pool", LARGE, "max_pool: windows of 17: expected at most 16"),
    # Without the places that pooling needs, and with those that it does not need.
    ("scale_shift", {4: None}, "scale_shift: "),
    ("scale_shift", {4: None, 6: 1}, "scale_shift: "),
    ("scale_shift_backward", {2: None}, "scale_shift_backward: "),
    ("scale_shift_backward", {2: None, 6: 1}, "scale_shift_backward: "),
    ("mask_blocks", WIDE, "mask_blocks: payload"),
    ("augment", {3: IMAGES.astype(np.float64)}, "and out alike"),
    ("augment", {0: IMAGES.reshape(2, 48)}, r"expected images .* found x \(2, 48\)"),
    *[("hash_partitions", {2: n}, f": {n} partitions") for n in (-1, 0, 2**31)],
    *[
        (name, {at: words(*offsets)}, rf"{name}: \d offsets, expected")
        for name, at in (("hash_partitions", 0), ("add_hashes", 1), ("murmur3", 0))
        for offsets in ([], [0, 2, 4], [-1, 1, 2], [0, 2, 1], [2, 1, 3])
    ],
    *[
        (name, {0: words(*token)}, f"{name}: tokens .*expected 0 to 3")
        for name in ("embed", "embed_gradient")
        for token in ([[0, 1, -1], [0, 0, 0]], [[0, 1, 4], [0, 0, 0]])
    ],
    *[
        (name, {0: words(*offsets)}, message)
        for name in ("csr_scores", "csr_gradient", "csr_gradient_sparse")
        for offsets, message in (
            ([], r"indptr has shape .*: expected \(3,\)"),
            ([0, 3, 2], "indptr from 0 to 2 does not ascend within 3 entries"),
            ([2, 1, 3], "indptr from 2 to 3 does not ascend within 3 entries"),
            ([0, 2, 4], "indptr from 0 to 4 does not ascend within 3 entries"),
            ([-1, 2, 3], "indptr from -1 to 3 does not ascend within 3 entries"),
        )
    ],
    *[
        (name, {1: words(*columns)}, f"columns {least} to {most}, expected 0 to 2")
        for name in ("csr_scores", "csr_gradient", "csr_gradient_sparse")
        for least, most, columns in (
            (0, 3, (0, 3, 1)),
            (-1, 1, (0, -1, 1)),
            (0, 2**31 - 1, (2**31 - 1, 0, 0)),
        )
    ],
)
def test_what_else_is_wrong(kernel, name, changes, message):
    with pytest.raises(ValueError, match=message):
        called(kernel, name, changes)


@pytest.mark.parametrize("name", ["csr_scores", "csr_gradient", "csr_gradient_sparse"])
def test_columns_of_other_rows_do_not_matter(kernel, name):
    called(kernel, name, {0: words(1, 2, 2), 1: words(9, 2, -1)})
