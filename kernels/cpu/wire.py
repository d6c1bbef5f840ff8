"""Masking blocks of bytes, so that no line feed and no carriage return is left in them."""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit

Bytes = npt.NDArray[np.uint8]

LF, CR = 0x0A, 0x0D


def mask_blocks(payload: Bytes, masks: Bytes, blocks: Bytes) -> None:
    """Combine each block by exclusive or with the smallest mask that leaves no LF and no CR in it.

    The masks are neither LF nor CR themselves. One always exists for blocks of up to 126 bytes:
    each byte rules out at most two of the 254 masks. ``payload`` and ``blocks`` are (n, width),
    uint8; ``masks``, (n,), and ``blocks`` are overwritten.
    """
    if payload.shape != blocks.shape or masks.shape != payload.shape[:1] or payload.shape[1] > 126:
        raise ValueError(
            f"mask_blocks: payload {payload.shape}, masks {masks.shape} and blocks {blocks.shape}: "
            f"expected (n, width), (n,) and (n, width) with a width of at most 126"
        )
    _mask_blocks(payload, masks, blocks)


@jit
def _mask_blocks(payload, masks, blocks):
    rows, width = payload.shape
    for i in range(rows):
        mask = np.uint8(0)
        while True:
            unsafe = np.uint8(0)
            for j in range(width):
                byte = payload[i, j] ^ mask
                blocks[i, j] = byte
                unsafe |= (byte == LF) | (byte == CR)
            if not unsafe:
                break
            mask += np.uint8(1)
            while mask in (LF, CR):
                mask += np.uint8(1)
        masks[i] = mask


def unmask_blocks(masks: Bytes, blocks: Bytes, payload: Bytes) -> None:
    """Undo :func:`mask_blocks`: overwrite the payload by ``blocks ^ masks``."""
    if payload.shape != blocks.shape or masks.shape != blocks.shape[:1]:
        raise ValueError(
            f"unmask_blocks: payload {payload.shape}, masks {masks.shape} and blocks "
            f"{blocks.shape} do not match: expected (n, width), (n,) and (n, width)"
        )
    _unmask_blocks(masks, blocks, payload)


@jit
def _unmask_blocks(masks, blocks, payload):
    rows, width = blocks.shape
    for i in range(rows):
        for j in range(width):
            payload[i, j] = blocks[i, j] ^ masks[i]
