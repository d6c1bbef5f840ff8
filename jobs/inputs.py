"""Real input for the jobs, found on this machine or made from what it has. No network.

    python -m jobs.inputs                     what there is, and where it comes from
    python -m jobs.inputs packages zones      paths, for a command line

Text that is there is named where it lies. Tables are made once, as lines of columns between TABs,
in the folder demo/inputs or another one (-o). Where a source is missing, a small sample takes its
place: it lies in jobs/data, and jobs/data/README.md says whose it is.
"""

import argparse
import ast
import gzip
import re
import sysconfig
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

SAMPLES = Path(__file__).parent / "data"
LICENCES = Path("/usr/share/common-licenses")
STATUS = Path("/var/lib/dpkg/status")
DOCUMENTATION = Path("/usr/share/doc")
ZONEINFO = Path("/usr/share/zoneinfo")
LIBRARY = Path(sysconfig.get_paths()["stdlib"])

#: A row of a table.
Row = tuple[object, ...]


def packages() -> Iterator[Row]:
    """A Debian system's packages: name, section, installed size in KiB, what it depends on."""
    for stanza in STATUS.read_text("utf-8", "replace").split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.M))
        if "Package" in fields and "Installed-Size" in fields:
            depends = re.findall(r"(?:^|, )([a-z0-9][a-z0-9.+-]+)", fields.get("Depends", ""))
            section = fields.get("Section", "unknown")
            needs = ",".join(dict.fromkeys(depends))
            yield fields["Package"], section, fields["Installed-Size"], needs


def releases() -> Iterator[Row]:
    """Their changelogs: name, version, day of the release."""
    for folder in sorted(DOCUMENTATION.iterdir()):
        path = folder / "changelog.Debian.gz"
        if path.is_symlink() or not path.is_file():
            continue
        content = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        for version, day in re.findall(
            r"^\S+ \(([^)]+)\).*?^ -- .*?>  (.+?)$", content, re.M | re.S
        ):
            try:
                yield folder.name, version, parsedate_to_datetime(day).date()
            except ValueError:
                continue


def zones() -> Iterator[Row]:
    """The time zones of tzdata: country, coordinates, name."""
    for line in (ZONEINFO / "zone.tab").read_text().splitlines():
        if not line.startswith("#"):
            yield tuple(line.split("\t")[:3])


def countries() -> Iterator[Row]:
    """The countries of tzdata: code, name."""
    for line in (ZONEINFO / "iso3166.tab").read_text().splitlines():
        if not line.startswith("#"):
            yield tuple(line.split("\t"))


def _modules() -> Iterator[tuple[str, ast.Module]]:
    """Python's own library, without its tests."""
    for path in sorted(LIBRARY.rglob("*.py")):
        parts = path.relative_to(LIBRARY).with_suffix("").parts
        if not {"site-packages", "test", "tests", "idlelib", "lib2to3"} & {*parts}:
            try:
                tree = ast.parse(path.read_bytes())
            except SyntaxError:
                continue
            yield ".".join(parts).removesuffix(".__init__"), tree


def imports() -> Iterator[Row]:
    """Who imports whom in Python's library: module, the modules that it imports."""
    trees = dict(_modules())
    for module, tree in trees.items():
        named = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                named.add(node.module)
        yield module, ",".join(sorted(named & trees.keys() - {module}))


def functions() -> Iterator[Row]:
    """What Python's library says of its functions and classes: name, text in one line."""
    found: dict[str, str] = {}
    for module, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                text = " ".join((ast.get_docstring(node) or "").split())
                if text and not node.name.startswith("_"):
                    found.setdefault(f"{module}.{node.name}", text)
    yield from found.items()


def friends() -> Iterator[Row]:
    """Who appears with whom in Les Misérables (networkx): two characters."""
    from networkx import les_miserables_graph

    yield from sorted(tuple(sorted(edge)) for edge in les_miserables_graph().edges)


def flowers() -> Iterator[Row]:
    """Fisher's irises (scikit-learn): four lengths in cm, species."""
    from sklearn.datasets import load_iris

    iris = load_iris()
    for lengths, species in zip(iris.data, iris.target, strict=True):
        yield *lengths.tolist(), iris.target_names[species]


def matrices() -> Iterator[Row]:
    """The measures of the irises as a matrix B, and its transpose A: name, row, column, element."""
    for number, row in enumerate(flowers()):
        for column, element in enumerate(row[:-1]):
            yield "A", column, number, element
            yield "B", number, column, element


def tumours() -> Iterator[Row]:
    """Breast cancer in Wisconsin (scikit-learn): 1 if benign, then 30 standardised measures."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    for label, measures in zip(y, (x - x.mean(0)) / x.std(0), strict=True):
        yield label, *(round(measure, 4) for measure in measures.tolist())


def digits() -> Iterator[Row]:
    """Handwritten digits of 8 × 8 pixels (scikit-learn): 64 grey levels from 0 to 16, by rows."""
    from sklearn.datasets import load_digits

    for pixels in load_digits().data:
        yield tuple(pixels.astype(int).tolist())


def numerals() -> Iterator[Row]:
    """The same digits after what they are: digit, 64 grey levels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    for digit, pixels in zip(found.target, found.data, strict=True):
        yield digit, *pixels.astype(int).tolist()


def licences() -> list[Path]:
    """Texts of licences (Debian's base-files)."""
    found = [
        path for path in sorted(LICENCES.glob("*")) if path.is_file() and not path.is_symlink()
    ]
    return found or poems()


def poems() -> list[Path]:
    """Poems of Walt Whitman and A. A. Milne (mrjob's examples)."""
    import mapreduce.job  # noqa: F401  (makes mrjob import)

    import mrjob  # isort: skip

    return sorted((Path(mrjob.__file__).parent / "examples/docs-to-classify").glob("*.txt"))


TABLES = (
    *(packages, releases, zones, countries, imports),
    *(functions, friends, flowers, matrices, tumours, digits, numerals),
)
TEXTS = (licences, poems)
NAMES = [source.__name__ for source in (*TEXTS, *TABLES)]


def find(name: str, folder: Path = Path("demo/inputs")) -> list[Path]:
    """The files of an input; a table is made if it is not there yet.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    folder : Path
        Where tables are kept.

    Returns
    -------
    list of Path
        A sample, where the source is missing.
    """
    for text in TEXTS:
        if text.__name__ == name:
            return text()
    (table,) = (table for table in TABLES if table.__name__ == name)
    path = folder / f"{name}.tsv"
    if not path.exists():
        try:
            rows = ["\t".join(map(str, row)) + "\n" for row in table()]
        except (OSError, ImportError):
            rows = []
        if not rows:
            return [SAMPLES / path.name]
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text("".join(rows))
        unfinished.rename(path)
    return [path]


def main() -> None:
    """Print paths, or what there is."""
    parser = argparse.ArgumentParser(description="Paths of real input for the jobs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("demo/inputs"))
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES:
            parser.error(f"there is no input {name!r}; expected {', '.join(NAMES)}")
    for name in options.names:
        for path in find(name, options.output_dir):
            print(path)
    if not options.names:
        for source in (*TEXTS, *TABLES):
            print(f"{source.__name__:10} {(source.__doc__ or '').strip()}")


if __name__ == "__main__":
    main()
