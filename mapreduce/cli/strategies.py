"""``gradreduce strategies``: what a round of each strategy means."""

import textwrap

import click

from mapreduce.cli.common import json_option, print_json
from mapreduce.support.printable import echo


@click.command()
@json_option
def strategies(as_json: bool) -> None:
    """List the strategies: what travels, who waits for whom, and when to use which."""
    from mapreduce.plan.flags import PLAN
    from mapreduce.plan.strategies import OPTIMIZING, STRATEGIES

    found = {}
    for name in STRATEGIES:
        kind = STRATEGIES.find(name)
        own = {*kind.takes} - {*OPTIMIZING}
        flags = [one.flag for one in PLAN if one.name in own]
        found[name] = {
            "travels": kind.travels,
            "waits": kind.waits,
            "use": kind.use,
            "options": flags,
        }
    if as_json:
        print_json(found)
        return
    for name, about in found.items():
        echo(name)
        for title, text in about.items():
            shown = " ".join(text) if isinstance(text, list) else text
            if shown:
                lines = textwrap.wrap(shown, 80, break_on_hyphens=False)
                echo(f"  {title:8} " + f"\n{'':11}".join(lines))
