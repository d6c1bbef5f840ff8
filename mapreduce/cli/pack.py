"""``gradreduce pack``: the packages that tasks need, for nodes that lack them."""

from pathlib import Path

import click


@click.command(context_settings={"max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--python", metavar="VERSION", help="Of the nodes, as 3.11. [default: this one's]")
@click.option("--platform", help="Of the nodes, as manylinux2014_x86_64. [default: this machine's]")
@click.option("--with", "more", multiple=True, metavar="PACKAGE", help="One more; may be repeated.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def pack(
    file: Path, python: str | None, platform: str | None, more: tuple[str, ...], quiet: bool
) -> None:
    """Pack NumPy, Numba and what else the toolkit needs into FILE, a .tar.gz.

    Nodes of a cluster need a Python and nothing else then. The versions are those that this Python
    has; they come by pip, as wheels.

    \b
    gradreduce pack packed.tar.gz --python 3.11
    gradreduce run path/job.py -r hadoop hdfs:///data --packed packed.tar.gz
    """
    from mapreduce.runners.hadoop import packing

    size = packing.pack(
        file, python, platform, more, lambda text: None if quiet else click.echo(text, err=True)
    )
    click.echo(f"{file}: {size / 2**20:,.1f} MiB. Ship it with: -r hadoop --packed {file}")
