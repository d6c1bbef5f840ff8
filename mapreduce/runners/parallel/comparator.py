"""The order of keys under Hadoop's KeyFieldBasedComparator, as bytes that sort in that order.

Source: ``org.apache.hadoop.mapreduce.lib.partition.KeyFieldBasedComparator``. Keys that it finds
equal come in the order of their bytes here, and in no order that one can rely on on Hadoop. That
goes for what it contradicts itself about, too: it finds a field that both keys lack smaller on
either side, and ``07`` smaller than ``7``, but both equal to ``7.0``.
"""

import re
from collections.abc import Callable
from itertools import repeat
from operator import itemgetter

from mapreduce.runners.parallel.partition import (
    KeyField,
    Partitioning,
    span_of,
    starts_of,
    whole_fields,
)

#: From the bytes of a key to bytes that sort as it should.
Order = Callable[[bytes], bytes]

# What codes are made of, without TABs and line feeds: none is the beginning of another one, so that
# they can be put together, and turned round by exchanging characters.
_CHARACTERS = bytes((1, 2, *range(0x0B, 0x100)))
_REVERSED = bytes.maketrans(_CHARACTERS, _CHARACTERS[::-1])

#: A text ends with the lowest character; those below 0x0B are written as two.
_ESCAPES = {byte: f"\2{chr(byte + 0x10)}" for byte in range(0x0B)}
_LOW = re.compile(r"[\0-\n]")

_NUMBER = re.compile(rb"(-?)0*+(\d*+)(\.?)(\d*+)(.?)", re.DOTALL)


def order_of_keys(how: Partitioning) -> Order | None:
    """What keys are sorted by, before their own bytes; None if by these alone."""
    if not how.order:
        return None
    return lambda key: codes_of([key.decode("latin-1")], how)[0].encode()


def codes_of(keys: list[str], how: Partitioning) -> list[str]:
    """What each key is sorted by; characters stand for bytes."""
    separator = how.separator
    fields = [KeyField(*field) for field in how.order]
    found = zip(fields, whole_fields(keys, fields, separator), strict=True)
    columns = [_codes(keys, field, parts, separator) for field, parts in found]
    return list(map("".join, zip(*columns, strict=True)))


def _codes(keys: list[str], field: KeyField, parts: list[str] | None, separator: str) -> list[str]:
    """What each key is sorted by in one place, of which ``parts`` are the texts, if it is whole."""
    between = separator.encode()

    def code(key: str) -> str:
        raw = key.encode("latin-1")
        return _code(raw, starts_of(raw, between), forward, len(between)).decode("latin-1")

    forward = field._replace(reverse=False)
    if parts is None:
        codes = list(map(code, keys))
    elif field.numeric:
        # Of a number without a sign, a point and a zero in front.
        heads = {width: f"11{width:08x}" for width in set(map(len, parts))}
        codes = [f"{heads[len(part)]}{part}!3{part[:1]}" for part in parts]
        joined, firsts = "".join(parts), set(map(itemgetter(slice(1)), parts))
        if not (firsts <= set("123456789") and joined.isdigit() and joined.isascii()):
            are_plain = (part.isdigit() and part.isascii() and part[0] != "0" for part in parts)
            codes = [
                found if is_plain else code(key)
                for key, found, is_plain in zip(keys, codes, are_plain, strict=True)
            ]
    else:
        if _LOW.search("".join(parts)):
            parts = list(map(str.translate, parts, repeat(_ESCAPES)))
        codes = [f"1{part}\1" if part else code(key) for key, part in zip(keys, parts, strict=True)]
    if field.reverse:
        joined = "\n".join(codes).encode("latin-1").translate(_REVERSED).decode("latin-1")
        return joined.split("\n")[: len(codes)]
    return codes


def _code(key: bytes, starts: list[int], field: KeyField, separator: int) -> bytes:
    found = span_of(key, starts, field, separator)
    if found is None:
        code = b"0!"
    elif field.numeric:
        begin, end = found
        # Java looks at the first byte, also of a field that is empty: it is the next one's.
        code = b"1" + _number(key[begin:end], key[begin])
    elif found[1] < found[0]:
        # It ends before it begins: Java subtracts the lengths.
        code = b"0%08x!" % ((1 << 31) + found[1] - found[0])
    else:
        text = key[slice(*found)].decode("latin-1").translate(_ESCAPES)
        code = b"1" + text.encode("latin-1") + b"\1"
    return code.translate(_REVERSED) if field.reverse else code


def _number(text: bytes, first: int) -> bytes:
    """The number that a text begins with, of any length; 0 if there is none."""
    match = _NUMBER.match(text)
    assert match
    sign, whole, point, fraction, after = match.groups()
    fraction = fraction.rstrip(b"0") if point else b""
    # For equal numbers, Java compares what follows, or else how they begin.
    begins = (sign or whole[:1] or b"0") if point else bytes([first])
    last = begins if point else after or begins
    code = b"%08x%b%b!%02x" % (len(whole), whole, fraction, last[0])
    return b"0" + code.translate(_REVERSED) if sign and (whole or fraction) else b"1" + code
