"""What is fitted has the same bits for any workers, blocks, executors, units and orders of rows."""

import hashlib

import numpy as np
import pytest

from mapreduce.algorithms import gram, k_means
from mapreduce.algorithms.gram import Gram, components, moments, ridge
from mapreduce.algorithms.k_means import KMeans
from mapreduce.data.batch import Batch
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.errors import UsageError
from mapreduce.executors.here import Here
from mapreduce.executors.resumable import Resumable
from mapreduce.runs.execution import Execution
from mapreduce.testing import check_program


def table(rows=9000, columns=5, seed=0):
    """Features of several sizes, targets and weights, by operations that any processor rounds
    alike.
    """
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, columns)) + 4 * random.integers(0, 3, (rows, 1))
    x[:, 1] *= x[:, 1] * x[:, 0]
    x[:, 2] = 1e6 + 1e3 * (x[:, 2] - x[:, 3])
    return x, x[:, 0] - 2 * x[:, 1] + random.normal(size=rows), random.random(rows) + 0.1


def stored(x, y, weights, folder, seed=0):
    """A dataset of the rows, in another order for each seed."""
    chunks = [Rows(x, y, weights)]
    import_rows(Source(chunks, x.shape[1:], 1.0, x.nbytes, {"format": "test"}), folder, seed)
    return Dataset(folder)


def fit(kind, rows, executor=None):
    """A digest of what is fitted."""
    executor = executor or Here()
    if kind == "k-means":
        arrays = executor.advance(KMeans.over(rows, clusters=4, seed=3)).blocks[0].arrays
        found = [arrays["centres"], arrays["inertia"]]
    else:
        found = moments(executor.advance(Gram.over(rows, target=kind == "ridge")).blocks)
        found = ridge(found, 0.5, True) if kind == "ridge" else components(found)[:3]
    return hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in found)).hexdigest()


KINDS = ("k-means", "pca", "ridge")
BITS = {"k-means": "5fe898af3c64", "pca": "60b6e9aba9b8", "ridge": "e2922ad1fde4"}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return [stored(*table(), tmp_path_factory.mktemp("rows") / "data", seed) for seed in (0, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_on_any_processor(kind):
    """Noted once: whatever BLAS and Numba do here, and what rows came first."""
    x, y, weights = table()
    digests = set()
    for order in (slice(None), np.random.default_rng(8).permutation(len(x))):
        digests.add(fit(kind, Batch(x[order], y[order], weights=weights[order])))
    assert {digest[:12] for digest in digests} == {BITS[kind]}


@pytest.mark.parametrize("kind", KINDS)
def test_units_do_not_matter(kind, monkeypatch):
    """Where one unit has all rows, a round of k-means moves the centres several times."""
    x, y, weights = table(2000)
    whole = {fit(kind, Batch(x, y, weights=weights))}
    monkeypatch.setattr(k_means, "_MOVES", 3)
    whole.add(fit(kind, Batch(x, y, weights=weights)))
    for program in (Gram, KMeans):
        monkeypatch.setattr(program, "unit_rows", 700)
    assert whole == {fit(kind, Batch(x, y, weights=weights))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_in_any_order_is_as_the_rows(kind, places):
    x, y, weights = table()
    digests = {fit(kind, rows) for rows in (*places, Batch(x, y, weights=weights))}
    assert len(digests) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "execution",
    [
        Execution("inline", executor="here"),
        Execution("inline", workers=2, blocks=3),
        Execution("parallel", workers=3, blocks=2, start_method="fork"),
        Execution("parallel", workers=2, start_method="fork", executor="gang"),
    ],
    ids=lambda how: f"{how.runner}-{how.executor}",
)
def test_executors_do_not_matter(kind, execution, places, tmp_path):
    executor = Resumable.of(execution, place=tmp_path)
    assert fit(kind, places[1], executor) == fit(kind, places[0])


class Killed(Exception):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_kill_it_goes_on(kind, places, tmp_path, monkeypatch):
    execution = Execution("inline", executor="here")
    kinds = {"k-means": KMeans}
    program = kinds.get(kind, Gram)
    plain, calls = program.contribution, iter(range(1000))

    def killed(self, now, unit):
        if next(calls) == (17 if kind == "k-means" else 2):
            raise Killed
        return plain(self, now, unit)

    monkeypatch.setattr(program, "contribution", killed)
    with pytest.raises(Killed):
        fit(kind, places[0], Resumable.of(execution, place=tmp_path))
    # Each process has its own calls.
    begun = next(calls)
    assert begun > 1
    resumed = fit(kind, places[0], Resumable.of(execution, place=tmp_path))
    monkeypatch.undo()
    assert resumed == fit(kind, places[0])


@pytest.mark.parametrize("kind", ["gram", "k-means"])
def test_the_contract_of_programs(kind, tmp_path):
    x, y, weights = table(300)
    rows = stored(x.astype(np.float32), y, weights, tmp_path / "few")
    check_program(
        KMeans.over(rows, clusters=3) if kind == "k-means" else Gram.over(rows, target=True)
    )


def test_sums_of_floats_would_be_seen(monkeypatch):
    """A mutation: products that are rounded depend on the order of the rows."""
    plain = gram.dispatch.get
    monkeypatch.setattr(
        gram.dispatch, "get", lambda name: rounded if name == "gram_parts" else plain(name)
    )
    x, y, weights = table()
    order = np.random.default_rng(8).permutation(len(x))
    digests = {
        fit("pca", Batch(x[rows], y[rows], weights=weights[rows])) for rows in (slice(None), order)
    }
    assert len(digests) == 2


def rounded(rows, shift, factor, roots, bits):
    """The parts of a Gram matrix of floats."""
    whole = np.column_stack([(rows - shift) * roots[:, None], roots]) * factor
    parts, products = [], whole.T @ whole
    for power in (2 * bits, bits, 0):
        parts.append(np.floor(products / 2.0**power).astype(np.int64))
        products -= np.ldexp(parts[-1].astype(float), power)
    return parts


def test_lapack_would_be_seen(monkeypatch):
    """A mutation: its vectors are others than those that were noted."""
    plain = gram.dispatch.get
    numpys = {"eigh": np.linalg.eigh, "cholesky_solve": lambda a, b: (np.linalg.solve(a, b), b**0)}
    monkeypatch.setattr(gram.dispatch, "get", lambda name: numpys.get(name) or plain(name))
    x, y, weights = table()
    for kind in ("pca", "ridge"):
        assert fit(kind, Batch(x, y, weights=weights))[:12] != BITS[kind]


def test_rows_in_memory_are_no_program_of_jobs(tmp_path):
    program = Gram.over(Batch(table(20)[0], None))
    with pytest.raises(UsageError, match="gram has its rows in memory, where tasks of jobs do not"):
        Resumable.of(Execution("inline"), place=tmp_path).advance(program)
