"""A run's directory: everything that a training writes, and from which it can be resumed.

::

    run.json        the plan, the data's paths and classes; written once
    initial.safetensors
                    the initial parameters, if the plan has their digest
    execution.json  the last driver's runner, workers and so on
    moved.json      where the data lie now, if they have been moved
    profile.json    the processors and libraries that the numbers come from
    rounds/         the parameters after a round, a file for each block; the last rounds only
    checkpoints/    one folder for each checkpoint
    evaluations/    one file for each evaluation
    pushes/         the log of asynchronous rounds (:mod:`mapreduce.runs.pushes`)
    events.jsonl    what happened, a JSON object on each line
    result.json     digest and number of rounds, when the training has ended
    timing/         a trace, if there is one (:mod:`mapreduce.timing`)
    gang/           where the tasks of a gang meet, while one runs
    lease.json      the driver that works on the run

Except for ``execution.json``, ``moved.json`` and the events, files take their names when complete
and never change. So after any crash the names alone show what was finished.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from dataclasses import replace as replaced
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hdfs_utils.atomic import storage_errors
from hdfs_utils.folders import first_special, remove_folder, remove_leftovers
from hdfs_utils.paths import AnyPath, ordered
from hdfs_utils.publish import put_if_absent, replace
from mapreduce.data.columns import Columns
from mapreduce.data.columns import check as check_columns
from mapreduce.data.manifest import RECIPE, read_listed
from mapreduce.engine.rounds import SHORT, UNIT, Array, Block, RoundFiles
from mapreduce.errors import (
    DataError,
    MissingInputError,
    OutputError,
    UntrustedError,
    UsageError,
    WireError,
)
from mapreduce.plan import settings, strategies
from mapreduce.plan.plan import Plan
from mapreduce.runs import events, lease
from mapreduce.runs.state import Position, block_bounds
from mapreduce.runs.summary import summarise
from mapreduce.support import jsonfiles, numeric
from mapreduce.support.commands import resume
from mapreduce.support.jsonfiles import build, checked, content_of, read

if TYPE_CHECKING:
    from mapreduce.data.recipes.fitted import FittedRecipe

#: The initial parameters of a run that starts from those of another.
INITIAL = "initial.safetensors"
#: What the run of a fit has, and no training: see :mod:`mapreduce.runs.fits`.
FIT = "fit.json"
#: What the folder of a search has: see :mod:`mapreduce.searching.directory`.
SEARCH = "search.json"

FORMAT = "gradreduce-run"
FORMAT_VERSION = 2

#: Files that a creation which was interrupted leaves begin with these.
_CREATED = (".run.json", f".{FIT}", "lease", INITIAL, RECIPE)

#: The sums of an evaluation, and their types.
_SCORE = {"rows": int, "correct": int, "weight": float, "loss": float}


@dataclass(frozen=True)
class RunConfig:
    """The part of a run that never changes.

    ``data`` and ``evaluation`` are paths, ``classes`` the labels, and ``shape`` is that of one
    example. For ``columns`` see :class:`mapreduce.data.manifest.Manifest`.
    """

    plan: Plan
    data: str
    evaluation: str | None
    classes: tuple[int | str, ...]
    shape: tuple[int, ...]
    numeric_profile: str
    columns: Columns | None = None

    def to_bytes(self) -> bytes:
        """The content of ``run.json``."""
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        content |= {"format": FORMAT, "format_version": FORMAT_VERSION, "plan": self.plan.to_dict()}
        return _encoded(content)

    @cached_property
    def sha256(self) -> str:
        """Digest of the configuration."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


@lru_cache(maxsize=4)
def _decoded(content: bytes, path: AnyPath) -> RunConfig:
    """The configuration in a file's content, which a process parses once; its plan is unchecked."""
    parsed = jsonfiles.parsed(content, path)
    form, version = parsed.pop("format", None), parsed.pop("format_version", None)
    if form == FORMAT and version != FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {version}; this program reads version {FORMAT_VERSION}. "
            f"Use the program that wrote it"
        )
    if form != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    config = build(RunConfig, parsed)
    check_columns(config.columns, config.plan.data.features)
    if config.numeric_profile not in numeric.PROFILES:
        raise ValueError(f"numeric_profile: {config.numeric_profile!r} is unknown")
    # A TypeError if there are both numbers and texts.
    classes = sorted(set(config.classes))
    if classes != list(config.classes) or len(classes) != config.plan.data.classes:
        raise ValueError("classes: they are not in order, or not those of the plan")
    vars(config)["_bytes"] = content
    return config


_check = lru_cache(maxsize=4)(settings.check)


def _encoded(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


Config = TypeVar("Config", bound=Any)


@dataclass(frozen=True)
class Moved:
    """The paths of data that lie elsewhere than when the run began."""

    data: str | None = None
    evaluation: str | None = None

    def apply_to(self, config: Config) -> Config:
        """The configuration, of a training or of a fit, with these paths."""
        places = {name: at for name, at in vars(self).items() if at is not None}
        return replaced(config, **places) if places else config


class RunDir:
    """A run's directory, on this machine or in another filesystem."""

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self.rounds = RoundFiles(path / "rounds")
        self.checkpoints = path / "checkpoints"
        self.evaluations = path / "evaluations"

    # The configuration

    def create(
        self, config: RunConfig, recipe: "FittedRecipe | None" = None, initial: bytes | None = None
    ) -> None:
        """Make the directory of a new run.

        ``recipe`` made the features of its data, and ``initial`` is the content of :data:`INITIAL`.

        Raises
        ------
        OutputError
            The path exists.
        """
        self.require_new()
        self.make_folders()
        if recipe is not None:
            replace(self.path / RECIPE, recipe.to_bytes())
        if initial is not None:
            replace(self.path / INITIAL, initial)
        put_if_absent(self.path / "run.json", config.to_bytes(), sync=True)

    @property
    def is_there(self) -> bool:
        """Whether there is a run, a training's or a fit's, which may be continued."""
        return any((self.path / name).exists() for name in ("run.json", FIT))

    def require_new(self) -> None:
        """Raise an OutputError if the path holds more than an interrupted creation has left."""
        if self.is_there:
            raise OutputError(
                f"{self.path} already contains a run. Continue it with "
                f"'{resume(self.path)}', or choose another folder"
            )
        if self.path.exists() and not self._is_leftover():
            raise OutputError(f"{self.path} exists and is not a run. Name another folder")

    def make_folders(self) -> None:
        """Make the folders that are missing: copies of a run often lack the empty ones."""
        with storage_errors("create", self.path):
            for folder in (self.rounds.folder, self.checkpoints, self.evaluations):
                folder.mkdir(parents=True, exist_ok=True)

    def _is_leftover(self) -> bool:
        """Whether the path holds only the files of an interrupted creation."""
        if isinstance(self.path, Path) and first_special(self.path) is not None:
            return False
        return self.path.is_dir() and not any(
            entry.is_file() and not entry.name.startswith(_CREATED)
            for entry in self.path.rglob("*")
        )

    def remove_if_unused(self) -> None:
        """Delete a run if no round was finished and no driver works on it."""
        if lease.is_held(self.path):
            return
        if not any(self.rounds.complete()) and not any(self.checkpoints.iterdir()):
            remove_folder(self.path, "run.json")

    @cached_property
    def config(self) -> RunConfig:
        """The run's configuration.

        Raises
        ------
        MissingInputError
            There is no run.
        DataError
            Its file is damaged, or of an unknown version.
        """
        self.refuse_links()
        path = self.path / "run.json"
        if (content := content_of(path)) is None:
            if (self.path / FIT).exists():
                raise UsageError(
                    f"{self.path} is the run of a fit, which has no gradients and no plan: this is "
                    f"for trainings. A fit has 'gradreduce runs list', 'runs show', 'runs table' "
                    f"and 'runs compare', resume, predict, evaluate, swarm, serve and export"
                )
            if (self.path / SEARCH).exists():
                raise UsageError(
                    f"{self.path} is the folder of a search: expected a run. The best trial's is "
                    f"{self.path / 'best'}. A search has 'gradreduce runs show' and resume"
                )
            raise MissingInputError(
                f"{self.path} is not a run: it has no run.json. Start one with 'gradreduce train'"
            )
        try:
            config = _decoded(content, path)
            if config.plan.sources:
                # Code of somebody's own may have changed since.
                config = replaced(config, plan=replaced(config.plan))
            self._check_plan(config.plan)
            config = (self.read_json("moved.json", Moved) or Moved()).apply_to(config)
            # A ValueError if no file can have this name.
            os.fsencode(config.data + (config.evaluation or ""))
            return config
        except (ValueError, TypeError, ArithmeticError, UsageError) as error:
            raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from error

    def _check_plan(self, plan: Plan) -> None:
        try:
            (settings.check if plan.sources else _check)(plan)
        except UsageError as error:
            changed: list[str] = []
            with contextlib.suppress(UntrustedError):
                changed = settings.changed_sources(plan)
            if not changed:
                raise
            raise DataError(
                f"{self.path} does not fit the code of {', '.join(changed)}, which has changed "
                f"since the run began. Put it back as it was then, or train a new run: {error}"
            ) from error

    @cached_property
    def recipe(self) -> "FittedRecipe | None":
        """How the columns of the training data became features; None if it was no table.

        Raises
        ------
        MissingInputError, DataError
            The file is gone or damaged.
        """
        digest = self.config.plan.data.recipe
        if digest is None:
            return None
        # Loads much of Arrow, which tasks do without.
        from mapreduce.data.recipes import fitted

        path = self.path / RECIPE
        content = read_listed(path, digest, f"Copy {RECIPE} of the training data there")
        return fitted.load(content, path)

    def refuse_links(self) -> None:
        """Raise a DataError if the run holds anything but files and folders."""
        # The content of gang/ is deleted without being read.
        found = first_special(self.path, "gang") if isinstance(self.path, Path) else None
        if found is not None:
            raise DataError(
                f"{found[0]} is {found[1]}: a run holds only files and folders, since writing to a "
                f"link would change something elsewhere. Put a copy in its place"
            )

    def read_json(self, name: str, kind: type[Any] = dict) -> Any:
        """A JSON file that the run can do without, as a dict or a dataclass; None if it is missing.

        Raises
        ------
        DataError
            It is damaged.
        """
        path = self.path / name
        try:
            content = read(path)
            return None if content is None else build(kind, content)
        except (DataError, ValueError) as error:
            what = error if isinstance(error, DataError) else f"{path} is damaged: {error}"
            raise DataError(
                f"{what}. Remove {path}; '{resume(self.path)}' computes it again"
            ) from error

    def result(self) -> events.RunEnded | None:
        """How the run ended, or None if it has not."""
        found: events.RunEnded | None = self.read_json("result.json", events.RunEnded)
        return found

    def write_json(
        self, name: str, content: dict[str, Any], *, once: bool = True, named: bool = True
    ) -> None:
        """Publish a JSON file of the run; see :func:`put_if_absent` for ``named``."""
        lease.check(self.path)
        if once:
            put_if_absent(self.path / name, _encoded(content), sync=True, named=named)
        else:
            replace(self.path / name, _encoded(content))

    def summary(self, warn: Callable[[str], None] | None = None) -> dict[str, Any]:
        """The run in a line: model, state, rounds, losses, digest and the like."""
        return summarise(self.path, self.config.plan, self.result(), warn)

    # Rounds

    def read_round(self, completed: int, blocks: int) -> Position:
        """The whole state after a round; errors are those of
        :meth:`mapreduce.engine.rounds.RoundFiles.read`.
        """
        parts = [self.rounds.read(completed, number, blocks).arrays for number in range(blocks)]
        try:
            joined = {
                name: array if name in SHORT else np.concatenate([part[name] for part in parts])
                for name, array in parts[0].items()
            }
            joined |= self._all_owned(completed)
            return Position.of(completed, joined, self.config.plan)
        except (DataError, KeyError, ValueError) as error:
            folder = self.rounds.folder
            raise WireError(f"{folder}: round {completed} is damaged: {error}") from error

    def _all_owned(self, completed: int) -> dict[str, Array]:
        """What all units own after a round, by the names of the state."""
        units = self.config.plan.owners
        return {
            strategies.owned_name(name, unit): array
            for unit in range(units)
            for name, array in self.rounds.read(completed, unit, units, kind=UNIT).arrays.items()
        }

    def publish_round(self, position: Position, blocks: int) -> int:
        """Publish the whole state after a round; returns the number of blocks.

        If it is there already, in this number of blocks, it is kept unless it is damaged.
        """
        lease.check(self.path)
        bounds = block_bounds(position.params.size, blocks)
        if (position.completed, len(bounds)) in self.rounds.variants():
            with contextlib.suppress(MissingInputError, DataError):
                self.read_round(position.completed, len(bounds))
                return len(bounds)
        own, completed = position.owned, position.completed
        for unit, arrays in own.items():
            self.rounds.path(completed, unit, len(own), UNIT).unlink(missing_ok=True)
            owned = Block.of(completed, dict(sorted(arrays.items())))
            self.rounds.publish(completed, unit, len(own), owned, UNIT)
        for number, block in enumerate(position.in_blocks(blocks)):
            self.rounds.path(completed, number, len(bounds)).unlink(missing_ok=True)
            self.rounds.publish(completed, number, len(bounds), Block.of(completed, block))
        return len(bounds)

    def remove_leftovers(self) -> None:
        """Delete unfinished files of killed writers, and evaluations that are damaged."""
        lease.check(self.path)
        for completed in self._evaluated():
            if self.evaluation(completed) is None:
                (self.evaluations / f"{completed:08d}.json").unlink()
        for folder in (self.path, self.rounds.folder, self.checkpoints, self.evaluations):
            remove_leftovers(folder)

    def prune_rounds(self, keep: int, blocks: int) -> None:
        """Delete all blocks that a round does not need, and unfinished files of killed tasks."""
        lease.check(self.path)
        self.rounds.prune(keep, blocks)

    def latest_round(
        self,
        warn: Callable[[str], None] = lambda message: None,
        at_most: int | None = None,
    ) -> Position | None:
        """The state after the last round that is complete and undamaged, or None.

        Parameters
        ----------
        warn : callable
            Called with a message for each damaged round.
        at_most : int, optional
            The largest number of rounds completed.
        """
        for completed, blocks in reversed(self.rounds.variants()):
            if at_most is not None and completed > at_most:
                continue
            try:
                return self.read_round(completed, blocks)
            except (MissingInputError, DataError) as error:
                warn(f"{error}. Going on from an earlier round")
        return None

    def history(self, completed: int, blocks: int) -> Position | None:
        """A complete round without its parameters, or None if it has been removed."""
        try:
            block = self.rounds.read(completed, 0, blocks, ["history"])
        except (MissingInputError, DataError):
            return None
        return Position(completed, np.empty(0), {}, block.arrays["history"])

    def evaluation(self, completed: int) -> dict[str, Any] | None:
        """The sums of an evaluation, or None if it is missing or damaged."""
        with contextlib.suppress(DataError, ValueError):
            sums = self.read_json(f"evaluations/{completed:08d}.json") or {}
            found = {n: checked(kind, sums.get(n), n) for n, kind in _SCORE.items()}
            return found if found["weight"] else None
        return None

    def evaluation_losses(self, completed: int | None = None) -> dict[int, float]:
        """Mean loss of each evaluation by rounds completed, up to ``completed`` if it is given."""
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
        """Rounds of the model that a training ends with here: with patience, the best evaluated."""
        losses = self.evaluation_losses(completed) if self.config.plan.patience else {}
        return min(losses, key=losses.__getitem__) if losses else completed

    def is_out_of_patience(self, completed: int) -> bool:
        """Whether the loss has not improved for the number of evaluations that the plan allows."""
        patience = self.config.plan.patience
        losses = self.evaluation_losses(completed) if patience else {}
        if not losses:
            return False
        best = min(losses, key=losses.__getitem__)
        return sum(done > best for done in losses) >= patience
