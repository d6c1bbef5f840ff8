"""Following a page as a reader does: typing its commands, writing its files, reading its output."""

import re
from pathlib import Path

from test_readme import ROOT, shell

BLOCK = re.compile(r"^```(sh|text|python)\n(.*?)^```$", re.M | re.S)
_EXCERPT = re.compile(r"^<!-- (\S+\.py) -->\n```python\n(.*?)^```$", re.M | re.S)
NAMED = re.compile(r"# ([\w/]+\.py)\n")


def clone(folder: Path) -> None:
    """Make a folder look like a clone to the commands of a page; it may be written to."""
    for name in ("jobs", "README.md", "tests"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)


def follow(page: Path, folder: Path) -> list[str]:
    """Do what a page says, in a folder that looks like a clone; returns its files, by their names.

    ``sh`` are commands, ``text`` are lines that those of the block before print, in their order. A
    ``python`` block whose first line is a file's name is written into that file.
    """
    clone(folder)
    printed, written = "", []
    for kind, block in BLOCK.findall(page.read_text()):
        if kind == "sh":
            printed = "".join(shell(line, folder) for line in block.splitlines())
        elif kind == "text":
            lines = iter(printed.splitlines())
            for shown in block.splitlines():
                assert any(shown == line.rstrip() for line in lines), (shown, printed)
        elif name := NAMED.match(block):
            # Whatever a test has compiled of an older one.
            file = folder / name[1]
            for old in file.parent.glob(f"__pycache__/{file.stem}.*"):
                old.unlink()
            file.write_text(block)
            written.append(name[1])
    return written


def excerpts(page: Path) -> list[tuple[str, str]]:
    """Files that a page shows parts of, and these parts."""
    return _EXCERPT.findall(page.read_text())
