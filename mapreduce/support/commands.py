"""Command lines in messages: a shell takes them as they are, and what they remove is no loss."""

import re
import shlex
from pathlib import Path

from hdfs_utils.paths import AnyPath

#: What jobs write into their output folder, and what filesystems add to it.
_OUTPUT = re.compile(r"part-[\w.-]+|_SUCCESS|_logs|\..+\.crc")


def command(*words: object) -> str:
    """A command line, whose words are quoted where a shell needs that."""
    # A name that begins with a dash would be an option.
    texts = (f"./{x}" if isinstance(x, Path) and f"{x}".startswith("-") else f"{x}" for x in words)
    return shlex.join(texts)


def resume(run: AnyPath) -> str:
    """The command that continues a run."""
    return command("gradreduce", "resume", run)


def or_remove(folder: AnyPath, *remove: str) -> str:
    """Advice to remove an output folder by a command, if nothing else is in it."""
    is_around = isinstance(folder, Path) and Path.cwd().is_relative_to(folder.resolve())
    if is_around or not folder.is_dir():
        return ""
    if not all(_OUTPUT.fullmatch(path.name) for path in folder.iterdir()):
        return ""
    return f", or remove it first: {command(*remove, folder)}"
