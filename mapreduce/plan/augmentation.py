"""Augmentation: random changes of the images of a gradient, so that no epoch sees the same ones."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernels import dispatch
from mapreduce.data.batch import Batch, Csr
from mapreduce.errors import DataError, UsageError
from mapreduce.models.context import Key

#: The number in a row's key that no layer of a model has.
LAYER = 65_000


class Augmentation(NamedTuple):
    """How images are changed.

    ``flip``: Whether left and right of an image are exchanged with probability 1/2.
    ``crop``: The most pixels by which an image is then shifted, in each direction, on a ground of
      zeros: a random crop of the image with so many zeros around it.
    """

    flip: bool
    crop: int

    def apply(self, batch: Batch, shape: tuple[int, ...], key: Key) -> Batch:
        """A batch with changed images (channels, height, width) or (height, width).

        Those of a row depend on its place in the key alone.
        """
        x = batch.features
        if isinstance(x, Csr):
            raise DataError("--augment: expected images, dense rows, found sparse rows")
        images = x.reshape(len(x), -1, *shape[-2:])
        drawn = key.fold(LAYER).uniform(len(x), 3)
        # A row draws all its numbers whatever is asked, so that a flip stays where a crop is added.
        flips = drawn[:, 0] < 0.5 if self.flip else np.zeros(len(x), bool)
        shifts = (drawn[:, 1:] * (2 * self.crop + 1)).astype(np.int64) - self.crop
        # Commands that compute no gradient do not wait for Numba.
        augment = dispatch.get("augment")
        changed = augment(images, flips, shifts, np.empty_like(images))
        return replace(batch, features=changed.reshape(x.shape))


def parse(spec: str) -> Augmentation:
    """The augmentation of a specification.

    >>> parse("flip,crop:4")
    Augmentation(flip=True, crop=4)
    """
    found: dict[str, int] = {}
    for part in spec.split(","):
        name, _, pixels = part.strip().partition(":")
        is_right = part.strip() == "flip" or (name == "crop" and pixels.isdecimal())
        if not is_right or name in found or pixels == "0":
            raise UsageError(
                f"--augment {spec!r:.60}: expected flip, crop:PIXELS or both, joined by a comma, "
                f"found {part!r:.60}"
            )
        found[name] = int(pixels or 0)
    return Augmentation("flip" in found, found.get("crop", 0))


def check(spec: str, shape: tuple[int, ...], layout: str = "dense") -> None:
    """Refuse rows that an augmentation does not suit: no images, or smaller than the shift."""
    wanted = parse(spec)
    if layout == "sparse" or len(shape) not in (2, 3):
        raise UsageError(
            f"--augment {spec}: expected images, dense rows of the shape (channels, height, width) "
            f"or (height, width), found {layout} rows of the shape {shape}. Leave it out"
        )
    least = min(shape[-2:])
    if wanted.crop >= least:
        raise UsageError(
            f"--augment {spec}: expected a crop of less than {least} pixels for images of the "
            f"shape {shape}, found {wanted.crop}"
        )
