"""A service that tests share."""

import shutil

import pyarrow as pa
import pytest

from programs import PATIENCE
from services import Service, all_models, drawn, kinds_of, trained

#: Options of a service that hangs up on nobody who stands still.
PATIENT = [f"--{what}-seconds={PATIENCE}" for what in ("header", "body", "answer")]


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    kinds = kinds_of(120, 5)
    runs = [trained(kinds, folder / "kinds", id="key")]
    holes = kinds.set_column(0, "x", pa.array([None, *kinds["x"].to_pylist()[1:]], pa.float64()))
    with pytest.warns(UserWarning, match="left out"):
        runs.append(trained(holes.drop_columns("key"), folder / "dropping", missing="drop"))
    found = Service(*all_models(folder), *runs, "--access-log", *PATIENT)
    found.folder = folder
    yield found
    assert found.stop() == 0


@pytest.fixture(scope="module")
def rough(tmp_path_factory):
    """A service that has no patience."""
    seconds = [f"--{what}-seconds=1" for what in ("header", "body", "answer")]
    yield from serving(tmp_path_factory.mktemp("rough"), seconds)


@pytest.fixture(scope="module")
def changing(tmp_path_factory):
    """The same with patience."""
    yield from serving(tmp_path_factory.mktemp("changing"), PATIENT)


def serving(folder, seconds):
    """A service of a model whose answers are long, and one that changes."""
    long = drawn(folder / "long.safetensors", "softmax", (1,), tuple(range(40)), 1)
    for seed in range(2):
        drawn(folder / f"{seed}.safetensors", "mlp:9", (4,), (0, 1, 2), seed)
    changing = folder / "changing.safetensors"
    shutil.copy(folder / "0.safetensors", changing)
    found = Service(long, changing, *seconds)
    found.folder = folder
    yield found
    assert found.stop() == 0
