"""``gradreduce optimizers`` and ``strategies``: what there is to choose from, and its options."""

import textwrap
from collections.abc import Sequence
from typing import Any

import click

from mapreduce.cli.common import json_option, print_json
from mapreduce.support import options
from mapreduce.support.printable import echo
from mapreduce.support.registry import Registry

#: Members: those of one's own, MODULE:NAME, may be imported since the user names them.
_names = click.argument("names", nargs=-1, metavar="[NAME]...")


@click.command()
@_names
@json_option
def optimizers(names: Sequence[str], as_json: bool) -> None:
    """List the optimizers, and the options that each takes, as in adam:beta1=0.8,beta2=0.99."""
    from mapreduce.optim import OPTIMIZERS
    from mapreduce.plan.flags import PLAN

    found = {}
    for name, member in _members(OPTIMIZERS, names):
        flags = [one.flag for one in PLAN if one.name in member.takes]
        found[name] = {"options": flags, "own": _own(member)}
    _show(found, as_json)


@click.command()
@_names
@json_option
def strategies(names: Sequence[str], as_json: bool) -> None:
    """List the strategies: what travels, who waits for whom, and when to use which."""
    from mapreduce.plan.flags import PLAN
    from mapreduce.plan.strategies import OPTIMIZING, STRATEGIES

    found = {}
    for name, kind in _members(STRATEGIES, names):
        flags = [one.flag for one in PLAN if one.name in {*kind.takes} - {*OPTIMIZING}]
        found[name] = {
            "travels": kind.travels,
            "waits": kind.waits,
            "use": kind.use,
            "options": flags,
            "own": _own(kind),
        }
    _show(found, as_json)


def _members(family: Registry, own: Sequence[str]) -> list[tuple[str, Any]]:
    """The toolkit's members, those of packages, and those that are named; or the latter alone."""
    return [family.named(spec) for spec in own or family.members]


def _own(member: object) -> dict[str, str]:
    return dict(options.describe(getattr(member, "Options", None)))


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for name, about in found.items():
        echo(name)
        for title, text in about.items():
            if isinstance(text, dict):
                for option, does in text.items():
                    _line(f":{option}", does, 24)
            elif text:
                _line(title, " ".join(text) if isinstance(text, list) else str(text), 8)


def _line(title: str, text: str, width: int) -> None:
    lines = textwrap.wrap(text, 88 - width, break_on_hyphens=False)
    echo(f"  {title:{width}} " + f"\n{'':{width + 3}}".join(lines))
