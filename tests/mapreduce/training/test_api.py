"""Training from Python: the same runs as the command's, from arrays and tables."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mapreduce
import programs
from mapreduce.data import importer
from mapreduce.errors import (
    DataError,
    GradreduceError,
    Interrupted,
    MissingInputError,
    OutputError,
    UsageError,
)
from mapreduce.executors import chain
from mapreduce.inference import near
from mapreduce.inference.predictor import SLICE_ROWS
from mapreduce.models.layers.activation import ReLU
from mapreduce.models.layers.dense import Dense
from mapreduce.models.layers.residual import Residual
from mapreduce.runs import checkpoint
from mapreduce.runs.events import CheckpointSaved, Evaluated, RoundCompleted, RunEnded
from mapreduce.training import api
from quick import cases, first_of

HERE = {"executor": "here", "progress": False}
HERE_ALONE = {"runner": "inline"}


def arrays(rows=90, seed=0):
    """Points of three classes that are learnt in a few rounds."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, rows)
    return np.eye(3, 5)[y] * 3 + random.normal(size=(rows, 5)), y


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with evaluations, and its arrays; not to be changed."""
    folder, seen = tmp_path_factory.mktemp("trained") / "run", []
    options = {"epochs": 3, "batch_size": 30, "schedule": "cosine", "optimizer": "momentum"}
    test = arrays(40, 1)
    run = mapreduce.train(
        arrays(), "softmax", evaluation=test, run=folder, callbacks=[seen.append], **options, **HERE
    )
    return run, test, seen


class TestTrain:
    def test_bits_are_those_of_import_and_train(self, tmp_path):
        """Of a table, of the same rows in a file, and of the file by two commands."""
        x, y = arrays()
        table = pa.table({f"x{i}": x[:, i] for i in range(5)} | {"kind": y})
        pq.write_table(table, tmp_path / "rows.parquet")
        source = ["--format", "parquet", "--label", "kind", "rows.parquet", "data"]
        programs.succeed("data", "import", *source, cwd=tmp_path)
        options = ["--model", "mlp:7", "--epochs", 2, "--batch-size", 30, "--workers", 2]
        shown = programs.succeed(
            "train", "data", "--run", "command", *options, "--json", cwd=tmp_path
        )
        expected = json.loads(shown)["model_sha256"]
        options = {"model": "mlp:7", "epochs": 2, "batch_size": 30, **HERE}
        file = tmp_path / "rows.parquet"
        for data, label in ((table, "kind"), (file, "kind"), (tmp_path / "data", None)):
            assert mapreduce.train(data, label=label, **options).model_sha256 == expected
        # Arrays are taken as they are.
        scaled = (x - x.mean(axis=0)) / x.std(axis=0)
        probabilities = [
            mapreduce.train((scaled, y), **options).predict(scaled, probabilities=True),
            mapreduce.train(table, label="kind", **options).predict(table, probabilities=True),
        ]
        np.testing.assert_allclose(*probabilities, atol=1e-4)
        assert mapreduce.open_run("command").model_sha256 == expected

    def test_runs_get_folders_of_their_own(self, capsys):
        options = {"rounds": 1, "runner": "inline"}
        first, second = (mapreduce.train(arrays(), "mlp:4,3", **options) for _ in range(2))
        assert [run.path.name for run in (first, second)] == ["mlp-4-3-1", "mlp-4-3-2"]
        assert f"run {first.path}\n" in capsys.readouterr().err
        # Imported once.
        assert len([*(first.path.parent / ".imported").iterdir()]) == 1
        mapreduce.train(arrays(seed=2), rounds=1, **HERE)
        assert len([*(first.path.parent / ".imported").iterdir()]) == 2
        assert capsys.readouterr().err == ""

    def test_callbacks_receive_events(self, trained):
        _, _, seen = trained
        rounds = [event.completed for event in seen if isinstance(event, RoundCompleted)]
        assert rounds == [*range(1, 10)]
        assert {CheckpointSaved, Evaluated, RunEnded} <= {type(event) for event in seen}

    @cases(
        "labels, task, classes",
        (["10", "2"], None, ("10", "2")),
        ([0.0, 1.0], None, (0, 1)),
        ([0.0, 1.0], "regression", ()),
        ([*range(300, 330)], "regression", ()),
        ([0.5, 1.5], None, ()),
    )
    @pytest.mark.parametrize("is_table", first_of(False, True))
    def test_labels_are_what_they_are_said_to_be(self, labels, task, classes, is_table):
        """Or what they look like, in arrays as in tables; and they come back as they are."""
        y = np.array(labels * 30)
        x = np.linspace(0, 1, len(y), dtype=np.float32)[:, None]
        data = pa.table({"x": x[:, 0], "label": y}) if is_table else (x, y)
        run = mapreduce.train(data, "dense:4,relu", task=task, rounds=1, **HERE)
        assert run.classes == classes
        found = run.predict(data, runner="inline")
        found = found["prediction"].to_numpy() if is_table else found
        assert {*found.tolist()} <= {*labels} if classes else found.dtype.kind == "f"

    def test_whole_numbers_are_classes_or_not(self):
        x = np.zeros((30, 2))
        for y in (np.arange(30), np.arange(30.0)):
            with pytest.raises(UsageError, match="holds more than 20 different whole numbers"):
                mapreduce.train((x, y), "dense:4,relu", **HERE)
        with pytest.raises(UsageError, match="task: it is for arrays and tables"):
            mapreduce.train("folder", "dense:4,relu", task="regression", **HERE)

    def test_a_weight_repeats_a_row(self):
        """In the recipe, the weights of classes, the training and the report."""
        random = np.random.default_rng(3)
        x = random.normal(size=60)
        labels = (x + random.normal(size=60) > 1).astype(int)
        table = {"x": [None if n % 7 == 3 else x[n] for n in range(60)], "label": labels}
        table |= {"y": x * 5 + 2 + labels, "w": random.integers(1, 5, 60)}
        weighted = pa.table(table)
        repeated = weighted.take(np.repeat(np.arange(60), table["w"])).drop_columns("w")
        options = {"optimizer": "lbfgs", "class_weight": "balanced", **HERE}
        one = mapreduce.train(weighted, "logistic", weights="w", **options)
        other = mapreduce.train(repeated, "logistic", **options)
        assert one.plan.class_weight == pytest.approx(other.plan.class_weight)
        assert one.plan.l2 == pytest.approx(1 / len(repeated))
        assert other.plan.l2 == pytest.approx(1 / len(repeated))
        for name, array in one.parameters.items():
            np.testing.assert_allclose(array, other.parameters[name], atol=1e-5)
        found = [one.evaluate(weighted, runner="inline"), other.evaluate(repeated, runner="inline")]
        assert [report.is_weighted for report in found] == [True, False]
        said = [
            [report.loss, report.weight, report.roc_auc, *report.confusion.ravel()]
            for report in found
        ]
        assert said[0] == pytest.approx(said[1], rel=1e-4)

    def test_numbers_texts_weights_and_images(self):
        x, y = arrays()
        line = mapreduce.train((x, x @ np.arange(5.0)), "linear", epochs=3, **HERE)
        assert line.classes == ()
        assert line.predict(x).dtype == np.float32
        with pytest.raises(UsageError, match="linear predicts numbers"):
            line.predict(x, probabilities=True)
        named = mapreduce.train((x, np.array(["b", "c", "a"])[y]), rounds=1, **HERE)
        assert named.classes == ("a", "b", "c")
        assert set(named.predict(x)) <= {"a", "b", "c"}
        options = {"rounds": 5, "batch_size": 0, **HERE}
        weighted = mapreduce.train((x, y), weights=np.where(y, 2, 0), **options)
        other = mapreduce.train((x[y > 0], y[y > 0]), **options)
        # A pass over rows that count twice has the mean of their losses, each round by its weight.
        passed = mapreduce.train((x, y), weights=np.where(y, 2, 0), batch_size=8, epochs=1, **HERE)
        rounds = passed._recorded("RoundCompleted").values()
        assert sum(one["weight"] for one in rounds) == 2 * np.count_nonzero(y)
        mean = sum(one["weight"] * one["loss"] for one in rounds) / (2 * np.count_nonzero(y))
        assert passed._run.summary()["pass_loss"] == pytest.approx(mean, rel=1e-12)
        assert weighted.plan.data.classes == 3
        assert other.plan.data.classes == 2
        flat = mapreduce.train((x, y), **options)
        assert flat.model_sha256 != weighted.model_sha256
        images = mapreduce.train((x[:, :4].reshape(-1, 2, 2), y), rounds=1, **HERE)
        assert images.parameters["weight"].shape == (4, 3)

    def test_a_bunch(self):
        from sklearn.datasets import load_iris

        run = mapreduce.train(load_iris(), rounds=2, **HERE)
        assert run.plan.data.features == 4

    def test_float64(self):
        run = mapreduce.train(arrays(), rounds=1, dtype="float64", **HERE)
        assert run.parameters["weight"].dtype == np.float64
        shown = programs.succeed("data", "show", run._run.config.data, "--json")
        assert json.loads(shown)["dtype"] == "float64"


class TestRun:
    def test_history(self, trained):
        run, *_ = trained
        history = run.history.to_pydict()
        assert history["round"] == [*range(1, 10)]
        assert history["rows"] == [30] * 9
        assert history["learning_rate"][0] == 0.1
        assert history["learning_rate"][-1] < 0.01
        assert history["loss"][0] == pytest.approx(np.log(3))
        assert [bool(value) for value in history["eval_loss"]] == [False, False, True] * 3
        evaluations = run.evaluations.to_pydict()
        assert evaluations["round"] == [3, 6, 9]
        assert evaluations["rows"] == [40] * 3
        assert evaluations["accuracy"][-1] == history["eval_accuracy"][-1] > 0.9

    def test_evaluate_and_predict_agree(self, trained):
        run, (x, y), _ = trained
        before = {*run.path.parent.rglob("*")}
        found = run.evaluate((x, y), runner="inline")
        predicted = run.predict(x, runner="inline")
        chances = run.predict(x, probabilities=True, runner="inline")
        assert found.accuracy == (predicted == y).mean() == run.evaluations["accuracy"][-1].as_py()
        assert found.loss == run.evaluations["loss"][-1].as_py()
        assert (np.array(run.classes)[chances.argmax(axis=1)] == predicted).all()
        np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-6)
        logits = x @ run.parameters["weight"] + run.parameters["bias"]
        assert (logits.argmax(axis=1) == predicted).all()
        # Nothing is left of what was imported for it.
        assert {*run.path.parent.rglob("*")} == before

    def test_a_slice_of_rows_takes_no_job(self, trained, monkeypatch):
        run, (x, y), _ = trained
        expected = run.evaluate((x, y), runner="inline"), run.predict(x, runner="inline")
        many = np.tile(x, (SLICE_ROWS // len(x) + 1, 1))

        def refused(*_):
            raise AssertionError("a job was run")

        monkeypatch.setattr(chain, "run_lines", refused)
        assert run.evaluate((x, y)) == expected[0]
        assert run.predict(x).tolist() == expected[1].tolist()
        assert run.predict(many[:SLICE_ROWS])[: len(x)].tolist() == expected[1].tolist()
        for more in ({"runner": "inline"}, {"workers": 1}):
            with pytest.raises(AssertionError, match="a job was run"):
                run.predict(x, **more)
        with pytest.raises(AssertionError, match="a job was run"):
            run.predict(many[: SLICE_ROWS + 1])

    def test_few_rows_of_an_array_are_no_dataset(self, trained, monkeypatch):
        """The model is kept for the next call, and each thread has its own predictor of it."""
        run, (x, _), _ = trained
        opened = mapreduce.open_run(run.path)
        expected = opened.predict(x, probabilities=True, runner="inline")

        def refused(*_, **__):
            raise AssertionError("a dataset was made")

        loaded, load, make = [], checkpoint.load, near.Predictor
        made = []

        def noting(*arguments):
            loaded.append(arguments)
            return load(*arguments)

        def making(*arguments):
            made.append(threading.get_ident())
            return make(*arguments)

        monkeypatch.setattr(importer, "import_rows", refused)
        monkeypatch.setattr(checkpoint, "load", noting)
        monkeypatch.setattr(near, "Predictor", making)
        opened = mapreduce.open_run(run.path)
        for data in (x, x.tolist(), (x, None), np.asfortranarray(x)):
            found = opened.predict(data, probabilities=True)
            assert found.tobytes() == expected.tobytes()
        assert made == [threading.get_ident()]
        with ThreadPoolExecutor(3) as pool:
            found = [*pool.map(lambda _: opened.predict(x, probabilities=True), range(12))]
        assert all(one.tobytes() == expected.tobytes() for one in found)
        assert len(loaded) == 1
        assert len(made) == len({*made}) <= 4
        # One that was unpickled has none.
        again = pickle.loads(pickle.dumps(opened))
        assert again.predict(x[:3]).tolist() == opened.predict(x[:3]).tolist()

    def test_threads_take_turns_where_tasks_run_in_this_process(self, trained):
        """Each of them would write to where another one reads."""
        run, (x, _), _ = trained
        expected = run.predict(x, probabilities=True, **HERE_ALONE).tobytes()

        def call(_):
            return mapreduce.open_run(run.path).predict(x, probabilities=True, **HERE_ALONE)

        with ThreadPoolExecutor(4) as pool:
            assert {found.tobytes() for found in pool.map(call, range(8))} == {expected}

    def test_the_model_of_now_predicts_few_rows(self):
        x, y = arrays()
        run = mapreduce.train((x, y), rounds=2, run="now", **HERE)
        seen = []
        for seed in range(2):
            found = run.predict(x, probabilities=True)
            assert found.tobytes() == run.predict(x, probabilities=True, **HERE_ALONE).tobytes()
            seen.append(found.tobytes())
            shutil.rmtree("now")
            mapreduce.train((x, y), rounds=3, seed=seed, run="now", **HERE)
        assert seen[0] != seen[1]

    @cases(
        "data, message",
        ([[1.0, 2], [3]], "X: expected an array: "),
        (np.zeros((2, 4)), r"the data: expected 5 features, as in the training data .*found 4"),
        (np.full((3, 5), np.nan), r"X\[0, 0\] is nan: expected finite numbers"),
        (
            np.full((3, 5), 1e300),
            "the data, row 1, column X: expected finite numbers, found at place 0",
        ),
        (np.zeros(5), "expected rows of one number or more"),
        (np.zeros((0, 5)), "expected at least one row, found none"),
        (np.ma.masked_equal(np.eye(5), 1), "X is an array with masked elements"),
    )
    def test_few_wrong_rows(self, trained, data, message):
        run, _, _ = trained
        for more in ({}, HERE_ALONE):
            with pytest.raises(DataError, match=message):
                run.predict(data, **more)

    def test_tables_and_folders_give_tables(self, trained):
        run, (x, y), _ = trained
        table = pa.table({f"x{i}": x[:, i] for i in range(5)} | {"label": y})
        with pytest.raises(UsageError, match="the model was not trained on a table: expected an a"):
            run.predict(table, runner="inline")
        found = run.predict(run._run.config.evaluation, runner="inline")
        assert found["label"].to_pylist() == y.tolist()
        run = mapreduce.train(table, rounds=3, run="of-a-table", **HERE)
        without = mapreduce.predict(run.path, table.drop_columns("label"), runner="inline")
        assert without.column_names == ["row", "prediction", "probability", "probabilities"]
        with pytest.raises(UsageError, match="the model was trained on a table: expected a table,"):
            run.predict(x, runner="inline")
        pq.write_table(table, "same.parquet")
        assert run.predict("same.parquet", runner="inline") == without
        rows = table.drop_columns("label").slice(0, 3).to_pylist()
        assert run.predict(rows).to_pylist() == without.to_pylist()[:3]
        assert mapreduce.open_run(run.path, trust="a:b").predict(rows[0]) == without.slice(0, 1)
        with pytest.raises(
            MissingInputError, match=r"sane\.parquet does not exist\. Did you mean "
        ):
            run.predict("sane.parquet")
        assert mapreduce.evaluate(run.path, table, runner="inline") == run.evaluate(
            "same.parquet", runner="inline"
        )
        chances = run.predict(table, probabilities=True, runner="inline")
        assert without["prediction"].to_pylist() == chances.argmax(axis=1).tolist()

    def test_resumes_after_an_interruption(self):
        expected = mapreduce.train(arrays(), epochs=4, batch_size=30, **HERE).model_sha256

        def stop(event):
            if isinstance(event, CheckpointSaved) and event.completed == 4:
                # As Ctrl-C and a notebook's button do.
                signal.raise_signal(signal.SIGINT)

        options = {"epochs": 4, "batch_size": 30, "callbacks": [stop], "checkpoint_every": 4}
        with pytest.raises(Interrupted) as caught:
            mapreduce.train(arrays(), run="stopped", **options, **HERE)
        (note,) = caught.value.__notes__
        assert note.endswith("stopped').resume()")
        run = mapreduce.open_run("stopped")
        assert 4 <= len(run.history) < 12
        assert run.parameters
        resumed = run.resume(executor="chain", workers=2, progress=False)
        assert resumed is run
        assert run.model_sha256 == expected
        assert len(run.history) == 12

    def test_replays_what_was_asynchronous(self):
        options = {"strategy": "downpour", "asynchronous": True, "replicas": 3}
        many = {"runner": "parallel", "workers": 2, "progress": False}
        run = mapreduce.train(arrays(), batch_size=30, slice_rows=10, **options, **many)
        again = run.replay("again", workers=1, progress=False)
        assert again.path.name == "again"
        assert again.model_sha256 == run.model_sha256
        assert again.history["loss"].to_pylist() == run.history["loss"].to_pylist()
        with pytest.raises(UsageError, match="again exists"):
            run.replay("again")
        with pytest.raises(UsageError, match=r"runner=.inline. runs one after the other"):
            run.replay("other", runner="inline")
        assert not Path("other").exists()
        with pytest.raises(UsageError, match="there is no keyword 'epochs'"):
            run.replay(epochs=3)

    def test_resume_names_what_is_to_be_named_again(self, trained):
        run, *_ = trained
        path = run.path / "execution.json"
        before = path.read_text()
        path.write_text(json.dumps(json.loads(before) | {"runner": "hadoop", "executor": "chain"}))
        try:
            with pytest.raises(UsageError, match=r"with runner=.hadoop.*resume\(runner=.hadoop.\)"):
                run.resume()
        finally:
            path.write_text(before)


class TestErrors:
    @cases(
        "options, error, message",
        ({"learning_rat": 1}, UsageError, "'learning_rat'. Did you mean learning_rate"),
        ({"epochs": "3"}, UsageError, "^epochs: expected int, found '3'"),
        ({"epochs": 0}, UsageError, "^epochs: expected a positive number, found 0"),
        ({"optimizer": "sdg"}, UsageError, "^optimizer: unknown optimizer 'sdg'"),
        ({"runner": "dataproc"}, UsageError, "^runner: expected one of inline, parallel, local"),
        ({"workers": 0}, UsageError, "^workers: expected a positive number"),
        ({"model": "forest"}, UsageError, "forest"),
        ({"patience": 2}, UsageError, "patience=2: nothing is evaluated"),
        ({"numeric_profile": "portable"}, UsageError, "^numeric_profile='portable': start P"),
        ({"data": "nowhere"}, MissingInputError, "nowhere"),
        ({"data": 3}, DataError, "expected rows of one number or more"),
        ({"run": 3}, UsageError, "expected a path, found 3"),
        ({"label": "y"}, UsageError, "label: it is for tables, and the data are not"),
        ({"weights": "y"}, UsageError, "weights: expected a column's name for a table"),
        ({"weights": [1.0]}, DataError, r"weights is an array \(1,\)"),
        ({"data": "x", "weights": [1.0]}, UsageError, "weights: expected a column's name"),
        (
            {"data": pa.table({"x": [1.0], "label": [0]}), "label": "z"},
            UsageError,
            '^label="z": the table has no such column',
        ),
        ({"data": None}, UsageError, r"expected \(X, y\), a table, or the folder"),
    )
    def test_options(self, options, error, message, monkeypatch):
        monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
        with pytest.raises(error, match=message):
            mapreduce.train(**{"data": arrays(), **options})
        assert not [*api.RUNS.glob("[!.]*")]

    @cases(
        "change, message",
        (lambda x, y: x, "expected .X, y., found X alone"),
        (lambda x, y: (x[:, 0], y), r"X is an array \(90,\) of float64: expected rows"),
        (lambda x, y: (x[:, :0], y), "expected rows of one number or more"),
        (lambda x, y: (x.astype(str), y), "expected rows of one number or more"),
        (lambda x, y: (x, y[1:]), r"y is an array \(89,\): expected \(90,\)"),
        (lambda x, y: ([[1], [1, 2]], [0, 1]), "X: expected an array"),
        (lambda x, y: (np.where(x == x[7, 3], np.nan, x), y), r"^X\[7, 3\] is nan: expected f"),
        (lambda x, y: (x * 1e300, y), "overflow float32: take dtype=.float64"),
        (lambda x, y: (x, y + 0.5), "need task=.regression"),
        (lambda x, y: (x, np.where(y, "a", None)), "data, row .*, column y: expected a label"),
        (lambda x, y: (x, y * 0), "only one class"),
        (lambda x, y: (x[:0], y[:0]), "expected at least one row, found none"),
    )
    def test_arrays(self, change, message):
        with pytest.raises(DataError, match=message):
            mapreduce.train(change(*arrays()), "softmax", rounds=1, **HERE)
        assert not [*api.RUNS.glob("[!.]*")]

    def test_layers_that_their_text_would_not_stand_for(self):
        class Own(ReLU):
            """Another function of the same name."""

        for layers, found in (
            ([], "an empty list"),
            ([Dense(3), Own()], "Test"),
            ([Residual([Own()])], "Test"),
            ([ReLU], "class"),
            ([1], "1"),
        ):
            with pytest.raises(UsageError, match=f"^model: expected layers.*found .*{found}"):
                mapreduce.train(arrays(), layers, rounds=1, **HERE)

    def test_a_run_that_exists(self, trained):
        run, *_ = trained
        with pytest.raises(
            OutputError, match=r"Continue it with mapreduce.open_run\(\S+\).resume\(\)"
        ):
            mapreduce.train(arrays(), run=run.path, **HERE)
        with pytest.raises(MissingInputError, match="is not a run"):
            mapreduce.open_run("nowhere")

    def test_data_that_do_not_fit(self, trained):
        run, (x, y), _ = trained
        for data, message in (
            ((x[:, 1:], y), "^the data: expected 5 features, .*, found 4"),
            ((x, y + 1), "classes that the training data do not have: '3'"),
            (x, "expected .X, y., found X alone"),
        ):
            with pytest.raises(DataError, match=message):
                run.evaluate(data, runner="inline")

    @cases(
        "values, is_told",
        (range(20), True),
        (["a", "b", "c"], False),
        ([0, 1], False),
        ids=["numbers", "texts", "two"],
    )
    def test_a_label_that_is_no_class_may_be_a_number(self, values, is_told):
        """Up to 20 different whole numbers are taken for classes."""
        values = [*values]
        table = pa.table(
            {"x": np.arange(60) / 9, "label": [values[i % len(values)] for i in range(60)]}
        )
        run = mapreduce.train(table, rounds=1, label="label", **HERE)
        other = {"x": [1.0], "label": ["z" if isinstance(values[0], str) else 20]}
        with pytest.raises(DataError, match=r"training data do not have: '(z|20)'") as found:
            run.evaluate(pa.table(other), runner="inline")
        assert ('task="regression"' in str(found.value)) == is_told

    def test_a_callback_that_fails_ends_the_training(self):
        def fail(event):
            if isinstance(event, RunEnded):
                raise GradreduceError("mine")

        with pytest.raises(GradreduceError, match="mine"):
            mapreduce.train(arrays(), run="run", rounds=1, callbacks=[fail], **HERE)
        assert mapreduce.open_run("run").resume(progress=False).model_sha256


@pytest.mark.slow
def test_no_environment_is_needed(tmp_path):
    """BLAS has as many threads as it likes in a program of the user's."""
    x, y = arrays(600)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    code = (
        "import numpy as np, mapreduce\n"
        "data = np.load('data.npz')\n"
        "options = dict(epochs=2, progress=False)\n"
        "for method in ('fork', 'forkserver'):\n"
        "    options['start_method'] = method\n"
        "    run = mapreduce.train((data['x'], data['y']), 'mlp:64', **options)\n"
        "    print(run.model_sha256, run.predict(data['x'], probabilities=True).tobytes().hex())\n"
    )
    environment = {k: v for k, v in os.environ.items() if "THREADS" not in k}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    run = mapreduce.train((x, y), "mlp:64", epochs=2, **HERE)
    chances = run.predict(x, probabilities=True, runner="inline")
    assert set(done.stdout.splitlines()) == {f"{run.model_sha256} {chances.tobytes().hex()}"}
