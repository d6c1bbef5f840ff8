"""A recipe that has seen the training data: what each column becomes, to the last digit."""

import hashlib
import json
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hdfs_utils.paths import AnyPath
from mapreduce.data import csr, hashing
from mapreduce.data.batch import Array, Block, Csr
from mapreduce.data.recipes import kinds
from mapreduce.data.recipes.recipe import MOST_BITS, Recipe, Rule
from mapreduce.data.recipes.summary import MOST_VALUES, Numbers, Summary, Texts, distinct
from mapreduce.errors import DataError, UsageError
from mapreduce.reduction.moments import merge
from mapreduce.support.commands import command
from mapreduce.support.jsonfiles import build

DAY = 86400.0
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: A column of texts is taken for an id if more than this share of them come once.
ID_SHARE, ID_ROWS = 0.9, 20
#: So many different texts have a feature each, even where hashing them would take fewer.
_MOST_LEVELS = 100
#: Data of not more bytes than this are dense, which all models take.
DENSE_BYTES = 256 << 20
#: Most codes of a category for trees, if up to so many texts have a code each, or only those that
#: come in so many rows; and most bits of hashed texts, and of hashed words.
MOST_CODES, FEW_CODES, CODE_ROWS = 4096, 254, 10
_CODE_BITS, _WORD_BITS = 12, 6
#: More features than these have no names in a dataset.
MOST_NAMES = 1 << 16
_CHUNK_ROWS = 2048


@dataclass(frozen=True)
class Fitted:
    """What one column becomes.

    ``kind``: ``number``, ``boolean``, ``date:FORMAT``, ``date:FORMAT@ZONE``, ``category``,
      ``hashed`` or ``text``.
    ``fill``: What stands for a missing number, or date in seconds since 1970, or text.
    ``indicator``: Whether a feature says that the field is missing.
    ``mean``, ``scale``: Subtracted from numbers, and dates in days since 1970, and what they are
      divided by.
    ``levels``: Of a category, in sorted order; for trees in the order of their codes.
    ``with_time``: Whether dates have times of day.
    ``bits``: There are ``2**bits`` features of hashed texts.
    ``note``: For people: what was found.
    ``codes``: For trees: how many codes the texts have, of which the rare ones share the last; 1
      for others. 0 if it is not for trees.
    """

    name: str
    kind: str
    missing: str
    fill: float | str | None = None
    indicator: bool = False
    mean: float = 0.0
    scale: float = 1.0
    levels: tuple[str, ...] = ()
    with_time: bool = False
    bits: int = 0
    note: str = ""
    codes: int = 0

    @property
    def is_text(self) -> bool:
        return self.kind in ("category", "hashed", "text")

    @property
    def width(self) -> int:
        """The number of features."""
        count = 1
        if self.kind == "text":
            count = 1 << self.bits
        elif self.codes:
            count = (3 + self.with_time) if self.kind.startswith("date:") else 1
        elif self.kind == "category":
            count = len(self.levels) + 1
        elif self.kind == "hashed":
            count = 1 << self.bits
        elif self.kind.startswith("date:"):
            count = 20 + 24 * self.with_time
        return count + self.indicator

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        names: list[str]
        if self.codes and self.kind.startswith("date:"):
            parts = ("days", "month", "weekday", *(["hour"] if self.with_time else []))
            names = [f"{self.name} ({part})" for part in parts]
        elif self.codes and self.kind != "text":
            names = [self.name]
        elif self.kind == "category":
            names = [f"{self.name}={level}" for level in self.levels] + [f"{self.name} (other)"]
        elif self.kind in ("hashed", "text"):
            names = [f"{self.name} #{i}" for i in range(1 << self.bits)]
        elif self.kind.startswith("date:"):
            names = [f"{self.name} (days)"]
            names += [f"{self.name} (month {month})" for month in range(1, 13)]
            names += [f"{self.name} ({day})" for day in WEEKDAYS]
            names += [f"{self.name} (hour {hour})" for hour in range(24)] * self.with_time
        else:
            names = [self.name]
        return (*names, *([f"{self.name} (missing)"] if self.indicator else []))


@dataclass(frozen=True)
class FittedRecipe:
    """What the columns of a table become.

    The ``recipe`` is as it was asked for, with the names of label, weights and id, and the task.
    ``columns`` are in the order of their features: that of the columns in the training data's first
    file. ``left_out`` says why others are no features, and ``place`` where the recipe's file lies.
    """

    recipe: Recipe
    columns: tuple[Fitted, ...]
    left_out: dict[str, str]
    layout: str
    place: str = field(default="", compare=False)

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns that are read as numbers."""
        return tuple(column.name for column in self.columns if not column.is_text)

    @cached_property
    def _places(self) -> dict[str, int]:
        """The places of these columns among them."""
        return {name: place for place, name in enumerate(self.numbers)}

    @cached_property
    def levels(self) -> dict[str, dict[str, int]]:
        """The places of the levels of each category."""
        kind = "category"
        categories = {each.name: each.levels for each in self.columns if each.kind == kind}
        return {
            name: {level: place for place, level in enumerate(levels)}
            for name, levels in categories.items()
        }

    @cached_property
    def features(self) -> tuple[str, ...] | None:
        """Names of all features; None if they are hashed together, or too many."""
        if self.recipe.hash_bits is not None or self.width > MOST_NAMES:
            return None
        return tuple(name for column in self.columns for name in column.features)

    @property
    def ranges(self) -> dict[str, tuple[int, int]] | None:
        """The features of each column, start and stop; None if they are hashed together."""
        if self.recipe.hash_bits is not None:
            return None
        bounds = zip(self.columns, pairwise(self._starts), strict=True)
        return {column.name: ends for column, ends in bounds}

    @property
    def width(self) -> int:
        """The number of features."""
        if self.recipe.hash_bits is not None:
            return 1 << self.recipe.hash_bits
        return self._starts[-1]

    @property
    def row_entries(self) -> int:
        """An estimate of how many features of a row are not 0."""
        if self.recipe.hash_bits is not None:
            return len(self.columns)
        return sum(
            20 if c.kind == "text" else 4 if c.kind.startswith("date:") else 1 for c in self.columns
        )

    def standardisation(self) -> tuple[Array, Array]:
        """What is subtracted from each feature (width,), and what it is divided by (width,)."""
        mean, scale = np.zeros(self.width), np.ones(self.width)
        if self.recipe.hash_bits is None:
            means, scales, _, places = self._linear
            mean[places], scale[places] = means, scales
        return mean, scale

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds by which the columns are read."""
        return {c.name: "text" if c.is_text else c.kind for c in self.columns}

    def to_bytes(self) -> bytes:
        """The file of the recipe: JSON, the same bytes for the same recipe."""
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:
        content = {
            "recipe": self.recipe.to_json(),
            "columns": [_content(column) for column in self.columns],
            "left_out": self.left_out,
            "layout": self.layout,
        }
        return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()

    @cached_property
    def sha256(self) -> str:
        """Digest of the file."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @staticmethod
    def from_bytes(content: bytes) -> "FittedRecipe":
        """The recipe of :meth:`to_bytes`. Raises ValueError, UsageError (it is none)."""
        parsed = json.loads(content)
        if not isinstance(parsed, dict) or not isinstance(parsed.get("recipe"), dict):
            raise ValueError("expected the object of a recipe")
        columns = tuple(build(Fitted, column) for column in parsed.get("columns", ()))
        recipe = Recipe.parse(parsed["recipe"])
        left_out, layout = parsed.get("left_out"), parsed.get("layout")
        known = all(_makes_sense(column, recipe) for column in columns)
        if (
            len({column.name for column in columns}) != len(columns or "?")
            or not known
            or type(left_out) is not dict
            or layout not in ("dense", "sparse")
        ):
            raise ValueError("its columns or its layout make no sense")
        return FittedRecipe(recipe, columns, left_out, layout)

    def transform(self, block: Block) -> Array | Csr:
        """The features (rows, width) of a block, in the recipe's dtype and layout."""
        try:
            with np.errstate(over="raise"):
                return self._transformed(block, np.dtype(self.recipe.dtype))
        except FloatingPointError as error:
            raise DataError(
                f"a number of the table is too large for {self.recipe.dtype}: numbers beyond "
                f"3.4e38 overflow float32. Take --dtype float64"
            ) from error

    def _transformed(self, block: Block, dtype: np.dtype[Any]) -> Array | Csr:
        if self.recipe.hash_bits is not None:
            plain = iter(block.numbers.T)
            columns = [
                block.texts[c.name] if c.is_text else kinds.as_hashed(next(plain), c.kind)
                for c in self.columns
            ]
            names = [column.name for column in self.columns]
            hashed = hashing.hash_columns(names, columns, self.recipe.hash_bits, dtype)
            if not np.isfinite(hashed.values).all():
                raise FloatingPointError("numbers that meet in one feature")
            return hashed
        if self.recipe.trees:
            return self._coded(block, dtype)
        if self.layout == "sparse":
            return self._sparse(block, dtype)
        rows = len(block.numbers)
        out = np.zeros((rows, self.width), dtype)
        means, scales, fills, places = self._linear
        for start in range(0, rows if len(places) else 0, _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            x = block.numbers[part] / self._units
            x = np.where(np.isnan(x), fills, x)
            out[part, places] = (x - means) / scales
        at = np.arange(rows)
        for where, values in self._entries(block):
            if isinstance(where, tuple):
                np.add.at(out, where, values)
            else:
                used = where >= 0
                out[at[used], where[used]] = values if isinstance(values, float) else values[used]
        return out

    def _coded(self, block: Block, dtype: np.dtype[Any]) -> Array:
        """The features for trees."""
        out = np.zeros((len(block.numbers), self.width), dtype)
        numbers = iter(block.numbers.T)
        for start, column in zip(self._starts, self.columns, strict=False):
            if column.is_text:
                texts = block.texts[column.name]
                if isinstance(column.fill, str) and not isinstance(texts, np.ndarray):
                    texts = pc.fill_null(texts, column.fill)
                where, values = _text_entries(column, texts, start)
                if column.kind == "text":
                    np.add.at(out, where, values)
                else:
                    out[:, start] = np.where(where < start, np.nan, where - start)
                continue
            found = next(numbers)
            if column.fill is not None:
                found = np.where(np.isnan(found), float(column.fill), found)
            is_date = column.kind.startswith("date:")
            out[:, start] = found / DAY if is_date else found
            for place, part in enumerate(_calendar(column, found) if is_date else (), start + 1):
                out[:, place] = np.where(part < 0, np.nan, part)
        return out

    @property
    def categories(self) -> tuple[tuple[int, int], ...]:
        """The features that are codes, and how many codes each has."""
        pairs = zip(self._starts, self.columns, strict=False)
        return tuple((s, c.codes) for s, c in pairs if c.codes and c.kind in ("category", "hashed"))

    @cached_property
    def _starts(self) -> list[int]:
        """The first feature of each column."""
        return [*accumulate((column.width for column in self.columns), initial=0)]

    @cached_property
    def _units(self) -> Array:
        """What the columns of numbers are divided by: dates are days."""
        return np.array([DAY if c.kind.startswith("date:") else 1.0 for c in self._plain])

    @property
    def _plain(self) -> list[Fitted]:
        return [column for column in self.columns if not column.is_text]

    @cached_property
    def _linear(self) -> tuple[Array, Array, Array, Array]:
        """Means, scales, what stands for missing ones, and features of the columns of numbers."""
        plain = self._plain
        places = [
            start for start, c in zip(self._starts, self.columns, strict=False) if not c.is_text
        ]
        fills = np.array([float(c.fill or 0.0) for c in plain]) / self._units
        means, scales = np.array([c.mean for c in plain]), np.array([c.scale for c in plain])
        return means, scales, fills, np.array(places, np.int64)

    def _entries(self, block: Block) -> Iterator[tuple[Any, Any]]:
        """Features beside those of numbers, in their order.

        Yields (places, values): the feature (rows,) and its value, an array (rows,) or 1, and place
        -1 for none; or ((rows, places), values): entries of texts, to be added up.
        """
        numbers = 0
        for start, column in zip(self._starts, self.columns, strict=False):
            if column.is_text:
                texts = block.texts[column.name]
                is_known = isinstance(texts, np.ndarray)
                if isinstance(column.fill, str) and not is_known:
                    texts = pc.fill_null(texts, column.fill)
                yield _text_entries(column, texts, start)
                missing = None
                if column.indicator and not is_known:
                    missing = pc.is_null(texts).to_numpy(zero_copy_only=False)
            else:
                values = block.numbers[:, numbers]
                numbers += 1
                if column.kind.startswith("date:"):
                    firsts = (start, start + 13, start + 20)
                    for first, part in zip(firsts, _calendar(column, values), strict=False):
                        yield np.where(part < 0, -1, first + part), 1.0
                missing = np.isnan(values) if column.indicator else None
            if missing is not None:
                yield np.where(missing, start + column.width - 1, -1), 1.0

    def _sparse(self, block: Block, dtype: np.dtype[Any]) -> Csr:
        rows = len(block.numbers)
        means, scales, fills, places = self._linear
        single: list[tuple[Array, Any]] = []
        several: list[tuple[Array, Array, Array]] = []
        for where, values in self._entries(block):
            if isinstance(where, tuple):
                several.append((*where, values))
            else:
                single.append((where, values))
        # A feature for each column that has one in each row, in the order of the features: those of
        # a column come one after another, and so do the columns.
        most = [*places.tolist(), *(int(where.max(initial=-1)) for where, _ in single)]
        slots = np.argsort(np.argsort(most, kind="stable"))
        numbers, others = slots[: len(places)], slots[len(places) :]
        parts = []
        for start in range(0, max(rows, 1), _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            x = block.numbers[part] / self._units
            x = (np.where(np.isnan(x), fills, x) - means) / scales
            at, found = (
                np.empty((len(x), len(most)), np.int32),
                np.empty((len(x), len(most)), dtype),
            )
            at[:, numbers], found[:, numbers] = places, x
            for slot, (where, values) in zip(others.tolist(), single, strict=True):
                at[:, slot] = where[part]
                one = values if isinstance(values, float) else values[part]
                found[:, slot] = np.where(where[part] >= 0, one, 0.0)
            used = found != 0
            parts.append((used.sum(axis=1), at[used], found[used]))
        lengths, indices, entries = (np.concatenate(some) for some in zip(*parts, strict=True))
        if not several:
            return csr.from_lengths(lengths, indices, entries, self.width)
        several.append((np.repeat(np.arange(rows), lengths), indices, entries))
        return self._added(rows, several, dtype)

    def _added(
        self, rows: int, parts: list[tuple[Array, Array, Array]], dtype: np.dtype[Any]
    ) -> Csr:
        """Sparse rows of entries (row, feature, value) that are to be added up."""
        row, place, value = (np.concatenate(some) for some in zip(*parts, strict=True))
        keys = row * self.width + place
        ordered = np.argsort(keys, kind="stable")
        keys, value = keys[ordered], value[ordered]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        sums = np.add.reduceat(value, starts).astype(dtype) if rows else value.astype(dtype)
        kept = sums != 0
        keys = keys[starts[kept]]
        lengths = np.bincount(keys // self.width, minlength=rows)
        indices = (keys % self.width).astype(np.int32)
        return csr.from_lengths(lengths, indices, sums[kept], self.width)

    def is_text(self, name: str) -> bool:
        """Whether a column is one of texts."""
        return name not in self._places

    def filled(self, block: Block) -> dict[str, int]:
        """How many fields are missing in columns that had all fields in the training data."""
        found = {}
        for column in self.columns:
            if column.missing == "indicator" and not column.indicator and not column.codes:
                missing = (
                    block.texts[column.name].null_count
                    if column.is_text
                    else int(np.isnan(block.numbers[:, self._places[column.name]]).sum())
                )
                if missing:
                    found[column.name] = missing
        return found

    def unknown(self, block: Block) -> dict[str, int]:
        """How many fields of each category are none of the levels of the training data."""
        found = {}
        for column in self.columns:
            if column.kind == "category":
                texts = block.texts[column.name]
                known = pc.is_in(texts, pa.array(column.levels, pa.string()))
                if count := len(texts) - texts.null_count - (pc.sum(known).as_py() or 0):
                    found[column.name] = count
        return found


def _content(column: Fitted) -> dict[str, Any]:
    content = asdict(column)
    if not column.codes:
        # As earlier versions wrote it.
        del content["codes"]
    return content


def _makes_sense(column: Fitted, recipe: Recipe) -> bool:
    """Whether features can be made of a column, as a file describes it."""
    kind, _, form = column.kind.partition("@")[0].partition(":")
    has_bits = kind in ("hashed", "text") and recipe.hash_bits is None
    return (
        kind in (*kinds.KINDS, "hashed")
        and form in (kinds.DATE_FORMATS if kind == "date" else ("",))
        and (not has_bits or 1 <= column.bits <= MOST_BITS)
        and (0 < column.codes <= MOST_CODES) == recipe.trees
        and bool(np.isfinite([column.mean, column.scale]).all() and column.scale > 0)
        and (column.is_text or column.fill is None or bool(np.isfinite(float(column.fill))))
    )


def _text_entries(column: Fitted, texts: Any, start: int) -> tuple[Any, Any]:
    if isinstance(texts, np.ndarray):
        # Places of categories: none is missing.
        return _codes(column, texts) + start, 1.0
    encoded = texts.dictionary_encode()
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    if column.kind == "category":
        levels = pa.array(column.levels, pa.string())
        own = pc.index_in(encoded.dictionary, levels)
        places = pc.fill_null(own, len(levels)).to_numpy(zero_copy_only=False) + start
        if column.codes:
            places = np.where(
                places < start + len(levels), _codes(column, places - start) + start, -1
            )
        return np.append(places, -1)[codes], 1.0
    if column.kind == "hashed":
        places, signs = hashing.places(_hash_texts(column.name, encoded.dictionary), column.bits)
        return np.append(places + start, -1)[codes], np.append(signs, 0.0)[codes]
    owners, flat = kinds.words(encoded.dictionary)
    places, signs = hashing.places(flat, column.bits)
    lengths = np.bincount(owners, minlength=len(encoded.dictionary))
    values = signs / np.sqrt(lengths[owners])
    starts = np.append(np.concatenate([[0], np.cumsum(lengths)]), len(flat))
    counts = np.append(lengths, 0)[codes]
    rows = np.repeat(np.arange(len(codes)), counts)
    offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(starts[codes], counts) + offsets
    return (rows, places[at] + start), values[at]


def _codes(column: Fitted, places: Array) -> Array:
    """Codes of levels: for trees, those after the last code share it."""
    found: Array = np.minimum(places, column.codes - 1) if column.codes else places
    return found


def _hash_texts(name: str, texts: Any) -> Any:
    """What is hashed for each text of a column."""
    return pc.binary_join_element_wise(f"{name}=", texts, "")


def _calendar(column: Fitted, seconds: Array) -> Iterator[Array]:
    """Month from 1 on, weekday and hour, -1 where the date is missing."""
    missing = np.isnan(seconds)
    whole = np.where(missing, 0, seconds).astype(np.int64)
    days = whole // 86400
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
    parts = [1 + months, (days + 3) % 7]
    if column.with_time:
        parts.append(whole % 86400 // 3600)
    for part in parts:
        yield np.where(missing, -1, part)


def fit(recipe: Recipe, summary: Summary, source: str) -> FittedRecipe:
    """The recipe, fitted to the training data; ``source`` names them in messages."""
    columns, left_out = [], {}
    for name, column in summary.columns.items():
        rule = recipe.columns.get(name, Rule())
        try:
            found = _fit(recipe, name, summary.kinds[name], column, rule)
        except DataError as error:
            raise DataError(f"{source}, column {name}: {error}") from error
        if isinstance(found, str):
            left_out[name] = found
        else:
            columns.append(found)
    if not columns:
        why = "".join(f"; {name}: {reason}" for name, reason in left_out.items())
        raise DataError(f"{source} has no column that can be a feature{why}")
    fitted = FittedRecipe(recipe, tuple(columns), left_out, "dense")
    names = fitted.features or ()
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataError(
            f"{source}: two features have the same name, {twice}. Give a column another name"
        )
    return replace(fitted, layout=recipe.layout or _layout(fitted, summary.rows))


def _layout(fitted: FittedRecipe, rows: int) -> str:
    if fitted.recipe.hash_bits is not None:
        return "sparse"
    if fitted.recipe.trees:
        return "dense"
    if rows * fitted.width * np.dtype(fitted.recipe.dtype).itemsize <= DENSE_BYTES:
        return "dense"
    return "sparse" if fitted.width > 4 * fitted.row_entries else "dense"


def _fit(recipe: Recipe, name: str, kind: str, column: Numbers | Texts, rule: Rule) -> Fitted | str:
    """What a column becomes, or why it is left out."""
    missing = recipe.missing_rule(name)
    if not column.rows:
        return "all of its fields are missing"
    is_date = kind.startswith("date:") or recipe.hash_bits is not None
    if rule.kind == "date" and not is_date:
        raise DataError(
            f"expected dates that are all written in one of these ways: "
            f"{', '.join(kinds.DATE_FORMATS)}"
        )
    if column.missing and missing == "error":
        raise DataError(
            f"{column.missing:,} fields are missing. Say what to do with --missing, or leave the "
            f"column out: --drop {shlex.quote(name)}"
        )
    common: dict[str, Any] = {
        "name": name,
        "missing": missing,
        "indicator": bool(column.missing) and missing == "indicator" and not recipe.trees,
        "codes": int(recipe.trees),
    }
    if isinstance(column, Numbers):
        return _fit_numbers(recipe, kind, column, rule, common)
    if recipe.hash_bits is not None:
        if rule.kind not in ("category", "text"):
            _check_numbers(recipe, shlex.quote(name), column)
        return Fitted(kind="text", note="hashed with all others", **common)
    return _fit_texts(recipe, column, rule, common)


def _fit_numbers(
    recipe: Recipe, kind: str, column: Numbers, rule: Rule, common: Mapping[str, Any]
) -> Fitted | str:
    name, missing = shlex.quote(common["name"]), common["missing"]
    if "|" in kind:
        raise DataError(
            f"its dates may be {' or '.join(kinds.of_date(kind)[0])}. Say which: "
            f"--date-format {name}=DD/MM/YYYY"
        )
    what = kind.removesuffix("?") if kind != "empty" else "number"
    if recipe.hash_bits is not None:
        return Fitted(kind=what, note="hashed with all others", **common)
    unit = DAY if kind.startswith("date:") else 1.0
    is_scaled = recipe.standardise and not kind.startswith("boolean") and not recipe.trees
    if (is_scaled or missing == "mean") and not np.isfinite(column.squares):
        raise DataError(
            f"its numbers are too large for their variance: {column.least:.6g} to "
            f"{column.most:.6g}. Say --no-standardise and --missing median, or --drop {name}"
        )
    weight, mean, squares = column.weight, column.mean, column.squares
    fill = mean if np.isfinite(mean) else 0.0
    stays = recipe.trees and missing == "indicator"
    if column.missing and missing in ("median", "indicator"):
        assert column.sketch is not None, "columns with missing numbers have a sketch"
        fill = column.sketch.median() if weight else 0.0
    elif missing == "constant":
        fill = _constant(kind, rule.constant)
    # The moments once the missing numbers are filled.
    if missing != "drop" and weight:
        filled = (column.missing_weight, fill, 0.0)
        weight, mean, squares = merge((weight, mean, squares), filled)
    variance = squares / weight if weight else 0.0
    rounding = (column.rows + 1) * np.finfo(np.float64).eps
    # Not of squares, which overflow where the numbers themselves do not.
    constant = math.sqrt(variance) <= math.hypot(math.sqrt(rounding * variance), rounding * mean)
    note = "the same in all rows" if constant and not column.missing else _range(kind, column)
    if column.missing:
        note += f", {column.missing:,} missing"
        shown = str(np.datetime64(int(fill), "s")) if unit == DAY else f"{fill:.6g}"
        by = {"indicator": "median ", "constant": ""}.get(missing, f"{missing} ")
        note += ": rows left out" if missing == "drop" else f": {by}{shown}" * (not stays)
    return Fitted(
        kind=what,
        fill=None if stays else fill,
        mean=mean / unit if is_scaled else 0.0,
        scale=float(np.sqrt(variance)) / unit if is_scaled and not constant else 1.0,
        with_time=kind.startswith("date:") and not column.whole,
        note=note,
        **common,
    )


def _constant(kind: str, constant: float | str | None) -> float:
    """What a user puts in the place of missing numbers or dates."""
    text = pa.array([str(constant)])
    if kind.startswith("date:"):
        (form,), _ = kinds.of_date(kind)
        found, what = kinds.dates(text, form), f"date {form}"
    elif kind == "boolean":
        (found, _), what = kinds.booleans(text), "word such as true or false"
    else:
        (found, _), what = kinds.numbers(text), "number"
    if not np.isfinite(found[0]):
        raise DataError(f"constant: expected a {what}, found {constant!r}")
    return float(found[0])


def _range(kind: str, column: Numbers) -> str:
    if kind.startswith("date:"):
        least, most = (
            str(np.datetime64(int(end), "s"))[: 19 if not column.whole else 10]
            for end in (column.least, column.most)
        )
        return f"{least} to {most}"
    return f"{column.least:.6g} to {column.most:.6g}"


def _check_numbers(recipe: Recipe, name: str, column: Texts) -> None:
    """Refuse a column that mostly holds numbers, but not in all fields."""
    shown = ", ".join(map(repr, column.words))
    advice = kinds.number_advice(column.words, name, recipe.decimal, recipe.thousands)
    rows = column.rows - column.absent
    if column.words and 2 * column.numeric > rows:
        raise DataError(
            f"{column.numeric:,} of its {rows:,} fields are numbers, others are not: "
            f"{shown}. Say {advice or f'--number {name}'} if "
            f"these are numbers with other signs in them, "
            f"{command('--na', column.words[0])} if that stands for a missing number, "
            f"--category {name} if all are names, or --drop {name}"
        )


def _check_words(recipe: Recipe, name: str, column: Texts) -> None:
    """Refuse a column that mostly holds numbers, or dates, but not in all fields."""
    _check_numbers(recipe, name, column)
    if advice := kinds.number_advice(column.words, name, recipe.decimal, recipe.thousands):
        raise DataError(
            f"its fields look like numbers: {', '.join(map(repr, column.words))}. Say {advice} if "
            f"they are, or --category {name} or --drop {name}"
        )
    if found := kinds.date_error(column.forms, column.rows - column.absent):
        raise DataError(
            f"its fields look like dates, but not all are, or they are written in different ways "
            f"or with time zones: {found}. Write all in one way, such as {kinds.DATE_FORMATS[0]}, "
            f"say --na WORD for what is no date, or --category {name} or --drop {name}"
        )


def _fit_texts(
    recipe: Recipe, column: Texts, rule: Rule, common: Mapping[str, Any]
) -> Fitted | str:
    name, missing = shlex.quote(common["name"]), common["missing"]
    if rule.kind is None:
        _check_words(recipe, name, column)
    count, about = _estimate(column.hashes, column.rows)
    about += " different"
    note = about + f", {column.missing:,} missing" * bool(column.missing)
    fill = str(rule.constant) if missing == "constant" else None
    given = {**common, "fill": fill}
    if missing not in ("drop", "constant") and not recipe.trees:
        given["indicator"] = bool(column.missing)
    most = recipe.max_categories or max(_MOST_LEVELS, (1 << recipe.category_bits) - 1)
    if recipe.max_categories is None and rule.kind == "category":
        most = MOST_VALUES
    has_few = column.values is not None and len(column.values) <= most
    differ, is_short = count / max(column.rows, 1), column.rows < 1 << recipe.category_bits
    is_prose = rule.kind is None and not (has_few and is_short and differ <= ID_SHARE)
    is_prose = is_prose and _is_prose(column, 1.0 if not has_few else 1 / differ)
    if rule.kind is None:
        if not is_prose and column.rows >= ID_ROWS and differ > ID_SHARE:
            words = f", or --text {name} to use its words" * (2 * column.spaced > column.rows)
            return (
                f"{about}: it looks like an id. Say --id {name}, or --category {name} to use "
                f"it{words}"
            )
        if (is_prose or not has_few) and is_short:
            return (
                f"{about} texts in {column.rows:,} rows are too many to learn from. Say "
                f"--{'text' if is_prose else 'category'} {name} to use it"
            )
    bits = recipe.category_bits
    if recipe.trees:
        bits = min(bits, _WORD_BITS if rule.kind != "text" and is_prose else _CODE_BITS)
    if rule.kind == "text" or is_prose:
        vocabulary, shown = _estimate(column.vocabulary, column.word_count)
        note += f"; {shown} different words" * bool(vocabulary) + _sharing(vocabulary, bits)
        note += f" (--category {name} takes whole texts)" * (rule.kind is None)
        return Fitted(kind="text", bits=bits, note=note, **given)
    if rule.kind is None and column.rows >= ID_ROWS and 2 * count > column.rows:
        note += f"; fewer than two rows each (--drop {name} leaves the column out)"
    if has_few:
        levels = tuple(sorted(column.values or ()))
        if len(levels) == 1 and not column.missing:
            return f"it is the same in all rows: {levels[0]!r}"
        if recipe.trees:
            return _coded_levels(column.values or {}, note, given)
        return Fitted(kind="category", levels=levels, note=note, **given)
    way, names = "--category-bits", None
    if column.values is not None:
        way = f"--category {name}" if recipe.max_categories is None else "--max-categories"
        names = _hash_texts(common["name"], pa.array([*column.values], pa.string()))
    if sharing := _sharing(count, bits, names):
        note += f"{sharing} ({way} keeps {'more' if names is None else 'them'} apart)"
    if recipe.trees:
        given["codes"] = 1 << bits
    return Fitted(kind="hashed", bits=bits, note=note, **given)


def _coded_levels(values: Mapping[str, int], note: str, given: Mapping[str, Any]) -> Fitted:
    """A category for trees: the most frequent texts first, and the rare ones together."""
    levels = sorted(values, key=lambda text: (-values[text], text))
    codes = len(levels)
    if codes > FEW_CODES:
        own = sum(values[text] >= CODE_ROWS for text in levels[: MOST_CODES - 1])
        own = max(own, FEW_CODES - 1)
        note += f"; {codes - own:,} rare ones share a code"
        codes = own + 1
    return Fitted(kind="category", levels=tuple(levels), note=note, **{**given, "codes": codes})


def _is_prose(column: Texts, times: float) -> bool:
    """Whether texts are sentences, whose words say more than the texts, rather than names.

    ``times``: How often a text comes, on average. Sentences are long, and their words come again;
    or they are of few words, which come far more often than the texts do.
    """
    count, words = (distinct(hashes)[0] for hashes in (column.hashes, column.vocabulary))
    length = column.word_count / max(column.spaced, 1)
    return 2 * column.spaced > column.rows and (
        (length >= 5 and column.word_count >= 2 * words and times < 2)
        or (length >= 3 and count >= 10 * words and times < 10)
    )


def _sharing(count: int, bits: int, names: Any = None) -> str:
    """How many of some names share one of ``2**bits`` features with others, in words.

    ``names``: As they are hashed; None if they are not known, and the number is what chance gives.
    """
    if names is None:
        shared = round(count * (1 - (1 - 2.0**-bits) ** (count - 1))) if count else 0
    else:
        together = np.bincount(hashing.places(names, bits)[0])
        shared = int(together[together > 1].sum())
    about = "about " * (names is None)
    return f", {about}{shared:,} of them share features" if shared else ""


def _estimate(hashes: Array, most: int) -> tuple[int, str]:
    """How many different texts there are, and that in words."""
    count, exact = distinct(hashes)
    count = min(count, most)
    return count, f"{'' if exact else 'about '}{count:,}"


def load(content: bytes, place: AnyPath) -> FittedRecipe:
    """The recipe in a file."""
    try:
        return replace(FittedRecipe.from_bytes(content), place=str(place.absolute()))
    except (ValueError, TypeError, KeyError, AttributeError, UsageError, RecursionError) as error:
        raise DataError(f"{place} is damaged: {error}. Import the data again") from error
