"""Commands with many options: ``--help`` shows the common ones, ``--help-all`` all, in groups."""

import contextlib
from collections import Counter
from typing import Any

import click

from mapreduce.errors import GradreduceError
from mapreduce.support import options
from mapreduce.support.printable import echo
from mapreduce.support.registry import Registry

#: In the ``meta`` of a context: whether help shows all options, and values as the user wrote them.
SHOW_ALL, GIVEN = "mapreduce.cli.grouping.show_all", "mapreduce.cli.grouping.given"


class GroupedOption(click.Option):
    """An option that stands under a heading of the help.

    ``declared``: The declaration, if the option is of a table.
    """

    def __init__(
        self, *args: Any, group: str = "", declared: options.Option | None = None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.declared = declared
        self.group = declared.group if declared else group
        self.family = declared.family if declared else None


class GroupedCommand(click.Command):
    """A command whose help has a heading for each group of options.

    Those without a group come first. If there are ``common`` ones, names of parameters with spaces
    between, ``--help`` shows no others beside them. Where an option names a member of a family, as
    ``--optimizer`` does, that member's own options come last. An option of one value is an error
    where it comes twice, since one of them would not count.
    """

    def __init__(self, *args: Any, common: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.common = common.split()
        if common:
            show_all = click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show all options, in groups, and exit.",
            )
            self.params.append(show_all)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Before click does: help is shown while it looks at the first options.
        ctx.meta[GIVEN], _, order = self.make_parser(ctx).parse_args([*args])
        for one, count in Counter(order).items():
            takes_many = not isinstance(one, click.Option) or one.multiple or one.is_flag
            if count > 1 and not takes_many:
                expected = f"expected it once, found it {count} times"
                raise click.UsageError(f"{one.opts[-1]}: {expected}. It takes one value", ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        is_short = self.common and not ctx.meta.get(SHOW_ALL)
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            group = getattr(param, "group", "Options")
            if is_short and group != "Options":
                if param.name not in self.common:
                    continue
                group = "Options"
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                groups.setdefault(group, []).append(record)
        for param in self.get_params(ctx):
            spec = ctx.meta.get(GIVEN, {}).get(param.name)
            if isinstance(param, GroupedOption) and param.family is not None and spec:
                groups |= _own_options(param.family, spec)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _own_options(family: Registry, spec: str) -> dict[str, list[tuple[str, str]]]:
    """The options that a member declares which the user has named; none if it cannot be found."""
    with contextlib.suppress(GradreduceError):
        name, member = family.named(spec)
        rows = options.describe(getattr(member, "Options", None))
        return {f"Options of {name}, as {name}:NAME=VALUE,...": rows} if rows else {}
    return {}


def _show_all(context: click.Context, parameter: click.Parameter, is_given: bool) -> None:
    if is_given:
        context.meta[SHOW_ALL] = True
        echo(context.get_help())
        context.exit()
