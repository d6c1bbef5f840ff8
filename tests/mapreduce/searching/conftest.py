"""Searches on a small dataset, in this process."""

import csv
import json
from pathlib import Path

import pytest

from datasets import blobs


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    blobs(folder / "train")
    blobs(folder / "test", (200,), seed=1)
    return folder


@pytest.fixture
def search(data, tmp_path, answer):
    """Runs a search that must end with a code; returns the summary and the rows of its table, or
    what the command says of an error.
    """

    def run(*options, name="search", code=0, executor="here", evaluated=True):
        how = ["--executor", executor] if executor else []
        how += ["--eval", data / "test"] if evaluated else []
        places = data / "train", "--run", tmp_path / name
        printed = answer(code, "search", *places, *how, *options, "--json", "-q")
        if code:
            return printed.err
        found = json.loads(printed.out)
        return {**found, "rows": [*csv.DictReader(Path(found["table"]).read_text().splitlines())]}

    return run
