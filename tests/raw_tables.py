"""Tables as people have them, in CSV files, and what scikit-learn makes of them."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

FOLDER = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Table:
    """A table's columns by what they are; all others say nothing about the label."""

    label: str
    task: str
    numbers: tuple[str, ...]
    categories: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()


PENGUINS = Table(
    "species",
    "classification",
    ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "year"),
    ("island", "sex"),
)
MASSES = Table(
    *("body_mass_g", "regression", ("bill_length_mm", "bill_depth_mm", "flipper_length_mm")),
    ("species", "island", "sex"),
)
GENERATED = {
    task: Table(
        "label", task, ("number", "large", "count"), ("member", "colour", "town"), ("day", "moment")
    )
    for task in ("classification", "regression")
}


def write(table: Table, folder: Path) -> Path:
    """The penguins as a CSV file, with a column ``id`` in front, but for those without a label."""
    with (FOLDER / "penguins.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row[table.label] not in ("", "NA")]
    path = folder / "penguins.csv"
    with path.open("x", newline="") as file:
        writer = csv.DictWriter(file, ["id", *rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows({"id": f"penguin-{i}", **row} for i, row in enumerate(rows))
    return path


#: Rows of a piece of :func:`write_generated`; part of what is generated.
PIECE = 1 << 16
COLOURS = np.array(["red", "green", "blue", "light grey"], object)
TOWNS = np.array([f"town {i}" for i in range(200)], object)
WORDS = np.array(
    [*("a", "table", "of", "many", "words,", "in", "no", "order:", "some", "more")], object
)


def write_generated(path: Path, rows: int, task: str = "classification", seed: int = 0) -> Path:
    """A CSV file with every kind of column, and a label that depends on most of them.

    The label is ``leave`` or ``stay``, or a number; the same for the same rows, task and seed,
    however many rows follow.
    """
    with path.open("xb") as file:
        writer = None
        for start in range(0, rows, PIECE):
            batch = _piece(start, task, seed).slice(0, rows - start)
            writer = writer or pa.csv.CSVWriter(file, batch.schema)
            writer.write_batch(batch)
        writer.close()
    return path


def _piece(start: int, task: str, seed: int) -> pa.RecordBatch:
    generator = np.random.default_rng([seed, start])

    def some(values, share):
        """Values, this share of which is missing."""
        return pa.array(values, mask=generator.random(PIECE) < share)

    number = generator.normal(20, 5, PIECE).round(2)
    large = np.exp(generator.normal(10, 1, PIECE)).round()
    count = generator.poisson(3, PIECE)
    member = generator.random(PIECE) < 0.4
    colour = generator.integers(0, 4, PIECE)
    # A few towns have most rows.
    town = np.minimum(generator.pareto(0.7, PIECE), 199).astype(int)
    day = generator.integers(19_000, 19_731, PIECE)
    second = generator.integers(19_000 * 86_400, 19_731 * 86_400, PIECE)
    fixed = np.random.default_rng(99)
    score = (
        0.25 * (number - 20)
        - 0.3 * (count - 3)
        + 1.2 * member
        + np.array([1.5, 0, -0.5, -1])[colour]
        + fixed.normal(size=200)[town]
        + 0.8 * ((day + 3) % 7 >= 5)
        + 0.002 * (day - 19_365)
        + 0.9 * (second // 3600 % 24 >= 18)
        - 1
    )
    noise = generator.logistic(size=PIECE)
    chosen = np.where(score + noise > 0, "leave", "stay")
    words = WORDS[generator.integers(0, len(WORDS), (3, PIECE))]
    return pa.record_batch(
        {
            "id": pa.array([f"r{i:08}" for i in range(start, start + PIECE)]),
            "number": some(number, 0.1),
            "large": some(large, 0.02),
            "count": count,
            "member": np.where(member, "yes", "no"),
            "colour": some(COLOURS[colour], 0.05),
            "town": TOWNS[town],
            "day": pa.array(day.astype("datetime64[D]")),
            "moment": pa.array(second.astype("datetime64[s]")),
            "note": words[0] + " " + words[1] + " " + words[2],
            "constant": np.full(PIECE, "eu"),
            "nothing": pa.nulls(PIECE, pa.float64()),
            "weight": generator.integers(1, 4, PIECE) / 2,
            "label": chosen if task == "classification" else (5 * score + noise).round(3),
        }
    )


def columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a CSV file as texts, None where a field is missing."""
    with path.open(newline="") as file:
        names, *rows = csv.reader(file)
    fields = np.array(rows, object)
    fields[(fields == "") | (fields == "NA")] = None
    return dict(zip(names, fields.T, strict=True))


def sklearn_score(table: Table, train: Path, test: Path) -> float:
    """Accuracy, or R², of scikit-learn's linear model, trained and tested on two CSV files."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    (x, y), (test_x, test_y) = (_matrix(table, path) for path in (train, test))
    numbers = len(table.numbers) + len(table.dates)
    scaled = make_pipeline(
        FunctionTransformer(np.asarray, kw_args={"dtype": float}),
        SimpleImputer(strategy="median", add_indicator=True),
        StandardScaler(),
    )
    words = OneHotEncoder(handle_unknown="ignore")
    steps = [("numbers", scaled, slice(0, numbers))]
    if numbers < x.shape[1]:
        steps.append(("words", words, slice(numbers, None)))
    prepared = ColumnTransformer(steps)
    is_class = table.task == "classification"
    model = LogisticRegression(max_iter=2000) if is_class else Ridge(1.0)
    return make_pipeline(prepared, model).fit(x, y).score(test_x, test_y)


def _matrix(table: Table, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, days, words, and months, weekdays and hours as words; and the labels."""
    found = columns(path)
    times = [found[name].astype("datetime64[s]") for name in table.dates]
    parts = []
    for time in times:
        days = time.astype("datetime64[D]").astype(int)
        months = time.astype("datetime64[M]").astype(int) % 12
        hours = time.astype(int) // 3600 % 24
        parts += [some.astype(str).astype(object) for some in (months, (days + 3) % 7, hours)]
    numbers = [found[name].astype(float) for name in table.numbers]
    days = [time.astype(int) / 86_400 for time in times]
    words = [np.where(found[name] == None, "", found[name]) for name in table.categories]  # noqa: E711
    labels = found[table.label]
    x = np.stack([column.astype(object) for column in (*numbers, *days, *words, *parts)], axis=1)
    return x, labels if table.task == "classification" else labels.astype(float)
