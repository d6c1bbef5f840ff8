"""``gradreduce data split``: files to train on and files to test on."""

from typing import Any

import click

from hdfs_utils.paths import AnyPath
from mapreduce.cli.common import LOCATION, add_options, output_options, print_json
from mapreduce.cli.grouping import GroupedCommand
from mapreduce.data.readers import CSV_OPTIONS
from mapreduce.data.recipes.recipe import RECIPE
from mapreduce.support import signals, unfinished
from mapreduce.support.options import pick
from mapreduce.support.printable import echo
from mapreduce.support.words import count


@click.command("split", cls=GroupedCommand)
@click.argument("sources", metavar="FILE...", nargs=-1, required=True, type=LOCATION)
@click.argument("out", type=LOCATION)
@click.option("--test", default=0.2, show_default=True, help="Share of the rows to test on.")
@click.option("--validation", default=0.0, help="Share of the rows to validate on. [default: none]")
@click.option("--stratify", metavar="COLUMN", help="Split each class of COLUMN by itself.")
@click.option("--group", metavar="COLUMN", help="Keep rows of equal COLUMN together.")
@click.option("--time", metavar="COLUMN", help="Test on the rows that are the latest by COLUMN.")
@click.option("--id", metavar="COLUMN", help="Let COLUMN alone decide on a row's part.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Seed of the choice of rows.",
)
@add_options(pick(RECIPE, *(each for each in CSV_OPTIONS if each != "thousands")), defaults=False)
@output_options
def split(
    sources: tuple[AnyPath, ...], out: AnyPath, quiet: bool, as_json: bool, **options: Any
) -> None:
    """Split the tables FILE... into OUT/train.csv and OUT/test.csv, .tsv or .parquet.

    FILE may be a folder of files. Records of CSV files, gzipped or not, are copied byte by byte.
    The content of a row and --seed decide which part the row is in, not the order of files, rows or
    columns; equal rows are in one part.

    \b
    gradreduce data split table.csv parts --test 0.2 --stratify label
    """
    from mapreduce.data import splitting

    with signals.interrupting():
        rows = splitting.split(unfinished.files_of(sources), out, **options)
    if as_json:
        print_json({"rows": rows})
    elif not quiet:
        for name, number in rows.items():
            echo(f"{out / name}: {count(number, 'row')}")
