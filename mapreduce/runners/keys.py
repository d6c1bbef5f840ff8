"""Keys of programs, as lines of jobs have them: Hadoop's hash of the text chooses the reducer."""

from functools import lru_cache


@lru_cache(maxsize=4096)
def spelled(key: tuple[int, ...]) -> str:
    """The text of a key: its first number in base 31, as in Java's hash of a string.

    So Hadoop's HashPartitioner gives consecutive first numbers to different reducers.
    """
    first = key[0]
    digits = (first // 961, first // 31 % 31, first % 31)
    text = "".join(chr(ord("0") + digit) for digit in digits)
    return ".".join([text, *(f"{number:08d}" for number in key[1:])])


@lru_cache(maxsize=4096)
def read_key(text: str) -> tuple[int, ...]:
    """The key of :func:`spelled`."""
    top, middle, low = (ord(char) - ord("0") for char in text[:3])
    return ((top * 31 + middle) * 31 + low, *map(int, text.split(".")[1:]))
