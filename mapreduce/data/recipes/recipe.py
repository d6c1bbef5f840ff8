"""What is to become of the columns of a table, as a user says it: by options or in a TOML file.

``--help`` needs it, so it imports nothing slow.
"""

import codecs
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.support.jsonfiles import build
from mapreduce.support.options import Bound, expect, option, table

#: What may be done where a field is missing.
MISSING_RULES = ("error", "drop", "mean", "median", "constant", "indicator")
TASKS = ("classification", "regression")
LAYOUTS = ("dense", "sparse")
#: Most bits of the number of a hashed feature.
MOST_BITS = 30
#: Separators of thousands: none, or one of these; the last are a space that does not break.
THOUSANDS = ("", ",", ".", "'", "’", "_", " ", "\u00a0", "\u202f")


_SIGN = Bound("one ASCII character", lambda sign: len(sign.encode()) == 1 and sign not in "\r\n\0")

#: Names of columns.
_NAMES: dict[str, Any] = {"joint": ",", "metavar": "NAME[,NAME...]"}


def _one_of(*known: Any) -> Bound:
    return Bound(f"one of {', '.join(map(str, known))}", lambda value: value in known)


def _up_to(most: int) -> Bound:
    return Bound(f"1 to {most:,}", lambda number: 1 <= number <= most)


@dataclass(frozen=True)
class Rule:
    """What a user says about one column; None is what the recipe says, or what the fields show.

    ``constant``: What stands for a missing field, with ``missing = "constant"``.
    ``format``: That of dates, one of :data:`mapreduce.data.recipes.kinds.DATE_FORMATS`.
    """

    kind: str | None = None
    missing: str | None = None
    constant: float | str | None = None
    format: str | None = None


@dataclass(frozen=True)
class Recipe:
    """What is to become of the columns of a table.

    ``label``, ``weights``, ``id``: Names of columns: what is to be predicted, how much each row
      counts, and what identifies a row in its predictions.
    ``labelled``: False if no column is the label.
    ``task``: {"classification", "regression"} or None. Whether labels are classes or numbers to be
      predicted; None: as they look.
    ``drop``: Columns to leave out.
    ``only``: The columns of features, if not all others.
    ``missing``: One of :data:`MISSING_RULES`, for features. ``indicator`` puts the median in the
      place of a number and adds a feature that says so; a missing category is a category of its own
      for ``mean``, ``median`` and ``indicator``.
    ``missing_label``: {"error", "drop"}. What to do with a row without label.
    ``max_categories``: A column of more different texts is hashed; None: one for which that takes
      fewer features (and more than 100 texts), or more than 10,000 texts of a category that a user
      names.
    ``category_bits``: A hashed column becomes ``2**category_bits`` features.
    ``hash_bits``: All columns together are hashed to ``2**hash_bits`` features; see
      :mod:`mapreduce.data.hashing`.
    ``trees``: For boosted trees. Missing numbers and dates stay missing, as NaN, where the rule is
      ``indicator``; nothing is standardised; a category is a feature of whole numbers, its codes,
      and a missing one, or one that the training data did not have, is NaN. The most frequent text
      has the code 0, and rare ones have one code together; see
      :data:`mapreduce.data.recipes.fitted.MOST_CODES`.
    ``standardise``: Subtract its mean from each number and date, and divide it by its standard
      deviation.
    ``layout``: {"dense", "sparse"} or None. None: sparse if that takes less space.
    ``dtype``: {"float32", "float64"}. How features are stored.
    ``delimiter``, ``quote``, ``encoding``, ``decimal``, ``thousands``: Of CSV files. ``thousands``
      is empty if there are no separators of thousands.
    ``na``: Words that stand for a missing field, beside an empty one and, among numbers, booleans
      and dates, ``NA`` and the like.
    ``header``: Whether the first line of a CSV file has the names; None: as it looks.
    """

    label: str | None = option(None, "column to be predicted (default: label)")
    id: str | None = option(None, "column that identifies each row; predictions have it")
    weights: str | None = option(None, "column that says how much each row counts")
    labelled: bool = True
    task: str | None = option(
        None, "whether labels are classes or numbers (default: as they look)", choices=TASKS
    )
    drop: tuple[str, ...] = option((), "columns to leave out", **_NAMES)
    only: tuple[str, ...] = option(
        (),
        "columns that are features, or one of lists (default: all others)",
        flag="--columns",
        **_NAMES,
    )
    missing: str = option(
        "indicator",
        "what to do about a missing field: end with an error, drop the row, fill in the mean or "
        "the median, or (indicator) fill in the median and add a feature that says so (default: "
        "indicator)",
        choices=tuple(rule for rule in MISSING_RULES if rule != "constant"),
    )
    missing_label: str = option(
        "error",
        "what to do about a missing label: end with an error, or drop the row",
        choices=("error", "drop"),
    )
    na: tuple[str, ...] = option(
        (), "word that stands for a missing field; may be repeated", joint=""
    )
    max_categories: int | None = option(
        None,
        "hash a column of more different texts (default: where that takes fewer features)",
        _up_to(10_000),
    )
    category_bits: int = option(
        10,
        "hash a column of texts to 2**BITS features (default: 10)",
        _up_to(MOST_BITS),
        metavar="BITS",
    )
    hash_bits: int | None = option(
        None,
        "hash all columns together to 2**BITS sparse features",
        _up_to(MOST_BITS),
        metavar="BITS",
    )
    trees: bool = option(
        False,
        "for boosted trees: keep missing numbers missing and categories as codes, do not "
        "standardise (default: no-trees)",
        flag="--trees/--no-trees",
    )
    standardise: bool = option(
        True,
        "whether to subtract its mean from each number, and divide it by its standard deviation "
        "(default: standardise)",
        flag="--standardise/--no-standardise",
    )
    layout: str | None = option(
        None, "how to store the features (default: what takes less space)", choices=LAYOUTS
    )
    dtype: str = option(
        "float32",
        "how features of csv, libsvm and parquet are stored (default: float32)",
        choices=("float32", "float64"),
        group="Options",
    )
    header: bool | None = option(
        None,
        "whether the first line has the names (default: if none of them is a number)",
        flag="--header/--no-header",
        group="CSV files",
    )
    delimiter: str = option(
        ",", "separator of fields (default: a comma; a tab for .tsv)", _SIGN, group="CSV files"
    )
    quote: str = option('"', 'quotation mark around fields (default: ")', _SIGN, group="CSV files")
    encoding: str = option("utf-8", "encoding of the text (default: utf-8)", group="CSV files")
    decimal: str = option(".", "decimal sign (default: .)", _one_of(".", ","), group="CSV files")
    thousands: str = option("", "separator of thousands", _one_of(*THOUSANDS), group="CSV files")
    columns: dict[str, Rule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in RECIPE:
            value = getattr(self, row.field)
            bound = _one_of(*row.choices) if row.choices else row.bound
            if bound is not None and not (value is None and row.default is None):
                expect(bound.holds(value), row.field, bound.text, repr(value))
        signs = (self.decimal, self.thousands)
        # A sign in numbers may be the delimiter, if these are in quotes.
        if self.decimal == self.thousands or self.quote in (self.delimiter, *signs):
            raise UsageError(
                f"delimiter {self.delimiter!r}, quote {self.quote!r}, decimal {self.decimal!r} and "
                f"thousands {self.thousands!r}: expected a quote that is none of the others, and "
                f"different signs in numbers"
            )
        try:
            plain = "\n".encode(codecs.lookup(self.encoding).name) == b"\n"
        except LookupError:
            raise UsageError(f"encoding: {self.encoding!r} is unknown. Such as latin-1") from None
        if not plain:
            raise UsageError(
                f"encoding {self.encoding}: lines cannot be found in it. Convert the file with "
                f"iconv -f {self.encoding} -t utf-8"
            )
        if not self.labelled and (self.label is not None or self.task is not None):
            raise UsageError("a label or a task, and no labels, contradict each other")
        if self.trees and (self.layout == "sparse" or self.hash_bits is not None):
            raise UsageError("trees contradicts layout sparse and hash_bits: trees need dense rows")
        if self.drop and self.only:
            raise UsageError("drop and only contradict each other: name the columns once")
        if self.columns:
            # What they name is slow to load.
            from mapreduce.data.recipes.kinds import DATE_FORMATS, KINDS
        for name, rule in self.columns.items():
            place = f"column {name}"
            known = {"kind": (*KINDS, "drop"), "missing": MISSING_RULES, "format": DATE_FORMATS}
            for each, values in known.items():
                if (value := getattr(rule, each)) is not None:
                    bound = _one_of(*values)
                    expect(bound.holds(value), f"{place}: {each}", bound.text, repr(value))
            if (rule.missing == "constant") != (rule.constant is not None):
                raise UsageError(f'{place}: missing = "constant" and constant need each other')

    def missing_rule(self, name: str) -> str:
        """What to do where a field of a column is missing."""
        return self.columns.get(name, Rule()).missing or self.missing

    def to_json(self) -> dict[str, Any]:
        content = asdict(self)
        if not self.trees:
            # As earlier versions wrote it.
            del content["trees"]
        return content

    @staticmethod
    def parse(content: Mapping[str, Any]) -> "Recipe":
        """The recipe of :meth:`to_json`, or of a TOML file."""
        rules = content.get("columns", {})
        if not isinstance(rules, dict):
            raise UsageError("columns: expected a table for each column, [columns.NAME]")
        given = {**content}
        for name in ("drop", "only", "na", *_LISTS):
            if isinstance(given.get(name), str):
                given[name] = [given[name]]
        try:
            columns = {name: build(Rule, rule) for name, rule in rules.items()}
            for kind in _LISTS:
                for name in given.pop(kind, ()):
                    columns[name] = replace(columns.get(name, Rule()), kind=kind)
            return build(Recipe, {**given, "columns": columns})
        except (TypeError, ValueError) as error:
            raise UsageError(str(error)) from error


@dataclass(frozen=True)
class Lists:
    """Columns of a kind, which a user names beside a recipe."""

    number: tuple[str, ...] = option(
        (), "columns of numbers, even with signs of money or spaces in them", **_NAMES
    )
    category: tuple[str, ...] = option(
        (), "columns of names, even if they look like numbers or ids", **_NAMES
    )
    text: tuple[str, ...] = option((), "columns of texts, whose words are hashed", **_NAMES)
    date_format: tuple[str, ...] = option(
        (),
        "NAME=FORMAT of a column of dates, such as day=DD/MM/YYYY; may be repeated",
        joint="",
        metavar="NAME=FORMAT",
    )


#: The heading of options of tables.
_TABLES = "Tables (csv, parquet)"

#: The options of recipes, and those of lists beside them.
RECIPE, LISTS = table(Recipe, _TABLES), table(Lists, _TABLES)

#: Kinds of which a recipe may list the columns.
_LISTS = ("number", "category", "text")


def load(path: AnyPath) -> Recipe:
    """The recipe in a TOML file."""
    with storage_errors("read", path):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise MissingInputError(f"{path} does not exist. Check the name") from None
    try:
        return Recipe.parse(tomllib.loads(content.decode()))
    except (ValueError, UsageError) as error:
        raise DataError(f"{path}: {error}") from error
