"""``gradreduce models``: the models that can be trained, and the layers of a network."""

import math
from typing import Any

import click

from hdfs_utils.paths import AnyPath
from mapreduce.cli.common import LOCATION, json_option, print_json
from mapreduce.support.printable import aligned, echo


@click.group()
def models() -> None:
    """List models and layers, and show the layers of a network."""


@models.command("list")
def list_() -> None:
    """List the models and the layers that --model takes, with their forms."""
    from mapreduce.models import LAYERS, MODELS, NETWORKS

    echo("Models:")
    for name in MODELS.members:
        if name != "sequential":
            echo(f"  {MODELS.forms.get(name, name)}")
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
@click.option("--data", type=LOCATION, required=True, help="Dataset that the network is for.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="Of the parameters.",
)
@json_option
def show(spec: str, data: AnyPath, dtype: str, as_json: bool) -> None:
    """Show shapes, parameters, multiply-adds and bytes of the layers of SPEC.

    Multiply-adds are those of the forward pass of a row; a gradient takes about three times as
    many. Bytes are those of the parameters, and of a row that comes out of the layer.
    """
    table = described(spec, data, dtype)
    if as_json:
        print_json({"model": spec, "layers": table})
        return
    titles = ("layer", "output", "parameters", "multiply-adds", "bytes", "bytes of a row")
    total = {name: sum(row[name] for row in table) for name in ("parameters", "work", "bytes")}
    rows = [
        (
            f"{row['name']:8}{row['layer']}",
            " × ".join(map(str, row["output"])),
            *(f"{row[name]:,}" for name in ("parameters", "work", "bytes", "row_bytes")),
        )
        for row in table
    ]
    rows.append(("all", "", *(f"{number:,}" for number in total.values()), ""))
    echo("\n".join(aligned([titles, *rows])))


def described(spec: str, data: AnyPath, dtype: str = "float32") -> list[dict[str, Any]]:
    """The layers of a network for the rows of a dataset."""
    from mapreduce.data.shards import Dataset
    from mapreduce.errors import UsageError
    from mapreduce.models import create, parse
    from mapreduce.models.layers.sequential import Sequential

    # Other models may be code that nobody needs to trust here.
    if parse(spec)[0] != "sequential":
        raise UsageError(f"{spec}: expected a network of layers, such as conv:16x5,relu,pool:2")
    manifest = Dataset(data).manifest
    model = create(spec, manifest.shape, len(manifest.classes or ()), dtype)
    assert isinstance(model, Sequential)
    size = model.dtype.itemsize
    table = []
    for name, layer in model.stack.named():
        # The parameters of a residual block are those of its layers and of its shortcut.
        inner = getattr(layer, "inner", None)
        own = layer.parameters[len(inner.parameters) if inner else 0 :]
        parameters = sum(math.prod(one.shape) for one in own)
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
    return table
