"""What somebody meant who mistyped a name."""

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path


def did_you_mean(word: str, known: Iterable[str], shown: str = "{}") -> str:
    """A question with the name that is most alike, or "" if none is.

    Parameters
    ----------
    word : str
        What was given.
    known : iterable of str
        The names that there are.
    shown : str
        How to show a name, with ``{}`` in its place.

    Returns
    -------
    str
        With a blank in front, to follow a sentence.
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {shown.replace('{}', close[0])}?" if close else ""


def missing(path: str, names: Callable[[str], Iterable[str]], where: str = "") -> str:
    """What to say of an input that is not there.

    Parameters
    ----------
    path : str
        A path, URI or glob.
    names : callable
        ``names(folder)`` are the names in a folder.
    where : str
        Where it was looked for.
    """
    if set(path) & set("*?[{"):
        return f"matches no file{where}."
    folder, slash, name = path.rstrip("/").rpartition("/")
    known = names(f"{folder}{slash}" or ".")
    return f"does not exist{where}.{did_you_mean(name, known, f'{folder}{slash}{{}}')}"


def names_in(folder: str) -> list[str]:
    """The names in a folder of this machine; none if it is not there."""
    path = Path(folder)
    return [other.name for other in path.iterdir()] if path.is_dir() else []
