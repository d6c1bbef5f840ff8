"""What is to become of the columns of a table, as a user says it: by options or in a TOML file."""

import codecs
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath
from mapreduce.data.hashing import MOST_BITS
from mapreduce.data.recipes.kinds import DATE_FORMATS, KINDS
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.support.jsonfiles import build

#: What may be done where a field is missing.
MISSING_RULES = ("error", "drop", "mean", "median", "constant", "indicator")
TASKS = ("classification", "regression")
LAYOUTS = ("dense", "sparse")
#: Kinds of which a recipe may list the columns.
_LISTS = ("number", "category", "text")
#: Separators of thousands: none, or one of these; the last are a space that does not break.
THOUSANDS = ("", ",", ".", "'", "’", "_", " ", "\u00a0", "\u202f")


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

    label: str | None = None
    weights: str | None = None
    id: str | None = None
    labelled: bool = True
    task: str | None = None
    drop: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    missing: str = "indicator"
    missing_label: str = "error"
    max_categories: int | None = None
    category_bits: int = 10
    hash_bits: int | None = None
    standardise: bool = True
    layout: str | None = None
    dtype: str = "float32"
    delimiter: str = ","
    quote: str = '"'
    encoding: str = "utf-8"
    decimal: str = "."
    thousands: str = ""
    na: tuple[str, ...] = ()
    header: bool | None = None
    columns: dict[str, Rule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks = {
            "task": (None, *TASKS),
            "missing": tuple(rule for rule in MISSING_RULES if rule != "constant"),
            "missing_label": ("error", "drop"),
            "layout": (None, *LAYOUTS),
            "dtype": ("float32", "float64"),
        }
        for name, known in checks.items():
            _one_of(name, getattr(self, name), known)
        bounds = {"max_categories": 10_000, "category_bits": MOST_BITS, "hash_bits": MOST_BITS}
        for name, most in bounds.items():
            if (value := getattr(self, name)) is not None:
                _between(name, value, most)
        _one_of("decimal", self.decimal, (".", ","))
        _one_of("thousands", self.thousands, THOUSANDS)
        for name in ("delimiter", "quote"):
            sign = getattr(self, name)
            if len(sign.encode()) != 1 or sign in "\r\n\0":
                raise UsageError(f"{name}: expected one ASCII character, found {sign!r}")
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
        if self.drop and self.only:
            raise UsageError("drop and only contradict each other: name the columns once")
        for name, rule in self.columns.items():
            place = f"column {name}"
            _one_of(f"{place}: kind", rule.kind, (None, *KINDS, "drop"))
            _one_of(f"{place}: missing", rule.missing, (None, *MISSING_RULES))
            _one_of(f"{place}: format", rule.format, (None, *DATE_FORMATS))
            if (rule.missing == "constant") != (rule.constant is not None):
                raise UsageError(f'{place}: missing = "constant" and constant need each other')

    def missing_rule(self, name: str) -> str:
        """What to do where a field of a column is missing."""
        return self.columns.get(name, Rule()).missing or self.missing

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

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


def _one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        shown = ", ".join(str(one) for one in known if one is not None)
        raise UsageError(f"{name}: expected one of {shown}, found {value!r}")


def _between(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise UsageError(f"{name}: expected 1 to {most:,}, found {value}")
