"""What a client is told that cannot have an answer."""

import re
from typing import NoReturn


class Refused(Exception):
    """A request has no answer but an error: its status, its text, and headers beside it."""

    def __init__(self, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(text)
        self.status, self.headers = status, headers


def refuse(where: str, expected: str, found: object = None) -> NoReturn:
    """Raise a :class:`Refused` of the status 400 that names a part of the request."""
    shown = "" if found is None else f", found {found!r:.60}"
    raise Refused(400, f"{where}: expected {expected}{shown}")


def plain(error: BaseException) -> str:
    """The text of an error without advice on options, which requests do not have."""
    first, *others = str(error).split(". ")
    return ". ".join(
        [first, *(text for text in others if not re.search("--[a-z]|gradreduce", text))]
    )
