"""Pages, templates, notebooks and jobs import from the doors of the packages alone."""

import json
import re
from collections import Counter

from test_readme import ROOT

import mapreduce
from mapreduce import errors, job, parts, testing
from quick import cases

NAMES = {"errors", "estimators", "job", "parts", "testing"}
DOORS = {"mapreduce", *(f"mapreduce.{name}" for name in NAMES)}
INNER = {path.stem for path in (ROOT / "mapreduce").iterdir()} - NAMES
IMPORT = re.compile(r"^[ >]*(?:from (mapreduce[\w.]*) import (.*)|import (mapreduce[\w.]*))", re.M)


def behind_doors(source: str) -> list[str]:
    """The modules that a source imports from behind the doors."""
    wrong = []
    for module, names, whole in IMPORT.findall(source):
        names = re.findall(r"\w+", names.partition("#")[0]) if module == "mapreduce" else []
        wrong += {module or whole} - DOORS
        wrong += [f"mapreduce.{name}" for name in names if name in INNER]
    return wrong


def sources() -> dict[str, str]:
    """All code that users read, by the names of its files."""
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "jobs").rglob("*.md"), ROOT / "README.md"]
    code = {
        path: "\n".join(re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.M | re.S))
        for path in pages
    }
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        code[path] = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    whole = [*(ROOT / "mapreduce" / "cli" / "template").iterdir(), *(ROOT / "jobs").rglob("*.py")]
    whole.append(ROOT / "tests" / "mapreduce" / "strategies" / "own_averaging.py")
    code |= {path: path.read_text() for path in whole}
    return {str(path.relative_to(ROOT)): text for path, text in code.items()}


def test_users_need_the_doors_alone():
    read = sources()
    importing = [name for name, text in read.items() if IMPORT.search(text)]
    for place in (
        "docs/extending.md",
        "docs/notebooks/",
        "jobs/train.py",
        "mapreduce/cli/template/",
    ):
        assert any(name.startswith(place) for name in importing)
    assert not {name: wrong for name, text in read.items() if (wrong := behind_doors(text))}


def test_pages_name_no_module_behind_a_door():
    """Except those that say how the house is built, and what each of its modules has."""
    wrong = [
        f"{path.name}: {name}"
        for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
        if path.name != "architecture.md" and path.parent.name != "reference"
        for name in re.findall(r"`(mapreduce\.[\w.]+)`", path.read_text())
        if name.split(".")[1] in INNER
    ]
    assert not wrong


@cases(
    "source, wrong",
    ("from mapreduce.models.base import Model", ["mapreduce.models.base"]),
    ("    import mapreduce.runs.events as events", ["mapreduce.runs.events"]),
    (">>> from mapreduce import run, strategies", ["mapreduce.strategies"]),
    ("from mapreduce import run\nfrom mapreduce.job import Job\nimport mapreduce.parts", []),
)
def test_what_lies_behind_a_door_is_seen(source, wrong):
    assert behind_doors(source) == wrong


def test_every_name_has_one_door():
    names = Counter([*mapreduce._LAZY, *job.__all__, *parts.__all__])
    for door in (errors, testing):
        names.update(name for name, it in vars(door).items() if home_of(it) == door.__name__)
    assert len(names) > 100
    assert [name for name, doors in names.items() if doors > 1] == []


def home_of(it: object) -> str:
    return getattr(it, "__module__", "") if callable(it) else ""


def test_the_reference_names_all_parts():
    page = (ROOT / "docs" / "reference" / "own.md").read_text()
    written = re.findall(r"^ {4}(\w+)$|`([A-Z]\w+|events)`", page, re.M)
    assert sorted(map("".join, written)) == sorted(parts.__all__)
