"""English-like ASCII text of any size, for benchmarks that count words.

The frequency of a word falls with its rank by Zipf's law, and new words never cease to come, as in
real text (Heaps' law). 100,000,000 bytes of seed 0 have 417,780 different words:
``python -m benchmarks word_count.vectorized`` counts them.
"""

from collections.abc import Iterator
from functools import cache
from itertools import count as numbers
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Raw = NDArray[np.uint64]

#: Tokens that are made at once: about 1.5 MB of text.
_TOKENS = 1 << 18

#: Below rank KNEE, the frequency of rank r is proportional to 1 / (r + SHIFT) (Mandelbrot); the
#: TAIL of all tokens that has higher ranks falls more steeply, with r ** -STEEP, as in real texts
#: (Montemurro 2001, "Beyond the Zipf-Mandelbrot law in quantitative linguistics").
_SHIFT = 2.7
_KNEE = 8000
_TAIL = 0.085
_STEEP = 1.9

_COMMON = """
    the of and to a in is it you that he was for on are with as i his they be at one have this
    from or had by not but what all were we when your can said there use an each which she do
    how their if will up other about out many then them these so some her would make like him
    into time has look two more write go see number no way could people my than first water been
    call who its now find long down day did get come made may part
"""
_ONSETS = [*"bcdfglmnprstv", "ch", "st", "th"]
_SYLLABLES = [onset + vowel for onset in _ONSETS for vowel in "aeio"]
_PAIRS = [first + second for first in _SYLLABLES for second in _SYLLABLES]
_LISTED = len(_COMMON.split()) + len(_SYLLABLES) + len(_PAIRS)
_SUFFIXES = ["s", "'s", "ed", "n't"]
_BREAKS = ["\n", "\n\n", "\n    ", "\n        ", "\n\t"]

# What may follow a token, and how often in 256.
_PROSE = {
    " ": 198, ", ": 18, ". ": 14, "; ": 2, ": ": 2, "-": 3, " - ": 1, "! ": 2, "? ": 2, " (": 3,
    ") ": 3, ' "': 2, '" ': 2, " '": 1, "' ": 1, "/": 1, "...": 1,
}  # fmt: skip
_CODE = {
    " ": 86, "_": 10, ".": 36, "(": 22, ")": 16, "();": 6, ", ": 28, " = ": 14, " + ": 6, "[": 6,
    "] ": 6, ": ": 6, "->": 4, "{ ": 2, " # ": 2, ' "': 3, '",': 3,
}  # fmt: skip


class _Pieces(NamedTuple):
    """All strings that text is made of, one after the other.

    Attributes
    ----------
    content : ndarray of uint8
    starts, lengths : ndarray of int32
        Of each piece in ``content``.
    first : dict of str to int
        Number of the first piece of each group. Piece 0 is empty.
    twins : int
        What to add to the number of a piece of a word for the one with a capital; twice that for
        the one in capitals.
    prose, code : ndarray of int64, shape (256,)
        Pieces to choose separators from.
    """

    content: NDArray[np.uint8]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]
    first: dict[str, int]
    twins: int
    prose: Integers
    code: Integers


@cache
def _pieces() -> _Pieces:
    # The order of the first three is that of their ranks.
    groups = {
        "empty": [""],
        "common": _COMMON.split(),
        "syllables": _SYLLABLES,
        "pairs": _PAIRS,
        "numbers": [str(number) for number in range(1000)],
        "digits": [f"{number:03d}" for number in range(1000)],
        "suffixes": _SUFFIXES,
    }
    words = [piece for group in groups.values() for piece in group]
    strings = [*words, *map(str.capitalize, words), *map(str.upper, words)]
    groups |= {"twins": strings[len(words) :]}
    groups |= {"prose": list(_PROSE), "code": list(_CODE), "breaks": _BREAKS}
    strings += [*_PROSE, *_CODE, *_BREAKS]
    ends = np.cumsum([len(group) for group in groups.values()])
    first = dict(zip(groups, [0, *ends[:-1].tolist()], strict=True))
    lengths = np.array([len(piece) for piece in strings], np.int32)
    return _Pieces(
        np.frombuffer("".join(strings).encode("ascii"), np.uint8),
        np.cumsum(lengths, dtype=np.int32) - lengths,
        lengths,
        first,
        len(words),
        first["prose"] + np.repeat(np.arange(len(_PROSE)), list(_PROSE.values())),
        first["code"] + np.repeat(np.arange(len(_CODE)), list(_CODE.values())),
    )


def _field(raw: Raw, shift: int, width: int) -> Integers:
    """Some bits of random words, as small numbers."""
    return ((raw >> np.uint64(shift)) & np.uint64((1 << width) - 1)).astype(np.int64)


def _ranks(raw: Raw) -> Integers:
    """Ranks from 0, by inversion of the distribution that is continuous in the rank."""
    # Never 0, whose rank has no bound.
    uniform = ((raw >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
    head = np.maximum(uniform - _TAIL, 0) / (1 - _TAIL)
    ranks = (_KNEE + _SHIFT) * (_SHIFT / (_KNEE + _SHIFT)) ** head - _SHIFT
    (rare,) = np.nonzero(uniform <= _TAIL)
    ranks[rare] = _KNEE * (uniform[rare] / _TAIL) ** (1 / (1 - _STEEP))
    whole: Integers = np.minimum(ranks, 2.0**40).astype(np.int64)
    return whole


def _words(ranks: Integers, number: NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """The two pieces of each word: the rarer the longer. The second may be empty."""
    first = _pieces().first
    one, two = len(_SYLLABLES), len(_PAIRS)
    head, tail = first["common"] + ranks, np.zeros_like(ranks)
    # Factors are odd and sizes powers of two: ranks and words are one to one, and neighbours in
    # rank are none in the alphabet.
    (three,) = np.nonzero((ranks >= _LISTED) & (ranks < _LISTED + one * two))
    index = (ranks[three] - _LISTED) * 0x9E375 % (one * two)
    head[three], tail[three] = first["syllables"] + index // two, first["pairs"] + index % two
    (four,) = np.nonzero(ranks >= _LISTED + one * two)
    index = (ranks[four] - _LISTED - one * two) % (two * two) * 0x9E3779B1 % (two * two)
    head[four], tail[four] = first["pairs"] + index // two, first["pairs"] + index % two
    index = ranks[number] % 1_000_000
    head[number] = first["numbers"] + np.where(index < 1000, index, index // 1000)
    tail[number] = np.where(index < 1000, 0, first["digits"] + index % 1000)
    return head, tail


def _block(seed: int, number: int) -> bytes:
    """Some lines, which are a function of the seed and their number."""
    pieces = _pieces()
    # Raw words of a bit generator stay the same in all versions of NumPy.
    bits = np.random.PCG64(np.random.SeedSequence([seed, number]))
    raw = bits.random_raw(_TOKENS)
    is_number = _field(raw, 0, 8) < 5
    head, tail = _words(_ranks(bits.random_raw(_TOKENS)), is_number)
    chosen = _field(raw, 8, 7)
    suffix = np.where(chosen < len(_SUFFIXES), pieces.first["suffixes"] + chosen, 0)
    suffix[is_number] = 0

    # A line ends with the word that goes over its length, as if all separators had two bytes.
    sizes = pieces.lengths[head] + pieces.lengths[tail] + pieces.lengths[suffix] + 2
    reached = np.cumsum(sizes)
    lines = bits.random_raw(_TOKENS // 4)
    stops = np.cumsum(1 + _field(lines, 0, 32) % 108)
    ends = np.zeros(_TOKENS, bool)
    ends[np.searchsorted(reached, stops[: np.searchsorted(stops, reached[-1])])] = True
    ends[-1] = True
    (last,) = np.nonzero(ends)
    lines = lines[: len(last)]
    code = _field(lines, 32, 3) == 0
    chosen = _field(raw, 16, 8)
    in_code = np.repeat(code, np.diff(last, prepend=-1))
    after = np.where(in_code, pieces.code[chosen], pieces.prose[chosen])
    # A line of code is indented by the break before it.
    kind = _field(lines, 40, 4)
    breaks = np.where(np.append(code[1:], False), 2 + kind % 3, kind == 0)
    after[last] = pieces.first["breaks"] + breaks

    # Sentences start with capitals, some words do, and a few are in capitals throughout.
    dots = pieces.first["prose"] + np.array([list(_PROSE).index(end) for end in (". ", "! ", "? ")])
    case = (np.append(True, np.isin(after[:-1], dots)) | (_field(raw, 24, 8) < 16)).astype(np.int64)
    case[_field(raw, 32, 8) == 0] = 2
    head += case * pieces.twins
    tail += (case == 2) * pieces.twins * 2
    suffix += (case == 2) * pieces.twins * 2
    return _concatenate(np.stack([head, tail, suffix, after], axis=1).ravel())


def _concatenate(chosen: Integers) -> bytes:
    """The text of pieces, one after the other."""
    pieces = _pieces()
    lengths = pieces.lengths[chosen]
    stops = np.cumsum(lengths, dtype=np.int32)
    shifts = np.repeat(pieces.starts[chosen] - stops + lengths, lengths)
    shifts += np.arange(len(shifts), dtype=np.int32)
    return pieces.content[shifts].tobytes()


def blocks(size: int, seed: int = 0) -> Iterator[bytes]:
    """Text of a size, in blocks.

    Lines have up to about 120 characters. Some are empty, some look like source code.

    Parameters
    ----------
    size : int
        Bytes in all.
    seed : int

    Yields
    ------
    bytes
        The same for the same size and seed. The last one ends with a line feed.
    """
    for number in numbers():
        block = _block(seed, number)
        if len(block) >= size:
            if size:
                yield block[: size - 1] + b"\n"
            return
        yield block
        size -= len(block)


def write(path: Path, size: int, seed: int = 0) -> Path:
    """Write text of a size into a file, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        for block in blocks(size, seed):
            out.write(block)
    return path
