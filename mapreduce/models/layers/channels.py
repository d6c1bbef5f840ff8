"""What layers with channels share: what follows them is computed in the same pass."""

import math

from mapreduce.models.base import Array
from mapreduce.models.layers.base import Layer, Pass


class ChannelLayer(Layer):
    """A layer whose outputs are scaled or shifted by channel, then pass ReLU and max pooling.

    ``relu`` says whether the ReLU after it is computed here, and ``pool`` is the size of the
    windows of the max pooling after it, 1 for none. A product without ``has_bias`` has neither:
    a batch norm shifts its outputs then, or they are added to others.
    """

    has_bias = True
    relu = False
    pool = 1

    def _finish(self, z: Array, scale: Array | None, shift: Array, call: Pass) -> Array:
        """The outputs; if there is no pooling, and no need of ``z``, in its place."""
        z = _with_channels(z)
        rows, height, width, channels = z.shape
        out, places = z, None
        if self.pool > 1:
            pooled = rows, height // self.pool, width // self.pool, channels
            out, places = call.array("out", pooled), call.array("places", pooled, "uint8")
        elif scale is not None:
            # The backward pass of a batch norm needs its inputs.
            out = call.array("out", z.shape)
        call.kernel("scale_shift")(z, scale, shift, out, places, self.relu, self.pool)
        call.kept |= {"z": z, "out": out, "places": places}
        return out

    def _unfinish(self, delta: Array, sums: Array, into: Array | None, call: Pass) -> Array:
        """The gradient before ReLU and pooling, (rows, height, width, channels), and its sums.

        Pooling has it written to ``into``, which is ``z`` if not given; otherwise it takes the
        place of ``delta``.
        """
        z, out, places = call.kept["z"], call.kept["out"], call.kept["places"]
        delta = delta.reshape(out.shape)
        target = delta if self.pool == 1 else z if into is None else into
        call.kernel("scale_shift_backward")(delta, out, places, target, sums, self.relu, self.pool)
        return target


def _with_channels(z: Array) -> Array:
    """An array as one of images, with the last dimension as channels; no copy."""
    if len(z.shape) == 4:
        return z
    return z.reshape((math.prod(z.shape[:-1]), 1, 1, z.shape[-1]))
