"""Conformance suites for models, optimizers, strategies and so on, which the toolkit's pass.

Each raises an AssertionError that says what was expected and found::

    def test_my_model():
        check_model(lambda dtype: MyModel((28, 28), 10, dtype))
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mapreduce.data.batch import Array, Batch, Block, Csr
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.engine.executor import Executor, conclude_beside, over, publish_first
from mapreduce.engine.leaf_ranges import leaf_ranges
from mapreduce.engine.program import (
    Concluding,
    EndsEarly,
    InBlocks,
    Layout,
    Owning,
    Pair,
    Phase,
    Program,
    Round,
    Stateful,
    Task,
    blocks_for,
    built,
    is_over,
)
from mapreduce.engine.state import InMemory
from mapreduce.engine.sums import Monoid, Sum
from mapreduce.errors import GradreduceError
from mapreduce.executors.here import Here
from mapreduce.models.base import Model
from mapreduce.models.context import Context, Key, Workspace
from mapreduce.optim.contract import PAGE, RESERVED, Shared, Transformation
from mapreduce.optim.contract import GlobalTransformation as Global
from mapreduce.plan.settings import Settings
from mapreduce.reduction.aggregator import MOMENTS, VectorSum, combine
from mapreduce.reduction.message import Message, WireProtocol
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import Position
from mapreduce.strategies.base import Strategy
from mapreduce.strategies.program import Training
from mapreduce.training import creating, driver

_ROWS = 9

#: What a model whose rows depend on chance has to do so that rows add up.
_KEYED = " (a row must draw the same numbers in any slice: take them from context.key.uniform)"

#: A key, and its message as bytes.
_Line = tuple[tuple[int, ...], bytes]


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{what}: expected {expected!r:.200}, found {found!r:.200}")


def _bits(what: str, found: Array, expected: Array) -> None:
    _same(f"{what}, dtype and shape", (found.dtype, found.shape), (expected.dtype, expected.shape))
    if found.tobytes() == expected.tobytes():
        return
    for at, (ours, theirs) in enumerate(zip(found.ravel(), expected.ravel(), strict=True)):
        if ours.tobytes() != theirs.tobytes():
            raise AssertionError(
                f"{what}: element {at} is {ours!r}, expected the bits of {theirs!r}"
            )


def _close(what: str, found: Any, expected: Any, tolerance: float) -> None:
    found, expected = np.atleast_1d(found, expected)
    bound = tolerance * max(1.0, float(np.abs(expected).max(initial=0)))
    wrong = ~(np.abs(found - expected) <= bound)
    if wrong.any():
        pair = f"expected {expected[wrong][:3]}, found {found[wrong][:3]}"
        raise AssertionError(
            f"{what}: {pair} at {wrong.nonzero()[0][:3]}, more than {bound:.1g} off"
        )


# Models


def check_model(factory: Callable[[str], Model], seed: int = 0) -> None:
    """Put a model through the contract of :class:`mapreduce.models.base.Model`.

    Parameters
    ----------
    factory : callable
        ``factory(dtype)`` makes the model, for ``float32`` and ``float64``. It should be small,
        since the gradient is compared with differences of the loss.
    seed : int
        Seed of the rows and parameters. If a loss has a kink, another seed may be farther from it.
    """
    for dtype in ("float32", "float64"):
        suite = _ModelSuite(factory, dtype, seed)
        suite.check_layout(factory(dtype))
        suite.check_sums()
        suite.check_bits()
        suite.check_use()
        suite.check_buffers()
        suite.check_sparse()
    suite.check_slopes()


class _ModelSuite:
    def __init__(self, factory: Callable[[str], Model], dtype: str, seed: int) -> None:
        self.model = factory(dtype)
        self.tolerance = 1e-4 if dtype == "float32" else 1e-10
        self.random = np.random.default_rng(seed)
        self.params = self.random.standard_normal(self.model.size).astype(dtype)
        # Any numbers may be weights; a buffer may have to be positive, as a variance.
        initial = self.model.init(seed)
        for one, _, place in self.model.parts(0, self.model.size):
            if one.role == "buffer":
                self.params[place] = initial[place] + np.abs(self.params[place])
        self.batch = self.rows(_ROWS)
        self.x: Array = np.asarray(self.batch.features)
        for array in (self.params, self.x):
            array.flags.writeable = False
        self.whole = self.gradient(self.params, self.batch)

    def rows(self, rows: int) -> Batch:
        x = self.random.standard_normal((rows, self.model.features)).astype(self.model.dtype)
        if self.model.regression:
            return Batch(x, self.random.standard_normal(rows))
        return Batch(x, self.random.integers(0, self.model.classes, rows).astype(np.int32))

    def gradient(
        self, params: Array, batch: Batch, row: int = 0, workspace: Workspace | None = None
    ) -> Any:
        context = Context(workspace or Workspace(), 1.0, Key(3, 1, shard=2, row=row), training=True)
        out = np.full(self.model.size, np.nan, self.model.dtype)
        loss = self.model.gradient(params, batch, out, context)
        if not isinstance(loss, float):
            raise AssertionError(f"loss of gradient: expected a float, found {loss!r:.200}")
        _same("names of the extra sums", sorted(context.extras), sorted(self.model.extras(1)))
        dtypes = {str(array.dtype) for array in context.extras.values()}
        _same("dtypes of the extra sums", dtypes - {"float64"}, set())
        return VectorSum(batch.rows, batch.weight, loss, out, context.extras)

    def check_layout(self, again: Model) -> None:
        model = self.model
        names = [parameter.name for parameter in model.parameters]
        _same("number of different names", len(set(names)), len(names))
        roles = {parameter.role for parameter in model.parameters}
        _same("unknown roles", roles - {"weight", "bias", "buffer"}, set())
        before = repr(np.random.get_state())
        first = model.init(7)
        _same("NumPy's global random state after init", repr(np.random.get_state()), before)
        _same("dtype and shape of init", (first.dtype, first.shape), (model.dtype, (model.size,)))
        _same("finite elements of init", int(np.isfinite(first).sum()), model.size)
        model.init(8)
        _bits("init of the same seed", again.init(7), first)

    def check_sums(self) -> None:
        """A gradient is the weighted sum of those of its rows, and so are the extra sums.

        If rows of a slice are mixed, only weights of 1 are checked.
        """
        weights = self.random.choice([0.0, 0.5, 1.0, 3.25], _ROWS)
        weighted = self.gradient(self.params, replace(self.batch, weights=weights))
        single = [self.gradient(self.params, self.batch[i : i + 1], i) for i in range(_ROWS)]
        pairs = [(self.whole, np.ones(_ROWS)), (weighted, weights)]
        for total, factors in () if self.model.mixes_rows else pairs:
            what = f"compared with the sum of single rows with the weights {factors.tolist()}"
            what += _KEYED if self.model.is_random else ""
            for name in ("loss", "vector", *total.extras):
                found, *parts = [{**vars(one), **one.extras}[name] for one in (total, *single)]
                expected = sum(w * part for w, part in zip(factors, parts, strict=True))
                _close(f"{name} of the gradient, {what}", found, expected, self.tolerance)
        ones = self.gradient(self.params, replace(self.batch, weights=np.ones(_ROWS)))
        _bits("gradient with weights of 1", ones.vector, self.whole.vector)

    def check_bits(self) -> None:
        """The same bits whatever was computed before, and in any order of slices."""
        workspace = Workspace()
        for rows in (1, 3 * _ROWS):
            with np.errstate(all="ignore"):
                nothing = np.full_like(self.params, np.nan)
                self.gradient(nothing, self.rows(rows), 5, workspace)
            again = self.gradient(self.params, self.batch, 0, workspace)
            _bits("gradient with a used workspace", again.vector, self.whole.vector)
            _same("loss with a used workspace", again.loss, self.whole.loss)
        roots = []
        for order in (range(0, _ROWS, 2), range(_ROWS - 1, -1, -2)):
            fold: TreeFold[Any] = TreeFold(len(order), combine)
            for start in order:
                rows_of = self.batch[start : start + 2]
                part = self.gradient(self.params, rows_of, start, workspace)
                fold.add(Node(0, start // 2), part)
            roots.append(fold.result().vector)
        _bits("gradient along the tree, in another order", *roots)

    def check_use(self) -> None:
        model, batch, params = self.model, self.batch, self.params
        loss, correct = model.score(params, batch, Context())
        out = np.empty_like(params)
        used = model.gradient(params, batch, out, Context())
        _close("loss of score, compared with that of gradient", loss, used, self.tolerance)
        logits = model.logits(params, batch, Context()).copy()
        _same("shape of logits", logits.shape, (_ROWS, 1 if model.regression else model.classes))
        best = 0 if model.regression else int((logits.argmax(axis=1) == batch.labels).sum())
        _same("rows that are correct", correct, best)
        if not model.regression:
            sums = model.probabilities(params, batch, Context()).sum(axis=1)
            _close("sums of probabilities", sums, np.ones(_ROWS), self.tolerance)
        for layer in model.named_layers():
            outputs = model.layer_outputs(params, batch, Context(), layer)
            shape = outputs.ndim, len(outputs)
            _same(f"axes and rows of the outputs of {layer}", shape, (2, _ROWS))
        broken = replace(batch, features=np.where(np.arange(_ROWS)[:, None] == 1, np.nan, self.x))
        with np.errstate(all="ignore"):
            loss, _ = model.score(params, broken, Context())
        _same("whether the loss of NaNs is finite", math.isfinite(loss), False)

    def check_buffers(self) -> None:
        update = self.model.update_buffer
        means = {
            name: sums if name.startswith(MOMENTS) else sums / self.whole.weight
            for name, sums in self.whole.extras.items()
        }
        gradients = self.model.views(self.whole.vector)
        views = zip(self.model.parameters, self.model.views(self.params), gradients, strict=True)
        for (name, _, role), view, gradient in views:
            if role == "buffer":
                other = int(np.count_nonzero(gradient))
                _same(f"gradient of the buffer {name}, not 0", other, 0)
                values, half = view.ravel(), view.size // 2
                whole = update(name, slice(0, view.size), values, means)
                for part in (slice(0, half), slice(half, view.size)):
                    found = update(name, part, values[part], means)
                    _bits(f"a part of the buffer {name}", found, whole[part])

    def check_sparse(self) -> None:
        if not self.model.takes_sparse:
            return
        mask = self.random.random(self.x.shape) < 0.1
        indptr = np.append(0, np.cumsum(mask.sum(axis=1))).astype(np.int32)
        rows = Csr(indptr, mask.nonzero()[1].astype(np.int32), self.x[mask], self.model.features)
        sparse, dense = (replace(self.batch, features=one) for one in (rows, rows.to_dense()))
        found = self.gradient(self.params, sparse)
        expected = self.gradient(self.params, dense).vector
        what = "gradient of sparse rows, compared with dense ones"
        _close(what, found.vector, expected, self.tolerance)
        loss_and_vector: Any = self.model.sparse_gradient(self.params, sparse, Context())
        if loss_and_vector is not None:
            _bits("sparse gradient of sparse rows", loss_and_vector[1].to_dense(), found.vector)

    def check_slopes(self) -> None:
        """Central differences along random directions and, of a small model, along each axis."""
        size, params = self.model.size, self.params
        buffers = [at for one, _, at in self.model.parts(0, size) if one.role == "buffer"]
        directions = [*self.random.standard_normal((5, size)), *np.eye(size if size <= 300 else 0)]
        for direction in directions:
            for place in buffers:
                direction[place] = 0
            ends = [self.gradient(params + h * direction, self.batch).loss for h in (1e-6, -1e-6)]
            slope = (ends[0] - ends[1]) / 2e-6
            found = self.whole.vector @ direction
            _close("gradient, compared with central differences", found, slope, 1e-5)


# Optimizers


def check_optimizer(factory: Callable[[], Transformation | Global], steps: int = 12) -> None:
    """Put an optimizer through the contract of :mod:`mapreduce.optim.contract`.

    Parameters
    ----------
    factory : callable
        Makes the optimizer, for at least ``steps`` rounds and with a learning rate at which a
        quadratic with second derivatives up to 1 does not diverge.
    steps : int
        Number of rounds.
    """
    size = 2 * PAGE + 5
    start = np.random.default_rng(0).standard_normal(size)
    for dtype in ("float32", "float64"):
        params, scales = start.astype(dtype), np.linspace(0.1, 1, size).astype(dtype)
        cuts = [(), (PAGE,), (PAGE, 2 * PAGE)]
        if isinstance(factory(), Transformation):
            cuts.append((1, 700, size - 1))
        runs = [_Run(factory(), params, cut) for cut in cuts]
        for _ in range(steps):
            for run in runs:
                run.step(scales * run.params, float(scales @ run.params**2) / 2)
                _bits(f"parameters in blocks {run.edges}", run.params, runs[0].params)
                _bits(f"scalars in blocks {run.edges}", run.scalars, runs[0].scalars)
                for name, array in runs[0].state.items():
                    _bits(f"{name} in blocks {run.edges}", run.state[name], array)
        first, last = (float(scales @ at**2) for at in (params, runs[0].params))
        _same(f"whether {last} is below {first}", last < first, True)
        if runs[0].optimizer.tolerates_non_finite(steps, False):
            runs[0].step(np.full_like(params, np.nan), math.nan)
            found = int(np.isfinite(runs[0].params).sum())
            _same("finite parameters after a round that may not be finite", found, size)


class _Run:
    """An optimizer on blocks, as their owners run it."""

    def __init__(
        self, optimizer: Transformation | Global, params: Array, cuts: Sequence[int]
    ) -> None:
        self.optimizer, self.params, self.completed = optimizer, params, 0
        self.edges = [0, *cuts, params.size]
        self._parts = [slice(*pair) for pair in pairwise(self.edges)]
        self._states = [optimizer.init(params[part]) for part in self._parts]
        self.scalars = optimizer.first_scalars()
        _same("dtype of the scalars", self.scalars.dtype, np.dtype("f8"))
        taken = sorted(self._states[0].keys() & {*RESERVED})
        _same("names of states that a block has for something else", taken, [])
        self._check(params)

    @property
    def state(self) -> dict[str, Array]:
        first, *others = self._states
        return {name: np.concatenate([first[name], *(s[name] for s in others)]) for name in first}

    def _check(self, params: Array) -> None:
        for name, array in {"parameters": self.params, **self.state}.items():
            _same(f"dtype of {name}", array.dtype, params.dtype)
            _same(f"shape of {name}", array.shape, params.shape)

    def step(self, gradient: Array, value: float) -> None:
        optimizer, before = self.optimizer, self.params
        inputs = []
        for part, state in zip(self._parts, self._states, strict=True):
            inputs.append((gradient[part], state, before[part]))
            for array in (*inputs[-1][::2], *state.values()):
                array.flags.writeable = False
        if isinstance(optimizer, Transformation):
            made = [optimizer.update(*one, self.completed) for one in inputs]
            pairs = [
                (one[2] + updates, state)
                for one, (updates, state) in zip(inputs, made, strict=True)
            ]
        else:
            shared = Shared(self._sums(inputs), value, self.scalars)
            done = [optimizer.update(*one, self.completed, shared) for one in inputs]
            _same("different scalars of blocks", len({one[2].tobytes() for one in done}), 1)
            self.scalars, pairs = done[0][2], [one[:2] for one in done]
        self.params = np.concatenate([params for params, _ in pairs])
        self._states = [state for _, state in pairs]
        self.completed += 1
        self._check(before)

    def _sums(self, inputs: Sequence[tuple[Array, dict[str, Array], Array]]) -> Array:
        """The sums along the tree over pages, as reducers add them up."""
        assert isinstance(self.optimizer, Global)
        fold: TreeFold[Array] = TreeFold(-(-self.params.size // PAGE), np.add)
        pages = 0
        for gradient, state, params in inputs:
            for start in range(0, params.size, PAGE):
                at = slice(start, start + PAGE)
                parts = {name: array[at] for name, array in state.items()}
                with np.errstate(all="ignore"):
                    sums = self.optimizer.sums(gradient[at], parts, params[at], self.scalars)
                _same("shape of the sums", sums.shape, (self.optimizer.width,))
                fold.add(Node(0, pages), sums)
                pages += 1
        return fold.result()


# Strategies


def check_strategy(kind: type[Strategy], settings: Settings | None = None) -> None:
    """Put a strategy through the contract of :mod:`mapreduce.strategies.base`.

    Rounds are run task by task, for several numbers of tasks and blocks: each task twice, with its
    messages twice, in random orders. Then a chain and a gang train. All must give the same bits.

    Parameters
    ----------
    kind : type
        A class at the top of a module, from which tasks can import it.
    settings : Settings, optional
        Settings for three rounds on rows of 9,000 features and 4 classes. The model must have at
        least 32,769 parameters, which make three blocks.
    """
    name = f"{kind.__module__}:{kind.__qualname__}"
    settings = replace(settings or Settings(), strategy=name, batch_size=24, slice_rows=4, rounds=3)
    x = np.random.default_rng(0).standard_normal((48, 9_000)).astype(settings.dtype)
    source = Source([Rows(x, np.arange(48) % 4)], (9_000,), 1.0, 0, {"format": "random"})
    jobs = Execution("inline", 3, blocks=2, rounds_per_job=2)
    gang = Execution("parallel", 2, blocks=3, start_method="fork", executor="gang")
    with TemporaryDirectory() as folder:
        found: list[Array] = []
        import_rows(source, data := Path(folder) / "data", 0)
        for how in (Layout(1, 1), Layout(2, 3), Layout(5, 2), jobs, gang):
            if how == gang and gang.traits.why_no_gangs:
                continue
            run = creating.create(Path(folder) / f"{len(found)}", settings, data, None)
            if isinstance(how, Layout):
                blocks = _hostile(Training.of(run), how)
                found.append(np.concatenate([block.arrays["params"] for block in blocks]))
            else:
                driver.train(run, how, 0, Events())
                found.append((run.latest_round() or Position.first(run.config.plan)).params)
            _bits(f"parameters with {how}", found[-1], found[0])


# Programs


def check_program(program: Program) -> None:
    """Put a program through the contract of :mod:`mapreduce.engine.program`.

    It is built twice from its description, and computed task by task, for several numbers of tasks
    and blocks: each task by both, in random orders, with its messages twice. The blocks must be
    those of one process that computes all at once.
    """
    protocol, rounds = WireProtocol(), set()
    for tasks, wanted in ((1, 1), (2, 3), (5, 2)):
        layout = Layout(tasks, blocks_for(program, wanted))
        lines = [protocol.write("", block) for block in _hostile(program, layout)]
        alone = Here(InMemory(layout.blocks)).advance(program)
        expected = [protocol.write("", block) for block in alone.blocks]
        _same(f"{layout}: whether the blocks are those of one task", lines == expected, True)
        rounds.add(alone.completed)
    _same("numbers of rounds, for several numbers of blocks", len(rounds), 1)


def _hostile(program: Program, layout: Layout) -> list[Message]:
    """Run a program by two instances that do everything, in random orders; messages come twice."""
    again = [built(program.describe()) for _ in range(2)]
    tasks = [each.task(InMemory(layout.blocks), layout) for each in again]
    random, protocol = Random(layout.tasks), WireProtocol()
    for task in tasks:
        _same("the program of its description", task.program, program)
        if isinstance(task.program, Stateful):
            publish_first(task.program, task.state)
    completed = 0
    while True:
        where = f"{layout}, round {completed}"
        parts = leaf_ranges(completed, program.units(completed), layout.tasks)
        order = random.sample(parts, len(parts))
        mapped = [chain.from_iterable(map(task.map, order)) for task in tasks]
        sent = _repeat(f"{where}, map", mapped)
        phases, others = (each.phases(completed, layout) for each in again)
        _same(f"{where}: phases of another", others, phases)
        for phase in phases:
            sent = _exchanged(f"{where}, phase {phase.name!r}", tasks, completed, phase, sent)
        blocks = [(key, protocol.read(line)[1]) for key, line in sent]
        is_stateful = isinstance(program, Stateful)
        keys = [(number,) for number in range(layout.blocks if is_stateful else len(blocks))]
        _same(f"{where}: keys of the blocks", sorted(key for key, _ in blocks), keys)
        completed += 1
        iterated = [each for each in again if isinstance(each, Stateful)]
        if not iterated:
            return [block for _, block in sorted(blocks, key=itemgetter(0))]
        _check_read(where, program, layout, dict(blocks))
        for task in tasks:
            for (number, *_), block in blocks:
                task.state.publish(completed, number, block)
        told = [_shared_arrays(program, block) for _, block in blocks]
        try:
            ends = {is_over(one, completed, arrays) for one in iterated for arrays in told}
        except KeyError:
            _same(f"{where}: whether is_over reads arrays of whole alone", False, True)
        _same(f"{where}: whether the blocks agree if it is over", len(ends), 1)
        run = partial(over, tasks[0].state, completed)
        if conclude_beside(iterated[0], completed, told[0], run):
            return [block for _, block in sorted(blocks, key=itemgetter(0))]


def _shared_arrays(program: Program, block: Message) -> Mapping[str, Array]:
    """What every task knows of a block."""
    if not isinstance(program, InBlocks) or not (program.mapped() or program.whole()):
        return block.arrays
    return {name: block.arrays[name] for name in program.whole()}


def _check_read(
    where: str, program: Program, layout: Layout, blocks: Mapping[tuple[int, ...], Message]
) -> None:
    """Compare what maps read of new blocks with what the program says of it."""
    if not isinstance(program, InBlocks):
        return
    for name in program.whole():
        different = {blocks[(number,)].arrays[name].tobytes() for number in range(layout.blocks)}
        _same(f"{where}: number of different {name!r} in the blocks", len(different), 1)
    bounds = program.bounds(layout.blocks) if program.mapped() else ()
    for name in program.mapped():
        for number, (start, stop) in enumerate(bounds):
            found = blocks[(number,)].arrays[name].shape
            _same(f"{where}, block {number}: shape of {name!r}", found, (stop - start,))


def _exchanged(
    where: str, tasks: Sequence[Task], completed: int, phase: Phase, sent: list[_Line]
) -> list[_Line]:
    """What a phase makes of lines, each of which comes twice."""
    protocol, random = WireProtocol(), Random(len(sent))
    arrived: dict[tuple[int, ...], list[bytes]] = defaultdict(list)
    for key, line in sent * 2:
        arrived[key].append(line)
    wrong = [key for key in arrived if key[0] not in range(phase.keys)]
    _same(f"{where}: keys that do not begin with a block's", wrong, [])
    found = []
    for key, lines in sorted(arrived.items()):
        orders = [random.sample(lines, len(lines)) for _ in tasks]
        given = [[protocol.read(line)[1] for line in order] for order in orders]
        made = zip(tasks, given, strict=True)
        pairs = [task.reduce(completed, phase, key, one) for task, one in made]
        found += _repeat(f"{where}, key {key}", pairs)
    return found


def _repeat(where: str, outputs: Sequence[Iterable[Pair]]) -> list[_Line]:
    """The messages of a task that is run twice, which must be the same."""
    write = WireProtocol().write
    first, again = ([(key, write("", one)) for key, one in pairs] for pairs in outputs)
    _same(f"{where}: whether a repeated task sends the same bytes", first == again, True)
    return first


# Executors


def check_executor(make: Callable[[Path], Executor]) -> None:
    """Put an executor through the contract of :mod:`mapreduce.engine.executor`.

    It computes a sum, parts without a reduce, and rounds with a state in blocks, with arrays that
    units own, which end early or not, and with sums over the state beside them; it goes on after an
    error, and tells of a program that breaks a law. Maps use the memory of their messages again.
    The blocks must be those of the executor ``Here``.

    Parameters
    ----------
    make : callable
        ``make(folder)`` gives the executor, which keeps a state in the folder, if not in memory.
    """
    with TemporaryDirectory() as place:
        folder = Path(place)
        stop = folder / "stop"
        for number, program in enumerate((Roots(40), Parts(7), Mixed(), Mixed(0.72))):
            _check_blocks(make(folder / f"{number}"), program)
        for limit, elements in ((0.0, 11), (0.72, 3000)):
            told = []
            for at, one in enumerate((make(folder / f"beside-{elements}"), Here())):
                (notes := folder / f"notes-{elements}-{at}").mkdir()
                found = one.advance(Mixed(limit, notes=str(notes), elements=elements))
                told.append({path.name: path.read_bytes() for path in notes.iterdir()})
                told[-1]["rounds"] = b"%d" % found.completed
            _same(f"what is concluded beside {elements} elements", *told)
        stop.touch()
        program = Mixed(stop=str(stop))
        _check_error(make(folder / "again"), program, "stopped")
        stop.unlink()
        _check_blocks(make(folder / "again"), program)
        _check_error(make(folder / "none"), NoBlocks(3), "NoBlocks")


def _check_blocks(executor: Executor, program: Program) -> None:
    found = executor.advance(program)
    expected = Here(InMemory(len(found.blocks))).advance(program)
    what, write = f"the program {program}", WireProtocol().write
    _same(f"{what}: rounds", found.completed, expected.completed)
    lines = [[write("", block) for block in one.blocks] for one in (found, expected)]
    _same(f"{what}: whether the blocks are those of one task", lines[0] == lines[1], True)


def _check_error(executor: Executor, program: Program, text: str) -> None:
    try:
        found = executor.advance(program)
    except Exception as error:
        _same(f"the error of {program}: whether it says {text!r}", text in str(error), True)
    else:
        raise AssertionError(f"{program}: expected an error with {text!r}, found {found!r:.200}")


@dataclass(frozen=True)
class Roots(Sum):
    """A sum of roots, whose last bits depend on the order."""

    count: int

    MONOID = Monoid(
        "the sum",
        lambda left, right: left + right,
        lambda partial: Message({}, {"sum": np.array(partial)}),
        lambda message: float(message.arrays["sum"]),
    )

    def units(self, completed: int) -> int:
        return self.count

    def lift(self, now: Round, unit: int) -> float:
        return float(unit**0.5)


@dataclass(frozen=True)
class Elements(Roots):
    """A sum of roots of elements of the state beside which it is computed."""

    def lift(self, now: Round, unit: int) -> float:
        return float(now.vector("x")[unit] ** 0.5)


@dataclass(frozen=True)
class Parts(Program):
    """A block for each unit, without a reduce."""

    count: int

    def units(self, completed: int) -> int:
        return self.count

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return ()

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        for unit in units:
            yield (unit,), Message({"unit": unit}, {"part": np.full(unit, 0.5)})


@dataclass(frozen=True)
class NoBlocks(Program):
    """Breaks a law: its reduce gives no block."""

    count: int

    def units(self, completed: int) -> int:
        return self.count

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return (Phase("nothing", 1),)

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        yield (0,), Message({"start": units.start})

    def nothing(self, now: Round, key: object, messages: object) -> tuple[Pair, ...]:
        return ()


@dataclass(frozen=True)
class Mixed(InBlocks, Owning, EndsEarly, Concluding):
    """Rounds of two phases: units send parts of the state, mixed with what they own.

    ``limit``: It is over when all that was sent is smaller. ``stop``: A file: while it is there,
    the fourth round is an error. ``notes``: A folder for sums over the state of every third round,
    by the second of which it is over, too; maps read the vector ``x`` alone then, of so many
    ``elements``.
    """

    limit: float = 0.0
    stop: str = ""
    notes: str = ""
    elements: int = 11

    besides = (Elements,)

    def most_rounds(self) -> int:
        return 9

    def units(self, completed: int) -> int:
        return 5

    def owners(self) -> int:
        return 5

    def blocks_for(self, wanted: int) -> int:
        return min(wanted, 3)

    def bounds(self, blocks: int) -> list[tuple[int, int]]:
        edges = [self.elements * at // blocks for at in range(blocks + 1)]
        return [*pairwise(edges)]

    def mapped(self) -> tuple[str, ...]:
        return ("x",) if self.notes else ()

    def whole(self) -> tuple[str, ...]:
        return ("largest",) if self.notes else ()

    def next_due(self, completed: int) -> int:
        return min(completed // 3 * 3 + 3, 9) if self.notes else 9

    def beside(self, completed: int, arrays: Mapping[str, Array]) -> Program | None:
        return Elements(self.elements) if self.notes else None

    def _note(self, completed: int) -> Path:
        return Path(self.notes, f"{completed}")

    def is_concluded(self, completed: int) -> bool:
        return self._note(completed).exists()

    def conclude(self, completed: int, block: Message) -> None:
        # Once, or this is an error.
        with self._note(completed).open("xb") as file:
            file.write(block.arrays["sum"].tobytes())

    def is_out(self, completed: int) -> bool:
        return completed >= 6

    def first(self, blocks: int) -> Iterator[dict[str, Array]]:
        for start, stop in self.bounds(blocks):
            x = np.arange(start, stop) / (7 * self.elements / 11)
            yield {"x": x, "fixed": np.ones(2), "largest": np.ones(1)}

    def first_own(self) -> dict[int, dict[str, Array]]:
        return {unit: {"own": np.array([1.0 + unit]), "fixed": np.ones(1)} for unit in range(5)}

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return Phase("largest", layout.blocks), Phase("step", layout.blocks)

    @cached_property
    def _memory(self) -> Array:
        """Of the messages of a map, which the next map overwrites."""
        return np.empty((5, self.elements))

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        x = now.vector("x")
        for piece, unit in zip(self._memory, units, strict=False):
            own, fixed = (now.own(unit)[name] for name in ("own", "fixed"))
            now.keep(unit, {"fixed": fixed, "own": own * 0.9})
            np.multiply(x / own, fixed, out=piece)
            for number, (start, stop) in enumerate(self.bounds(now.layout.blocks)):
                # Executors may have a meaning of their own for no word.
                yield (number, unit), Message({"key": unit}, {"piece": piece[start:stop]})

    def largest(
        self, now: Round, key: tuple[int, ...], messages: Iterable[Message]
    ) -> Iterator[Pair]:
        """Tell all blocks of the largest: what decides is the same in each."""
        piece = next(iter(messages)).arrays["piece"]
        for number in range(now.layout.blocks):
            arrays = {"largest": piece.max(initial=0.0)[None]}
            if number == key[0]:
                arrays["piece"] = piece
            yield (number,), Message({"key": key[1], "from": key[0]}, arrays)

    def step(self, now: Round, key: tuple[int, ...], messages: Iterable[Message]) -> Iterator[Pair]:
        if now.completed == 3 and self.stop and Path(self.stop).exists():
            raise GradreduceError("stopped")
        found = {(one.meta["key"], one.meta["from"]): one.arrays for one in messages}
        pieces = [found[unit, key[0]]["piece"] for unit in range(5)]
        before = now.block(key[0])
        x = 0.5 * before["x"] + 0.1 * sum(pieces)
        largest = max(arrays["largest"] for arrays in found.values())
        yield key, Message({}, {"x": x, "largest": largest, "fixed": before["fixed"]})

    def is_over(self, completed: int, arrays: Mapping[str, Array]) -> bool:
        return bool(arrays["largest"][0] < self.limit)


# Readers


def check_reader(make: Callable[[], Source]) -> None:
    """Put a reader's source through the contract of :class:`mapreduce.data.importer.Source`.

    Parameters
    ----------
    make : callable
        Reads the same small source again with each call.
    """
    source = make()
    first, again = _read(source), _read(make())
    _same("description as JSON", json.loads(json.dumps(source.description)), source.description)
    for rows in first:
        x, others = rows.features, (rows.labels, rows.weights)
        if source.finish is None:
            _same("columns of a chunk", x.shape[1], math.prod(source.shape))
        lengths = {len(x), *(len(array) for array in others if array is not None)}
        _same("lengths of a chunk's arrays", lengths, {len(x)})
    features, once_more = (
        np.concatenate([_dense(rows.features) for rows in read]) for read in (first, again)
    )
    _bits("features of a second reading", once_more, features)
    with TemporaryDirectory() as folder:
        manifest = import_rows(make(), Path(folder) / "data", 0)
        dataset = Dataset(Path(folder) / "data")
        shards = [dataset.shard(number) for number in range(len(manifest.shards))]
        imported = np.empty_like(features)
        for shard, entry in zip(shards, manifest.shards, strict=True):
            imported[shard.source_rows(0, entry.rows)] = _dense(shard.rows(0, entry.rows).features)
        _bits("features after an import", imported, features)


def _read(source: Source) -> list[Any]:
    """All rows of a source, blocks of a table as the features that they become."""
    found = list(source.chunks)
    if source.finish is None:
        return found
    make = source.finish().features
    return [replace(r, features=make(r.features)) for r in found if isinstance(r.features, Block)]


def _dense(features: Array | Csr) -> Array:
    return features.to_dense() if isinstance(features, Csr) else features
