"""Values and keys between the methods of a job: as they wait, as JSON, and as bytes of a block.

Values wait as the objects that would come back from their JSON. Lists and dictionaries wait as
bytes of ``marshal``, which keeps exactly what JSON text can hold, takes a tenth of its time, and
gives them no time to change. The interpreter's own functions do what is done for each of them:
``map``, ``str.join``, ``str.split``, ``marshal`` and ``json`` over many at once.

Values that JSON would change or refuse (:mod:`mapreduce.batches.snapshots`) go through their text.
With mrjob's pickles most values travel as pickles. With other protocols, programs and
``SORT_VALUES`` a value is the rest of its line, or a pickle.
"""

import io
import json
import marshal
from collections.abc import Callable, Iterable, Iterator
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from mapreduce.batches.pairs import (
    Write,
    encode_columns,
    from_json,
    is_columns,
    line_writer,
    to_json,
)
from mapreduce.batches.snapshots import PLAIN
from mapreduce.job.calls import Pair, as_pair

#: The last version of marshal's format in which one list at two places comes back as two, as from
#: JSON, and in which a list's items can be put together from their own bytes.
MARSHAL = 2

#: What would be given time to change; a tuple, because it comes back as a list.
MUTABLE = frozenset({list, dict, tuple})

#: How a block has its values: as marshal's list; with some in their JSON; as strings, with line
#: feeds between.
_OBJECTS, _MARKED, _STRINGS = range(3)

# Strings of these bytes alone are their own JSON, but for the marks around it.
_UNESCAPED = bytes(set(range(0x20, 0x7F)) - {ord('"'), ord("\\")})


def waiting_form(value: Any) -> Any:
    """A value as it waits; raises one of ``NOT_PLAIN`` if it would come back otherwise."""
    kind = type(value)
    value = PLAIN[kind](value)
    return marshal.dumps(value, MARSHAL) if kind in MUTABLE else value


def write_lines(
    write: Write, pairs: Iterable[Pair], columns: Callable[[Any, Any], None] | None = None
) -> Iterator[bytes]:
    """The lines of pairs, and of pairs of columns, with their line feeds.

    A protocol may write a line feed into a line: then it is several, as for mrjob.

    ``columns``: Takes the pairs of columns.
    """
    encode = line_writer(write)
    for pair in pairs:
        key, value = pair if type(pair) is tuple and len(pair) == 2 else as_pair(pair)
        if type(key) is str or not is_columns(key):
            yield encode(key, value)
        elif columns is None:
            yield from encode_columns(write, key, value).to_pylist()
        else:
            columns(key, value)


def through_text(write: Write, key: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """A pair by its JSON, or the pairs of columns: the JSON of keys, and values as they wait.

    What is nested too deeply for marshal waits as its JSON in a tuple.

    Raises TypeError, ValueError (JSON refuses it).
    """
    for line in write_lines(write, [(key, value)]):
        raw, _, text = line.rstrip(b"\n").partition(b"\t")
        yield raw.decode(), _waiting(from_json(text))


def _waiting(value: Any) -> Any:
    """An object that has come of JSON as it waits."""
    if type(value) is not list and type(value) is not dict:
        return value
    try:
        return marshal.dumps(value, MARSHAL)
    except ValueError:
        return (to_json(value),)


def _restore(value: Any) -> Any:
    if type(value) is bytes:
        return marshal.loads(value)  # noqa: S302
    if type(value) is tuple and type(value[0]) is str:
        return from_json(value[0].encode())
    return value


def restore_values(values: list[Any]) -> Iterable[Any]:
    """The objects of values that wait, each made when it is asked for."""
    kinds = set(map(type, values))
    if kinds == {bytes}:
        return map(marshal.loads, values)
    return map(_restore, values) if kinds & {bytes, tuple} else values


def quoted(keys: list[str]) -> list[str]:
    """The JSON of strings of ASCII."""
    joined = "\n".join(keys)
    if not keys:
        return []
    if joined.encode().translate(None, _UNESCAPED) == b"\n" * (len(keys) - 1):
        return ('"' + joined.replace("\n", '"\n"') + '"').split("\n")
    return list(map(quote, keys))


def decoded(texts: list[str]) -> list[Any]:
    """The objects of JSON texts."""
    try:
        return json.loads(f"[{','.join(texts)}]")  # type: ignore[no-any-return]
    except RecursionError:
        return [from_json(text.encode()) for text in texts]


def packed(values: list[Any], kinds: set[type], are_codes: bool = False) -> tuple[int, list[bytes]]:
    """Values that wait, of some types, as a kind and parts of bytes, for :func:`unpacked`.

    ``are_codes``: Whether they come back as they are, also bytes.
    """
    if kinds == {str}:
        joined = "\n".join(values)
        if joined.count("\n") == len(values) - 1:
            return _STRINGS, [joined.encode("utf-8", "surrogatepass")]
    if are_codes or not kinds & {bytes, tuple}:
        try:
            return _OBJECTS, [marshal.dumps(values, MARSHAL)]
        except ValueError:
            # Objects that were read, and are too deep.
            values = list(map(_waiting, values))
            kinds = {tuple}
    parts = values
    if kinds != {bytes}:
        parts = [one if type(one) is bytes else marshal.dumps(one, MARSHAL) for one in values]
    # A list of marshal's, of what marshal has written already. To join a single one is no copy.
    content = [b"[" + len(values).to_bytes(4, "little"), b"".join(parts)]
    return (_MARKED if tuple in kinds else _OBJECTS), content


def unpacked(kind: int, content: bytes) -> list[Any]:
    """The objects of values that were packed."""
    if kind == _STRINGS:
        return content.decode("utf-8", "surrogatepass").split("\n")
    try:
        values: list[Any] = marshal.loads(content)  # noqa: S302  (a file of this job's own)
    except ValueError:
        # One is as deep as it may be by itself.
        file = io.BytesIO(content[5:])
        number = int.from_bytes(content[1:5], "little")
        values = [marshal.load(file) for _ in range(number)]  # noqa: S302
    return list(map(_restore, values)) if kind == _MARKED else values
