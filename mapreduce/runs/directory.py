"""A run's directory: everything a training leaves on the way, and what it can go on from.

::

    run.json        the plan, the data's paths and classes; written once
    execution.json  the last driver's runner, workers and so on
    profile.json    the processors and libraries that the numbers come from
    rounds/         the parameters after a round, a file for each block; the last rounds only
    checkpoints/    one folder for each checkpoint
    evaluations/    one file for each evaluation
    events.jsonl    what happened, a JSON object on each line
    result.json     digest and number of rounds, when the training has ended
    gang/           where the tasks of a gang meet, while one is at work
    lease.json      who is at work

Files take their names when they are complete and never change, but for ``execution.json`` and the
events. So what was finished can be told from the names alone, after any crash.
"""

import contextlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hdfs_utils.atomic import storage_errors
from hdfs_utils.folders import first_special, remove_folder, remove_leftovers
from hdfs_utils.paths import AnyPath, ordered
from hdfs_utils.publish import put_if_absent, replace
from mapreduce.data.columns import Columns
from mapreduce.data.columns import check as check_columns
from mapreduce.errors import DataError, MissingInputError, OutputError, UsageError, WireError
from mapreduce.optim.contract import PAGE
from mapreduce.plan import settings
from mapreduce.plan.plan import Plan
from mapreduce.reduction.message import Message, encode_parts, read_message
from mapreduce.runs import events, lease, outcome
from mapreduce.support import numeric
from mapreduce.support.jsonfiles import build, checked, read, require_file

Array = npt.NDArray[Any]

FORMAT = "gradreduce-run"
FORMAT_VERSION = 2

#: Arrays of a block that are not of its length.
SHORT = ("memory", "history")

#: What an evaluation adds up.
_SCORE = {"rows": int, "correct": int, "weight": float, "loss": float}

_BLOCK_NAME = re.compile(r"(\d{8})\.(\d{5})-of-(\d{5})\.block")


@dataclass
class Position:
    """The parameters after some rounds, and what the optimizer needs to go on.

    Attributes
    ----------
    completed : int
        Rounds.
    params : array (size,)
    state : dict of str to array (size,)
    history : array (rounds since the last checkpoint of the plan, 3), float64
        Number of rows, their weight and the sum of their losses in each of those rounds.
    scalars : array (m,), float64
        The optimizer's; in files their name is ``memory``.
    """

    completed: int
    params: Array
    state: dict[str, Array] = field(default_factory=dict)
    history: Array = field(default_factory=lambda: np.empty((0, 3)))
    scalars: Array = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, completed: int, arrays: dict[str, Array], plan: Plan) -> "Position":
        """The state that was read from files; a DataError if it is not of the plan's kind."""
        model, optimizer = plan.create_model(), plan.create_optimizer()
        state = plan.initial_arrays(np.empty(0, model.dtype))
        rounds = len(arrays["history"]) if np.ndim(arrays.get("history", 0)) else 0
        expected = {name: f"{array.dtype} ({model.size},)" for name, array in state.items()}
        expected |= {
            "params": f"{model.dtype} ({model.size},)",
            "memory": f"float64 {optimizer.first_scalars().shape}",
            "history": f"float64 ({rounds}, 3)",
        }
        found = {name: f"{array.dtype} {array.shape}" for name, array in arrays.items()}
        wrong = [
            f"{name}: {found.get(name, 'missing')}, expected {expected.get(name, 'none')}"
            for name in sorted(found.keys() | expected.keys())
            if found.get(name) != expected.get(name)
        ]
        if wrong:
            raise DataError(
                f"the state after {completed} rounds is not that of the plan's model and "
                f"optimizer: {'; '.join(wrong)}"
            )
        state = {name: arrays[name] for name in state}
        return cls(completed, arrays["params"], state, arrays["history"], arrays["memory"])


@dataclass(frozen=True)
class Block:
    """A block of the parameters and of the optimizer's state after a round.

    Attributes
    ----------
    arrays : dict of str to array
        ``params``, the state's arrays by name, ``memory``, and in block 0 ``history``.
    origins : dict of str to int
        The round in whose file each of them lies: one that a round does not change is not written
        again, if it is of the block's length.
    """

    arrays: dict[str, Array]
    origins: dict[str, int]

    @classmethod
    def of(cls, completed: int, arrays: dict[str, Array], before: "Block | None" = None) -> "Block":
        """A block to be published; arrays that the one before has too stay where they are.

        But for the short ones: for them it is not worth to keep a whole file.
        """
        origins = dict.fromkeys(arrays, completed)
        if before is not None:
            for name, array in arrays.items():
                if name not in SHORT and before.arrays.get(name) is array:
                    origins[name] = before.origins[name]
        return cls(arrays, origins)

    def rounds(self) -> set[int]:
        """All rounds whose files hold a part of it."""
        return set(self.origins.values())


def block_bounds(size: int, blocks: int) -> list[tuple[int, int]]:
    """First element and the one after the last of each block; blocks are whole pages.

    There are fewer blocks than asked for if there are fewer pages.
    """
    pages = -(-size // PAGE)
    blocks = min(blocks, pages)
    edges = [pages * i // blocks * PAGE for i in range(blocks)] + [size]
    return list(pairwise(edges))


@dataclass(frozen=True)
class RunConfig:
    """What does not change over a run.

    Attributes
    ----------
    plan : Plan
    data : str
        Path of the training data.
    evaluation : str or None
        Path of the data that is evaluated on.
    classes : tuple of int or str
        Label of each class.
    shape : tuple of int
        Shape of one example.
    numeric_profile : {"native", "portable"}
    columns : tuple of Column, or None
        Of the training data; see :class:`mapreduce.data.manifest.Manifest`.
    """

    plan: Plan
    data: str
    evaluation: str | None
    classes: tuple[int | str, ...]
    shape: tuple[int, ...]
    numeric_profile: str
    columns: Columns | None = None

    def to_bytes(self) -> bytes:
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "plan": self.plan.to_dict(),
            "data": self.data,
            "evaluation": self.evaluation,
            "classes": list(self.classes),
            "shape": list(self.shape),
            "columns": self.columns,
            "numeric_profile": self.numeric_profile,
        }
        return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


class RunDir:
    """A run's directory.

    Parameters
    ----------
    path : Path or RemotePath
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self.rounds = path / "rounds"
        self.checkpoints = path / "checkpoints"
        self.evaluations = path / "evaluations"

    # The configuration

    def create(self, config: RunConfig) -> None:
        """Make the directory of a new run.

        Raises
        ------
        OutputError
            A run is there already, or something else is.
        """
        if (self.path / "run.json").exists():
            raise OutputError(
                f"{self.path} holds a run already. Go on with 'gradreduce resume {self.path}', or "
                f"name another folder"
            )
        if self.path.exists() and not self._is_leftover():
            raise OutputError(
                f"{self.path} exists and is no run. Name another folder, or remove it first"
            )
        self.make_folders()
        put_if_absent(self.path / "run.json", config.to_bytes(), sync=True)

    def make_folders(self) -> None:
        """Make what is not there: copies of a run often lack its empty folders."""
        with storage_errors("create", self.path):
            for folder in (self.rounds, self.checkpoints, self.evaluations):
                folder.mkdir(parents=True, exist_ok=True)

    def _is_leftover(self) -> bool:
        """Whether the path holds no more than a creation that was cut short."""
        if isinstance(self.path, Path) and first_special(self.path) is not None:
            return False
        return self.path.is_dir() and not any(
            entry.is_file() and not entry.name.startswith((".run.json", "lease"))
            for entry in self.path.rglob("*")
        )

    def remove_if_unused(self) -> None:
        """Delete a run of which no round was finished and nobody works on."""
        holder = lease.holder(self.path)
        if holder is not None and lease.is_alive(holder):
            return
        if not any(self.complete_rounds()) and not any(self.checkpoints.iterdir()):
            remove_folder(self.path, "run.json")

    @cached_property
    def config(self) -> RunConfig:
        """The run's configuration.

        Raises
        ------
        MissingInputError
            There is no run.
        DataError
            Its file is damaged, or of a version that this program does not know.
        """
        self._refuse_links()
        path, content = self.path / "run.json", read(self.path / "run.json")
        if content is None:
            raise MissingInputError(
                f"{self.path} is no run: it holds no run.json. Start one with 'gradreduce train'"
            )
        form, version = content.pop("format", None), content.pop("format_version", None)
        if form == FORMAT and version != FORMAT_VERSION:
            raise DataError(
                f"{path} has format version {version}; this program reads version "
                f"{FORMAT_VERSION}. Use the program that wrote it"
            )
        try:
            if form != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            config = build(RunConfig, content)
            check_columns(config.columns)
            settings.check(config.plan)
            # What no file can be called.
            os.fsencode(config.data + (config.evaluation or ""))
            if config.numeric_profile not in numeric.PROFILES:
                raise ValueError(f"numeric_profile: {config.numeric_profile!r} is not known")
            # Numbers and texts among them are a TypeError.
            classes = sorted(set(config.classes))
            if classes != list(config.classes) or len(classes) != config.plan.data.classes:
                raise ValueError("classes: they are not in order, or not those of the plan")
            return config
        except (ValueError, TypeError, ArithmeticError, UsageError) as error:
            raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from error

    def _refuse_links(self) -> None:
        # What is in gang/ is deleted unread.
        found = first_special(self.path, "gang") if isinstance(self.path, Path) else None
        if found is not None:
            raise DataError(
                f"{found[0]} is {found[1]}: a run holds nothing but files and folders, since what "
                f"is written to a link changes something elsewhere. Put a copy in its place"
            )

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the run that it can do without, or None if it is not there."""
        with self._advice(name) as path:
            return read(path)

    def result(self) -> events.RunEnded | None:
        """How the run ended, or None if it has not."""
        with self._advice("result.json") as path:
            content = read(path)
            return None if content is None else build(events.RunEnded, content)

    @contextlib.contextmanager
    def _advice(self, name: str) -> Iterator[AnyPath]:
        path = self.path / name
        try:
            yield path
        except (DataError, ValueError) as error:
            what = error if isinstance(error, DataError) else f"{path} is damaged: {error}"
            raise DataError(
                f"{what}. Remove {path}; 'gradreduce resume {self.path}' makes it again"
            ) from error

    def write_json(self, name: str, content: dict[str, Any], *, once: bool = True) -> None:
        """Publish a JSON file of the run."""
        lease.check(self.path)
        data = (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
        if once:
            put_if_absent(self.path / name, data, sync=True)
        else:
            replace(self.path / name, data)

    def summary(self, warn: Callable[[str], None] | None = None) -> dict[str, Any]:
        """What there is to say of the run in a line: model, state, rounds, losses, digest."""
        plan = self.config.plan
        result = self.result()
        recorded = events.read(self.path / "events.jsonl", warn)

        def last(event: str) -> dict[str, Any]:
            found = [record for record in recorded if record["event"] == event]
            return found[-1] if found else {}

        if result is not None:
            state = "ended"
        else:
            holder = lease.holder(self.path)
            state = "running" if holder is not None and lease.is_alive(holder) else "stopped"
        saved = vars(result) if result is not None else last("CheckpointSaved")
        evaluations = {
            record["completed"]: record for record in recorded if record["event"] == "Evaluated"
        }
        at = result.completed if result else max(evaluations, default=0)
        evaluation = evaluations.get(at, {})
        losses = {
            record["completed"]: (record["rows"], record["loss"])
            for record in recorded
            if record["event"] == "RoundCompleted"
            and record["completed"] <= (result.completed if result else plan.rounds)
        }
        return {
            "run": str(self.path),
            "state": state,
            "model": plan.model,
            "completed": last("RoundCompleted").get("completed", 0),
            "rounds": plan.rounds,
            "loss": last("RoundCompleted").get("loss"),
            "pass_loss": outcome.pass_loss(plan, losses),
            "model_sha256": saved.get("model_sha256"),
            "model_rounds": saved.get("completed"),
            "stopped_early": bool(result and result.stopped_early),
            "accuracy": evaluation.get("accuracy"),
            "eval_loss": evaluation.get("loss"),
            "search": result.search if result else None,
            "gradient_norm": result.gradient_norm if result else None,
            "warning": outcome.warning(plan, result, losses),
        }

    # Rounds

    def block_path(self, completed: int, block: int, blocks: int) -> AnyPath:
        return self.rounds / f"{completed:08d}.{block:05d}-of-{blocks:05d}.block"

    def publish_block(self, completed: int, number: int, blocks: int, block: Block) -> None:
        """Publish a block after a round.

        Raises
        ------
        ConflictError
            Another attempt published other bytes.
        """
        elsewhere = {name: at for name, at in block.origins.items() if at != completed}
        arrays = {name: array for name, array in block.arrays.items() if name not in elsewhere}
        meta = {"completed": completed, "block": number, "blocks": blocks, "elsewhere": elsewhere}
        put_if_absent(
            self.block_path(completed, number, blocks), *encode_parts(Message(meta, arrays))
        )

    def read_block(
        self, completed: int, number: int, blocks: int, names: Iterable[str] | None = None
    ) -> Block:
        """A block, with all of its arrays or those named.

        Raises
        ------
        MissingInputError, WireError
            It is not there, or damaged.
        """
        wanted = None if names is None else set(names)
        message = self._read_file(completed, number, blocks, wanted)
        arrays = dict(message.arrays)
        origins: dict[str, int] = dict.fromkeys(arrays, completed)
        elsewhere = message.meta.get("elsewhere")
        if not isinstance(elsewhere, dict) or any(type(at) is not int for at in elsewhere.values()):
            path = self.block_path(completed, number, blocks)
            raise WireError(f"{path} names rounds that make no sense: {elsewhere!r:.60}")
        for at in sorted(set(elsewhere.values())):
            there = {name for name, where in elsewhere.items() if where == at}
            there = there if wanted is None else there & wanted
            if there:
                arrays |= self._read_file(at, number, blocks, there).arrays
                origins |= dict.fromkeys(there, at)
        return Block(arrays, origins)

    def _read_file(
        self, completed: int, number: int, blocks: int, names: Iterable[str] | None
    ) -> Message:
        path = self.block_path(completed, number, blocks)
        with storage_errors("read", path):
            try:
                require_file(path)
                return read_message(path, names)
            except FileNotFoundError:
                raise MissingInputError(
                    f"{path} does not exist: block {number} after {completed} rounds was never "
                    f"finished, or was removed while the run went on"
                ) from None

    def read_params(self, completed: int, blocks: int) -> Array:
        """All blocks of the parameters after a round, as a flat vector (size,)."""
        parts = [
            self.read_block(completed, number, blocks, ["params"]).arrays["params"]
            for number in range(blocks)
        ]
        return parts[0] if blocks == 1 else np.concatenate(parts)

    def complete_rounds(self) -> dict[int, int]:
        """Rounds whose blocks are all there, with their number of blocks."""
        return dict(sorted(self._complete()))

    def _complete(self) -> list[tuple[int, int]]:
        """Rounds and their number of blocks; a resumed run may have one in two numbers of them."""
        found: dict[tuple[int, int], int] = defaultdict(int)
        for path in self.rounds.glob("*.block"):
            if match := _BLOCK_NAME.fullmatch(path.name):
                found[int(match[1]), int(match[3])] += 1
        return [(completed, blocks) for (completed, blocks), n in found.items() if n == blocks]

    def read_round(self, completed: int, blocks: int) -> Position:
        """The whole state after a round; as :meth:`read_block` if it is not that of the plan."""
        parts = [self.read_block(completed, number, blocks).arrays for number in range(blocks)]
        try:
            joined = {
                name: array if name in SHORT else np.concatenate([part[name] for part in parts])
                for name, array in parts[0].items()
            }
            return Position.of(completed, joined, self.config.plan)
        except (DataError, KeyError, ValueError) as error:
            raise WireError(f"{self.rounds}: round {completed} is damaged: {error}") from error

    def publish_round(self, position: Position, blocks: int) -> int:
        """Publish the whole state after a round; returns the number of blocks.

        If it is there already, in as many blocks, it stays as it is; what is left of a damaged one
        is replaced.
        """
        lease.check(self.path)
        bounds = block_bounds(position.params.size, blocks)
        if (position.completed, len(bounds)) in self._complete():
            try:
                self.read_round(position.completed, len(bounds))
                return len(bounds)
            except (MissingInputError, DataError):
                pass
        for number in range(len(bounds)):
            path = self.block_path(position.completed, number, len(bounds))
            path.unlink(missing_ok=True)
        for number, (start, stop) in enumerate(bounds):
            arrays = {"params": position.params[start:stop], "memory": position.scalars}
            arrays.update({name: array[start:stop] for name, array in position.state.items()})
            if number == 0:
                arrays["history"] = position.history
            block = Block.of(position.completed, arrays)
            self.publish_block(position.completed, number, len(bounds), block)
        return len(bounds)

    def remove_blocks(self, number: int, blocks: int, keep: set[int], before: int) -> None:
        """Delete the files of a block of all rounds before one, but of those to be kept."""
        if min(keep) >= before:
            # Nothing lies in earlier rounds, and those before the last are gone already.
            self.block_path(before - 1, number, blocks).unlink(missing_ok=True)
            return
        for path in self.rounds.glob(f"*.{number:05d}-of-{blocks:05d}.block"):
            completed = int(path.name[:8])
            if completed < before and completed not in keep:
                path.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Delete what killed writers left, and evaluations that are damaged."""
        lease.check(self.path)
        for completed in self._evaluated():
            if self.evaluation(completed) is None:
                (self.evaluations / f"{completed:08d}.json").unlink()
        for folder in (self.path, self.rounds, self.checkpoints, self.evaluations):
            remove_leftovers(folder)

    def prune_rounds(self, keep: int, blocks: int) -> None:
        """Delete all blocks but those of a round and what they need, and what killed tasks left."""
        lease.check(self.path)
        remove_leftovers(self.rounds)
        needed = set()
        for number in range(blocks):
            message = self._read_file(keep, number, blocks, ())
            for at in (keep, *message.meta["elsewhere"].values()):
                needed.add(self.block_path(at, number, blocks))
        for path in self.rounds.glob("*.block"):
            if _BLOCK_NAME.fullmatch(path.name) and path not in needed:
                path.unlink(missing_ok=True)

    def latest_round(
        self,
        warn: Callable[[str], None] = lambda message: None,
        in_blocks: int | None = None,
        at_most: int | None = None,
    ) -> Position | None:
        """The state after the last round that is complete and undamaged, or None.

        ``warn`` is told of damaged ones. With ``in_blocks``, of those in that number of blocks;
        with ``at_most``, of those after at most so many rounds.
        """
        for completed, blocks in sorted(self._complete(), reverse=True):
            if in_blocks not in (None, blocks) or (at_most is not None and completed > at_most):
                continue
            try:
                return self.read_round(completed, blocks)
            except (MissingInputError, DataError) as error:
                warn(f"{error}. Going on from an earlier round")
        return None

    def history(self, completed: int, blocks: int) -> Position | None:
        """A complete round without its parameters, or None if it was removed meanwhile."""
        try:
            block = self.read_block(completed, 0, blocks, ["history"])
        except (MissingInputError, DataError):
            return None
        return Position(completed, np.empty(0), {}, block.arrays["history"])

    def latest_history(self) -> Position | None:
        """The last complete round, without parameters: while a job runs, its progress."""
        rounds = self.complete_rounds()
        if not rounds:
            return None
        # The job may be faster than we are, and has removed the round.
        return self.history(max(rounds), rounds[max(rounds)])

    def evaluation(self, completed: int) -> dict[str, Any] | None:
        """The sums of an evaluation, or None if it is not there or damaged."""
        with contextlib.suppress(DataError):
            sums = self.read_json(f"evaluations/{completed:08d}.json") or {}
            with contextlib.suppress(ValueError):
                found = {n: checked(kind, sums.get(n), n) for n, kind in _SCORE.items()}
                return found if found["weight"] else None
        return None

    def evaluation_losses(self, completed: int | None = None) -> dict[int, float]:
        """Mean loss of each evaluation, by completed rounds; of those after at most so many."""
        found = {at: self.evaluation(at) for at in self._evaluated()}
        return {
            at: sums["loss"] / sums["weight"]
            for at, sums in found.items()
            if sums is not None and (completed is None or at <= completed)
        }

    def _evaluated(self) -> list[int]:
        paths = ordered(self.evaluations.glob("*.json"))
        return [int(path.stem) for path in paths if path.stem.isdecimal()]

    def best(self, completed: int) -> int:
        """Rounds of the model that a training ends with here: with patience, the best evaluated.

        Evaluations of later rounds, which a run has gone back before, do not count.
        """
        losses = self.evaluation_losses(completed) if self.config.plan.patience else {}
        return min(losses, key=losses.__getitem__) if losses else completed

    def is_out_of_patience(self, completed: int) -> bool:
        """Whether the evaluations have not got better for as often as the plan allows."""
        patience = self.config.plan.patience
        losses = self.evaluation_losses(completed) if patience else {}
        if not losses:
            return False
        best = min(losses, key=losses.__getitem__)
        return sum(done > best for done in losses) >= patience
