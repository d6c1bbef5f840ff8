"""``gradreduce data``: make, standardise, show and verify datasets."""

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce.cli import data_split
from mapreduce.cli.common import (
    FOLDER,
    LOCATION,
    add_options,
    json_option,
    output_options,
    print_json,
    quiet_mrjob,
    runner_options,
)
from mapreduce.cli.grouping import GroupedCommand
from mapreduce.data.readers import CSV_OPTIONS, IMPORT, READERS, TABLE_OPTIONS
from mapreduce.data.recipes.recipe import RECIPE
from mapreduce.errors import MemberError, UsageError
from mapreduce.report.text import aligned
from mapreduce.support import signals, traits, trust, unfinished
from mapreduce.support.options import pick
from mapreduce.support.printable import echo
from mapreduce.support.suggest import did_you_mean
from mapreduce.support.words import count

if TYPE_CHECKING:
    from mapreduce.data.importer import Source
    from mapreduce.data.manifest import Manifest

SEED = click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Seed of the order of the rows.",
)


@click.group()
def data() -> None:
    """Make, standardise, show and verify datasets.

    A dataset is a folder of Arrow files, the shards, and a manifest with their digests.
    """


data.add_command(data_split.split)


@data.command(cls=GroupedCommand)
@click.argument("out", type=LOCATION)
@SEED
@output_options
def digits(out: AnyPath, seed: int, quiet: bool, as_json: bool) -> None:
    """Write scikit-learn's digits to OUT/train (1,437 rows) and OUT/test (360 rows)."""
    from mapreduce.data import copying, importer
    from mapreduce.data.readers.digits import sources

    targets = {name: out / name for name in ("train", "test")}
    for target in targets.values():
        copying.check_absent(target)
    made = {}
    for name, source in sources().items():
        with copying.made_here(targets[name]) as folder:
            made[name] = importer.import_rows(source, folder, seed)
    if as_json:
        print_json({name: _described(manifest) for name, manifest in made.items()})
        return
    for name, manifest in made.items():
        _report(targets[name], manifest)


#: Options of an import that ``--help`` shows; ``--help-all`` shows all.
_COMMON = "recipe label id weights task drop missing header runner"


@data.command("import", cls=GroupedCommand, common=_COMMON)
@click.option(
    "--format", "kind", help=f"Format of SOURCES: {READERS.known}.  [default: as their names end]"
)
@add_options(IMPORT, defaults=False)
@click.option(
    "--unlabelled",
    is_flag=True,
    help="Import no labels; of a table, the label's column, if there is one, is left out.",
)
@click.option(
    "--split-by",
    type=click.Choice(["label"]),
    help="Give each shard rows of one class only, the uneven case of federated averaging: not for "
    "text, and not for numbers to be predicted.",
)
@SEED
@click.argument("sources", nargs=-1, required=True, type=LOCATION)
@click.argument("out", type=LOCATION)
@runner_options(defaults=False)
@output_options
def import_(
    kind: str | None,
    split_by: str | None,
    seed: int,
    sources: tuple[AnyPath, ...],
    out: AnyPath,
    quiet: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Import SOURCES, files or folders of them, gzipped or not, as the dataset OUT.

    The columns of tables become features: numbers are standardised, names and dates become features
    of 0 and 1, missing fields are filled. The command shows what each column becomes. This recipe
    is fitted to these data, and stored with the dataset and with each model that is trained on it.

    The rows are shuffled by --seed, in memory that does not grow with their number. With --split-by
    label, the rows of each class are shuffled by themselves.

    With -r, the tasks of map/reduce jobs read SOURCES, a table, and write OUT in place. The bytes
    are the same on every runner.
    """
    from mapreduce.data import copying, importer
    from mapreduce.data.manifest import load
    from mapreduce.data.readers import opening

    running = {name: values.pop(name) for name in ("runner", "workers", "start_method")}
    by_jobs = running["runner"] is not None
    is_far = by_jobs and split_by is None and isinstance(out, RemotePath)
    files = unfinished.files_of(sources, come_here=not (is_far and _runs_far(running)))
    kind = kind or opening.format_of(files, has_option=True)
    if ":" in kind:
        trust.trust(kind)
    _check_options(kind, values)
    if split_by is not None:
        _check_split(kind, values)
    like = load(values["like"]) if values["like"] else None
    classes, by_label = like.classes if like else None, split_by is not None
    copying.check_absent(out)
    with signals.interrupting():
        if by_jobs:
            source, manifest = _by_jobs(kind, files, values, like, running, out, seed, by_label)
        else:
            with copying.made_here(out) as folder:
                source = _source(kind, files, values, like)
                manifest = importer.import_rows(source, folder, seed, classes, by_label=by_label)
    recipe = opening.fitted_of(out, manifest)
    if not quiet and not as_json and recipe is not None:
        _show_recipe(recipe, manifest.classes)
    for remark in () if quiet else source.remarks:
        echo(remark, err=True)
    _report(out, manifest, as_json)


def _runs_far(values: dict[str, Any]) -> bool:
    """Whether tasks run on other machines, too."""
    return not traits.of(values["runner"] or "parallel").is_here


def _show_recipe(recipe: Any, classes: Sequence[object] | None) -> None:
    """What each column became."""
    given = recipe.recipe
    shown = "" if classes is None else f"{len(classes)} classes: {', '.join(map(str, classes[:8]))}"
    shown += ", …" * (classes is not None and len(classes) > 8)
    rows = [
        (name, what, note)
        for name, what, note in (
            (given.label, f"label, {given.task}", shown),
            (given.weights, "weight", ""),
            (given.id, "id", ""),
        )
        if name is not None
    ]
    for column in recipe.columns:
        count = column.width if recipe.recipe.hash_bits is None else 1
        many = f" -> {count} features" if count > 1 else ""
        kind = column.kind.replace("date:", "date ").replace("@", ", ")
        rows.append((column.name, kind + many, column.note))
    rows += [(name, "left out", why) for name, why in sorted(recipe.left_out.items())]
    most = 60
    for line in aligned(rows, 3)[:most]:
        echo(f"  {line}")
    if len(rows) > most:
        echo(f"  … {len(rows) - most} more columns")


def _check_options(kind: str, values: dict[str, Any]) -> None:
    """Refuse options that contradict the format or each other."""
    takes = _options_of(kind)
    for name, value in values.items():
        is_chosen = value not in (None, ())
        if is_chosen and name != "unlabelled" and name not in takes:
            flag = "--" + name.replace("_", "-")
            kinds = ", ".join(other for other in READERS if name in _options_of(other))
            raise UsageError(f"{flag} is for {kinds}, not for {kind}")
    if "labels" in takes and (values["labels"] is None) != values["unlabelled"]:
        raise UsageError(f"{kind} needs either --labels FILE or --unlabelled")
    if values["drop"] and values["columns"]:
        raise UsageError("--drop and --columns contradict each other: name the columns once")
    for name in ("label", "task"):
        if values[name] is not None and values["unlabelled"]:
            raise UsageError(f"--{name} and --unlabelled contradict each other")


def _check_split(kind: str, values: dict[str, Any]) -> None:
    """Refuse to split by label what has no classes, before anything is read."""
    why = None
    if values["unlabelled"]:
        why = "--unlabelled leaves the labels out"
    elif values["task"] == "regression":
        why = "with --task regression labels are numbers, not classes"
    elif "sequence" in _options_of(kind):
        why = f"the labels of {kind} are the bytes that come next, not classes of rows"
    if why:
        raise UsageError(f"--split-by label needs classes, and {why}. Leave --split-by out")


def _options_of(kind: str) -> set[str]:
    """The options that a reader takes, by the names of its parameters."""
    found = set(signature(READERS.load(kind)).parameters) - {"paths", "labelled"}
    if "recipe" in found:
        found |= {row.name for row in TABLE_OPTIONS}
        found |= {*CSV_OPTIONS} if kind != "parquet" else set()
    return found


def _source(
    kind: str,
    sources: list[AnyPath],
    values: dict[str, Any],
    like: "Manifest | None",
) -> "Source":
    from mapreduce.data.readers import opening

    labelled = not values["unlabelled"]
    reader = READERS.load(kind)
    takes = signature(reader).parameters
    if "recipe" in takes:
        return opening.table(sources, kind, *_recipes(sources, values, like))
    # A reader that takes "labelled" needs a task in any case.
    known = "classification" if labelled or "labelled" in takes else None
    chosen = {name: value for name, value in values.items() if value is not None}
    given = {row.name: row.default for row in IMPORT} | chosen
    given |= {"labelled": labelled, "task": values["task"] or known}
    for name, parameter in [*takes.items()][1:]:
        is_many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name not in given and parameter.default is parameter.empty and not is_many:
            raise MemberError(
                f"--format {kind}: its parameter {name} is no option of gradreduce data import: "
                f"expected one of {', '.join(given)}.{did_you_mean(name, given)}"
            )
    source: Source = reader(sources, **{name: given[name] for name in given if name in takes})
    return source


def _recipes(
    sources: list[AnyPath], values: dict[str, Any], like: "Manifest | None"
) -> tuple[Any, Any]:
    """What is to become of a table, and the recipe to take as it is, or None."""
    from mapreduce.data.readers import opening

    fitted = opening.fitted_of(values["like"], like) if like is not None else None
    _check_like(fitted, values)
    given = {**values, "labelled": False if values["unlabelled"] else None}
    given["only"] = values["columns"]
    return opening.recipe_of(given, sources, fitted), fitted


def _by_jobs(
    kind: str,
    sources: list[AnyPath],
    values: dict[str, Any],
    like: "Manifest | None",
    running: dict[str, Any],
    out: AnyPath,
    seed: int,
    by_label: bool,
) -> "tuple[Source, Manifest]":
    quiet_mrjob()
    from mapreduce.data.readers import TABLES, opening
    from mapreduce.data.readers.reading import Reading
    from mapreduce.runs import flags as options
    from mapreduce.tables.shuffle import import_table

    if kind not in TABLES:
        raise UsageError(f"-r is for tables, whose columns have to be fitted, not for {kind}")
    execution = options.execution({n: value for n, value in running.items() if value is not None})
    recipe, fitted = _recipes(sources, values, like)
    table = opening.open_table(sources, kind, recipe, fitted)
    reading = Reading(table, recipe, fitted)
    classes = like.classes if like else None
    manifest = import_table(reading, out, seed, execution, classes, by_label=by_label)
    return reading.source, manifest


def _check_like(fitted: Any, values: dict[str, Any]) -> None:
    """Refuse to make features by a recipe, and otherwise than by this recipe."""
    if values["like"] is None:
        return
    if fitted is None:
        raise UsageError(f"--like {values['like']}: it was not imported from a table")
    own = {"label", "id", "weights", "drop", "na", "missing_label", *CSV_OPTIONS}
    for name in sorted({row.name for row in TABLE_OPTIONS} - own):
        if values[name] not in (None, ()):
            raise UsageError(
                f"--{name.replace('_', '-')} and --like contradict each other: the features are "
                f"those of {values['like']}"
            )


def _report(folder: AnyPath, manifest: "Manifest", as_json: bool = False, **more: object) -> None:
    if as_json:
        print_json({**_described(manifest), **more})
        return
    echo(
        f"{folder}: {count(manifest.rows, 'row')} of {count(manifest.features, 'feature')} in "
        f"{count(len(manifest.shards), 'shard')}"
    )


@data.command(cls=GroupedCommand)
@click.option(
    "--format", "kind", help="Format of FILES: csv or parquet.  [default: as their names end]"
)
@click.option("--label", help="Column to be predicted: others that give it away are named.")
@add_options(pick(RECIPE, "na", group="Options"), defaults=False)
@add_options(pick(RECIPE, *CSV_OPTIONS), defaults=False)
@click.argument("files", nargs=-1, required=True, type=LOCATION)
@runner_options()
@json_option
def describe(
    kind: str | None, files: tuple[AnyPath, ...], label: str | None, as_json: bool, **values: Any
) -> None:
    """Describe the columns of FILES, or folders of them: tables in CSV or Parquet.

    The command prints types, missing and different values, ranges and most frequent values. It also
    prints what to look at before a training: ids, columns that give the label away, scales that
    differ. A map/reduce job reads all rows.
    """
    quiet_mrjob()
    from mapreduce.data.columns import column_of
    from mapreduce.data.readers import opening
    from mapreduce.data.recipes import description
    from mapreduce.runs import flags as options
    from mapreduce.tables import summarise

    paths = unfinished.files_of(files, come_here=not _runs_far(values))
    kind, recipe = opening.request(paths, values, kind=kind)
    with signals.interrupting():
        execution = options.execution(values)
        total, kinds, first = summarise.described(paths, kind, recipe, execution, label)
        own = None if label is None else column_of(label, first)
        leaks = {} if own is None else description.leaks(first, own)
        found = description.describe(total, kinds, leaks)
    if as_json:
        print_json(found)
    else:
        echo(description.as_text(found))


@data.command(cls=GroupedCommand)
@click.argument("folder", metavar="DATA", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option("--like", type=FOLDER, help="Take the statistics of this standardised dataset.")
@click.option(
    "--per-channel",
    is_flag=True,
    help="Take one mean and one deviation for each channel of images.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="Dtype of the standardised features.",
)
@runner_options()
@output_options
def standardise(
    folder: Path,
    out: Path,
    like: Path | None,
    per_channel: bool,
    dtype: str,
    as_json: bool,
    **values: Any,
) -> None:
    """Make the dataset OUT of DATA, with each feature standardised.

    The mean of each feature is subtracted, and the feature divided by its population standard
    deviation. Features of sparse data are only divided, so that they stay sparse. A constant
    feature is not divided. Rows count by their weights, if they have any.

    Images, rows of the shape (channels, height, width) or (height, width), are standardised by
    channel with --per-channel, so that neighbouring positions stay comparable.

    Standardise test data --like the training data, to use the same means and deviations.
    """
    quiet_mrjob()
    from mapreduce.runs import flags as options
    from mapreduce.tables import standardise as job

    execution = options.execution(values)
    with signals.interrupting():
        manifest, statistics = job.standardise(
            folder.absolute(),
            out.absolute(),
            dtype,
            execution,
            like and like.absolute(),
            per_channel,
        )
    constant = statistics.constant.tolist()
    if constant:
        shown = ", ".join(map(str, constant[:8])) + (", …" if len(constant) > 8 else "")
        echo(
            f"warning: {len(constant)} of {manifest.features:,} features are constant, and not "
            f"divided: {shown} (counted from 0)",
            err=True,
        )
    _report(out, manifest, as_json, constant=constant)


@data.command("copy")
@click.argument("source", type=LOCATION)
@click.argument("out", type=LOCATION)
@output_options
def copy(source: AnyPath, out: AnyPath, quiet: bool, as_json: bool) -> None:
    """Copy the dataset SOURCE to OUT, comparing every file with its digest.

    Both may be paths or URIs: hdfs://, webhdfs://, s3://.

    \b
    gradreduce data copy demo/data/train hdfs:///data/train
    """
    from mapreduce.data import copying

    def report(name: str) -> None:
        if not quiet and not as_json:
            echo(name, err=True)

    manifest = copying.copy(source, out, report)
    _report(out, manifest, as_json)


@data.command()
@click.argument("folder", type=LOCATION)
@json_option
def show(folder: AnyPath, as_json: bool) -> None:
    """Show rows, features, labels and origin of the dataset FOLDER."""
    from mapreduce.data.manifest import load

    content = _described(load(folder))
    if as_json:
        print_json(content)
        return
    for name, value in content.items():
        echo(f"{name:14}{f'{value:,}' if type(value) is int else value}")


def _described(manifest: "Manifest") -> dict[str, Any]:
    names = "rows features shape layout nonzeros dtype scale target classes class_rows weighted"
    content = {name: getattr(manifest, name) for name in f"{names} seed source sha256".split()}
    lists = {name: list(value) for name, value in content.items() if isinstance(value, tuple)}
    return {
        **content,
        **lists,
        "shards": len(manifest.shards),
        "bytes": sum(shard.bytes for shard in manifest.shards),
        "standardised": manifest.standardised is not None,
        "columns": None if manifest.columns is None else list(manifest.columns),
    }


@data.command()
@click.argument("folder", type=LOCATION)
@output_options
def verify(folder: AnyPath, quiet: bool, as_json: bool) -> None:
    """Compare every byte of the dataset FOLDER with its digests."""
    from mapreduce.data.shards import Dataset

    dataset = Dataset(folder)
    dataset.verify()
    shards = len(dataset.manifest.shards)
    if as_json:
        print_json({"shards": shards, "sha256": dataset.manifest.sha256})
    else:
        echo(f"{folder}: {shards} shards match their digests")
