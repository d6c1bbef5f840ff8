"""The rounds of a plan, as one rank of a gang takes part in them.

One round, between the ranks::

    map of my units            --reduce-scatter-->  messages, to the owners of their keys
    reduce of my keys          --all-to-all------>  the same for each further phase
    new blocks of the state    --all-gather------>  to everybody

In asynchronous rounds the first two are those of :mod:`mapreduce.executors.gang.arrivals`.

The strategy maps and reduces, as in the steps of the chain. Only some rounds are published in the
run's directory: those that a checkpoint or an evaluation is made from, and now and then another, so
that little is lost with a task.
"""

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from hdfs_utils.paths import path_of
from mapreduce.engine.leaf_ranges import EVEN, LeafRange, Split, shares
from mapreduce.engine.program import Key, Layout, Pair
from mapreduce.engine.rounds import Block, RoundFiles
from mapreduce.engine.state import Array, Arrays, InFolder
from mapreduce.errors import GradreduceError
from mapreduce.executors.gang.arrivals import Arrivals
from mapreduce.executors.gang.balance import Balance
from mapreduce.executors.gang.division import Division, Neighbours
from mapreduce.executors.gang.segment import Segment, Stopwatch
from mapreduce.executors.gang.shared import LEAST_BYTES, padded
from mapreduce.executors.gang.transport import Mesh, Placing, pack
from mapreduce.inference import evaluate
from mapreduce.inference.base import Inference
from mapreduce.models.layers.sequential import ROWS
from mapreduce.models.layers.stages import Stage, stages_of
from mapreduce.plan import strategies
from mapreduce.reduction.message import Message
from mapreduce.reduction.tree import Node
from mapreduce.runs import checkpoint, pushes
from mapreduce.runs.directory import RunDir
from mapreduce.runs.state import block_bounds, overlap
from mapreduce.strategies.training import Training
from mapreduce.support.commands import resume

#: Rounds that are not due are published at intervals of at least these seconds, and of at least the
#: time that publishing takes multiplied by the second number.
_PUBLISH_SECONDS, _PUBLISH_SHARE = 1.0, 30

#: Checkpoints that the driver may lag behind, and seconds to wait for it.
_LAG, _LAG_SECONDS = 2, 600.0

#: Gradients that a rank has in shared memory; the sums that it sends are among the first ones.
_GRADIENTS = 2

#: Seconds between two looks for a checkpoint.
_LOOK_SECONDS = 0.005

#: The key of what a map took, which goes to rank 0 with the messages for block 0.
_TIMES: Key = (0, -1)


class GangState(InFolder):
    """The state of a gang: each rank has the blocks that it owns, and all vectors for mappers.

    A round's blocks are sent to all ranks, and only now and then published in the run's folder.
    ``vectors`` are the names of the arrays that mappers read. Ranks that share memory have these
    vectors in common (:mod:`mapreduce.executors.gang.shared`). With stages of the model, a rank has
    the :attr:`part` of the vectors that belongs to its stage, and receives no more of new blocks.
    """

    def __init__(
        self,
        files: RoundFiles,
        mesh: Mesh,
        bounds: Sequence[tuple[int, int]],
        owners: int,
        vectors: Sequence[str],
    ) -> None:
        super().__init__(files, len(bounds), owners)
        self.bounds = bounds
        self.part: tuple[int, int] = 0, bounds[-1][1]
        self._mesh = mesh
        self._names = vectors
        #: Memory of the vectors of two rounds, in turn.
        self._memory: dict[tuple[int, str], Array] = {}
        #: Blocks of this round, for the other ranks.
        self.news: list[Message] = []

    def empty(self, size: int, dtype: npt.DTypeLike) -> Array:
        shared = self._mesh.shared
        found = None if shared is None else shared.keep(size, dtype)
        return super().empty(size, dtype) if found is None else found

    def share(self, completed: int, kept: int) -> None:
        """Share memory between the ranks for the vectors, and in each rank for ``kept`` more.

        The vectors must have been read, as they are after ``completed`` rounds.
        """
        vectors = {name: self.vector(completed, name) for name in self._names}
        if self._mesh.ranks == 1 or vectors["params"].nbytes < LEAST_BYTES:
            return
        sizes = {name: padded(vector.nbytes) for name, vector in vectors.items()}
        self._mesh.share(2 * sum(sizes.values()), kept * sizes["params"])
        if (shared := self._mesh.shared) is None:
            return
        place = 0
        for parity, (name, vector) in itertools.product(range(2), vectors.items()):
            self._memory[parity, name] = shared.vector(place, vector.size, vector.dtype)
            place += sizes[name]

    def _joined(self, completed: int, name: str) -> Array:
        parts = []
        for number in range(self.count):
            here, _ = overlap(self.bounds[number], self.part)
            if here.start < here.stop:
                parts.append(self._read_one(completed, number, name)[here])
        if not parts:
            return self._read_one(completed, 0, name)[:0]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def publish(self, completed: int, number: int, block: Message) -> None:
        """Have a block for the other ranks."""
        shared, arrays = self._mesh.shared, block.arrays
        if shared is not None:
            # What was received is overwritten in the next round.
            arrays = {
                name: array if shared.place(array) is None else array.copy()
                for name, array in arrays.items()
            }
        self._blocks[number] = completed, Message({}, arrays)
        news = {name: arrays[name] for name in self._names}
        if shared is not None:
            start, stop = self.bounds[number]
            for name in self._names:
                self._memory[completed % 2, name][start:stop] = news.pop(name)
        if number == 0:
            news["memory"] = arrays["memory"]
        self.news.append(Message({"block": number}, news))

    def receive(self, completed: int, messages: Iterable[Message]) -> None:
        """Take in all blocks of a round, this rank's own too, as :meth:`cut_for` gives them."""
        if self.part[0] == self.part[1]:
            # No block has any of it.
            self._vectors |= {
                name: (completed, self.vector(completed - 1, name)) for name in self._names
            }
        for message in messages:
            _, here = overlap(self.bounds[message.meta["block"]], self.part)
            for name, array in message.arrays.items():
                vector = array
                if name != "memory" and len(array) < self.part[1] - self.part[0]:
                    vector = self._vector(completed, name, array)
                    vector[here] = array
                self._vectors[name] = completed, vector[:]
        if self._mesh.shared is not None:
            for name in self._names:
                # A new view: a task without units in a round still has its copy of the one before.
                self._vectors[name] = completed, self._memory[completed % 2, name][:]
        self.news = []

    def _vector(self, completed: int, name: str, like: Array) -> Array:
        key = (completed % 2, name)
        if key not in self._memory:
            self._memory[key] = np.empty(self.part[1] - self.part[0], like.dtype)
        return self._memory[key]

    def cut_for(self, part: tuple[int, int], messages: Sequence[Message]) -> list[Message]:
        """What a rank receives of new blocks that has a part of the vectors: at least scalars."""
        found = []
        for message in messages:
            there, _ = overlap(self.bounds[message.meta["block"]], part)
            arrays = {
                name: array if name == "memory" else array[there]
                for name, array in message.arrays.items()
                if name == "memory" or there.start < there.stop
            }
            found.append(Message(message.meta, arrays))
        return found

    def _publish_own(self, completed: int, unit: int, arrays: Arrays) -> None:
        """Nothing: a unit stays at its rank."""

    def save_owned(self) -> None:
        """Publish what this rank's units own."""
        for unit, (completed, arrays) in self._own.items():
            self._files.publish_owned(completed, unit, self._owners, arrays)

    def remove_owned(self, completed: int) -> None:
        """Delete what this rank's units owned after a round."""
        for unit in self._own:
            self._files.owned_path(completed, unit, self._owners).unlink(missing_ok=True)

    def save(self, completed: int, number: int) -> None:
        """Publish a block in the run's folder, in one file that needs no earlier one."""
        block = Block.of(completed, self.block(completed, number).arrays)
        self._files.publish(completed, number, self.count, block)


class Rounds:
    """The rounds of one generation.

    ``on_round`` is called after each round, with the number of completed ones. ``look`` is called
    now and then, and raises an error if the gang has to end. ``segment`` says when the job ends,
    if that is before the end of the training. ``stages`` is the number of stages of the model,
    ``slowness`` a factor by which this rank's maps take longer, for experiments.
    """

    def __init__(
        self,
        training: Training,
        run: RunDir,
        mesh: Mesh,
        blocks: int,
        on_round: Callable[[int], None],
        look: Callable[[], object],
        segment: Segment | None = None,
        stages: int = 1,
        slowness: float = 1.0,
    ) -> None:
        self._run = run
        self._training = training
        context = training.context
        self._plan = context.plan
        self._optimizer = context.optimizer
        self._mesh = mesh
        self._on_round = on_round
        self._look = look
        found = strategies.find(self._plan.strategy)
        self._names = ("params", *found.mapped_arrays(self._plan))
        bounds = block_bounds(context.model.size, blocks)
        self._state = GangState(run.rounds, mesh, bounds, self._plan.owners, self._names)
        self._count = self._state.count
        self._layout = Layout(mesh.ranks, self._count, threads=context.threads)
        training.begin(self._state, self._layout)
        divided = stages_of(context.model, stages) if stages > 1 else ()
        self._division = Division(mesh.ranks, bounds, divided)
        self._stage = self._division.stage(mesh.rank)
        if self._stage is not None:
            self._line = Neighbours(mesh)
            self._state.part = self._stage.part
            training.strategy.split(self._stage, self._line)
            # What goes from stage to stage is smaller than all that a slice becomes.
            rows = max(self._plan.slice_rows, ROWS)
            mesh.most += rows * context.model.row_bytes
        self._group = self._division.group(mesh.rank)
        self._owners = self._division.owners(self._count)
        self._all = range(mesh.ranks)
        owner = self._division.owner
        self._mine = [number for number in range(self._count) if owner(number) == mesh.rank]
        # A message has at most three vectors of float64 or int64, and descriptions and scalars.
        most = found.most_messages(self._plan, 0)
        mesh.most += most * 24 * context.model.size + (self._count << 20)
        #: Published rounds that were not due, in order.
        self._passing: list[int] = []
        #: The last published round.
        self._published = 0
        self._unsaved: list[int] = []
        self._publish_at = 0.0
        #: Times the rounds, and decides when the segment ends: that of rank 0 counts.
        self.watch = Stopwatch(segment or Segment(), self._plan.rounds)
        self._slowness = slowness
        self._arrivals: Arrivals | None = None
        if self._plan.asynchronous:
            how = mesh, self._division, slowness
            self._arrivals = Arrivals(run, training.strategy, self._state, *how)
        #: How units are divided, and rank 0's measurements, by which it decides that.
        self._split = EVEN
        self._balance = Balance(self._division.groups, time.monotonic())

    def run(self, start: int, is_evaluated: bool) -> None:
        """Take part from the published round ``start`` until the training or the segment ends.

        ``is_evaluated`` says whether the evaluation after that round is published, too.

        Raises LostPeerError, GradreduceError (as the strategy does).
        """
        self._load(start)
        completed, over = start, self._finish_or_evaluate(start, is_evaluated)
        self.watch.start()
        while not over:
            before = completed
            if self._arrivals is None:
                self._round(completed)
                completed += 1
            else:
                completed = self._arrivals.run(completed)
            publish, ends = self._conclude(completed)
            self.watch.lap(completed - before)
            if publish or ends or self._is_due(completed):
                self._publish(completed)
            self._on_round(completed)
            over = self._finish_or_evaluate(completed, False) or ends
            self.watch.resume()
        # No rank may leave before all have published what a new generation would start from.
        self._to_all([], self._all)

    def _load(self, start: int) -> None:
        for name in self._names:
            self._state.vector(start, name)
        self._state.scalar(start, "memory")
        for number in self._mine:
            self._state.block(start, number)
        if self._plan.owners:
            for unit in range(*self._parts(start)[self._group]):
                self._state.own(start, unit)
        if self._stage is None and self._arrivals is None:
            # For the gradients of slices, of which a few exist at once, and what has other memory.
            slices = -(-self._training.units(start) // self._mesh.ranks)
            self._state.share(start, min(slices, _GRADIENTS) + 1)
        self._published = start
        self._passing = [] if self._is_due(start) else [start]
        # Nobody goes on before all have read these files: they are deleted when a round is done,
        # which may be soon, and without a rank that has no unit to map.
        self._to_all([], self._all)
        self._publish_at = time.monotonic() + _PUBLISH_SECONDS

    # A round

    def _parts(self, completed: int) -> tuple[tuple[int, int], ...]:
        """The units of each group: always the same if they own something, else by speed."""
        units = self._training.units(completed)
        return shares(units, self._division.groups, EVEN if self._plan.owners else self._split)

    def _round(self, completed: int) -> None:
        """Make one update of the blocks, each by its owner."""
        training, division, shared = self._training, self._division, self._mesh.shared
        if shared is not None:
            shared.reset()
        parts = self._parts(completed)
        busy = [start < stop for start, stop in parts]
        senders: Sequence[int] = [at for at in self._all if busy[division.group(at)]]
        mine = LeafRange(completed, *parts[self._group])
        pairs = self._map(mine) if self._mesh.rank in senders else []
        for phase in training.phases(completed, self._layout):
            owners = division.owners(phase.keys)
            found: list[Pair] = []
            put = None if shared is None else shared.put
            received = self._shuffle(pairs, senders, owners, put)
            self._note(received.pop(_TIMES, ()))
            for key, messages in received.items():
                found += training.reduce(completed, phase, key, messages)
            pairs, senders = found, owners
        for (number, *_), block in pairs:
            self._state.publish(completed + 1, number, block)

    def _conclude(self, completed: int) -> tuple[bool, bool]:
        """Send the new blocks to all, which have been made after some rounds.

        Returns whether rank 0 wants them published, and whether all end here.
        """
        publish, ends = time.monotonic() >= self._publish_at, self.watch.is_over(completed)
        wishes: dict[str, object] = {"publish": publish, "ends": ends}
        if self._arrivals is not None:
            blocks = pushes.starts(self._run, completed).get(completed, self._count)
            wishes = {"publish": True, "ends": ends or blocks != self._count}
        elif self._mesh.rank == 0:
            units = self._training.units(completed - 1)
            split = self._balance.decide(units, time.monotonic())
            if split is not None:
                wishes["split"] = [*split]
        state = self._state
        messages = [Message({**one.meta, **wishes}, one.arrays) for one in state.news]
        messages = self._spread(messages)
        state.receive(completed, messages)
        first = next(one.meta for one in messages if one.meta["block"] == 0)
        if "split" in first:
            speeds, probe = first["split"]
            self._split = Split(tuple(speeds), probe)
        return first["publish"], first["ends"]

    def _map(self, part: LeafRange) -> list[Pair]:
        """The messages of some units, and one about what they took."""
        started = time.perf_counter()
        pairs = list(self._training.map(part))
        if self._slowness > 1:
            time.sleep((self._slowness - 1) * (time.perf_counter() - started))
        seconds = time.perf_counter() - started
        if self._stage is not None and self._stage.number:
            # The first stage waits for all that becomes of its slices.
            return pairs
        took = {"rank": self._group, "units": part.stop - part.start, "seconds": seconds}
        return [*pairs, (_TIMES, Message(took, {}))]

    def _note(self, messages: Iterable[Message]) -> None:
        """Note what all ranks' maps took, on rank 0."""
        took = [message.meta for message in messages]
        for one in took:
            self._balance.note(one["rank"], one["units"], one["seconds"])
        self.watch.note_maps([one["seconds"] for one in took])

    def _shuffle(
        self,
        pairs: Iterable[Pair],
        senders: Sequence[int],
        owners: Sequence[int],
        place: Placing | None = None,
    ) -> dict[Key, list[Message]]:
        """Send messages to the owners of their keys; returns what this rank receives, by key."""
        rank = self._mesh.rank
        mine: dict[Key, list[Message]] = {}
        outgoing: dict[int, list[Message]] = {peer: [] for peer in owners if peer != rank}
        for key, message in pairs:
            owner = self._division.owner(key[0])
            if owner == rank:
                mine.setdefault(key, []).append(message)
            else:
                meta = {**message.meta, "key": key}
                outgoing[owner].append(Message(meta, message.arrays))
        parcels = {}
        if rank in senders:
            parcels = {peer: pack(messages, place) for peer, messages in outgoing.items()}
        awaited = [peer for peer in senders if peer != rank] if rank in owners else []
        for message in self._mesh.exchange(parcels, awaited):
            mine.setdefault(tuple(message.meta["key"]), []).append(message)
        return dict(sorted(mine.items()))

    def _spread(self, news: list[Message]) -> list[Message]:
        """Send new blocks to all ranks, each what it has of them; returns those of all owners."""
        if self._stage is None:
            return news + self._to_all(news, self._owners)
        rank, peers = self._mesh.rank, self._mesh.peers
        parts = {each: self._division.part(each) for each in self._all}
        parcels = {}
        if rank in self._owners:
            parcels = {peer: pack(self._state.cut_for(parts[peer], news)) for peer in peers}
        received = self._mesh.exchange(parcels, [peer for peer in self._owners if peer != rank])
        return self._state.cut_for(parts[rank], news) + received

    def _to_all(self, messages: list[Message], senders: Collection[int]) -> list[Message]:
        """Have some ranks send messages to all; returns what this rank receives."""
        rank, peers = self._mesh.rank, self._mesh.peers
        sends = peers and rank in senders
        parcels = dict.fromkeys(peers, pack(messages)) if sends else {}
        return self._mesh.exchange(parcels, [peer for peer in senders if peer != rank])

    # Between rounds

    def _is_due(self, completed: int) -> bool:
        """Whether a checkpoint or an evaluation is made from a round."""
        plan = self._plan
        is_planned = plan.is_checkpoint(completed) or plan.is_evaluation(completed)
        return is_planned or self._optimizer.is_done(self._state.scalar(completed, "memory"))

    def _publish(self, completed: int) -> None:
        started = time.monotonic()
        if self._mesh.rank == 0:
            self._look()
            if self._is_due(completed):
                self._wait_for_driver(completed)
        self._state.save_owned()
        for number in self._mine:
            self._state.save(completed, number)
        # All ranks have published the round before, or they could not have made this one.
        while self._passing and self._passing[0] < self._published:
            earlier = self._passing.pop(0)
            for number in self._mine:
                self._run.rounds.path(earlier, number, self._count).unlink(missing_ok=True)
            self._state.remove_owned(earlier)
        self._published = completed
        if not self._is_due(completed):
            self._passing.append(completed)
        seconds = time.monotonic() - started
        self._publish_at = time.monotonic() + max(_PUBLISH_SECONDS, _PUBLISH_SHARE * seconds)

    def _wait_for_driver(self, completed: int) -> None:
        """Wait if the driver lags behind in saving checkpoints of what is published."""
        if completed in checkpoint.saved(self._run):
            return
        end = time.monotonic() + _LAG_SECONDS
        while len(self._unsaved) >= _LAG:
            newest = max(checkpoint.saved(self._run), default=0)
            self._unsaved = [due for due in self._unsaved if due > newest]
            if time.monotonic() > end:
                raise GradreduceError(
                    f"no checkpoint was saved for {_LAG_SECONDS:g} s: has the driver ended? "
                    f"Continue with '{resume(self._run.path)}'"
                )
            time.sleep(_LOOK_SECONDS)
            self._look()
        self._unsaved.append(completed)

    def _finish_or_evaluate(self, completed: int, is_evaluated: bool) -> bool:
        """Evaluate, if that is due; returns whether the training ends here."""
        plan = self._plan
        is_done = self._optimizer.is_done(self._state.scalar(completed, "memory"))
        is_last = completed >= plan.rounds or is_done
        if self._run.config.evaluation is None or not (plan.is_evaluation(completed) or is_done):
            return is_last
        if not is_evaluated:
            with self.watch.evaluating():
                self._evaluate(completed)
        if not plan.patience:
            return is_last
        answer = []
        if self._mesh.rank == 0:
            answer = [Message({"stop": self._run.is_out_of_patience(completed)})]
        answer += self._to_all(answer, range(1))
        return is_last or bool(answer[0].meta["stop"])

    @cached_property
    def _inference(self) -> Inference:
        evaluation = self._run.config.evaluation
        assert evaluation is not None
        inference = Inference(self._run, path_of(evaluation), np.empty(0))
        if self._stage is not None:
            inference.model = self._stage.network
        return inference

    def _received(self) -> Array:
        """What the stage before has sent."""
        message = self._line.swap(-1, None, True)
        assert message is not None
        return message.arrays["outputs"]

    def _pass_on(self, stage: Stage, inference: Inference, leaves: tuple[int, int]) -> None:
        """Send what becomes of some slices of the evaluation data to the next stage."""
        for leaf in range(*leaves):
            passes = stage.network.passes(inference.params, inference.leaf(leaf), inference.context)
            for _, going in passes:
                self._line.swap(1, Message({}, {"outputs": going.outputs}), False)

    def _evaluate(self, completed: int) -> None:
        """Score the evaluation data, a part on each rank; rank 0 publishes the sum."""
        inference = self._inference
        inference.params = self._state.vector(completed, "params")
        leaves = inference.leaves
        mine = shares(leaves, self._division.groups, self._split)[self._group]
        pairs: list[Pair] = []
        stage = self._stage
        if stage is not None and stage.number:
            stage.network.source = self._received
        if stage is not None and stage.number < stage.count - 1:
            self._pass_on(stage, inference, mine)
        else:
            score_of = partial(evaluate.score_of, inference)
            pairs += (
                ((0,), evaluate.to_message(score, node=[*node]))
                for node, score in evaluate.SCORES.nodes(leaves, range(*mine), score_of)
            )
        received = self._shuffle(pairs, self._all, range(1))
        if self._mesh.rank:
            return
        fold = evaluate.SCORES.fold(leaves)
        for message in received[(0,)]:
            fold.add(Node(*message.meta["node"]), evaluate.from_message(message))
        score = fold.result()
        evaluate.check_finite(score, completed, inference.dataset.folder)
        self._run.write_json(f"evaluations/{completed:08d}.json", vars(score))
