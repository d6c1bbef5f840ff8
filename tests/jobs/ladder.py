"""The rungs of jobs/: their order, their samples, and how many lines a user writes.

``python tests/jobs/ladder.py`` writes the table of jobs/README.md anew.
"""

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "jobs"
README = JOBS / "README.md"
HEADINGS = ("builds on", "adds", "next", "run me")


@dataclass(frozen=True)
class Case:
    """A small run of a rung.

    Attributes
    ----------
    inputs : tuple of str
        Files, seen from the repository.
    arguments : tuple of str
    ordered : bool
        Whether the order of the output's lines, part after part, is a part of the answer.
    """

    inputs: tuple[str, ...] = ("jobs/data/packages.tsv",)
    arguments: tuple[str, ...] = ()
    ordered: bool = False

    def command_line(self) -> list[str]:
        """Arguments and inputs; what is a file, from anywhere."""
        return [
            str(ROOT / word) if "/" in word or word in self.inputs else word
            for word in (*self.arguments, *self.inputs)
        ]


TEXT = ("LICENSE",)
PACKAGES = ("jobs/data/packages.tsv",)
RELEASES = ("jobs/data/releases.tsv",)
FUNCTIONS = ("jobs/data/functions.tsv",)
FLOWERS = ("jobs/data/flowers.tsv",)
IMPORTS = ("jobs/data/imports.tsv",)

CASES = {
    "word_count": Case(TEXT),
    "word_count_combiner": Case(TEXT),
    "word_count_vectorized": Case(TEXT),
    "grep": Case(TEXT, ("-e", "warrant")),
    "sample": Case(TEXT, ("--fraction", "0.3")),
    "bad_records": Case(("jobs/data/packages.tsv", "ruff.toml")),
    "split_reader": Case(TEXT),
    "mean_variance": Case(),
    "exact_sum": Case(("jobs/data/flowers.tsv",)),
    "median": Case(),
    "distinct": Case(),
    "top_k": Case(TEXT, ("-k", "5")),
    "inverted_index": Case(FUNCTIONS),
    "cooccurrence_pairs": Case(TEXT),
    "cooccurrence_stripes": Case(TEXT),
    "relative_frequency": Case(TEXT),
    "secondary_sort": Case(),
    "total_sort": Case(RELEASES, ("--sample", "jobs/data/releases.tsv"), ordered=True),
    "shuffle_and_split": Case(("jobs/data/flowers.tsv",), ("--epoch", "1"), ordered=True),
    "replicated_join": Case(("jobs/data/zones.tsv",), ("--countries", "jobs/data/countries.tsv")),
    "reduce_join": Case((*RELEASES, *PACKAGES)),
    "bloom_join": Case((*PACKAGES, *RELEASES), ("--section", "utils", "--packages", *PACKAGES)),
    "salted_join": Case(),
    "near_duplicates": Case(FUNCTIONS),
    "friends": Case(("jobs/data/friends.tsv",)),
    "frequent_itemsets": Case(arguments=("--size", "3", "--support", "2")),
    "breadth_first": Case(IMPORTS, ("--start", "os")),
    "page_rank": Case(IMPORTS, ("--rounds", "2")),
    "matrix_product": Case(("jobs/data/matrices.tsv",), ("--rows=4", "--columns=4", "--block=3")),
    "naive_bayes": Case(FUNCTIONS),
    "k_means": Case(
        ("jobs/data/flowers.tsv",), ("--centres", "tests/jobs/centres.tsv", "--rounds=2")
    ),
    "gradient_naive": Case(("jobs/data/tumours.tsv",), ("--rounds", "2")),
    "boosting": Case(("jobs/data/tumours.tsv",), ("--rounds", "3")),
    "filter_gradient": Case(("jobs/data/digits.tsv",)),
}


def comparable(pairs, ordered: bool = False) -> list:
    """Pairs in an order of their own; mrjob's protocols for text keep the line feed."""
    found = [[_plain(key), _plain(value)] for key, value in pairs]
    return found if ordered else sorted(found, key=_short)


def _plain(value):
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.rstrip("\n") if isinstance(value, str) else value


def _short(value) -> str:
    """Text to sort by, which does not change with the last digits of floats."""
    if isinstance(value, list):
        return " ".join(map(_short, value))
    return f"{value:.3g}" if isinstance(value, float) else json.dumps(value)


def sections(path: Path) -> dict[str, str]:
    """The part of a job's docstring that says where on the ladder it is."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    found = re.findall(rf"^({'|'.join(HEADINGS)})\s+(.*(?:\n[ ]+\S.*)*)", text, re.M)
    return {
        heading: re.sub(r"\s+", " ", content.replace("\\\n", " ")) for heading, content in found
    }


def chain() -> list[str]:
    """The rungs, from the first to the last, as each names the next."""
    names = ["word_count"]
    while following := sections(JOBS / f"{names[-1]}.py").get("next"):
        names.append(re.match(r"(\w+)\.py", following)[1])
    return names


def code_lines(path: Path, function: str | None = None) -> int:
    """Lines that a user writes: no docstring, comment, blank line or import, nor the last two.

    Of a module of functions, those of one function and of what it uses of its module.
    """
    source = path.read_text()
    body = [
        node
        for node in ast.parse(source).body
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.If)
    ]
    if function:
        body = list(_used(function, {_name(node): node for node in body if _name(node)}))
    documentation = {
        line
        for top in body
        for node in ast.walk(top)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    text = source.splitlines()
    return sum(
        bool(re.match(r"\s*[^\s#]", text[line - 1])) and line not in documentation
        for node in body
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    )


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return node.targets[0].id
    return ""


def _used(name: str, top: dict[str, ast.stmt]):
    found, waiting = set(), [name]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        yield top[name]
        names = (node.id for node in ast.walk(top[name]) if isinstance(node, ast.Name))
        waiting += [other for other in names if other in top]


def table() -> str:
    """The ladder's map, in Markdown."""
    rows = ["| rung | adds | lines | in one process |", "|---|---|--:|--:|"]
    single = Path(__file__).parent / "single_process.py"
    aliases = {"word_count_combiner": "word_count", "word_count_vectorized": "word_count"}
    for name in chain():
        adds = sections(JOBS / f"{name}.py")["adds"]
        alone = code_lines(single, aliases.get(name, name)) if name in CASES else ""
        rows.append(
            f"| [{name}]({name}.py) | {adds} | {code_lines(JOBS / f'{name}.py')} | {alone} |"
        )
    return "\n".join(rows) + "\n"


def wrong_table() -> str:
    """The mistakes, in Markdown."""
    rows = ["| wrong | because | right |", "|---|---|---|"]
    for path in sorted((JOBS / "wrong").glob("[a-z]*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        because, right = (
            re.search(rf"^{heading}: (.*)$", text, re.M)[1]
            for heading in ("wrong because", "right")
        )
        stem = Path(right).stem
        rows.append(f"| [{path.stem}](wrong/{path.name}) | {because} | [{stem}]({stem}.py) |")
    return "\n".join(rows) + "\n"


def readme(text: str) -> str:
    """The README, with its two tables as they should be."""
    first, second = re.findall(r"(?:^\|.*\n)+", text, re.M)
    return text.replace(first, table()).replace(second, wrong_table())


if __name__ == "__main__":
    README.write_text(readme(README.read_text()))
