"""How mrjob's protocols code keys and values, many of them together, and decode them again.

Codes are texts whose characters stand for the bytes of a line. The interpreter's own functions do
what is done for each of them.
"""

import contextlib
import pickle
import re
from collections.abc import Callable
from itertools import accumulate, chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from mrjob.protocol import PickleProtocol, ReprProtocol

from mapreduce.batches.pairs import (
    JSON_KINDS,
    Read,
    Write,
    is_json,
    is_pickle,
    is_repr,
    is_text,
    scan,
    to_json,
)

#: Keys with so many characters are pickled one by one.
_LONG_KEY = 256

#: How pickles are parted while many are escaped together: they have no such character.
_BETWEEN = "\\u0100"

#: All bytes in the order of their escapes. No escape is the beginning of another one, so that bytes
#: that stand for their places in it come in the order of escaped pickles, at a third of the length.
_ORDER = bytes(sorted(range(256), key=lambda byte: chr(byte).encode("unicode_escape")))
_PLACES = bytes.maketrans(_ORDER, bytes(range(256)))


class NotCoded(Exception):
    """Only the protocol can write a pair, as a line."""


class Coder(NamedTuple):
    """How a protocol codes objects.

    ``kinds``, ``dumps``: Code values of some types, and all others; and keys that are strings.
    ``texts``, ``strings``: Make texts of many codes, of values, and of keys that are strings; of
    values also pickles.
    ``key``: Codes any other key as bytes. ``is_open``: Whether codes may have TABs and line feeds,
    which divide lines.
    """

    kinds: dict[type, Callable[[Any], Any]]
    dumps: Callable[[Any], Any]
    texts: Callable[[list[Any]], list[Any]]
    strings: Callable[[list[str]], list[str]]
    key: Callable[[Any], bytes]
    is_open: bool = False


def coder(write: Write, may_pickle: bool = False) -> Coder | None:
    """How to write many keys and values, with the bytes of ``write``; None if only by lines.

    ``may_pickle``: Whether pickled values may travel as pickles, without escapes.
    """
    if is_json(write):
        return Coder(JSON_KINDS, to_json, _same, _same, lambda key: to_json(key).encode())
    if is_pickle(write):
        # Strings wait as themselves.
        codes = Coder({str: str}, pickle.dumps, pickles, pickled_strings, _pickled)
        return codes if may_pickle else None
    if is_repr(write):
        return Coder({}, repr, _latin, _latin, lambda key: repr(key).encode(), is_open=True)
    if is_text(write):
        return Coder({str: str.encode}, _uncoded, latin, _same, _uncoded, is_open=True)
    return None


def _same(texts: list[str]) -> list[str]:
    return texts


def _latin(texts: list[str]) -> list[str]:
    """Texts with a character for each byte of their UTF-8."""
    return texts if "".join(texts).isascii() else list(map(_utf8, texts))


def _utf8(text: str) -> str:
    return text if text.isascii() else text.encode().decode("latin-1")


def latin(codes: list[bytes]) -> list[str]:
    """Texts with a character for each byte."""
    texts = b"\n".join(codes).decode("latin-1").split("\n")
    return texts if len(texts) == len(codes) else [code.decode("latin-1") for code in codes]


def _uncoded(value: Any) -> Any:
    raise NotCoded


def _pickled(key: Any) -> bytes:
    return pickle.dumps(key).decode("latin-1").encode("unicode_escape")


def pickles(codes: list[Any]) -> list[bytes]:
    """Pickles, for some of which strings stand."""
    if str in set(map(type, codes)):
        return [pickle.dumps(code) if type(code) is str else code for code in codes]
    return codes


def ordered(codes: list[bytes]) -> list[str]:
    """Pickles as texts that sort as their escapes do."""
    text = b"".join(codes).translate(_PLACES).decode("latin-1")
    return list(map(text.__getitem__, _spans(codes)))


def load_all(codes: list[Any]) -> list[Any] | None:
    """The objects of pickles, or of all ordered ones; None if one cannot be read."""
    if codes and type(codes[0]) is str:
        content: Any = "".join(codes).encode("latin-1").translate(_ORDER)
        codes = map(content.__getitem__, _spans(codes))  # type: ignore[assignment]
    # An error comes again, where its record is known.
    with contextlib.suppress(Exception):
        return list(map(pickle.loads, codes))
    return None


def load(code: str | bytes) -> Any:
    """The object of a pickle, or of an ordered one."""
    if type(code) is str:
        code = code.encode("latin-1").translate(_ORDER)
    return pickle.loads(code)  # type: ignore[arg-type]  # noqa: S301


def _spans(parts: list[Any]) -> Any:
    """Where each of some parts lies when they are joined."""
    ends = list(accumulate(map(len, parts)))
    return map(slice, chain((0,), ends), ends)


#: What surrounds ASCII strings of one length in their escaped pickles.
_around: dict[int, tuple[str, str]] = {}


def pickled_strings(keys: list[str]) -> list[str]:
    """The pickles of strings as mrjob's protocol writes them."""
    joined, lengths = "".join(keys), list(map(len, keys))
    is_plain = joined.isascii() and joined.isprintable() and "\\" not in joined
    if not is_plain or max(lengths, default=0) >= _LONG_KEY:
        return [_pickled(key).decode() for key in keys]
    for length in set(lengths).difference(_around):
        text = _pickled("~" * length).decode()
        end = text.rfind("~") + 1 or len(text)
        _around[length] = text[: end - length], text[end:]
    around = list(map(_around.__getitem__, lengths))
    parts = zip(map(itemgetter(0), around), keys, map(itemgetter(1), around), strict=True)
    return list(map("".join, parts))


def fast_decoder(read: Read) -> Callable[[list[str]], list[Any] | None]:
    """A function that decodes many keys or values, whose characters stand for bytes, at once.

    It gives the same objects as the protocol, or None for what has to be decoded one by one.
    """
    loads = getattr(type(getattr(read, "__self__", None)), "_loads", None)
    if is_json(read):
        return _scanned
    if loads is PickleProtocol._loads:
        return _unpickled
    if is_text(read):
        return _decoded
    return _literals if loads is ReprProtocol._loads else lambda texts: None


def _scanned(texts: list[str]) -> list[Any] | None:
    if not "".join(texts).isascii():
        return None
    try:
        found = list(map(scan, texts, repeat(0)))
    except (ValueError, RecursionError):
        return None
    # One that ends early is no JSON, or has spaces around it.
    ends = list(map(itemgetter(1), found))
    return list(map(itemgetter(0), found)) if ends == list(map(len, texts)) else None


def _decoded(texts: list[str]) -> list[Any] | None:
    joined = "\n".join(texts)
    return texts if joined.isascii() else joined.encode("latin-1").decode().split("\n")


#: What Python's literals have that JSON has not, or otherwise; one pair of brackets is let through.
_NOT_FLAT = re.compile(r"""(?m)(?<!^)[(]|[)](?!$)|["\\]|null|true|false|NaN|Infinity""")


def _literals(texts: list[str]) -> list[Any] | None:
    joined = "\n".join(texts)
    if _NOT_FLAT.search(joined):
        return None
    found = _scanned(joined.translate(_TO_JSON).split("\n"))
    if found is None or not ("(" in joined or ")" in joined):
        return found
    flat = [
        tuple(one) if text[0] + text[-1] == "()" and len(one) != 1 else one
        for text, one in zip(texts, found, strict=True)
    ]
    # Others have brackets that are no tuple's, or of two kinds.
    tuples = sum(map(isinstance, flat, repeat(tuple)))
    return flat if tuples == joined.count("(") == joined.count(")") else None


_TO_JSON = str.maketrans("'()", '"[]')


def _unpickled(texts: list[str]) -> list[Any] | None:
    # An error comes again, where its record is known.
    with contextlib.suppress(Exception):
        found = _BETWEEN.join(texts).encode("latin-1").decode("unicode_escape").split("\u0100")
        if len(found) == len(texts):
            return list(map(pickle.loads, map(str.encode, found, repeat("latin-1"))))
    return None
