"""Safetensors files with a digest of their own, since safetensors notices no flipped bit."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from hdfs_utils.paths import AnyPath
from mapreduce.errors import DataError

#: Where the metadata have the digest: of the file with zeros in its place.
_KEY = "gradreduce.sha256"
_ZEROS = "0" * 64
_PLACE = re.compile(rb'"gradreduce\.sha256":"\\"([0-9a-f]{64})\\""')
#: No longer header is read, as by safetensors.
_MOST_BYTES = 100_000_000

#: What else a file may be, by its first bytes.
_OTHERS = {
    b"PK": "it is an archive, such as .npz files are, which hold arrays alone. Export the run to a "
    "name that ends with .safetensors",
    b"PAR1": "it is a Parquet file",
}


def encode(arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> bytes:
    """The file of some arrays and texts: the same bytes for the same ones."""
    from safetensors.numpy import save

    content = save(dict(arrays), {**metadata, _KEY: json.dumps(_ZEROS)})
    header, data = _parts(content)
    # Safetensors writes metadata in any order.
    text = json.dumps(json.loads(header), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    text = _with_digest(text, _digest(text, data))
    return len(text).to_bytes(8, "little") + text + data


def decode(content: bytes, path: AnyPath) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays and the texts of :func:`encode`, without the digest.

    Raises DataError (it is no such file, or damaged).
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        header, data = _parts(content)
        metadata = _metadata(header)
        found = _PLACE.search(header)
        expected = _digest(_with_digest(header, _ZEROS), data)
        if found is None or found[1].decode() != expected:
            raise ValueError(f"its sha256 is {expected[:16]}…, and it says another, or none")
        del metadata[_KEY]
        return dict(load(content)), metadata
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path} is damaged, or was changed by another program: {error}. Copy or export it "
            f"again"
        ) from error


def metadata_of(content: bytes, path: AnyPath) -> dict[str, str]:
    """The texts of a safetensors file, or of its beginning; NumPy is not loaded.

    Raises DataError (it is no such file).
    """
    try:
        return _metadata(_parts(content)[0])
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is no safetensors file: {error}") from error


def read_metadata(path: AnyPath) -> dict[str, str]:
    """The texts of a safetensors file, of which only the beginning is read."""
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        return metadata_of(start + file.read(min(length, _MOST_BYTES)), path)


def _parts(content: bytes) -> tuple[bytes, memoryview]:
    """The header, and the arrays' bytes."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or not 2 <= length <= min(_MOST_BYTES, len(content) - 8):
        found = (what for start, what in _OTHERS.items() if content.startswith(start))
        raise ValueError(
            next(found, "its first bytes are those of another kind of file, or the file is cut")
        )
    return content[8 : 8 + length], memoryview(content)[8 + length :]


def _metadata(header: bytes) -> dict[str, str]:
    content = json.loads(header)
    found = content.get("__metadata__", {}) if isinstance(content, dict) else None
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError("its header is not that of safetensors")
    return found


def _with_digest(header: bytes, digest: str) -> bytes:
    text = f'"{_KEY}":"\\"{digest}\\""'.encode()
    return _PLACE.sub(lambda found: text, header, count=1)


def _digest(header: bytes, data: memoryview) -> str:
    digest = hashlib.sha256(header)
    digest.update(data)
    return digest.hexdigest()
