"""How Sphinx makes the site of docs/: ``make docs``. Who reads it needs no network."""

import re
from pathlib import Path

import click

from mapreduce.cli.grouping import SHOW_ALL
from mapreduce.cli.main import cli

ROOT = Path(__file__).parent.parent

project = "gradreduce"
author = "the authors of gradreduce"
html_title = "gradreduce"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
html_theme = "furo"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
exclude_patterns = ["notebooks"]
#: Headings that links may name.
myst_heading_anchors = 3
myst_links_external_new_tab = False
napoleon_numpy_docstring = True
napoleon_google_docstring = False
# Fields of dataclasses are in the docstrings of their classes.
napoleon_use_ivar = True
napoleon_preprocess_types = False
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"
autosummary_generate = False
# Equal names in several modules, such as Array, are what they are.
suppress_warnings = ["ref.python"]


def _source(app, page, content):
    """Links of pages that are read as files too lead to pages of the site."""
    text = content[0]
    if page == "ladder":
        text = (ROOT / "jobs" / "README.md").read_text()
        text = text.replace("](../docs/", "](").replace("](wrong/", "](../jobs/wrong/")
        text = re.sub(r"\]\((\w+\.py)\)", r"](../jobs/\1)", text) + _rungs()
    if page == "reference/commands":
        text += _commands(cli, ["gradreduce"])
    content[0] = _linked(text, page.count("/"))


def _linked(text: str, depth: int) -> str:
    """Links to jobs lead to the page of the ladder, links to other files beside docs/ are words.

    ``depth`` is that of the page within docs/.
    """
    out = r"\.\./" * (depth + 1)
    text = re.sub(
        rf"\[([^]]+)\]\({out}jobs/([\w/]+)\.py\)",
        lambda found: f"[{found[1]}](#{_target(found[2])})",
        text,
    )
    text = re.sub(rf"\]\({out}jobs/README\.md\)", "](/ladder.md)", text)
    return re.sub(rf"\[([^]]+)\]\({out}[\w./]+\)", lambda found: f"`{found[1].strip('`')}`", text)


def _target(name: str) -> str:
    return f"rung-{name.replace('/', '-').replace('_', '-')}"


def _rungs() -> str:
    """All jobs, whole."""
    folder = ROOT / "jobs"
    patterns = ("*.py", "wrong/*.py", "exercises/*/*.py")
    paths = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    parts = ["\n## All files\n"]
    for path in paths:
        name = str(path.relative_to(folder).with_suffix(""))
        if path.stem != "__init__":
            content = path.read_text().rstrip()
            parts.append(f"({_target(name)})=\n### {name}\n\n```python\n{content}\n```\n")
    return "\n".join(parts)


def _commands(command: click.Command, names: list[str]) -> str:
    """The whole help of a command and of those within it."""
    context = click.Context(command, info_name=" ".join(names), max_content_width=96)
    context.meta[SHOW_ALL] = True
    found = f"\n## {' '.join(names)}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (within := command.get_command(context, name)) is not None:
                found += _commands(within, [*names, name])
    return found


def _skipped(app, what, name, member, skip, options):
    """Fields of named tuples say no more than their class."""
    return skip or type(member).__name__ == "_tuplegetter" or None


def _names(app, what, name, member, options, lines):
    """Napoleon takes the first of several names before one colon for a type: make them one."""
    for number, line in enumerate(lines):
        if re.match(r"\s*\w+(, \w+)+ : ", line):
            names, colon, rest = line.partition(" : ")
            lines[number] = names.replace(", ", ",") + colon + rest


def setup(app):
    app.connect("autodoc-process-docstring", _names, priority=100)
    app.connect("source-read", _source)
    app.connect("autodoc-skip-member", _skipped)
