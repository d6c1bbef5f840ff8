"""``gradreduce data``: make, standardise, show and verify datasets."""

from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdfs_utils.paths import AnyPath
from mapreduce.cli import data_split
from mapreduce.cli.common import (
    FOLDER,
    LOCATION,
    json_option,
    output_options,
    print_json,
    quiet_mrjob,
    runner_options,
)
from mapreduce.data.readers import READERS
from mapreduce.support import trust

if TYPE_CHECKING:
    from mapreduce.data.importer import Source
    from mapreduce.data.manifest import Manifest

SEED = click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Of the order of the rows.",
)


@click.group()
def data() -> None:
    """Make, standardise, show and verify datasets.

    A dataset is a folder of Arrow files, the shards, and a manifest with their digests.
    """


data.add_command(data_split.split)


@data.command()
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


#: More different labels, most of which come once, are hardly classes.
MANY_CLASSES = 20


@data.command("import")
@click.option("--format", "kind", required=True, help=f"Format of SOURCES: {READERS.known}.")
@click.option("--labels", type=FOLDER, help="idx: the file of labels.")
@click.option("--label", help="csv, parquet: the column of labels. [default: label, else the last]")
@click.option("--weights", help="csv, parquet: the column that says how much each row counts.")
@click.option("--drop", help="csv, parquet: columns to leave out, joined by commas.")
@click.option(
    "--columns",
    help="parquet: the features' columns, joined by commas, or one of lists. [default: all others]",
)
@click.option(
    "--unlabelled",
    is_flag=True,
    help="Import no labels: csv, parquet: all columns are features; libsvm: labels are left out.",
)
@click.option(
    "--hash-bits",
    type=int,
    help="csv, parquet: hash the features, which may be texts, to 2**BITS sparse ones.",
    metavar="BITS",
)
@click.option(
    "--text", help="csv, parquet: columns to hash as texts, even if they look like numbers."
)
@click.option(
    "--like",
    type=LOCATION,
    help="csv, parquet: take the columns' types, the classes and these options from this dataset, "
    "on which a model was trained.",
)
@click.option(
    "--header/--no-header",
    default=None,
    help="csv: whether the first line has the names. [default: if none of them is a number]",
)
@click.option(
    "--task",
    type=click.Choice(["classification", "regression"]),
    help="csv, libsvm, parquet: whether labels are classes or numbers. [default: classification]",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    help="csv, libsvm, parquet: how features are stored. [default: float32]",
)
@click.option(
    "--features", type=int, help="libsvm: how many there are. [default: as the largest index says]"
)
@click.option("--zero-based", is_flag=True, help="libsvm: the first feature has the index 0.")
@SEED
@click.argument("sources", nargs=-1, required=True, type=FOLDER)
@click.argument("out", type=LOCATION)
@output_options
def import_(
    kind: str,
    seed: int,
    sources: tuple[Path, ...],
    out: AnyPath,
    quiet: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Import SOURCES, gzipped or not, as the dataset OUT.

    The rows are shuffled by --seed, in two passes over the sources, so that the memory needed does
    not grow with their size.
    """
    from mapreduce.data import copying, importer
    from mapreduce.data.manifest import load
    from mapreduce.support import signals

    if ":" in kind:
        trust.trust(kind)
    _check_options(kind, values)
    like = load(values["like"]) if values["like"] else None
    with signals.interrupting(), copying.made_here(out) as folder:
        source = _source(kind, list(sources), values, like)
        manifest = importer.import_rows(source, folder, seed, like.classes if like else None)
    if not quiet and (hint := _hint(manifest)):
        click.echo(f"warning: {hint}", err=True)
    _report(out, manifest, as_json)


def _hint(manifest: "Manifest") -> str | None:
    """A warning about what looks like a mistake, or None."""
    classes = manifest.classes or ()
    try:
        has_fractions = any(not float(label).is_integer() for label in classes)
    except (ValueError, OverflowError):
        # Some are names.
        return None
    hardly_twice = len(classes) > MANY_CLASSES and 2 * len(classes) > manifest.rows
    if not has_fractions and not hardly_twice:
        return None
    return (
        f"the labels are {len(classes):,} classes in {manifest.rows:,} rows. If they are numbers "
        f"to be predicted, import them with --task regression"
    )


def _check_options(kind: str, values: dict[str, Any]) -> None:
    """Refuse options that contradict the format or each other."""
    from mapreduce.errors import UsageError

    takes = _options_of(kind)
    for name, value in values.items():
        # False is given as --no-header.
        is_given = value is not None and (value is not False or name == "header")
        if is_given and name != "unlabelled" and name not in takes:
            flag = "--" + name.replace("_", "-")
            kinds = ", ".join(other for other in READERS if name in _options_of(other))
            raise UsageError(f"{flag} is for {kinds}, not for {kind}")
    if "labels" in takes and (values["labels"] is None) != values["unlabelled"]:
        raise UsageError(f"{kind} needs either --labels FILE or --unlabelled")
    if values["drop"] is not None and values["columns"] is not None:
        raise UsageError("--drop and --columns contradict each other: name the columns once")
    for name in ("label", "task"):
        if values[name] is not None and values["unlabelled"]:
            raise UsageError(f"--{name} and --unlabelled contradict each other")


def _options_of(kind: str) -> set[str]:
    """The options that a reader takes, by the names of its parameters."""
    found = {
        "text" if name == "as_texts" else name for name in signature(READERS.load(kind)).parameters
    }
    return found - {"paths", "labelled"}


def _source(
    kind: str, sources: list[Path], values: dict[str, Any], like: "Manifest | None"
) -> "Source":
    known = "regression" if like and like.target == "number" else "classification"
    labelled = not values["unlabelled"]
    reader = READERS.load(kind)
    takes = signature(reader).parameters
    task = (values["task"] or known) if labelled else None
    given = {
        **values,
        "labelled": labelled,
        # A reader that takes "labelled" needs a task in any case.
        "task": task or ("classification" if "labelled" in takes else None),
        "dtype": values["dtype"] or ("float64" if like and like.dtype == "float64" else "float32"),
        "columns": values["columns"].split(",") if values["columns"] is not None else None,
        "drop": values["drop"].split(",") if values["drop"] else [],
        "as_texts": values["text"].split(",") if values["text"] else [],
        "like": like and like.source,
    }
    source: Source = reader(sources, **{name: given[name] for name in given if name in takes})
    return source


def _report(folder: AnyPath, manifest: "Manifest", as_json: bool = False, **more: object) -> None:
    if as_json:
        print_json({**_described(manifest), **more})
        return
    shards = len(manifest.shards)
    click.echo(
        f"{folder}: {manifest.rows:,} rows of {manifest.features:,} features in "
        f"{shards} shard{'s' if shards > 1 else ''}"
    )


@data.command()
@click.argument("folder", metavar="DATA", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option("--like", type=FOLDER, help="Take the statistics of this standardised dataset.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="Of the standardised features.",
)
@runner_options()
@output_options
def standardise(
    folder: Path, out: Path, like: Path | None, dtype: str, as_json: bool, **values: Any
) -> None:
    """Make the dataset OUT of DATA, with each feature standardised.

    The mean of each feature is subtracted, and the feature divided by its population standard
    deviation. Features of sparse data are only divided, so that they stay sparse. A constant
    feature is not divided. Rows count by their weights, if they have any.

    Standardise test data --like the training data, to use the same means and deviations.
    """
    quiet_mrjob()
    from mapreduce.algorithms import standardise as job
    from mapreduce.runs import flags as options
    from mapreduce.support import signals

    execution = options.execution(values)
    with signals.interrupting():
        manifest, statistics = job.standardise(
            folder.absolute(), out.absolute(), dtype, execution, like and like.absolute()
        )
    constant = statistics.constant.tolist()
    if constant:
        shown = ", ".join(map(str, constant[:8])) + (", …" if len(constant) > 8 else "")
        click.echo(
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
            click.echo(name, err=True)

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
        click.echo(f"{name:14}{f'{value:,}' if type(value) is int else value}")


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
        "columns": None if manifest.columns is None else dict(manifest.columns),
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
        click.echo(f"{folder}: {shards} shards match their digests")
