"""Planning a training, making its run, and whether what was planned is still there."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace

from safetensors.numpy import save as save_tensors

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.data.columns import misfit
from mapreduce.data.manifest import Manifest
from mapreduce.data.manifest import load as load_manifest
from mapreduce.data.readers.opening import fitted_of
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, MissingInputError
from mapreduce.models.base import Array, Model
from mapreduce.plan.fitting import check_evaluation, digest
from mapreduce.plan.plan import Plan
from mapreduce.plan.settings import Settings, make
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunConfig, RunDir
from mapreduce.runs.execution import Execution
from mapreduce.support import numeric
from mapreduce.training import feeding


def plan(settings: Settings, data: AnyPath, evaluation: AnyPath | None) -> Plan:
    """The plan of a training. See :func:`create` for parameters and errors."""
    return _planned(settings, data, evaluation)[0]


def _planned(
    settings: Settings, data: AnyPath, evaluation: AnyPath | None
) -> tuple[Plan, bytes | None]:
    """The plan, and the file of the initial parameters if they are not the model's own."""
    training, *others = [
        Dataset(path).check_sizes() for path in (data, evaluation) if path is not None
    ]
    fed = None
    if settings.features_from is not None:
        fed = feeding.read(settings, training, data)
    trunk, shape = (None, None) if fed is None else (fed.trunk, fed.shape)
    made = make(settings, training, others[0] if others else None, trunk, shape, Dataset(data))
    if evaluation is not None:
        check_evaluation(others[0], evaluation, made, training, data)
    if fed is not None:
        model = made.about
        found = model.named(model.init(made.seed)) | fed.params
        return _starting(made, model, found, f"--features-from {settings.features_from}")
    if settings.init_from is None:
        return made, None
    source, model = path_of(settings.init_from), made.about
    if source.is_dir():
        before = RunDir(source.absolute())
        _check_same_meaning(before.config, training, source)
        found = dict(checkpoint.fitted(before).arrays)
    else:
        found = checkpoint.load_file(source)
    return _starting(made, model, model.of_state(found), f"--init-from {source}")


def _starting(
    made: Plan, model: Model, found: Mapping[str, Array], where: str
) -> tuple[Plan, bytes]:
    """The plan of a training that starts from some parameters, and their file."""
    named = model.named(model.flat(found, where))
    return replace(made, initial_sha256=checkpoint.model_sha256(named)), save_tensors(named)


def _check_same_meaning(before: RunConfig, data: Manifest, source: AnyPath) -> None:
    """Refuse parameters of other classes, columns or scales than those of the data."""
    found = before.classes, data.classes or ()
    wrong = misfit(data.columns, before.columns)
    if found[0] != found[1]:
        wrong = f"classes {found[1]!r:.200}, expected {found[0]!r:.200}"
    trained_on = before.plan.data
    if (digest(data.standardised), digest(data.recipe)) != (
        trained_on.standardised,
        trained_on.recipe,
    ):
        wrong = wrong or "their features were not made as those that the run was trained on"
    if wrong:
        raise DataError(
            f"--init-from {source}: the parameters have another meaning for these data: {wrong}. "
            f"Import the data with --like, or name the file {checkpoint.MODEL} of a checkpoint"
        )


def create(
    path: AnyPath,
    settings: Settings,
    data: AnyPath,
    evaluation: AnyPath | None,
    numeric_profile: str = "native",
) -> RunDir:
    """Make the directory ``path`` of a new run, without training."""
    manifest = load_manifest(data)
    run = RunDir(path.absolute())
    made, initial_file = _planned(settings, data, evaluation)
    run.create(
        RunConfig(
            plan=made,
            data=str(data.absolute()),
            evaluation=str(evaluation.absolute()) if evaluation else None,
            classes=manifest.classes or (),
            shape=manifest.shape,
            columns=manifest.columns,
            numeric_profile=numeric_profile,
        ),
        fitted_of(data, manifest),
        initial_file,
    )
    return run


def record(
    run: RunDir, model: Model, execution: Execution, keep: int, warn: Callable[[str], None]
) -> None:
    """Record processor, libraries and execution in a run; warn if the former have changed in it."""
    now = numeric.describe() | model.libraries
    before = run.read_json("profile.json")
    if before is None:
        # The folder is synced for the next file.
        run.write_json("profile.json", now, named=False)
    elif changes := numeric.difference(before, now):
        warn(
            f"the run began on another numeric profile ({'; '.join(changes)}): the rounds from "
            f"here on may differ in their last bits from those of an undisturbed run"
        )
    content = {**execution.to_dict(), "keep": keep}
    # With stages nothing is tried, and the blocks are those that suit them.
    content["blocks"] = content["blocks"] or "auto"
    run.write_json("execution.json", content, once=False)


def with_places(run: RunDir, config: RunConfig) -> RunDir:
    """A run that keeps the places of the data from a configuration."""
    kept = {"data": config.data, "evaluation": config.evaluation}
    run.write_json("moved.json", kept, once=False)
    return RunDir(run.path)


def check_data_of(config: RunConfig) -> None:
    """Refuse data that are not those of a run, or are gone."""
    check_training_data(config)
    if config.evaluation and config.plan.eval_sha256:
        check_data(config.evaluation, config.plan.eval_sha256, "--eval")


def check_training_data(config: RunConfig) -> None:
    """As :func:`check_data`; refuse data that lack rows of the plan, too."""
    rows = [shard.rows for shard in check_data(config.data, config.plan.data.sha256).shards]
    wanted = config.plan.data.shard_rows
    if len(wanted) > len(rows) or any(map(operator.gt, wanted, rows)):
        raise DataError(
            f"the plan takes {sum(wanted):,} rows of {config.data}, but it has fewer "
            f"rows. The plan was made for other data. Start a new run"
        )


def check_data(path: str, expected: str, option: str = "--data") -> Manifest:
    """The manifest of a run's dataset, whose digest must be ``expected``."""
    try:
        return Dataset(path_of(path), expected).check_sizes()
    except MissingInputError as error:
        raise MissingInputError(
            f"the run's data are gone: {error}. If they have moved, name their folder by {option}"
        ) from error
    except DataError as error:
        raise DataError(
            f"{error}. If the right ones lie elsewhere, name their folder by {option}"
        ) from error
