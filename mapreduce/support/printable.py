"""Makes texts of unknown origin safe for a terminal."""


def printable(text: str) -> str:
    """A text without the control characters that a terminal would obey."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
