"""The first convolution of a network in a round: its filters, and what they make of one row."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from kernels import dispatch
from mapreduce.data.batch import Csr
from mapreduce.explaining.training.model import ConvolutionNote, FilterNote
from mapreduce.models.context import Key
from mapreduce.models.layers.convolution import Conv
from mapreduce.models.layers.sequential import Sequential
from mapreduce.report.blocks import Gallery, Picture, Section
from mapreduce.runs.state import Array
from mapreduce.strategies.task_context import TaskContext
from mapreduce.support.words import count

#: Filters that are shown.
_MOST = 8


def convolution_note(
    context: TaskContext, completed: int, before: Array, after: Array
) -> ConvolutionNote | None:
    """The convolution that a network begins with; None if it begins with another layer.

    Its row is the first of the round, as the network saw it in training.
    """
    model, plan = context.model, context.plan
    layer = model.stack.layers[0] if isinstance(model, Sequential) else None
    if not isinstance(layer, Conv):
        return None
    rows = plan.slices(completed)[0]
    key = Key(plan.seed, completed, shard=rows.shard, row=rows.start)
    batch = plan.augmented(context.batch(rows), key)[:1]
    assert not isinstance(batch.features, Csr)
    # Data sets have the channels first, or none.
    image = np.moveaxis(batch.features.reshape(-1, *model.shape[-2:]), 0, -1)
    image = np.ascontiguousarray(image, model.dtype) * model.dtype.type(batch.scale)
    named, weights = model.named(before), model.named(after)["0.weight"]
    maps = np.empty((1, *layer.output), model.dtype)
    with np.errstate(all="ignore"):
        convolve = dispatch.get("convolve")
        convolve(image[None], named["0.weight"], maps, layer.stride, layer.padding)
        maps += named.get("0.bias", 0)
    assert batch.labels is not None
    label = batch.labels[0].item()
    classes = context.config.classes
    return ConvolutionNote(
        layer=str(layer),
        count=layer.filters,
        shard=rows.shard,
        row=rows.start,
        label=str(classes[label] if classes else label),
        image=_short(image),
        filters=[
            FilterNote(
                _short(named["0.weight"][..., number]),
                _short(weights[..., number]),
                _short(maps[0, ..., number]),
            )
            for number in range(min(layer.filters, _MOST))
        ],
    )


def _short(values: Array) -> list[Any]:
    """Lists of numbers of four digits, so that a trace stays small."""
    return np.vectorize(lambda value: float(f"{value:.4g}"))(values).tolist()  # type: ignore[no-any-return]


def section(note: ConvolutionNote) -> Section:
    """The pictures."""
    before = [np.array(one.before) for one in note.filters]
    after = [np.array(one.after) for one in note.filters]
    change = [new - old for new, old in zip(after, before, strict=True)]
    most, moved = _largest([*before, *after]), _largest(change)
    maps = [np.array(one.map) for one in note.filters]
    image = np.nan_to_num(np.array(note.image))
    height, width, channels = before[0].shape
    row = Picture("the image", _pixels(image, image.min(), image.max()))
    some = f", of which the first {len(before)} are shown" if len(before) < note.count else ""
    text = (
        f"The network begins with {note.layer}: {count(note.count, 'filter')} of {height} × "
        f"{width} pixels and {count(channels, 'channel')}{some}. Each is laid on every position of "
        f"an image; its gradient is a sum over rows and positions. Grey is 0, lighter is above it "
        f"and darker below{'; colours are channels' * (channels == 3)}."
    )
    found = f"Row {note.row:,} of shard {note.shard}, class {note.label}"
    blocks = [
        Gallery(f"Filters before the round, white is {most:.3g}", _pictures(before, most)),
        Gallery(f"The same after it, white is {most:.3g}", _pictures(after, most)),
        Gallery(f"Their change, white is {moved:.3g}", _pictures(change, moved)),
        Gallery(
            f"{found}, as the network saw it, and what the filters before the round make of it",
            [row, *_pictures(maps, _largest(maps))],
        ),
    ]
    return Section("filters", "The first convolution", text, blocks)


def _largest(arrays: Iterable[Array]) -> float:
    return float(max(np.abs(array[np.isfinite(array)]).max(initial=0.0) for array in arrays))


def _pictures(arrays: Iterable[Array], most: float) -> list[Picture]:
    return [
        Picture(f"filter {number}", _pixels(array, -most, most))
        for number, array in enumerate(arrays)
    ]


def _pixels(values: Array, low: float, high: float) -> list[list[tuple[int, int, int]]]:
    """Colours of three channels; of others the mean, as grey levels."""
    channels = np.atleast_3d(np.nan_to_num(values))
    if channels.shape[2] != 3:
        channels = channels.mean(axis=2, keepdims=True).repeat(3, axis=2)
    levels = 255 * np.clip((channels - low) / ((high - low) or 1.0), 0, 1)
    return [[(r, g, b) for r, g, b in row] for row in levels.astype(int).tolist()]
