"""A run that feeds another: what a layer of its model gives for a row is the row to learn from."""

from dataclasses import dataclass, replace

import numpy as np

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.data.batch import Array, Batch
from mapreduce.data.manifest import Manifest
from mapreduce.errors import DataError, UsageError
from mapreduce.inference.predictor import layer_of
from mapreduce.models import MODELS
from mapreduce.models.context import Context
from mapreduce.models.fed import TRUNK
from mapreduce.models.specification import Specification, Trunk
from mapreduce.plan.fitting import check_fits
from mapreduce.plan.settings import Settings, device_of
from mapreduce.runs.fits import model_path
from mapreduce.runs.models import fitted_at
from mapreduce.support.jsonfiles import build


@dataclass(frozen=True)
class Feeding:
    """The part of a model that turns rows into features.

    ``shape``: That of the rows as the trunk takes them; None for that of the data.
    ``params``: Its parameters by the names that they have in the model that is fed.
    """

    trunk: Trunk
    shape: tuple[int, ...] | None
    params: dict[str, Array]


def read(settings: Settings, data: Manifest, folder: AnyPath) -> Feeding:
    """The run and the layer that ``--features-from`` names, for the data in a ``folder``.

    Raises
    ------
    UsageError
        It names no layer of a model of the toolkit's own, or does not go with another option.
    MissingInputError
        There is no such run or file, or the run has no checkpoint.
    DataError
        The data are not made as those that the run was trained on, or its checkpoint is damaged.
    """
    where = f"--features-from {settings.features_from}"
    name, _, layer = (settings.features_from or "").rpartition(":")
    if not name or not layer or "/" in layer:
        raise UsageError(
            f"{where}: expected RUN:LAYER, the folder of a run or the file of its model, and the "
            f"name of a layer, such as {(settings.features_from or 'RUN').rstrip(':')}:-2 for the "
            f"last but the one to the classes"
        )
    _check_options(settings.decided(data.recipe is not None, data.target), where)
    fitted = fitted_at(model_path(path_of(name).absolute()))
    said = build(Specification, dict(fitted.options))
    kind = MODELS.split(said.model)[0]
    if said.trunk is not None:
        raise UsageError(
            f"{where}: the run is fed by another itself, and only one may feed one. Expected a run "
            f"that learned without --features-from"
        )
    if kind not in MODELS.builtin or kind in MODELS.carriers:
        raise UsageError(
            f"{where}: its model is {said.model:.60}, which is not the toolkit's own, so that the "
            f"new run could not do without its code. Expected a network of layers, such as "
            f"dense:64,relu, or mlp. Or write the outputs by 'gradreduce predict --layer' and "
            f"train on them"
        )
    layer = layer_of(fitted, layer, where)
    if data.layout == "sparse":
        raise DataError(
            f"{where}: {said.model:.60} takes only dense rows, the training data {folder} are "
            f"sparse. Import the table with --layout dense"
        )
    # What it knew need not be what is learned.
    known = replace(fitted.data, classes=data.classes or ())
    check_fits(data, folder, known, where)
    model, named = said.create("cpu"), dict(fitted.arrays)
    params = model.flat(named, fitted.path)
    row = Batch(np.zeros((1, model.features), model.dtype), None)
    trunk = Trunk(
        model=said.model,
        classes=said.classes,
        layer=layer,
        outputs=model.layer_outputs(params, row, Context(), layer).shape[1],
        model_sha256=fitted.model_sha256,
    )
    shape = said.shape if model.takes_shape else None
    return Feeding(trunk, shape, {TRUNK + one: named[one] for one in named})


def _check_options(settings: Settings, where: str) -> None:
    """Refuse options that do not go with it."""
    wrong = ""
    if MODELS.split(settings.model)[0] in MODELS.carriers:
        wrong = f"--model {settings.model:.60}, a PyTorch module. Take one of the toolkit's layers"
    elif settings.init_from is not None:
        wrong = "--init-from: the parameters of the new model begin by its seed. Leave out one"
    elif settings.precision == "mixed":
        wrong = "--precision mixed: layers compute in full precision. Take --precision full"
    elif device_of(settings.device) != "cpu":
        wrong = f"--device {settings.device}: it runs on the CPU alone. Take --device cpu"
    if wrong:
        raise UsageError(f"{where} does not go with {wrong}")
