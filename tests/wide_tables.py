"""Tables of many numbers and a category, and models that train on them."""

import numpy as np
import pyarrow as pa

#: What trains on a table of numbers and a category.
TRAINED = ["dense:64,relu,dense:9", "mlp:40", "softmax", "logistic", "linear", "dense:50"]


def table_of(rows, seed, numeric):
    chance = np.random.default_rng(seed)
    columns = {f"x{at:02}": chance.normal(size=rows).round(4) for at in range(70)}
    total = sum(columns.values())
    label = total.round(3) if numeric else np.where(total > 0, "high", "low")
    town = chance.choice([*"abc"], rows)
    return pa.table({**columns, "town": town, "label": label})
