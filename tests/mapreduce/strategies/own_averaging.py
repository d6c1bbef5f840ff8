"""Averaging of replicas (R. McDonald et al., 2010), as a strategy of one's own.

Four replicas start a round from the same parameters. Each takes a step for each slice of its own,
with an optimizer's state of its own, and then all go on from the mean of their parameters.
"""

import numpy as np

from mapreduce.parts import Message, Node, Phase, Strategy, VectorSum, dense

REPLICAS = 4


class Averaging(Strategy):
    summed = "replica"

    @classmethod
    def units(cls, plan, completed):
        return REPLICAS

    takes = ("optimizer", "momentum", "weight_decay")

    @classmethod
    def slices(cls, plan, completed, unit):
        return plan.slices(completed)[unit::REPLICAS]

    @classmethod
    def phases(cls, plan, completed, layout):
        return (Phase("average", layout.blocks),)

    @classmethod
    def initial_arrays(cls, plan, params):
        state = plan.create_optimizer().init(params)
        return {
            f"{name}.{replica}": array
            for name, array in state.items()
            for replica in range(REPLICAS)
        }

    @classmethod
    def mapped_arrays(cls, plan):
        return tuple(cls.initial_arrays(plan, np.empty(0)))

    def map(self, part):
        """Let some replicas take their steps."""
        names = self.context.optimizer.init(np.empty(0))
        for replica in range(part.start, part.stop):
            at = part.completed
            params = self.state.params(at)
            own = {name: self.state.vector(at, f"{name}.{replica}") for name in names}
            seen = VectorSum(0, 0.0, 0.0, params)
            for rows in self.slices(self.context.plan, at, replica):
                batch = self.context.batch(rows)
                loss, found = self.context.gradient(params, batch)
                mean = dense(found) / (batch.weight or 1.0)
                updates, own = self.context.optimizer.update(mean, own, params, at)
                params = params + updates
                seen.count += batch.rows
                seen.weight += batch.weight
                seen.loss += loss
            seen.vector = params
            pieces = zip(self.cut(Node(0, replica), seen), self.state.bounds, strict=True)
            for (key, sent), (start, stop) in pieces:
                arrays = {f"{name}.{replica}": array[start:stop] for name, array in own.items()}
                yield key, Message(sent.meta, {**sent.arrays, **arrays})

    def average(self, completed, key, messages):
        """Publish the mean of the replicas' parameters of a block."""
        names, arrays, messages = self.mapped_arrays(self.context.plan), {}, list(messages)
        for message in messages:
            arrays |= {name: message.arrays[name] for name in names if name in message.arrays}
        total = self.fold(completed, key[0], messages).result()
        arrays["params"] = total.vector / total.vector.dtype.type(REPLICAS)
        self.state.advance(completed, key[0], arrays, total.totals)
        return ()
