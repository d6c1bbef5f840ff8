"""Programs in the place of methods and in front of them: ``mapper_cmd``, ``reducer_pre_filter``."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mapreduce.errors import GradreduceError

_READ_BYTES = 1 << 20

#: Seconds for what a program has started to end after it.
_PATIENCE = 1.0


class CommandError(GradreduceError):
    """A program could not be started, or failed; ``stderr`` is what it wrote, if that was kept."""

    def __init__(self, message: str, stderr: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr


def piped(
    command: Sequence[str],
    blocks: Iterable[bytes],
    *,
    keep_stderr: bool = False,
    most_status: int = 0,
    env: dict[str, str] | None = None,
) -> Iterator[list[bytes]]:
    """Lines, without their line feeds, that a program writes for what it reads.

    ``blocks``: Its standard input, cut anywhere; a program may end without reading it all.
    ``keep_stderr``: Whether its standard error is for the exception; else it is that of this
      process.
    ``most_status``: The greatest exit status that is no failure: 1 for a filter, such as a ``grep``
      that has found nothing.
    ``env``: Changes of its environment.

    Raises CommandError (the program does not exist, or failed).
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if keep_stderr else None,
            env={**os.environ, **(env or {})},
        )
    except OSError as error:
        raise CommandError(f"cannot run {command[0]!r}: {error.strerror}") from error
    assert process.stdin and process.stdout
    failure: list[BaseException] = []
    feeder = threading.Thread(target=_feed, args=(process.stdin, blocks, failure), daemon=True)
    feeder.start()
    descriptor = process.stdout.fileno()

    def output() -> Iterator[bytes]:
        yield from iter(lambda: os.read(descriptor, _READ_BYTES), b"")
        feeder.join()
        if failure:
            raise failure[0]
        text = process.stderr.read().decode("utf-8", "replace").strip() if process.stderr else ""
        status = process.wait()
        if not 0 <= status <= most_status:
            raise CommandError(f"{' '.join(command)} ended with status {status}", text)

    try:
        # The last line of a killed program is cut off: its status comes first.
        yield from lines_of(output())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        if process.stderr:
            process.stderr.close()
        # What a shell has started outlives it, until it writes to what is closed now, or until it
        # ends with the task: if it does not read, the feeder does not end before.
        feeder.join(_PATIENCE)
        if not feeder.is_alive():
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


def _feed(stdin: Any, blocks: Iterable[bytes], failure: list[BaseException]) -> None:
    try:
        for block in blocks:
            stdin.write(block)
        stdin.close()
    except BrokenPipeError:
        # The program ended; its exit status says why, if it should not have.
        pass
    except BaseException as error:
        failure.append(error)
        stdin.close()


def lines_of(blocks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lines, without their line feeds, of blocks that are cut anywhere."""
    rest: list[bytes] = []
    for block in blocks:
        lines = block.split(b"\n")
        if len(lines) == 1:
            rest.append(block)
            continue
        lines[0] = b"".join([*rest, lines[0]])
        last = lines.pop()
        rest = [last] if last else []
        yield lines
    if rest:
        yield [b"".join(rest)]


def block_of(lines: Iterable[bytes]) -> bytes:
    """The block that :func:`lines_of` takes apart: each line with a line feed after it."""
    return b"\n".join([*lines, b""])
