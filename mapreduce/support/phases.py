"""The phases of a task's time, and the form of an event."""

import numpy as np

#: Phases of a rank of a gang, by their codes. ``round`` is around those of a round, ``read`` within
#: ``map``. ``sample`` is no phase: what the thread has used since the last one.
PHASES = (
    *("round", "start", "load", "read", "map", "pack", "exchange", "reduce", "spread"),
    *("publish", "evaluate", "sample"),
)

#: An event. ``start`` and ``stop`` are nanoseconds of a monotonic clock, ``round`` counts from 1 (0
#: is before the first), ``depth`` is the number of phases around it. Of a sample, ``bytes`` are the
#: nanoseconds on a processor, ``units`` those in which the thread was ready and had none.
EVENT = np.dtype(
    [
        *(("code", "u1"), ("depth", "u1"), ("thread", "<u2"), ("round", "<u4")),
        *(("start", "<i8"), ("stop", "<i8"), ("bytes", "<i8"), ("units", "<i8")),
    ]
)
