"""A row gets the bytes on a real Hadoop that it gets in one process."""

import secrets
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from ladder import JOBS
from sklearn.datasets import load_digits

import mapreduce
from hdfs_utils.paths import path_of
from mapreduce.cli.main import main
from mapreduce.inference import cutting
from mapreduce.launch.run import load_job
from programs import succeed
from wide_tables import TRAINED, table_of


@pytest.mark.long
@pytest.mark.parametrize("draw", range(5))
def test_predictions_of_a_file(draw, cluster, tmp_path, monkeypatch):
    seed = secrets.randbits(32)
    chance, place = np.random.default_rng(seed), path_of(f"{cluster.hdfs_uri}/same/{seed}")
    spec, rows = str(chance.choice(TRAINED)), int(chance.integers(9000, 14000))
    table = table_of(300, seed, spec == "linear")
    options = {"label": "label", "rounds": 4, "progress": False, "runner": "inline"}
    run = mapreduce.train(table, spec, run=tmp_path / "run", **options)
    for path in Path(run.path).rglob("*"):
        if path.is_file():
            (place / str(path.relative_to(tmp_path))).write_bytes(path.read_bytes())
    table = table_of(rows, seed + 1, spec == "linear")
    pyarrow.csv.write_csv(table, tmp_path / "new.csv")
    (place / "new.csv").write_bytes((tmp_path / "new.csv").read_bytes())
    # Tasks there find its two blocks, of the usual size; this process says which are a part.
    monkeypatch.setattr(cutting, "_PART_BYTES", int(chance.integers(1 << 15, 3 << 20)))
    layers = [*run.plan.create_model().named_layers()]
    layer = str(chance.choice(layers)) if layers else None
    expected = run.predict(table, layer=layer, here=True)
    options = {"layer": layer, "runner": "hadoop", "workers": 2}
    found = mapreduce.predict(place / "run", place / "new.csv", **options)
    assert found.equals(expected), f"seed {seed}"


@pytest.mark.slow
def test_a_job_that_predicts(cluster, tmp_path, capfdbinary):
    digits, path = load_digits(), JOBS / "data/digits.tsv"
    options = {"run": tmp_path / "run", "epochs": 3, "progress": False, "runner": "inline"}
    run = mapreduce.train((digits.data / 16, digits.target), "mlp:32", **options)
    arguments = ["-r", "hadoop", "--no-conf", "-q", "--run", str(tmp_path / "run"), str(path)]
    assert main(["run", str(JOBS / "predict.py"), *arguments]) == 0
    pairs = load_job(str(JOBS / "predict.py"))([]).parse_output([capfdbinary.readouterr().out])
    assert dict(pairs) == Counter(run.predict(np.loadtxt(path, delimiter="\t") / 16).tolist())


@pytest.mark.slow
def test_a_model_file_on_hdfs(cluster, tmp_path):
    place = path_of(f"{cluster.hdfs_uri}/file/{secrets.token_hex(4)}")
    options = {"label": "label", "rounds": 4, "progress": False, "runner": "inline"}
    run = mapreduce.train(table_of(300, 1, False), "mlp:7", run=tmp_path / "run", **options)
    pyarrow.csv.write_csv(table_of(400, 2, False), tmp_path / "new.csv")
    (place / "new.csv").write_bytes((tmp_path / "new.csv").read_bytes())
    for out in ("here.csv", "parts"):
        succeed("predict", tmp_path / "run", tmp_path / "new.csv", tmp_path / out, "-q")
    evaluated = succeed("evaluate", tmp_path / "run", tmp_path / "new.csv", "--json", "-q")
    succeed("export", tmp_path / "run", "--to", place / "model.safetensors")
    shutil.rmtree(run.path)
    on_hadoop = "-r", "hadoop", "-q"
    files = place / "model.safetensors", place / "new.csv"
    # A file as the result, and parts by tasks: tests/cli/test_far_tables.py has it with a run.
    succeed("predict", *files, place / "there.csv", "-q")
    assert (place / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    succeed("predict", *files, place / "parts", *on_hadoop)
    succeed("swarm", *files, place / "swarm", "-q")
    expected = (tmp_path / "parts" / "part-00000.parquet").read_bytes()
    for out in ("parts", "swarm"):
        assert (place / out / "part-00000.parquet").read_bytes() == expected
    assert succeed("evaluate", *files, "--json", *on_hadoop) == evaluated
