"""The record that a task is working on, for messages."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: Characters of a record that a message shows.
_SHOWN = 200


class Records:
    """Standard input, which remembers the record that is being worked on."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.number = 0
        self.last = b""

    def __iter__(self) -> Iterator[bytes]:
        for line in self._stream:
            self.number += 1
            self.last = line
            yield line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def place(self, env: Mapping[str, str]) -> str:
        """File, line and text of the record of a map task on this machine; its number in others.

        Raises OSError (the file cannot be read).
        """
        path = env.get("mapreduce_map_input_file", "").removeprefix("file://")
        text = record_text(self.last.rstrip(b"\r\n"))
        if env.get("mapreduce_task_ismap") != "true" or not path:
            return f"near the record {self.number:,} of the task: {text}"
        left, before = int(env.get("mapreduce_map_input_start") or 0), 0
        with Path(path).open("rb") as file:
            while left > 0 and (chunk := file.read(min(left, 1 << 20))):
                before += chunk.count(b"\n")
                left -= len(chunk)
        return f"at {path}, line {before + self.number}: {text}"


def record_text(record: bytes) -> str:
    """A record for messages: shortened, and without bytes that a terminal would obey."""
    text = repr(record[: _SHOWN + 1].decode("utf-8", "backslashreplace"))
    return text if len(record) <= _SHOWN else f"{text[:_SHOWN]}…' ({len(record)} bytes)"
