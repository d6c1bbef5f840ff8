"""``gradreduce train`` on the file of a table, which is imported beside the run."""

import json
import signal
from pathlib import Path

import pytest

from mapreduce.errors import MissingInputError, UsageError
from quick import cases

PENGUINS = Path(__file__).parents[2] / "tables" / "penguins.csv"
HERE = "--executor", "here", "--epochs", 2, "-q", "--json"
LABEL = "--label", "species"


def trained(answer, data, run, *options):
    return json.loads(answer(0, "train", data, "--run", run, *options, *HERE).out)


def test_a_file_is_trained_on_as_its_import(answer, tmp_path):
    answer(0, "data", "import", PENGUINS, tmp_path / "data", *LABEL, "-q")
    theirs = trained(answer, tmp_path / "data", tmp_path / "theirs", "--eval", tmp_path / "data")
    ours = trained(answer, PENGUINS, tmp_path / "ours", *LABEL, "--eval", PENGUINS)
    for name in ("model_sha256", "eval_loss", "accuracy"):
        assert ours[name] == theirs[name]
    # Folders are named by their content, so another training imports nothing.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / ".imported").iterdir()}
    again = trained(answer, PENGUINS, tmp_path / "again", *LABEL)
    assert again["model_sha256"] == ours["model_sha256"]
    folders = (tmp_path / ".imported").iterdir()
    assert {path: path.stat().st_mtime_ns for path in folders} == before
    said = answer(0, "evaluate", tmp_path / "ours", PENGUINS).out
    assert f"accuracy {ours['accuracy']:.4f}" in said


def test_options_follow_the_model(answer, tmp_path):
    """Numbers for a regression, and float64 for the search of L-BFGS, as in Python."""
    import mapreduce

    options = "--model", "linear", "--label", "body_mass_g", "--missing-label", "drop"
    found = trained(answer, PENGUINS, tmp_path / "run", *options)
    run = mapreduce.train(
        PENGUINS,
        "linear",
        label="body_mass_g",
        missing_label="drop",
        run=tmp_path / "python",
        executor="here",
        epochs=2,
        progress=False,
    )
    assert found["model_sha256"] == run.model_sha256
    trained(answer, PENGUINS, tmp_path / "lbfgs", *LABEL, "--optimizer", "lbfgs")
    plan = json.loads((tmp_path / "lbfgs" / "run.json").read_text())["plan"]
    assert plan["dtype"] == "float64"


@cases(
    "data, options, message",
    (PENGUINS, (), "no column is called label"),
    (PENGUINS, ("--label", "specie"), "penguins.csv has no such column"),
    ("data", LABEL, "--label species: it is for the file of a table. Leave it out"),
    ("data", ("--eval", PENGUINS), "penguins.csv: the data were not imported from a table"),
)
def test_what_does_not_fit(data, options, message, refused, tmp_path):
    if data == "data":
        refused(0, "data", "digits", tmp_path / "digits")
        data = tmp_path / "digits" / "train"
    assert message in refused(2, "train", data, "--run", tmp_path / "run", *options)
    assert not (tmp_path / "run").exists() and not (tmp_path / ".imported").exists()


def test_options_for_files_do_not_hide_that_a_folder_is_no_dataset(refused, tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "part-00000.csv").write_bytes(PENGUINS.read_bytes())
    said = refused(66, "train", tmp_path / "parts", "--run", tmp_path / "run", *LABEL)
    assert f"{tmp_path / 'parts'} is not a dataset: it holds no manifest.json" in said


def test_a_file_whose_name_shows_no_format(refused, tmp_path):
    import mapreduce

    (tmp_path / "penguins.data").write_bytes(PENGUINS.read_bytes())
    message = "penguins.data: the name does not show the format. Give it a name that ends in .csv"
    options = "--run", tmp_path / "run", *LABEL
    assert message in refused(2, "train", tmp_path / "penguins.data", *options)
    with pytest.raises(UsageError) as error:
        mapreduce.train(tmp_path / "penguins.data", label="species", run=tmp_path / "run")
    assert message in str(error.value)


@pytest.mark.parametrize("model", ["softmax", "boosting:2"])
def test_a_mistyped_name_is_an_error_before_anything_is_imported(model, refused, tmp_path):
    import mapreduce

    (tmp_path / "penguins.csv").write_bytes(PENGUINS.read_bytes())
    wrong = tmp_path / "pengiuns.csv"
    message = f"{wrong} does not exist. Did you mean {tmp_path / 'penguins.csv'}?"
    options = "--run", tmp_path / "run", *LABEL, "--model", model
    assert message in refused(66, "train", wrong, *options)
    if model == "softmax":
        assert message in refused(66, "train", PENGUINS, *options, "--eval", wrong)
    with pytest.raises(MissingInputError) as error:
        mapreduce.train(wrong, model, label="species", run=tmp_path / "run")
    assert message in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["penguins.csv"]


def test_wrong_options_of_the_execution_are_errors_before_anything_is_imported(refused, tmp_path):
    options = *LABEL, "--executor", "chain", "--stages", 2
    said = refused(2, "train", PENGUINS, "--run", tmp_path / "run", *options)
    assert "--stages 2: expected --executor gang" in said
    assert not any(tmp_path.iterdir())


def test_a_dry_run_imports_nothing_to_stay(answer, tmp_path):
    options = "--run", tmp_path / "run", *LABEL, "--eval", PENGUINS, "--json"
    shown = json.loads(answer(0, "train", PENGUINS, *options, "--dry-run").out)
    assert not [*tmp_path.iterdir()]
    trained(answer, PENGUINS, *options[1:-1])
    assert shown["rows"] == 344


@pytest.mark.parametrize("model", ["softmax", "boosting:2"])
def test_an_import_that_is_asked_to_end_begins_no_run(model, refused, tmp_path, monkeypatch):
    from mapreduce.data import importer

    import_rows = importer.import_rows

    def ended(*arguments):
        # A test that fails so does not end its process.
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        import_rows(*arguments)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(importer, "import_rows", ended)
    options = "--run", tmp_path / "run", *LABEL, "--model", model
    said = refused(143, "train", PENGUINS, *options)
    assert "interrupted" in said and "Continue" not in said
    assert not (tmp_path / "run").exists()


def test_two_trainings_may_import_one_file_at_once(answer, tmp_path, monkeypatch):
    import mapreduce
    from mapreduce.data import importer

    import_rows, others = importer.import_rows, []

    def beside(*arguments):
        monkeypatch.setattr(importer, "import_rows", import_rows)
        options = {"executor": "here", "epochs": 2, "progress": False}
        run = tmp_path / "other"
        others.append(mapreduce.train(PENGUINS, "softmax", label="species", run=run, **options))
        return import_rows(*arguments)

    monkeypatch.setattr(importer, "import_rows", beside)
    own = trained(answer, PENGUINS, tmp_path / "own", *LABEL, "--model", "softmax")
    assert own["model_sha256"] == others[0].model_sha256
    assert len([*(tmp_path / ".imported").iterdir()]) == 1


def test_a_run_that_exists_is_not_written_over(refused, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("")
    refused(73, "train", PENGUINS, "--run", tmp_path / "run", *LABEL)
    assert not (tmp_path / ".imported").exists()


def test_a_model_of_your_own_takes_a_file(answer, tmp_path, monkeypatch, forgotten):
    text = "from mapreduce.models.softmax import Softmax\n\nclass Own(Softmax):\n    pass\n"
    (tmp_path / "own_softmax.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    own = "--model", "own_softmax:Own"
    found = trained(answer, PENGUINS, tmp_path / "run", *LABEL, *own)
    answer(0, "data", "import", PENGUINS, tmp_path / "data", *LABEL, "-q")
    theirs = trained(answer, tmp_path / "data", tmp_path / "theirs", *own)
    assert found["model_sha256"] == theirs["model_sha256"]
