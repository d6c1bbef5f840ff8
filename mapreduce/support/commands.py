"""Command lines in messages: a shell takes them as they are, and what they remove is no loss."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from hdfs_utils.filesystem import is_remote
from hdfs_utils.paths import AnyPath, RemotePath, escaped, local_matching, matching
from hdfs_utils.publish import SUCCESS

#: What our jobs write into their output folder, and what filesystems add to it.
_OUTPUT = re.compile(rf"part-\d{{5,}}(\.\w+)?|{SUCCESS}|\..+\.crc")


def command(*words: object) -> str:
    """A command line, whose words are quoted where a shell needs that."""
    # A name that begins with a dash would be an option.
    texts = (f"./{x}" if isinstance(x, Path) and f"{x}".startswith("-") else f"{x}" for x in words)
    return shlex.join(texts)


def resume(run: AnyPath) -> str:
    """The command that continues a run."""
    return command("gradreduce", "resume", run)


def or_remove(folder: AnyPath, reads: Iterable[str], *remove: str) -> str:
    """Advice to remove an output folder by a command.

    There is none unless a job has finished the folder, nothing else is in it, and nobody works
    there. ``reads``: Paths and patterns of what the command reads, which must be something else.
    """
    if not folder.is_dir():
        return ""
    if isinstance(folder, RemotePath):
        entries = [(path.name, kind == "File") for path, kind, _ in folder.walk()]
        is_around = False
    else:
        entries = [(path.name, path.is_file()) for path in folder.iterdir()]
        is_around = Path.cwd().is_relative_to(folder.resolve())
    is_output = all(is_file and _OUTPUT.fullmatch(name) for name, is_file in entries)
    if is_around or not is_output or (SUCCESS, True) not in entries or is_read(folder, reads):
        return ""
    # Hadoop's programs read patterns.
    name = escaped(str(folder)) if isinstance(folder, RemotePath) else folder
    return f", or remove it first: {command(*remove, name)}"


def is_read(folder: AnyPath, reads: Iterable[str]) -> bool:
    """Whether what some paths and patterns stand for is a folder, lies in it or has it within."""
    place = _in_full(folder)
    texts = {part for text in reads for part in (text, text.partition("#")[0]) if part}
    for text in texts:
        if is_remote(text) == isinstance(folder, RemotePath):
            local = text.removeprefix("file://")
            paths = matching(text) if is_remote(text) else map(Path, local_matching(local))
            names = map(_in_full, paths)
            if any(name.startswith(place) or place.startswith(name) for name in names):
                return True
    return False


def _in_full(path: AnyPath) -> str:
    return f"{path.absolute().uri if isinstance(path, RemotePath) else path.resolve()}/"
