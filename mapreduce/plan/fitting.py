"""Whether data fit those that a model was trained on; if not, where they differ first."""

from collections.abc import Iterable
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from hdfs_utils.paths import AnyPath
from mapreduce.data.columns import misfit
from mapreduce.data.manifest import Listed, Manifest, Standardised
from mapreduce.errors import DataError
from mapreduce.models.fitted import TrainedOn
from mapreduce.plan.plan import Plan
from mapreduce.support.commands import command

if TYPE_CHECKING:
    from mapreduce.data.recipes.fitted import FittedRecipe


def check_evaluation(
    data: Manifest, folder: AnyPath, plan: Plan, training: Manifest, place: AnyPath
) -> None:
    """Refuse evaluation data in ``folder`` that do not fit the training data in ``place``."""
    where = f"--eval {folder}"
    classes = training.classes or ()
    trained_on = TrainedOn(
        str(place),
        str(place),
        plan.data.features,
        training.shape,
        classes,
        plan.data.shape,
        training.columns,
        plan.data.standardised,
        plan.data.recipe,
        lambda: _recipe(place, training),
    )
    check_fits(data, folder, trained_on, where)
    found, expected = (
        f"{one.layout} rows with {one.target or 'no'} labels" for one in (data, training)
    )
    if found != expected:
        raise DataError(
            f"{where}: expected {expected}, as the training data {place} have, found {found}. "
            f"Import both in the same way"
        )


def check_fits(
    data: Manifest, folder: AnyPath, trained_on: TrainedOn, where: str, *, takes_files: bool = False
) -> None:
    """Refuse data with a :class:`DataError` if a model cannot be used on them.

    ``folder`` is theirs, and ``where`` begins the message: the option and the path. ``takes_files``
    says whether the file of a table could stand there.
    """
    if wrong := (
        _other_features(data, folder, trained_on, takes_files)
        or _other_rows(data, trained_on)
        or _other_scales(data, trained_on)
    ):
        raise DataError(f"{where}: {wrong}")


def _other_features(
    data: Manifest, folder: AnyPath, trained_on: TrainedOn, takes_files: bool
) -> str | None:
    """How the features are others than those of the training data, by name or by origin."""
    place, recipe = trained_on.place, trained_on.recipe_sha256
    alike = "Name the file of a table with the same columns"
    if trained_on.folder is not None:
        alike = f"Import the table with {command('--like', trained_on.folder)}"
        alike += ", or name its file" * takes_files
    if wrong := misfit(data.columns, trained_on.columns):
        pairs = zip_longest(data.columns or (), trained_on.columns or ())
        number, (found, expected) = next(
            (number, pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1]
        )
        return (
            f"feature {number}: expected {_in_words(expected)}, as in the training data {place}, "
            f"found {_in_words(found)} ({wrong}). {alike}"
        )
    if digest(data.recipe) == recipe:
        return None
    # Loads much of Arrow, which tasks do without.
    from mapreduce.data.recipes.differences import first_difference

    theirs, ours = _recipe(folder, data), trained_on.recipe()
    if ours is None:
        return (
            f"expected {trained_on.features} features of no table, as in the training "
            f"data {place}, found {data.features} that a recipe has made of one. Import both in "
            f"the same way"
        )
    if theirs is None:
        return (
            f"expected {trained_on.features} features that the recipe of the training "
            f"data {place} has made of a table, found {data.features} of none. {alike}"
        )
    return (
        f"expected the features of the training data {place}, found others: "
        f"{first_difference(theirs, ours)}. {alike}"
    )


def _other_rows(data: Manifest, trained_on: TrainedOn) -> str | None:
    """How shapes or classes are others than those of the training data."""
    place, shape = trained_on.place, trained_on.image
    if data.features != trained_on.features:
        return (
            f"expected {trained_on.features} features, as in the training data {place} (examples "
            f"of the shape {trained_on.shape}), found {data.features} (shape {data.shape}). Import "
            f"the same features"
        )
    if shape is not None and len(data.shape) > 1 and _image(data.shape) != _image(shape):
        return (
            f"expected rows of the shape {shape}, channels first, as in the training data {place}, "
            f"found {data.shape}. Transpose them"
        )
    known = dict.fromkeys(trained_on.classes)
    unseen = [label for label in data.classes or () if label not in known]
    if unseen:
        # Loads Arrow, which tasks do without.
        from mapreduce.data.classes import number_advice

        return (
            f"expected classes of the training data {place}: {listing(map(repr, known))}; found "
            f"others: {listing(map(repr, unseen))}. Leave their rows out, or train on data that "
            f"have them{number_advice([*known])}"
        )
    return None


def _other_scales(data: Manifest, trained_on: TrainedOn) -> str | None:
    """How the features were standardised otherwise than those of the training data."""
    place, expected = trained_on.place, trained_on.standardised
    if digest(data.standardised) == expected:
        return None
    if expected is None:
        return (
            f"expected features that were not standardised, as in the training data {place}, found "
            f"standardised ones. Name the data that they were made of"
        )
    found = "others" if data.standardised else "none"
    advice = "Name data that were standardised like them"
    if trained_on.folder is not None:
        like = command("--like", trained_on.folder)
        advice = f"Use 'gradreduce data standardise DATA OUT {like}'"
    return (
        f"expected the means and deviations of the training data {place}, found {found}. {advice}"
    )


def _recipe(folder: AnyPath, data: Manifest) -> "FittedRecipe | None":
    from mapreduce.data.readers.opening import fitted_of

    return fitted_of(folder, data)


def _in_words(feature: str | None) -> str:
    return "none" if feature is None else repr(feature)


def _image(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A row's shape without an axis for a single channel; flat rows fit every shape."""
    return shape[1:] if len(shape) == 3 and shape[0] == 1 else shape


def listing(labels: Iterable[str]) -> str:
    """The first of some labels, for a message."""
    first = [*islice(labels, 6)]
    return ", ".join(first if len(first) < 6 else [*first[:5], "…"])


def digest(file: Listed | Standardised | None) -> str | None:
    """Digest of a file that lists how the features of a dataset were made."""
    return file.sha256 if file else None
