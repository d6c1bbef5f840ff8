"""Standard error as JSON: one object a line, for programs that collect logs."""

import io
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

#: What tells the level of a message that is no record of a log.
_LEVEL = re.compile(r"^(error|warning): ", re.IGNORECASE | re.MULTILINE)


class _Lines(io.BufferedIOBase):
    """Takes what is written, and passes on as one message what ends at the end of a line."""

    def __init__(self, tell: Callable[[str], None], number: Callable[[], int]) -> None:
        self._tell, self._number = tell, number
        self._waiting, self._lock = b"", threading.Lock()

    def fileno(self) -> int:
        """Where programs write that get this as their standard error: as they do without it."""
        return self._number()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        with self._lock:
            self._waiting += bytes(content)
            message = b""
            if self._waiting[-1:] == b"\n":
                message, self._waiting = self._waiting, b""
        if message.strip():
            self._tell(message.decode(errors="replace").removesuffix("\n"))
        return len(content)


class Stderr(io.TextIOWrapper):
    """In the place of standard error: writes an object for each message, or record of a log."""

    def __init__(self, stream: TextIO) -> None:
        lines: Any = _Lines(self._said, stream.fileno)
        super().__init__(lines, "utf-8", "backslashreplace", newline="", write_through=True)
        self._stream = stream
        self.log = _Handler(self._write)

    def _said(self, message: str) -> None:
        found = _LEVEL.search(message)
        level = found[1].lower() if found else "info"
        self._write(level, None, message.removeprefix(f"{level}: "))

    def _write(self, level: str, logger: str | None, message: str) -> None:
        content = {"time": round(time.time(), 3), "level": level}
        line = json.dumps({**content, "logger": logger, "message": message})
        self._stream.write(f"{line}\n")
        self._stream.flush()


class _Handler(logging.Handler):
    def __init__(self, write: Callable[[str, str | None, str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(record.levelname.lower(), record.name, self.format(record))
        except Exception:
            self.handleError(record)


def install() -> None:
    """Have standard error be JSON from now on; calling it again changes nothing."""
    if not is_on():
        sys.stderr = Stderr(sys.stderr)


def is_on() -> bool:
    """Whether standard error is JSON."""
    return isinstance(sys.stderr, Stderr)


def end() -> None:
    """Pass on a last line that has no end."""
    if isinstance(sys.stderr, Stderr):
        sys.stderr.buffer.write(b"\n")


def take(logger: str) -> None:
    """Have a logger's records keep their levels and names, if standard error is JSON."""
    if not isinstance(sys.stderr, Stderr):
        return
    handlers = logging.getLogger(logger).handlers
    for number, handler in enumerate(handlers):
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
            sys.stderr.log.setLevel(handler.level)
            handlers[number] = sys.stderr.log
