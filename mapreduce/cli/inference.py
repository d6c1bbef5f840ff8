"""``gradreduce evaluate``, ``predict``, ``swarm`` and ``export``."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.cli.common import (
    LOCATION,
    Seconds,
    add_options,
    json_option,
    moved_data_option,
    open_run,
    output_options,
    pin_profile,
    print_json,
    quiet_mrjob,
    remote_data_option,
    runner_options,
    trust_option,
    warn_of_changes,
)
from mapreduce.cli.grouping import GroupedCommand
from mapreduce.data.readers import CSV_OPTIONS, IMPORT
from mapreduce.data.recipes.recipe import RECIPE
from mapreduce.inference.flags import EXTRAS, REPORT, report_options
from mapreduce.runs import flags
from mapreduce.support.commands import command
from mapreduce.support.options import pick
from mapreduce.support.printable import echo
from mapreduce.support.words import count

if TYPE_CHECKING:
    from mapreduce.inference.request import Request
    from mapreduce.models.fitted import FittedModel


_OF_TABLES = "If DATA is a file of a table"
#: How a file of a table is read; by default as the training data.
_READING = pick(RECIPE, "drop", "na", *CSV_OPTIONS, group=_OF_TABLES)
_MISSING = pick(RECIPE, "missing_label", group=_OF_TABLES)
_LINES = pick(IMPORT, "zero_based", "dtype", group="If DATA is a file of libsvm's format")

_SHORT = tuple(replace(row, help=row.help.partition(" (default")[0]) for row in _READING)
_reading = add_options(_SHORT, defaults=False)


def _column_options(command: Any) -> Any:
    """Which columns of a file stand beside its predictions."""
    return add_options((*EXTRAS, *_LINES), defaults=False)(command)


#: Whose model a command uses: the folder of a run, or a file of its model.
_MODEL = click.argument("run", type=LOCATION, metavar="MODEL")


@click.command(cls=GroupedCommand)
@_MODEL
@click.argument("data", type=LOCATION, required=False)
@click.option(
    "--data",
    "moved",
    type=LOCATION,
    help="Folder of the run's evaluation data, if they have moved; their digest is checked.",
)
@add_options(REPORT, defaults=False)
@runner_options()
@add_options((flags.DEVICE,))
@_reading
@add_options(_MISSING, defaults=False)
@remote_data_option
@trust_option
@output_options
def evaluate(
    run: AnyPath,
    data: AnyPath | None,
    moved: AnyPath | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Report on MODEL, on DATA with labels; by default the evaluation data of the run.

    MODEL is the folder of a run, or a file of its model, which gradreduce export writes. DATA is a
    dataset, or a file of a table, which becomes features as the training data did.

    A classifier has accuracy, loss, ROC AUC, Brier score and calibration error; precision, recall
    and F1 of each class; and the confusion matrix, or with many classes the pairs that are most
    confused. A model that predicts numbers has R², RMSE and MAE. If rows have weights, the weights
    count in all but the accuracy of the first line.
    """
    pin_profile(run)
    from mapreduce.inference import using

    options = report_options({row.name: values.pop(row.name) for row in REPORT})
    data = _evaluated(run, data, moved, values.pop("remote_data"))
    with _request(run, data, values) as request:
        found = using.evaluate(request, options)
    if as_json:
        print_json(found.to_dict())
    else:
        echo(found)


@click.command(cls=GroupedCommand)
@_MODEL
@click.argument("data", type=LOCATION)
@click.argument("out", type=LOCATION)
@runner_options()
@add_options((flags.DEVICE,))
@_column_options
@_reading
@trust_option
@output_options
def predict(run: AnyPath, data: AnyPath, out: AnyPath, as_json: bool, **values: Any) -> None:
    """Predict DATA with MODEL, and write the predictions to OUT.

    MODEL is the folder of a run, or a file of its model, which gradreduce export writes. DATA is a
    dataset, a file of a table, or one of libsvm's format. OUT is a file if its name ends in
    .parquet, .arrow, .feather or .csv, else a folder of Parquet files. There is a row for each
    example, in the order of the files that DATA comes from. The first columns are row (the number
    of the example, from 0), the id, under the name of its column (if DATA has ids), label (for a
    dataset with labels), and the columns of a file that --keep names. Then prediction follows, and
    for a classifier probability, and probabilities: a list with a number for each class, in the
    order of gradreduce.classes in the metadata of the file. With --probability-of, a class has a
    column of its own, also in a text file, which holds no lists. The outputs of a --layer come
    last, as features.

    If you stop the command, run it again to complete the predictions: the predictions of a file OUT
    wait in a hidden folder beside OUT.
    """
    pin_profile(run)
    from mapreduce.inference import using

    with _request(run, data, values, out) as request:
        rows = using.predict(request)
    _say(rows, out, as_json)


@click.command(cls=GroupedCommand)
@_MODEL
@click.argument("data", type=LOCATION)
@click.argument("out", type=LOCATION)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    help="Workers of this command.  [default: one per core]",
)
@click.option(
    "--patience",
    type=Seconds(0, 86_400),
    default=30.0,
    show_default=True,
    help="Seconds without a sign of life of a worker, after which others take its part; 0 for no "
    "leases, so that several workers may predict one part.",
)
@add_options((flags.DEVICE,))
@_column_options
@_reading
@trust_option
@output_options
def swarm(
    run: AnyPath,
    data: AnyPath,
    out: AnyPath,
    workers: int | None,
    patience: float,
    as_json: bool,
    **values: Any,
) -> None:
    """Predict DATA with MODEL into the folder OUT, by workers that come and go.

    MODEL is the folder of a run, or a file of its model, which gradreduce export writes. DATA is a
    dataset, a file of a table, or one of libsvm's format. The same command, on this machine or on
    another that sees MODEL, DATA and OUT, adds workers at any time. A worker takes a part of the
    file, or a shard of the dataset, that no other worker has, and ends when none is left. If a
    worker is killed, another takes its part. gradreduce predict writes the same OUT, to the byte,
    and each of the two commands continues what the other has begun.
    """
    pin_profile(run)
    from mapreduce.inference.swarm import driver
    from mapreduce.support.cores import available_cores

    with _request(run, data, {**values, "runner": "inline"}, out) as request:
        rows = driver.predict(request, workers=workers or available_cores(), patience=patience)
    _say(rows, out, as_json)


@click.command(cls=GroupedCommand)
@_MODEL
@click.option("--to", "out", type=LOCATION, required=True, help="File .npz, .safetensors or .onnx.")
@moved_data_option
@remote_data_option
@trust_option
@json_option
def export(run: AnyPath, out: AnyPath, data: AnyPath | None, as_json: bool, **values: Any) -> None:
    """Write MODEL, the folder of a run, into a file: its parameters by name, for other programs.

    A file .safetensors is a model, too, which evaluate, predict and swarm take without the run. A
    file .onnx is a graph, by which other programs predict: it takes the columns of a table.

    For a linear model, files .npz and .safetensors have coef_ and intercept_ in scikit-learn's
    shapes, for features that are not standardised; and, if the model has them, classes_,
    feature_names, mean_ and scale_.
    """
    pin_profile(run)
    from mapreduce.errors import UsageError
    from mapreduce.runs.fits import model_path
    from mapreduce.runs.models import is_file
    from mapreduce.training.export import ONNX, described
    from mapreduce.training.export import export as write

    if is_file(run := model_path(run)):
        if data is not None:
            raise UsageError(f"--data: {run} is the file of a model, which needs no data")
        fitted = _load_model(run, values)
    else:
        directory = open_run(run, None if data else values["remote_data"], values["trust"])
        fitted = described(directory, data and data.absolute(), out=out)
    arrays = write(fitted, out.absolute())
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    said = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    if out.name.endswith(ONNX):
        from mapreduce.training.onnx.graph import signature

        said = signature(out.read_bytes())
    if as_json:
        print_json({"out": str(out), "shapes": shapes})
    else:
        echo(f"{out}: {said}")


def _evaluated(
    run: AnyPath, data: AnyPath | None, moved: AnyPath | None, named: tuple[str, ...]
) -> AnyPath:
    """The data to report on: those given, or the run's own, compared with their digest."""
    from mapreduce.data.shards import Dataset
    from mapreduce.errors import DataError, UsageError
    from mapreduce.plan.fitting import check_fits
    from mapreduce.runs import checkpoint
    from mapreduce.runs.directory import RunDir
    from mapreduce.runs.fits import model_path
    from mapreduce.runs.models import is_file
    from mapreduce.training.creating import check_data
    from mapreduce.training.start import require_named

    if data is not None:
        if moved is not None:
            raise UsageError(f"{data} and --data {moved}: name data of your own, or moved ones")
        return data
    if is_file(run := model_path(run)):
        raise UsageError(f"{run} is the file of a model, without data: name DATA to report on")
    directory = RunDir(run.absolute())
    config = directory.config
    if config.evaluation is None or config.plan.eval_sha256 is None:
        raise UsageError(f"{run} was trained without --eval: name DATA to report on")
    if moved is None:
        require_named(directory, named)
    place = path_of(config.evaluation) if moved is None else moved.absolute()
    if moved is not None:
        manifest = Dataset(place).manifest
        check_fits(manifest, place, checkpoint.untrained(directory).data, f"--data {moved}")
        if manifest.sha256 != config.plan.eval_sha256:
            raise DataError(
                f"--data {moved}: expected the evaluation data of the run at another place, of the "
                f"sha256 {config.plan.eval_sha256:.16}…, found {manifest.sha256:.16}…. To report "
                f"on data of your own, leave --data out: "
                f"{command('gradreduce', 'evaluate', run, moved)}"
            )
    check_data(str(place), config.plan.eval_sha256)
    return place


def _say(rows: int, out: AnyPath, as_json: bool) -> None:
    """Say how many predictions were written."""
    if as_json:
        print_json({"rows": rows, "out": str(out)})
    else:
        echo(f"{out}: {count(rows, 'prediction')}")


def _load_model(run: AnyPath, values: dict[str, Any]) -> "FittedModel":
    from mapreduce.models.fitted import FittedModel
    from mapreduce.runs import checkpoint
    from mapreduce.runs.fits import model_path
    from mapreduce.runs.models import is_file
    from mapreduce.support import trust

    quiet_mrjob()
    trusted = values.pop("trust")
    if not is_file(run := model_path(run)):
        return checkpoint.fitted(open_run(run, None, trusted))
    trust.trust(*trusted)
    fitted = FittedModel.load(run.absolute())
    warn_of_changes(fitted.changed_sources(), "the model was trained: the same rows")
    return fitted


@contextlib.contextmanager
def _request(
    run: AnyPath, data: AnyPath, values: dict[str, Any], out: AnyPath = Path()
) -> Iterator["Request"]:
    """What a command asks of a model; signals interrupt what is done with it."""
    from mapreduce.inference.predictor import extras_of
    from mapreduce.inference.request import Request
    from mapreduce.plan.settings import device_of
    from mapreduce.support import signals

    def tell(text: str) -> None:
        if not values["quiet"]:
            echo(text, err=True)

    def warn(text: str) -> None:
        echo(f"warning: {data}: {text}", err=True)

    names = ("id", "keep", *(row.name for row in (*_READING, *_LINES, *_MISSING)))
    reading = {name: values.pop(name) for name in names if name in values}
    layer, classes = values.pop("layer", None), values.pop("probability_of", ())
    fitted, device = _load_model(run, values), device_of(values.pop("device"))
    how = flags.execution(values), out, device, reading, extras_of(fitted, layer, classes)
    with signals.interrupting():
        yield Request(fitted, data, *how, tell=tell, warn=warn)
