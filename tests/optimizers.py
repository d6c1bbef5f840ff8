"""An optimizer that looks at the whole gradient first, in one loop over blocks."""

from itertools import pairwise

import numpy as np

from mapreduce.optim.contract import Shared


class Blocks:
    """Parameters and state of each block, without map, reduce or files."""

    def __init__(self, optimizer, params, cuts=()):
        self.optimizer, self.params, self.rounds = optimizer, params, 0
        self.parts = [slice(*pair) for pair in pairwise([0, *cuts, len(params)])]
        self.states = [optimizer.init(params[part]) for part in self.parts]
        self.scalars = optimizer.first_scalars()

    def step(self, gradient, value=1.0):
        """What the optimizer makes of each block; their scalars must be the same."""
        inputs = [
            (gradient[part], state, self.params[part])
            for part, state in zip(self.parts, self.states, strict=True)
        ]
        with np.errstate(all="ignore"):
            sums = sum(self.optimizer.sums(*one, self.scalars) for one in inputs)
        assert sums.shape == (self.optimizer.width,)
        shared = Shared(sums, value, self.scalars)
        done = [self.optimizer.update(*one, self.rounds, shared) for one in inputs]
        self.params = np.concatenate([params for params, _, _ in done])
        self.states = [state for _, state, _ in done]
        (_,) = {scalars.tobytes() for _, _, scalars in done}
        self.scalars = done[0][2]
        self.rounds += 1
        return done
