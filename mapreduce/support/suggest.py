"""Suggestions for mistyped names."""

from collections.abc import Callable, Iterable
from pathlib import Path

#: The least likeness: letters in common, as a share of both words. Less is chance: "forest" has
#: 0.615 in common with "resnet8", two letters the wrong way round in a word of three leave 0.667.
_ALIKE = 0.65


def did_you_mean(word: str, known: Iterable[str], shown: str = "{}", alike: float = _ALIKE) -> str:
    """A question with the known name most similar to a mistyped one, or "" if none is similar.

    It begins with a blank, to follow a sentence. ``{}`` in ``shown`` stands for the name, and
    ``alike`` is the least likeness, from 0 to 1.

    >>> did_you_mean("softmx", ["softmax", "mlp"])
    ' Did you mean softmax?'
    """
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=alike)
    return f" Did you mean {shown.replace('{}', close[0])}?" if close else ""


def unknown_name(module: str, name: str, known: Iterable[str]) -> Exception:
    """The error of a module that lacks a name, with the most similar one that it has."""
    # An AttributeError would lose its words where a name is imported.
    hint = "" if name.startswith("__") else did_you_mean(name, known)
    kind = ImportError if hint else AttributeError
    return kind(f"module {module!r} has no attribute {name!r}.{hint}")


def missing(path: str, names: Callable[[str], Iterable[str]], where: str = "") -> str:
    """The message for a path, URI or glob that does not exist where it was looked for.

    ``names(folder)`` returns the names in a folder.
    """
    if set(path) & set("*?[{"):
        return f"matches no file{where}."
    folder, slash, name = path.rstrip("/").rpartition("/")
    known = list(names(f"{folder}{slash}" or "."))
    if name in known:
        return f"is a link to a path that does not exist{where}."
    return f"does not exist{where}.{did_you_mean(name, known, f'{folder}{slash}{{}}')}"


def names_in(folder: str) -> list[str]:
    """The names in a folder of this machine; empty if it does not exist."""
    path = Path(folder)
    return [other.name for other in path.iterdir()] if path.is_dir() else []
