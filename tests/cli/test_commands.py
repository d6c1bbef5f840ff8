"""The commands as a user meets them: what they print, and what they say of bad input."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import datasets
import programs
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.runs import directory as rundir
from programs import fails, gradreduce, succeed
from quick import cases, first_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    datasets.blobs(folder / "train")
    datasets.blobs(folder / "test", (80, 41), seed=1)
    return folder


@pytest.fixture(scope="module")
def run(data):
    """A finished run."""
    succeed("train", data / "train", "--run", data / "run", "--eval", data / "test", "--epochs", 3)
    return data / "run"


#: Not for as many epochs as by default.
ONCE = ("--epochs", 1)


def test_train_says_what_it_did(data, tmp_path):
    """Progress is on stderr, in plain lines where there is no terminal."""
    command = ["train", data / "train", "--run", tmp_path / "r", "--eval", data / "test"]
    done = gradreduce(*command, *ONCE)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("trained in ")
    assert lines[1].startswith("accuracy 0.")
    assert lines[2].startswith("always guessing ")
    assert len(lines[3].removeprefix("model_sha256 ")) == 64
    assert "softmax by sgd: 5 rounds of 128 rows; runner parallel" in done.stderr
    assert "round 5/5  loss " in done.stderr
    assert "evaluation after 5 rounds: accuracy 0." in done.stderr
    assert "\x1b" not in done.stderr


def test_quiet_says_nothing_on_stderr(data, tmp_path):
    command = ["train", data / "train", "--run", tmp_path / "run", *ONCE]
    assert gradreduce(*command, "-q").stderr == ""


def test_json_is_one_object_and_nothing_else(data, tmp_path):
    command = ["train", data / "train", "--run", tmp_path / "run", "--eval", data / "test"]
    summary = json.loads(succeed(*command, *ONCE, "--json"))
    shown = json.loads(succeed("runs", "show", tmp_path / "run", "--json"))
    assert summary["model_sha256"] == shown["model_sha256"]
    assert summary["completed"] == summary["rounds"] == 5
    assert summary["state"] == "ended"
    assert 0.3 < summary["accuracy"] <= 1
    shown_to_people = succeed("runs", "show", tmp_path / "run").partition("execution:")[0]
    assert re.findall(r"^(?:accuracy|bytes_pushed|.* –$|.* \[\]$)", shown_to_people, re.M) == [
        "accuracy"
    ]


def test_dry_run_shows_the_plan_and_does_nothing(data, tmp_path):
    command = ["train", data / "train", "--run", tmp_path / "run", "--model", "mlp:7", "--dry-run"]
    plan = json.loads(succeed(*command, "--json"))
    assert plan["parameters"] == 12 * 7 + 7 + 7 * 3 + 3
    assert (plan["rows"], plan["rounds"], plan["slice_rows"]) == (467, 100, 32)
    assert "rounds            100" in succeed(*command)
    assert not (tmp_path / "run").exists()


def test_predict_goes_on_where_it_was_stopped_and_refuses_other_predictions(
    data, run, tmp_path, refused
):
    out = tmp_path / "out"
    assert "121 predictions" in succeed("predict", run, data / "test", out)
    first, second = sorted(out.glob("part-*"))
    before = first.stat().st_mtime_ns
    second.unlink()
    (out / "_SUCCESS").unlink()
    succeed("predict", run, data / "test", out)
    assert second.exists()
    assert first.stat().st_mtime_ns == before
    assert "of another model or of other data" in refused(73, "predict", run, data / "train", out)
    assert "does not contain predictions" in refused(73, "predict", run, data / "test", data)


def test_runs_list(data, run):
    found = json.loads(succeed("runs", "list", data, "--json"))["runs"]
    assert [entry["state"] for entry in found] == ["ended"]
    assert "softmax" in succeed("runs", "list", data)
    assert "no runs in" in succeed("runs", "list", data / "test")


def test_a_training_that_diverged_says_so_in_the_last_line_and_in_the_list(data, tmp_path):
    options = ["--learning-rate", 1e30, "--eval", data / "test", "-q"]
    done = gradreduce("train", data / "train", "--run", tmp_path / "bad", *options)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: the training diverged: the loss is ")
    assert "gradreduce data standardise" in line
    succeed("train", data / "train", "--run", tmp_path / "good", "--epochs", 2)
    bad, below, good = succeed("runs", "list", tmp_path).splitlines()
    assert below.strip() == line
    assert re.search(r"train loss \S+e\+\d+ +eval accuracy 0\.\d+ ", bad)
    (found,) = re.findall(r"train loss (0\.\d+) ", good)
    assert "eval" not in good
    listed = json.loads(succeed("runs", "list", tmp_path, "--json"))["runs"]
    assert [entry["warning"] for entry in listed] == [line.removeprefix("warning: "), None]
    assert f"{listed[1]['pass_loss']:.4g}" == found != f"{listed[1]['loss']:.4g}"


def test_how_a_search_ended(data, tmp_path):
    command = ["train", data / "train", "--model", "softmax", "--optimizer", "lbfgs", "-q", "--run"]
    done = gradreduce(*command, tmp_path / "a", "--l2", 0.1)
    first = done.stdout.splitlines()[0]
    norm = r"the gradient's norm is \S+e-0[78] relative to the loss, --tol 1e-06"
    assert re.fullmatch(rf"converged after \d+ rounds: {norm}", first)
    assert done.stderr == ""
    done = gradreduce(*command, tmp_path / "b", "--l2", 0.1, "--tol", 1e-30, "--dtype", "float32")
    assert done.returncode == 0
    assert "converged" not in done.stdout
    assert done.stderr.startswith("warning: stalled at float32 precision after ")
    assert "the gradient's norm is " in done.stderr
    assert "--dtype float64" in done.stderr
    done = gradreduce(*command, tmp_path / "c", "--rounds", 3)
    assert done.stderr.startswith("warning: not converged within 3 rounds: the gradient's norm is ")


def test_data_digits_show_and_verify(tmp_path, refused):
    succeed("data", "digits", tmp_path / "digits")
    train = json.loads(succeed("data", "show", tmp_path / "digits/train", "--json"))
    test = json.loads(succeed("data", "show", tmp_path / "digits/test", "--json"))
    assert (train["rows"], test["rows"]) == (1437, 360)
    assert train["classes"] == list(range(10))
    assert "match their digests" in succeed("data", "verify", tmp_path / "digits/train")
    verified = json.loads(succeed("data", "verify", "-q", "--json", tmp_path / "digits/train"))
    assert verified == {"shards": train["shards"], "sha256": train["sha256"]}
    again = json.loads(succeed("data", "digits", "-q", "--json", tmp_path / "again"))
    assert again == {"train": train, "test": test}
    shard = tmp_path / "digits/train/shard-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    assert "is damaged" in refused(65, "data", "verify", tmp_path / "digits/train")
    message = refused(65, "train", tmp_path / "digits/train", "--run", tmp_path / "run")
    assert "shard-00000.arrow is damaged in record batch 0" in message


def test_import_csv(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,label\n1,2,yes\n3,4,no\n5,6,yes\n")
    out = succeed("data", "import", tmp_path / "a.csv", tmp_path / "out")
    assert out.splitlines()[:3] == [
        "  label  label, classification  2 classes: no, yes",
        "  x      number                 1 to 5",
        "  y      number                 2 to 6",
    ]
    assert "3 rows of 2 features in 1 shard" in out
    assert "('no', 'yes')" not in succeed("data", "show", tmp_path / "out")


@cases(
    "options, expected",
    ("--model cnn", "unknown model 'cnn': expected one of softmax, linear, "),
    ("--optimizer sdg", "unknown optimizer 'sdg': expected one of sgd, momentum, "),
    ("--learning-rate fast", "'fast' is not a valid float"),
    ("--eval-every 2", "--eval-every needs data to evaluate on"),
    ("--fan-in 3", "--fan-in: expected 0 or a power of two"),
    ("--workers 0", "--workers: expected a positive number"),
    ("--blocks 0", "--blocks: expected a positive number"),
    ("--runner hadop", "'hadop' is not one of"),
    ("--modle x", "Did you mean one of: '--fold', '--model'"),
    ("extra", "unexpected extra argument"),
    ("--numeric-profile exact", "'exact' is not one of"),
)
def test_bad_options_are_usage_errors_that_name_the_option(
    data, refused, tmp_path, options, expected
):
    assert expected in refused(
        2, "train", data / "train", "--run", tmp_path / "run", *options.split()
    )
    assert not (tmp_path / "run").exists()


TABLE = "id,size,price,label\nA7,1,2,0\nB9,3,4,1\nC1,5,7,1\n"
COLOURS = "colour,size,label\nred,1,0\nblue,2,1\n"
NUMBERS = {"a": [1, 2], "b": [3, 4], "y": [0.5, 1.5], "w": [1, 2]}
WEIGHTED = "x,y,w\n1,0.5,1\n2,1.5,0\n"
BOTH = {"target": "number", "weighted": True}
IMAGES = bytes([3, *[7] * 3072, 1, *[8] * 3072])
SPARSE = "+1 1:0.5 4:2\n-1 2:1\n"
DROPPED = "--drop id --drop label --label price --task regression"
PREDICTED = "--label y --weights w --task regression"


def labelled(labels):
    """Rows whose labels may be classes, or numbers to be predicted."""
    return "x,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels))


#: A file of a format, options, rows and features, and what manifest and recipe have of it.
IMPORTS = [
    ("csv", TABLE, DROPPED, "3 rows of 1 f", {"target": "number", "drop": ["id", "label"]}),
    (
        "csv",
        WEIGHTED,
        "--label y --weights w",
        "2 rows of 1 f",
        {"target": "number", "weighted": True, "weights": "w", "columns": ["x"]},
    ),
    ("csv", labelled(i / 4 for i in range(50)), "", "50 rows of 1 f", {"target": "number"}),
    ("csv", labelled([*range(1000, 1020)] * 2), "", "40 rows of 1 f", {"target": "class"}),
    ("csv", COLOURS, "--hash-bits 6", "2 rows of 64 f", {"layout": "sparse", "hash_bits": 6}),
    ("csv", "0,1,2\n5,6,7\n", "--header --label 2", "1 row of 2 f", {"classes": [7]}),
    ("csv", "0,1,2\n5,6,7\n", "--no-header --label 3", "2 rows of 2 f", {"classes": [2, 7]}),
    (
        *("csv", "1e300,1\n2,0\n", "--dtype float64 --label 2 --no-standardise"),
        *("2 rows of 1 f", {"dtype": "float64", "standardise": False}),
    ),
    (*("parquet", NUMBERS, PREDICTED, "2 rows of 2 f"), {**BOTH, "layout": "dense"}),
    ("parquet", NUMBERS, f"{PREDICTED} --columns b", "2 rows of 1 f", {"target": "number"}),
    ("parquet", TABLE, DROPPED, "3 rows of 1 f", {"target": "number", "drop": ["id", "label"]}),
    ("cifar10", IMAGES, "", "2 rows of 3,072 f", {"shape": [3, 32, 32], "classes": [1, 3]}),
    (
        *("libsvm", SPARSE, "", "2 rows of 4 features in 1 shard"),
        {"layout": "sparse", "nonzeros": 3, "target": "class", "class_rows": [1, 1]},
    ),
    (
        *("libsvm", SPARSE, "--task regression --zero-based --features 9 --dtype float64"),
        *("2 rows of 9 f", {"target": "number", "dtype": "float64"}),
    ),
]


def write_source(path, content):
    """A file; of Parquet, the table that is named so, or a text's."""
    if isinstance(content, dict):
        pq.write_table(pa.table(content), path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(("kind", "content", "options", "said", "expected"), IMPORTS)
def test_options_reach_the_import(tmp_path, kind, content, options, said, expected):
    write_source(tmp_path / "a", content)
    if kind == "parquet" and content is TABLE:
        pq.write_table(pyarrow.csv.read_csv(tmp_path / "a"), tmp_path / "a")
    base = ["data", "import", "--format", kind, tmp_path / "a", tmp_path / "out"]
    assert said in succeed(*base, *options.split())
    shown = json.loads(succeed("data", "show", tmp_path / "out", "--json"))
    if kind in ("csv", "parquet"):
        shown = json.loads((tmp_path / "out" / "recipe.json").read_text())["recipe"] | shown
    assert {name: shown[name] for name in expected} == expected


@cases(
    "kind, content, options, code, message",
    ("idx", "1,2\n", "", 2, "either --labels FILE or --unlabelled"),
    ("idx", "1,2\n", "--label x", 2, "--label is for csv"),
    ("idx", "1,2\n", "--no-header", 2, "--header is for csv"),
    ("csv", "1,2\n", "--labels a", 2, "--labels is for idx"),
    ("csv", "1,2\n", "--label x --unlabelled", 2, "contradict"),
    ("xls", "1,2\n", "", 2, "unknown format 'xls': expected one of idx, csv, "),
    ("csv", labelled(range(21)), "", 2, "more than 20 different whole numbers: say --task regr"),
    ("csv", TABLE, "--label label --drop sizes", 2, "--drop sizes: "),
    ("csv", TABLE, "--label label --drop label", 2, "--drop label: it is --label, and so no f"),
    (
        *("csv", "1e300,1\n", "--label 2 --no-standardise", 65),
        "numbers beyond 3.4e38 overflow float32. Take --dtype float64",
    ),
    ("parquet", NUMBERS, "--features 2", 2, "--features is for libsvm"),
    ("parquet", NUMBERS, "--drop a --columns b", 2, "contradict each other"),
    ("cifar10", IMAGES, "--dtype float64", 2, "--dtype is for csv"),
    ("libsvm", SPARSE, "--label x", 2, "--label is for csv"),
    (
        *("libsvm", SPARSE, "--task regression --unlabelled", 2),
        "--task and --unlabelled contradict each other",
    ),
)
def test_imports_that_are_refused(refused, tmp_path, kind, content, options, code, message):
    write_source(tmp_path / "a", content)
    base = ["data", "import", "--format", kind, tmp_path / "a", tmp_path / "d"]
    assert message in refused(code, *base, *options.split())
    assert not (tmp_path / "d").exists()


def test_unknown_command(refused):
    assert "Did you mean 'train'?" in refused(2, "trian")


def test_missing_and_wrong_inputs(data, run, tmp_path, refused):
    assert "does not exist" in refused(66, "train", tmp_path / "no", "--run", tmp_path / "run")
    assert "is not a dataset" in refused(66, "train", tmp_path, "--run", tmp_path / "run")
    assert "is not a run" in refused(66, "resume", tmp_path)
    assert "is not a run" in refused(66, "evaluate", tmp_path, data / "test")
    # Its client starts a Java machine.
    assert "does not answer" in fails(74, "evaluate", "hdfs://127.0.0.1:1/run", data / "test")
    assert "does not exist" in refused(66, "evaluate", run, tmp_path / "no")
    assert "already contains a run" in refused(73, "train", data / "train", "--run", run)
    assert "exists and is not a run" in refused(73, "train", data / "train", "--run", data)
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_version_or_a_damaged_one_is_refused(data, run, tmp_path, refused):
    succeed("train", data / "train", "--run", tmp_path / "run", "--rounds", 1)
    file = tmp_path / "run/run.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "format_version": 99}))
    told = refused(65, "resume", file.parent)
    assert f"format version 99; this program reads version {rundir.FORMAT_VERSION}" in told
    file.write_text(file.read_text()[:50])
    assert "run.json is damaged" in refused(65, "resume", file.parent)
    file.write_text("[" * 100_000)
    assert "run.json is damaged" in refused(65, "resume", file.parent)


def test_resume_refuses_other_data(data, tmp_path, refused):
    datasets.blobs(tmp_path / "train")
    succeed("train", tmp_path / "train", "--run", tmp_path / "run", "--rounds", 1)
    (tmp_path / "run/result.json").unlink()
    manifest = json.loads((tmp_path / "train/manifest.json").read_text())
    datasets.rewrite_manifest(tmp_path / "train", {**manifest, "seed": 1})
    found = refused(65, "resume", tmp_path / "run")
    assert re.search("is not the dataset that the run began with.* folder by --data", found)
    (tmp_path / "train/manifest.json").unlink()
    assert "the run's data are gone" in refused(66, "resume", tmp_path / "run")


def test_resume_of_a_finished_run_changes_nothing(run):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert json.loads(succeed("resume", run, "--json"))["state"] == "ended"
    kept = {path: path.stat().st_mtime_ns for path in before if "events" not in path.name}
    assert kept.items() <= before.items()


def test_debug_shows_the_traceback(tmp_path):
    done = gradreduce("resume", tmp_path, "--debug")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "MissingInputError" in done.stderr


def test_help_is_fast_to_load_and_lists_every_command():
    out = succeed("--help")
    for command in ("train", "resume", "evaluate", "predict", "data", "runs", "doctor"):
        assert f"  {command} " in out
        assert "Usage:" in succeed(command, "--help")


def test_runs_of_regressions_are_listed_with_their_loss(tmp_path):
    (tmp_path / "numbers.csv").write_text("a,label\n" + "1,2.5\n3,4\n" * 20)
    options = ["--format", "csv", "--task", "regression"]
    succeed("data", "import", "numbers.csv", "data", *options, cwd=tmp_path)
    for name, more in (("plain", []), ("evaluated", ["--eval", "data"])):
        command = ["train", "data", "--model", "linear", "--run", name, "--rounds", 2, *more]
        succeed(*command, "-r", "inline", cwd=tmp_path)
    lines = succeed("runs", "list", cwd=tmp_path).splitlines()
    assert len(lines) == 2
    assert all(re.search(r"loss +\d+\.\d", line) for line in lines)


@pytest.mark.parametrize("package", first_of("kernels", "jobs", "hdfs_utils"))
def test_doctor_is_content_here_and_beside_a_package_that_is_called_as_ours(package, tmp_path):
    assert "WRONG" not in succeed("doctor")
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); " + (
        "from mapreduce.cli.main import main; sys.exit(main(['doctor']))"
    )
    done = programs.ran(sys.executable, "-c", code, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok    {package:14}{ROOT}/{package}" in done.stdout


@pytest.mark.slow
def test_jobs_run_by_mrjobs_convention(data, tmp_path):
    """The same plan through ``python jobs/train.py`` has the same bits."""
    # The second round has the first one's parameters and momentum.
    options = ["--model", "mlp:9", "--rounds", 2, "--momentum", 0.5, "--optimizer", "momentum"]
    succeed("train", data / "train", "--run", tmp_path / "a", *options)
    hashes = [json.loads(succeed("runs", "show", tmp_path / "a", "--json"))["model_sha256"]]
    for runner in ("inline", "local"):
        program = [sys.executable, ROOT / "jobs/train.py", "-r", runner, "--run", tmp_path / runner]
        subprocess.run(
            [*map(str, [*program, *options, data / "train"])], check=True, capture_output=True
        )
        shown = json.loads(succeed("runs", "show", tmp_path / runner, "--json"))
        hashes.append(shown["model_sha256"])
    assert len(set(hashes)) == 1


def test_arguments_after_two_dashes_go_to_mrjob(data, tmp_path):
    options = ["--run", tmp_path / "run", "--rounds", 1, "--", "-D", "mapreduce.x=1"]
    succeed("train", data / "train", *options)
    shown = json.loads(succeed("runs", "show", tmp_path / "run", "--json"))
    assert shown["execution"]["mrjob_arguments"] == ["-D", "mapreduce.x=1"]
    message = programs.gradreduce(
        "train", data / "train", "--run", tmp_path / "other", "--", "--no-such-option"
    ).stderr
    assert "--no-such-option" in message


@pytest.mark.slow
def test_a_bar_on_a_terminal(data, tmp_path):
    """Round, loss, rows per second and time left, drawn again and again."""
    command = [*programs.GRADREDUCE, "train", data / "train", "--run", tmp_path / "run"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*map(str, command), "--rounds", "600", "--executor", "chain"],
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.wait() == 0
    out = process.stdout.read().decode()
    process.stdout.close()
    text = shown.decode()
    assert "\x1b[" in text
    assert "round 600/600" in text
    assert re.search(r"loss 0\.\d{4}  [\d,]+ rows/s", text)
    assert "left" in text
    assert text.count("round ") > 3
    assert "model_sha256" in out


def test_standardise(tmp_path, refused):
    (tmp_path / "a.csv").write_text("x,c,label\n1,5,0\n2,5,1\n6,5,1\n")
    succeed("data", "import", tmp_path / "a.csv", tmp_path / "table")
    assert "the import has standardised the numbers" in refused(
        65, "data", "standardise", tmp_path / "table", tmp_path / "new"
    )
    rows = Rows(np.float32([[1, 5], [2, 5], [6, 5]]), np.array([0, 1, 1]))
    import_rows(Source([rows], (2,), 1.0, 0, {"format": "memory"}), tmp_path / "data", 0)
    base = ["data", "standardise", tmp_path / "data"]
    done = gradreduce(*base, tmp_path / "train", "--workers", 2)
    assert done.returncode == 0
    assert "3 rows of 2 features in 1 shard" in done.stdout
    assert (
        "warning: 1 of 2 features are constant, and not divided: 1 (counted from 0)" in done.stderr
    )
    options = ["--like", tmp_path / "train", "-r", "inline", "--dtype", "float64", "--json"]
    told = json.loads(succeed(*base, tmp_path / "test", *options))
    shown = json.loads(succeed("data", "show", tmp_path / "test", "--json"))
    assert (shown["sha256"], shown["standardised"]) == (told["sha256"], True)
    assert shown["dtype"] == "float64"
    assert "is not standardised" in refused(
        65, *base, tmp_path / "new", "--like", tmp_path / "data"
    )
    assert "--per-channel: expected images" in refused(2, *base, tmp_path / "new", "--per-channel")
    shard = tmp_path / "data/shard-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 3] ^= 1
    shard.write_bytes(content)
    message = refused(65, *base, tmp_path / "new")
    assert "shard-00000.arrow is damaged" in message
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["a.csv", "data", "table", "test", "train"]


@pytest.mark.slow
def test_data_to_test_on_are_like_those_to_train_on(tmp_path, refused):
    def imported(name, text, *options):
        (tmp_path / f"{name}.csv").write_text(text)
        base = ["data", "import", "--format", "csv", tmp_path / f"{name}.csv", tmp_path / name]
        return json.loads(succeed(*base, *options, "--json"))

    rows = "".join(f"{i % 5},{'ab'[i % 2]},{i % 2 or 9223372036854775809}\n" for i in range(50))
    options = ["--label", "y", "--hash-bits", 6, "--dtype", "float64", "--text", "z"]
    train = imported("train", "x,z,y\n" + rows + "NA,b,1\n", *options)
    assert train["classes"] == ["1", "9223372036854775809"]
    # By itself x would be of texts, z of numbers, and classes would be numbers.
    test = imported("test", "y,x,z\n1,null,5\n1,NaN,7\n", "--like", tmp_path / "train")
    for same in ("features", "dtype"):
        assert test[same] == train[same]
    assert test["classes"] == ["1"]
    recipes = [(tmp_path / name / "recipe.json").read_bytes() for name in ("train", "test")]
    assert recipes[0] == recipes[1]
    model = ["--model", "logistic", "--rounds", 2]
    succeed("train", tmp_path / "train", "--run", tmp_path / "run", *model)
    succeed("evaluate", tmp_path / "run", tmp_path / "test")
    succeed("predict", tmp_path / "run", tmp_path / "train", tmp_path / "out")
    labels = pq.read_table(tmp_path / "out").column("label").to_pylist()
    assert sorted(set(labels)) == train["classes"]
    (tmp_path / "odd.csv").write_text("y,x,z\n2,1,a\n")
    base = ["data", "import", "--format", "csv", tmp_path / "odd.csv", tmp_path / "odd"]
    assert "classes that the training data do not have: '2'" in refused(
        65, *base, "--like", tmp_path / "train"
    )
    assert "--like is for csv, parquet, not for libsvm" in refused(
        2, *base[:3], "libsvm", *base[4:], "--like", tmp_path / "train"
    )


@pytest.mark.parametrize("shard", [0, 1])
def test_a_run_on_damaged_data_leaves_nothing(tmp_path, shard, refused):
    """The same command works when the data are mended; the driver reads the first shard itself."""
    datasets.blobs(tmp_path / "data")
    path = tmp_path / "data" / f"shard-0000{shard}.arrow"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    path.write_bytes(damaged)
    command = ["train", tmp_path / "data", "--run", tmp_path / "run", "--batch-size", 0]
    command += ["--rounds", 1]
    assert path.name in refused(65, *command)
    assert not (tmp_path / "run").exists()
    path.write_bytes(whole)
    succeed(*command)
