"""Makes texts of unknown origin safe for a terminal."""

import logging
import os
import re
import sys

#: What a terminal would obey, or show in another order, and surrogates, which cannot be encoded.
#: Line feeds and tabs are fine.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Lines of text for a terminal, where commands to the terminal are shown and not obeyed."""
    return _COMMANDS.sub(lambda found: repr(found[0])[1:-1], text)


def echo(message: object = "", *, err: bool = False, nl: bool = True, erase: bool = False) -> None:
    """Print what people read; with ``erase``, over what stands in the last line."""
    # Tasks on a node may lack it.
    import click

    click.echo(("\r\x1b[K" if erase else "") + visible(str(message)), err=err, nl=nl)


def drop_output() -> None:
    """Send standard output to nowhere, so that Python's flush at its end does not fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


class Record(logging.LogRecord):
    """A message of a log, as a terminal may have it."""

    def getMessage(self) -> str:
        """The text."""
        return visible(super().getMessage())


def printable(text: str) -> str:
    """A text as part of one line: unlike :func:`visible`, it shows line feeds and tabs, too."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
