"""Words of messages."""


def count(value: int, word: str) -> str:
    """A number with its noun: ``1 line``, ``2 lines``."""
    return f"{value:,} {word}{'' if value == 1 else 's'}"
