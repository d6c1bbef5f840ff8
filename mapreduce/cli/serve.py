"""``gradreduce serve``."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdfs_utils.paths import AnyPath, path_of
from mapreduce import __version__
from mapreduce.cli.common import FOLDER, Seconds, pin_profile, quiet_mrjob, trust_option
from mapreduce.support.printable import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mapreduce.serving.model import ServedModel

_LOCAL = "127.0.0.1"
_NAMED = re.compile(r"([\w.-]+)=(.+)")


def _place(text: str) -> tuple[str | None, AnyPath]:
    """The name of a model, if somebody gives it one, and its path."""
    if (named := _NAMED.fullmatch(text)) and not Path(text).exists():
        return named[1], path_of(named[2])
    return None, path_of(text)


def _seconds(name: str, default: float, what: str) -> Any:
    kind, text = Seconds(0.1, 86_400), f"Seconds {what}."
    return click.option(name, type=kind, default=default, show_default=True, help=text)


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="[NAME=]MODEL...")
@click.option(
    "--host", default=_LOCAL, show_default=True, help="Address to listen at; 0.0.0.0 for all."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8000,
    show_default=True,
    help="Port to listen at; 0 for one that is free.",
)
@click.option(
    "--workers", type=click.IntRange(1, 256), help="Processes that answer.  [default: one per core]"
)
@click.option(
    "--token-file",
    type=FOLDER,
    help="File of the token that requests must have, as 'Authorization: Bearer TOKEN'.",
)
@click.option("--no-token", is_flag=True, help="Serve other machines without a token.")
@click.option("--access-log", is_flag=True, help="Print a line for each answer.")
@_seconds("--header-seconds", 10.0, "for the header of a request to come")
@_seconds("--body-seconds", 60.0, "for the body of a request to come")
@_seconds("--answer-seconds", 60.0, "for a client to read an answer")
@click.option(
    "--connections",
    type=click.IntRange(1, 1 << 16),
    default=1024,
    show_default=True,
    help="Connections that a worker has open.",
)
@trust_option
def serve(models: tuple[str, ...], trust: tuple[str, ...], **values: Any) -> None:
    """Answer requests for predictions by each MODEL, over HTTP, until SIGTERM or SIGINT.

    MODEL is the folder of a run, or a file of its model, which gradreduce export writes. The name
    of a model is the last part of its path, or NAME. The protocol is the Open Inference Protocol,
    V2. A table, as CSV or as an Arrow stream, has the answer that gradreduce predict writes, to the
    byte. A page to try the models is at /.

    SIGHUP loads the last checkpoints anew; meanwhile no request is lost. Only this machine is
    served, unless --host names another address.
    """
    named = [_place(text) for text in models]
    pin_profile(named[0][1])
    from mapreduce.errors import UsageError
    from mapreduce.support.cores import available_cores

    try:
        from mapreduce.serving import http, workers
    except ImportError as error:
        raise UsageError(
            f"gradreduce serve needs {error.name}. Install it: pip install 'gradreduce[serve]'"
        ) from error
    quiet_mrjob()
    token = _token(values["host"], values.pop("token_file"), values.pop("no_token"))
    values["workers"] = values["workers"] or available_cores()
    settings = http.Settings(token=token, version=__version__, **values)
    workers.Service(lambda: _load(named, trust), settings, _tell).run()


def _tell(text: str) -> None:
    echo(text, err=True)


def _token(host: str, file: Path | None, is_open: bool) -> bytes | None:
    """The token that requests must have; None for none."""
    from hdfs_utils.atomic import storage_errors
    from mapreduce.errors import MissingInputError, UsageError

    if file is None:
        if host not in (_LOCAL, "localhost", "::1") and not is_open:
            raise UsageError(
                f"--host {host}: other machines can ask there. Say who may, by --token-file FILE, "
                f"or that all may, by --no-token"
            )
        return None
    if is_open:
        raise UsageError("--token-file and --no-token: name one of them")
    if not file.is_file():
        found = "a folder" if file.is_dir() else "nothing"
        raise MissingInputError(f"--token-file {file}: expected a file of a token, found {found}")
    with storage_errors("read", file):
        token = file.read_bytes().strip()
    if not re.fullmatch(rb"[!-~]{16,}", token):
        raise UsageError(
            f"--token-file {file}: expected 16 or more letters, digits and signs without spaces. "
            f"Make one with 'openssl rand -hex 32'"
        )
    return token


def _load(
    named: "list[tuple[str | None, AnyPath]]", trusted: tuple[str, ...]
) -> "Sequence[ServedModel]":
    """The models, each under a name of its own, all of one numeric profile."""
    from mapreduce.errors import UsageError
    from mapreduce.serving.model import load
    from mapreduce.support import trust

    trust.trust(*trusted)
    found: dict[str, ServedModel] = {}
    for name, path in named:
        model = load(path, name)
        if model.name in found:
            raise UsageError(
                f"{path}: another model is called {model.name}, too. Say NAME=PATH for one of them"
            )
        found[model.name] = model
    profiles = {model.fitted.numeric_profile: model.name for model in found.values()}
    if len(profiles) > 1:
        shown = ", ".join(f"{name} has {profile}" for profile, name in profiles.items())
        raise UsageError(
            f"one service computes by one numeric profile: {shown}. Start a service for each"
        )
    return [*found.values()]
