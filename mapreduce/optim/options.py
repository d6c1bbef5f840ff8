"""L-BFGS's options, which a plan has by name. ``--help`` needs them: nothing slow is imported."""

import math
from dataclasses import dataclass

from mapreduce.support.options import Bound, option, up_to

#: Most steps that L-BFGS remembers: it keeps two vectors of each, and all their products.
MOST_STEPS = 1000


@dataclass(frozen=True)
class LBFGSOptions:
    """Options of :class:`mapreduce.optim.lbfgs.LBFGS`."""

    history_size: int = option(
        10, "number of steps that lbfgs remembers", up_to(MOST_STEPS, "a number from 1 to {}")
    )
    tol: float = option(
        1e-6,
        "end lbfgs when the gradient's norm, relative to the loss, is at most this",
        Bound("a finite, non-negative number", lambda number: 0 <= number < math.inf),
    )


@dataclass(frozen=True)
class PlannedLBFGS(LBFGSOptions):
    """Those options in a plan; in earlier versions ``tol`` was that of the Euclidean norm."""

    relative_tol: bool = False
