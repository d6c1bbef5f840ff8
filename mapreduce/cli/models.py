"""``gradreduce models``: the models that can be trained, and the layers of a network."""

import math
from typing import Any

import click

from hdfs_utils.paths import AnyPath
from mapreduce.cli.common import LOCATION, json_option, print_json
from mapreduce.report.text import aligned
from mapreduce.support import options, trust
from mapreduce.support.printable import echo


@click.group()
def models() -> None:
    """List models and layers, and show the layers of a network."""


@models.command("list")
def list_() -> None:
    """List the models and the layers that --model takes, with their forms."""
    from mapreduce.models import FITS, LAYERS, MODELS, NETWORKS

    echo("Models:")
    for name in MODELS.members:
        if name != "sequential":
            echo(f"  {MODELS.forms.get(name, name)}")
    echo("\nModels that are fitted without gradients, and options that may follow the names:")
    for name, form in FITS.forms.items():
        echo(f"  {form}")
        for option, does in options.describe(FITS.find(name)):
            echo(f"    {option:22}{does}")
    echo("\nNetworks:")
    for name, spec in NETWORKS.items():
        echo(f"  {name} = {spec}")
    echo("\nLayers of a network LAYER[,LAYER...]:")
    for name in LAYERS:
        kind = LAYERS.find(name)
        where = "" if kind.on_cuda else "  (CPU alone)"
        echo(f"  {kind.form:44}{(kind.__doc__ or '').splitlines()[0].replace('``', '')}{where}")


@models.command()
@click.argument("spec")
@click.option("--data", type=LOCATION, required=True, help="Dataset that the model is for.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="Dtype of the parameters.",
)
@json_option
def show(spec: str, data: AnyPath, dtype: str, as_json: bool) -> None:
    """Show shapes, parameters, multiply-adds and bytes of the layers of SPEC.

    Multiply-adds are counted for the forward pass of a row; a gradient takes about three times as
    many. Bytes are counted for the parameters, and for a row that comes out of the layer. For a
    model that is no network, also for MODULE:NAME, the command shows the parameters and the
    options.
    """
    table, options = described(spec, data, dtype)
    is_network = "output" in table[0]
    if as_json:
        found = {"layers": table} if is_network else {"parameters": table, "options": options}
        print_json({"model": spec, **found})
        return
    counts = ("parameters", "work", "bytes") if is_network else ("parameters", "bytes")
    titles: tuple[str, ...] = ("parameter", "shape", "elements", "bytes")
    if is_network:
        titles = ("layer", "output", "parameters", "multiply-adds", "bytes", "bytes of a row")
    rows = [
        (
            f"{row['name']:8}{row['layer']}" if is_network else row["name"],
            " × ".join(map(str, row["output" if is_network else "shape"])),
            *(f"{row[name]:,}" for name in (*counts, *(["row_bytes"] if is_network else []))),
        )
        for row in table
    ]
    totals = (f"{sum(row[name] for row in table):,}" for name in counts)
    rows.append(("all", "", *totals, *([""] if is_network else [])))
    echo("\n".join(aligned([titles, *rows])))
    for option, text in options.items():
        echo(f"option :{option}  {text}")


def described(
    spec: str, data: AnyPath, dtype: str = "float32"
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The layers of a network for the rows of a dataset, or the parameters of another model.

    And the options that a model of one's own declares. The user has named it, and trusts it.

    Raises UsageError (the specification is malformed, or does not fit the data), MemberError.
    """
    from mapreduce.data.shards import Dataset
    from mapreduce.models import MODELS, create, find
    from mapreduce.models.layers.sequential import Sequential

    if ":" in (code := MODELS.code(spec)):
        trust.trust(code)
    manifest = Dataset(data).manifest
    classes = len(manifest.classes or ())
    kind = find(spec, "class" if classes else "number")
    model = create(spec, manifest.shape, classes, dtype)
    size, own = model.dtype.itemsize, dict(options.describe(kind.Options))
    if not isinstance(model, Sequential):
        sizes = [(one, math.prod(one.shape)) for one in model.parameters]
        return [
            {
                "name": one.name,
                "role": one.role,
                "shape": list(one.shape),
                "parameters": elements,
                "bytes": elements * size,
            }
            for one, elements in sizes
        ], own
    table = []
    for name, layer in model.stack.named():
        # The parameters of a residual block are those of its layers and of its shortcut.
        inner = getattr(layer, "inner", None)
        fresh = layer.parameters[len(inner.parameters) if inner else 0 :]
        parameters = sum(math.prod(one.shape) for one in fresh)
        table.append(
            {
                "name": name,
                "layer": str(layer) if inner is None else layer.name(),
                "output": list(layer.output),
                "parameters": parameters,
                "work": layer.work,
                "bytes": parameters * size,
                "row_bytes": math.prod(layer.output) * size,
            }
        )
    return table, own
