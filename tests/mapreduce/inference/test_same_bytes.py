"""The same row gets the same bytes everywhere: in any batch, order and cut of the files."""

import json
import secrets
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import mapreduce
from mapreduce import models
from mapreduce.data.batch import Batch, Csr
from mapreduce.data.readers import csv, parquet
from mapreduce.inference import cutting
from mapreduce.inference.base import Inference
from mapreduce.inference.predictor import Predictor
from mapreduce.models.base import Model
from mapreduce.models.context import Context, Workspace
from mapreduce.runs import checkpoint
from programs import succeed
from quick import first_of
from wide_tables import TRAINED, table_of

#: Models, and the shapes of their rows.
MODELS = [
    ("dense:64,relu,dense:33,gelu,layernorm", (784,)),
    ("mlp:70,9", (130,)),
    ("softmax", (1100,)),
    ("logistic", (50,)),
    ("linear", (77,)),
    ("svm", (9,)),
    ("dense:30,tanh", (20,)),
    ("conv:6x5:padding=2,batchnorm,relu,pool:2,conv:9x3,relu,dense:20", (1, 12, 12)),
    ("residual(conv:8x3:padding=1,relu),global-average-pool", (3, 8, 8)),
    ("lstm:13,last,dense:8,sigmoid", (6, 5)),
    ("gru:8,last", (7, 4)),
    ("embedding:6:words=4,rnn:9", (5,)),
]
#: A mapper that asks the model of a run about a few rows at a time.
JOB = """
import json
import mapreduce
import pyarrow as pa
from mapreduce.job import Job

class Ask(Job):
    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--run")

    def mapper_init(self):
        self.run_, self.rows = mapreduce.open_run(self.options.run), []

    def mapper(self, _, line):
        self.rows.append(json.loads(line))
        if len(self.rows) == 37:
            yield from self.mapper_final()
            self.rows = []

    def mapper_final(self):
        if self.rows:
            table = pa.Table.from_pylist(self.rows)
            found = self.run_.predict(table.drop_columns("row"), here=True)
            name = "probabilities" if "probabilities" in found.column_names else "prediction"
            yield from zip(table["row"].to_pylist(), found[name].to_pylist())

if __name__ == "__main__":
    Ask.run()
"""
SMALL = MODELS[1], MODELS[3], MODELS[6]


def logits_of(model, params, features, batches, layer=None):
    """The logits of rows, or the outputs of a layer, some of them at a time."""
    context, found = Context(Workspace()), []
    for rows in batches:
        part = features[rows] if isinstance(features, np.ndarray) else as_csr(features[rows])
        given = params, Batch(part, None), context
        outputs = model.logits(*given) if layer is None else model.layer_outputs(*given, layer)
        found.append((rows, outputs.copy()))
    places = np.concatenate([rows for rows, _ in found])
    return np.concatenate([outputs for _, outputs in found])[np.argsort(places)]


def as_csr(part):
    return Csr(part.indptr, part.indices.astype(np.int32), part.data, part.shape[1])


def random_batches(chance, rows):
    """All rows in an order, and in batches, that are drawn."""
    cuts = np.sort(chance.choice(rows, chance.integers(1, rows), replace=False))
    return [part for part in np.split(chance.permutation(rows), cuts) if len(part)]


@pytest.mark.parametrize(("spec", "shape"), [*SMALL, *(m for m in MODELS if m not in SMALL)])
@pytest.mark.parametrize("dtype", first_of("float32", "float64"))
def test_logits_do_not_depend_on_the_batch(spec, shape, dtype):
    chance = np.random.default_rng(len(spec))
    model = models.create(
        spec, shape, 2 if models.find(spec).binary else 4, dtype
    ).batch_invariant()
    params = chance.normal(0, 0.3, model.size).astype(dtype)
    for one, view in zip(model.parameters, model.views(params), strict=True):
        if one.role == "buffer":
            # Variances are among them.
            np.abs(view, out=view)
    model.hold(params)
    if spec.startswith("embedding"):
        features = chance.integers(0, 4, (150, model.features)).astype(dtype)
    else:
        features = chance.normal(size=(150, model.features)).astype(dtype)
    whole = logits_of(model, params, features, [np.arange(150)])
    for batches in (np.arange(150)[:, None], random_batches(chance, 150)):
        assert logits_of(model, params, features, batches).tobytes() == whole.tobytes()
    for layer in model.named_layers():
        outputs = logits_of(model, params, features, [np.arange(150)], layer)
        found = logits_of(model, params, features, random_batches(chance, 150), layer)
        assert found.tobytes() == outputs.tobytes(), layer
        if layer == [*model.named_layers()][-1]:
            assert outputs[:, -whole.shape[1] :].tobytes() == whole.tobytes()
    if model.takes_sparse:
        features = scipy.sparse.random_array((150, model.features), density=0.3, rng=chance).tocsr()
        features = features.astype(dtype)
        whole = logits_of(model, params, features, [np.arange(150)])
        found = logits_of(model, params, features, random_batches(chance, 150))
        assert found.tobytes() == whole.tobytes()


def everywhere(seed, folder, monkeypatch, spec=None):
    """Check that rows of a table get the same bytes on all ways, which the seed draws.

    A ``spec`` that is not drawn is that of a run that feeds the one that is asked.
    """
    chance = np.random.default_rng(seed)
    feeds, spec = spec is not None, spec or str(chance.choice(TRAINED))
    is_numeric = spec == "linear" or (spec == "dense:50" and seed % 2)
    options = {"rounds": 4, "progress": False, "executor": "here"}
    table = table_of(300, seed, is_numeric)
    run = mapreduce.train(table, spec, label="label", run=folder / "run", **options)
    if feeds:
        options |= {"features_from": f"{run.path}:-2", "run": folder / "fed"}
        run = mapreduce.train(run._run.config.data, "mlp:9", **options)
    assert run.plan.batch_invariant
    rows = int(chance.integers(200, 900))
    table = table_of(rows, seed + 1, is_numeric)
    name = "prediction" if is_numeric else "probabilities"
    layers = [*run.plan.create_model().named_layers()]
    layer = str(chance.choice(layers)) if layers else None

    names = [name] if layer is None else [name, "features"]

    def bits(found, order=None):
        values = [np.array(found[one].to_pylist(), np.float32).reshape(rows, -1) for one in names]
        both = np.hstack(values)
        return (both if order is None else both[np.argsort(order)]).tobytes()

    expected = bits(run.predict(table, layer=layer, runner="inline"))
    monkeypatch.setattr(csv, "BLOCK_BYTES", int(chance.integers(1 << 11, 1 << 15)))
    monkeypatch.setattr(parquet, "_BLOCK_ROWS", int(chance.integers(20, 300)))
    monkeypatch.setattr(cutting, "_PART_BYTES", int(chance.integers(1 << 12, 1 << 16)))
    monkeypatch.setattr(cutting, "_PART_ROWS", int(chance.integers(50, 500)))
    order = chance.permutation(rows)
    mixed = table.take(pa.array(order))
    pyarrow.csv.write_csv(mixed, folder / "mixed.csv")
    pq.write_table(mixed, folder / "mixed.parquet", row_group_size=int(chance.integers(30, 400)))
    for kind in ("csv", "parquet"):
        for runner, workers in (("inline", 1), ("parallel", 2)):
            how = {"layer": layer, "runner": runner, "workers": workers}
            found = run.predict(folder / f"mixed.{kind}", **how)
            assert bits(found, order) == expected, (seed, kind, runner)
    batches = [mixed.slice(*pair) for pair in ((0, 1), (1, 6), (7, rows - 7))]
    alone = pa.concat_tables([run.predict(batch, layer=layer) for batch in batches])
    assert bits(alone, order) == expected, (seed, "alone")
    succeed("data", "import", folder / "mixed.csv", folder / "data", "--like", run._run.config.data)
    found = run.predict(folder / "data", layer=layer, runner="parallel", workers=2)
    assert bits(found, order) == expected, (seed, "dataset")
    for kind in ("csv", "data"):
        more = [] if layer is None else ["--layer", layer]
        data, out = folder / ("data" if kind == "data" else "mixed.csv"), folder / f"swarm-{kind}"
        succeed("swarm", run.path, data, out, "--workers", 2, *more)
        found = pa.concat_tables(map(pq.read_table, sorted(out.glob("part-*"))))
        assert bits(found, order) == expected, (seed, "swarm", kind)
    (folder / "job.py").write_text(JOB)
    numbered = mixed.append_column("row", pa.array(order)).to_pylist()
    (folder / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in numbered))
    job = [folder / "job.py", "-r", "parallel", "--run", run.path, folder / "rows.json"]
    lines = [line.split("\t") for line in succeed("run", "-q", *job).splitlines()]
    said = {int(row): json.loads(values) for row, values in lines}
    values = np.array([said[row] for row in range(rows)], np.float32).reshape(rows, -1)
    scored = np.frombuffer(expected, np.float32).reshape(rows, -1)
    assert values.tobytes() == scored[:, : values.shape[1]].tobytes(), (seed, "job")
    evaluated = Inference(checkpoint.fitted(run._run), folder / "data")
    pieces = []
    for leaf in range(evaluated.leaves):
        shard, start, stop = evaluated.slices.place(leaf)
        scored = evaluated.predict(evaluated.leaf(leaf), layer or "")
        values = np.hstack([scored[one].reshape(stop - start, -1) for one in names])
        pieces += zip(evaluated.dataset.shard(shard).source_rows(start, stop), values, strict=True)
    scores = np.array([score for _, score in sorted(pieces, key=lambda piece: piece[0])])
    assert scores[np.argsort(order)].tobytes() == expected, (seed, "evaluate")


def test_bytes_are_the_same_on_all_ways(tmp_path, monkeypatch):
    everywhere(3, tmp_path, monkeypatch)


def test_bytes_are_the_same_of_a_run_that_another_feeds(tmp_path, monkeypatch):
    everywhere(4, tmp_path, monkeypatch, "dense:70,layernorm,relu")


def test_with_blas_they_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(Model, "batch_invariant", lambda self: self)
    with pytest.raises(AssertionError, match=r"alone|csv|parquet"):
        everywhere(3, tmp_path, monkeypatch)


def test_runs_of_earlier_versions_compute_as_they_did(tmp_path):
    chance = np.random.default_rng(0)
    rows, labels = chance.normal(size=(60, 100)).astype(np.float32), np.arange(60) % 3
    options = {"run": tmp_path / "run", "rounds": 2, "progress": False, "executor": "here"}
    fitted = checkpoint.fitted(mapreduce.train((rows, labels), "mlp:70", **options)._run)
    del fitted.options["batch_invariant"]
    model, batch = fitted.about.model, Batch(rows, labels.astype(np.int32))
    params = chance.normal(0, 0.3, model.size).astype(np.float32)
    expected = model.probabilities(params, batch, Context(Workspace()))
    earlier = Predictor(replace(fitted, arrays=model.named(params), model_sha256=""))
    assert earlier.predict(batch)["probabilities"].tobytes() == expected.tobytes()


@pytest.mark.long
@pytest.mark.parametrize("draw", range(20))
def test_bytes_are_the_same_on_ways_that_are_drawn(draw, tmp_path, monkeypatch):
    everywhere(secrets.randbits(32), tmp_path, monkeypatch)
