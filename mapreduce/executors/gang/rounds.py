"""The rounds of a plan, as one rank of a gang takes part in them.

One round, between the ranks::

    gradients of my slices  --reduce-scatter-->  nodes of the tree, to the owner of each block
    sum, mean, step         --all-gather------>  the new block, to everybody

and in between, where an optimizer needs scalars of all blocks, these from each owner to all others.
The mathematics are the strategy's, the same that the chain's steps call. Only some rounds are
published in the run's directory: those that a checkpoint or an evaluation is made of, and now and
then one, so that little is lost with a task.
"""

import time
from collections.abc import Callable
from functools import cached_property

import numpy as np

from hdfs_utils.paths import path_of
from mapreduce import checkpoint
from mapreduce.collect.tree import Node
from mapreduce.errors import GradreduceError
from mapreduce.executors import evaluate
from mapreduce.executors.gang.transport import Mesh, pack
from mapreduce.executors.inference import Inference
from mapreduce.rundir import Array, Block
from mapreduce.strategies.blocks import Blocks, Mean
from mapreduce.strategies.gradients import Gradients
from mapreduce.strategies.references import ranges, references
from mapreduce.strategies.session import Session
from mapreduce.wire import Message

#: Seconds between two rounds that are published although nothing asks for them, and how many times
#: as long as the publishing itself takes.
_PUBLISH_SECONDS, _PUBLISH_SHARE = 1.0, 30

#: Checkpoints that the driver may lag behind, and seconds that it is waited for.
_LAG, _LAG_SECONDS = 2, 600.0

#: Seconds between two looks for a checkpoint.
_LOOK_SECONDS = 0.005


class Rounds:
    """The rounds of one generation.

    Parameters
    ----------
    session : Session
    mesh : Mesh
    blocks : int
        Blocks wanted of the parameters.
    told : callable
        ``told(completed)`` is called after each round.
    look : callable
        Called now and then; raises an error if the gang is to end.
    """

    def __init__(
        self,
        session: Session,
        mesh: Mesh,
        blocks: int,
        told: Callable[[int], None],
        look: Callable[[], None],
    ) -> None:
        self._session = session
        self._run = session.run
        self._plan = session.plan
        self._mesh = mesh
        self._told = told
        self._look = look
        self._gradients = Gradients(session)
        self._blocks = Blocks(session, blocks)
        self._count = len(self._blocks.bounds)
        self._owners = range(min(self._count, mesh.ranks))
        self._mine = range(mesh.rank, self._count, mesh.ranks)
        # A part of a round is at most two nodes a level, each of at most three vectors of float64
        # or int64; and a block's descriptions and scalars.
        nodes = 2 * session.plan.leaves(0).bit_length() + 2
        mesh.most += nodes * 24 * session.model.size + (self._count << 20)
        self._memory = np.empty(0)
        self._params = np.empty(session.model.size, session.model.dtype)
        #: Rounds that were published only now and then, in order; the last of all published ones.
        self._passing: list[int] = []
        self._published = 0
        self._unsaved: list[int] = []
        self._publish_at = 0.0

    def run(self, start: int, is_evaluated: bool) -> None:
        """Take part from the round after ``start`` on, until the training ends.

        Parameters
        ----------
        start : int
            Rounds completed, whose blocks are published.
        is_evaluated : bool
            Whether the evaluation after that round is published too, if there is one.

        Raises
        ------
        LostPeerError
        GradreduceError
            As the strategy does.
        """
        self._load(start)
        completed, over = start, self._settle(start, is_evaluated)
        while not over:
            publish = self._round(completed)
            completed += 1
            if publish or self._is_due(completed):
                self._publish(completed)
            self._told(completed)
            over = self._settle(completed, False)
        # Nobody leaves before all that others would have to go on from is published.
        self._to_all([])

    def _load(self, start: int) -> None:
        self._session.params(start, self._count)
        for number in self._mine:
            self._blocks.block(start, number)
        self._memory = self._session.memory(start, self._count)
        self._published = start
        self._passing = [] if self._is_due(start) else [start]
        self._publish_at = time.monotonic() + _PUBLISH_SECONDS

    # A round

    def _round(self, completed: int) -> bool:
        """Make one update; tells whether rank 0 wants it published."""
        means = self._means(completed)
        sums = self._scalars(completed, means) if self._blocks.needs_scalars else None
        news = []
        publish = time.monotonic() >= self._publish_at
        for number, mean in means.items():
            after = self._blocks.step(completed, number, mean, sums)
            self._blocks.keep(completed + 1, number, after)
            arrays = {"params": after.arrays["params"]}
            if number == 0:
                arrays["memory"] = after.arrays["memory"]
            news.append(Message({"block": number, "publish": publish}, arrays))
        received = [*news]
        for messages in self._to_all(news, self._owners):
            received += messages
        for message in received:
            self._take(message)
            if message.meta["block"] == 0:
                self._memory = message.arrays["memory"]
                publish = message.meta["publish"]
        self._session.keep(completed + 1, self._count, self._params, self._memory)
        return publish

    def _take(self, message: Message) -> None:
        """Take in a block of the new parameters."""
        params = message.arrays["params"]
        if self._count == 1:
            self._params = params
            return
        start, stop = self._blocks.bounds[message.meta["block"]]
        self._params[start:stop] = params

    def _means(self, completed: int) -> dict[int, Mean]:
        """The mean gradients of this rank's blocks: the reduce-scatter."""
        rank, ranks = self._mesh.rank, self._mesh.ranks
        parts = references(self._plan, completed, ranks, self._count)
        mine = parts[rank] if rank < len(parts) else None
        nodes = [] if mine is None else list(self._gradients.nodes(mine))
        folds = {number: self._blocks.fold(completed, number) for number in self._mine}
        aggregator = self._blocks.aggregator
        outgoing: dict[int, list[Message]] = {peer: [] for peer in self._owners if peer != rank}
        for node, partial in nodes:
            for number, part in enumerate(self._blocks.cut(partial)):
                if number in folds:
                    folds[number].add(node, part)
                else:
                    message = aggregator.to_message(part)
                    meta = {**message.meta, "block": number, "node": [*node]}
                    outgoing[number % ranks].append(Message(meta, message.arrays))
        parcels = {} if mine is None else {peer: pack(parts) for peer, parts in outgoing.items()}
        senders = [peer for peer in range(len(parts)) if peer != rank] if folds else []
        for messages in self._mesh.exchange(parcels, senders):
            for message in messages:
                fold = folds[message.meta["block"]]
                fold.add(Node(*message.meta["node"]), aggregator.from_message(message))
        means = {
            number: self._blocks.mean(completed, number, fold.result())
            for number, fold in folds.items()
        }
        for _, partial in nodes:
            self._gradients.reuse(partial.vector)
        return means

    def _scalars(self, completed: int, means: dict[int, Mean]) -> Array | None:
        """The scalars of all blocks, for their owners."""
        if not means:
            return None
        fold = self._blocks.fold_scalars(completed)
        mine = []
        for number, mean in means.items():
            for node, sums in self._blocks.scalars(completed, number, mean).nodes():
                mine.append(Message({"node": [*node]}, {"sums": sums}))
        received = [*mine]
        for messages in self._to_all(mine, self._owners, self._owners):
            received += messages
        for message in received:
            fold.add(Node(*message.meta["node"]), message.arrays["sums"])
        return fold.result()

    def _to_all(
        self,
        messages: list[Message],
        senders: range | None = None,
        receivers: range | None = None,
    ) -> list[list[Message]]:
        """Have some ranks, or all, send messages to some others, or all; what this one gets."""
        rank, peers = self._mesh.rank, self._mesh.peers
        sends = senders is None or rank in senders
        receives = receivers is None or rank in receivers
        parcel = pack(messages) if sends and peers else None
        parcels = {
            peer: parcel
            for peer in peers
            if parcel is not None and (receivers is None or peer in receivers)
        }
        wanted = [peer for peer in peers if receives and (senders is None or peer in senders)]
        return list(self._mesh.exchange(parcels, wanted))

    # Between rounds

    def _is_due(self, completed: int) -> bool:
        """Whether a round is one that a checkpoint or an evaluation is made of."""
        plan = self._plan
        is_planned = plan.is_checkpoint(completed) or plan.is_evaluation(completed)
        return is_planned or plan.is_done(self._memory)

    def _publish(self, completed: int) -> None:
        started = time.monotonic()
        if self._mesh.rank == 0:
            self._look()
            if self._is_due(completed):
                self._wait_for_driver(completed)
        for number in self._mine:
            # All in one file, so that no earlier one is needed.
            block = Block.of(completed, self._blocks.block(completed, number).arrays)
            self._run.publish_block(completed, number, self._count, block)
        # All ranks have published the one before, or this round would not have come about.
        while self._passing and self._passing[0] < self._published:
            earlier = self._passing.pop(0)
            for number in self._mine:
                self._run.block_path(earlier, number, self._count).unlink(missing_ok=True)
        self._published = completed
        if not self._is_due(completed):
            self._passing.append(completed)
        seconds = time.monotonic() - started
        self._publish_at = time.monotonic() + max(_PUBLISH_SECONDS, _PUBLISH_SHARE * seconds)

    def _wait_for_driver(self, completed: int) -> None:
        """Do not run away from the driver, which makes checkpoints of what is published."""
        if completed in checkpoint.saved(self._run):
            return
        end = time.monotonic() + _LAG_SECONDS
        while len(self._unsaved) >= _LAG:
            newest = max(checkpoint.saved(self._run), default=0)
            self._unsaved = [due for due in self._unsaved if due > newest]
            if time.monotonic() > end:
                raise GradreduceError(
                    f"no checkpoint was saved for {_LAG_SECONDS:g} s: has the driver ended? Go on "
                    f"with 'gradreduce resume {self._run.path}'"
                )
            time.sleep(_LOOK_SECONDS)
            self._look()
        self._unsaved.append(completed)

    def _settle(self, completed: int, is_evaluated: bool) -> bool:
        """Evaluate, if that is due; tells whether the training ends here."""
        plan = self._plan
        is_done = plan.is_done(self._memory)
        is_last = completed >= plan.rounds or is_done
        if self._run.config.evaluation is None or not (plan.is_evaluation(completed) or is_done):
            return is_last
        if not is_evaluated:
            self._evaluate(completed)
        if not plan.patience:
            return is_last
        root = range(1)
        answer = []
        if self._mesh.rank == 0:
            answer = [Message({"stop": self._run.is_out_of_patience(completed)})]
        for messages in self._to_all(answer, root):
            answer += messages
        return is_last or bool(answer[0].meta["stop"])

    @cached_property
    def _inference(self) -> Inference:
        evaluation = self._run.config.evaluation
        assert evaluation is not None
        return Inference(self._run, path_of(evaluation), self._params)

    def _evaluate(self, completed: int) -> None:
        """Score the evaluation data, each rank a part; rank 0 publishes the sum."""
        inference = self._inference
        inference.params = self._session.params(completed, self._count)
        leaves = inference.leaves
        parts = ranges(leaves, self._mesh.ranks)
        mine = parts[self._mesh.rank] if self._mesh.rank < len(parts) else (0, 0)
        messages = [
            evaluate.to_message(score, node=[*node])
            for node, score in evaluate.scores(inference, *mine)
        ]
        received = self._to_all(messages, None, range(1))
        if self._mesh.rank:
            return
        fold = evaluate.fold_of(leaves)
        for message in [*messages, *(message for part in received for message in part)]:
            fold.add(Node(*message.meta["node"]), evaluate.from_message(message))
        score = fold.result()
        evaluate.check_finite(score, completed, inference.dataset.folder)
        self._run.write_json(f"evaluations/{completed:08d}.json", vars(score))
