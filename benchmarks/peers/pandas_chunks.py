"""pandas and scikit-learn, a chunk at a time: ``pandas_chunks.py TRAIN TEST LABEL``.

One pass over the file for means, deviations and categories, one for stochastic gradient descent, so
that memory holds a chunk however long the file is. Prints the accuracy on the file TEST.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import OneHotEncoder, StandardScaler

ROWS = 200_000


def chunks(path: str) -> Iterator[Any]:
    yield from pd.read_csv(path, chunksize=ROWS)


class Prepared:
    """Numbers standardised, missing ones at the mean and marked; words one-hot."""

    def __init__(self, path: str, label: str) -> None:
        self._scaler = StandardScaler()
        found: dict[str, set[Any]] = {}
        missing: set[str] = set()
        for chunk in chunks(path):
            table = chunk.drop(columns=label)
            numbers = table.select_dtypes("number")
            self._scaler.partial_fit(numbers.to_numpy(np.float32))
            missing |= set(numbers.columns[numbers.isna().any()])
            for name in table.columns.difference(numbers.columns):
                found.setdefault(name, set()).update(table[name].unique())
        self._numbers, self._marked = list(numbers.columns), sorted(missing)
        self._words = list(found)
        self._encoder = OneHotEncoder(
            categories=[sorted(found[name], key=str) for name in self._words],
            handle_unknown="ignore",
            sparse_output=False,
            dtype=np.float32,
        )
        self._encoder.fit(table[self._words])

    def features(self, table: Any) -> Any:
        numbers = self._scaler.transform(table[self._numbers].to_numpy(np.float32))
        marks = table[self._marked].isna().to_numpy(np.float32)
        words = self._encoder.transform(table[self._words])
        return np.hstack([np.nan_to_num(numbers), marks, words])


def main() -> None:
    train, test, label = sys.argv[1:]
    prepared = Prepared(train, label)
    model = SGDClassifier(loss="log_loss", random_state=0)
    for chunk in chunks(train):
        model.partial_fit(prepared.features(chunk), chunk[label], classes=[0, 1])
    table = pd.read_csv(test)
    print(json.dumps({"accuracy": model.score(prepared.features(table), table[label])}))


if __name__ == "__main__":
    main()
