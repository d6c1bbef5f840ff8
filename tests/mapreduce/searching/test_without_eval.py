"""Searches without data to evaluate on: trials hold rows out, and the best is trained on all."""

import json
import shlex

import mapreduce
from mapreduce.data.shards import Dataset
from mapreduce.runs.directory import RunDir
from quick import cases

SPACE = "--model", "mlp:4..16|softmax", "--learning-rate", "log:0.01..1", "--epochs", 2


def commands(found):
    """The arguments of the command of each row."""
    return [shlex.split(row["command"])[1:] for row in found["rows"]]


@cases(
    "options",
    SPACE,
    ("--optimizer", "lbfgs", "--l2", "log:0.01..1", "--epochs", 5),
    ("--patience", 1, "--learning-rate", "3|0.1", "--epochs", 5),
    ("--model", "mlp:4..16", "--rungs", "1,2"),
    ("--held-out", 100, "--slice-rows", 4, "--batch-size", "32|64", "--epochs", 2),
    ids=["sgd", "lbfgs", "patience", "rungs", "own"],
)
def test_each_row_is_its_command(options, search, answer, tmp_path, monkeypatch):
    found = search(*options, "--trials", 3, evaluated=False)
    monkeypatch.chdir(tmp_path)
    for row, command in zip(found["rows"], commands(found), strict=True):
        assert "--held-out" in command and "--eval" not in command
        if row["state"] == "ended":
            run = json.loads(answer(0, *command, "-r", "inline", "--workers", 2, "--json").out)
            assert run["model_sha256"] == row["model_sha256"]
            assert (run["eval_loss"], run["accuracy"]) == (
                float(row["loss"]),
                float(row["accuracy"]),
            )


def test_a_fifth_is_held_out_and_the_best_is_trained_on_all(
    search, answer, data, tmp_path, monkeypatch
):
    found = search(*SPACE, "--trials", 3, evaluated=False)
    rows = Dataset(data / "train").manifest.rows
    command = commands(found)[found["best"]]
    held_out = int(command[command.index("--held-out") + 1])
    assert abs(held_out / rows - 0.2) < 0.1
    for name in ("--held-out", "--eval-every"):
        del command[command.index(name) : command.index(name) + 2]
    monkeypatch.chdir(tmp_path)
    whole = json.loads(answer(0, *command, "--executor", "here", "--json").out)
    best = RunDir(tmp_path / "search/best")
    assert best.config.plan.held_out == 0 and best.summary()["state"] == "ended"
    assert best.summary()["model_sha256"] == whole["model_sha256"] != found["model_sha256"]
    # The same search leaves it, and a better trial replaces it.
    before = (best.path / "result.json").stat().st_mtime_ns
    search(*SPACE, "--trials", 3, evaluated=False)
    assert (best.path / "result.json").stat().st_mtime_ns == before
    more = search(*SPACE, "--trials", 5, evaluated=False)
    inline = search(
        *SPACE, "--trials", 5, "-r", "inline", name="inline", executor="", evaluated=False
    )
    assert more["table_sha256"] == inline["table_sha256"]
    digests = [
        RunDir(tmp_path / n / "best").summary()["model_sha256"] for n in ("search", "inline")
    ]
    assert digests[0] == digests[1]


@cases(
    "options, message",
    (("--strategy", "averaging"), "--held-out: expected the default, since --strategy averaging"),
    (
        ("--strategy", "tournament", "--replicas", 2),
        "--strategy tournament: nothing is evaluated. Add --eval DATA",
    ),
    (("--held-out", 460, "--slice-rows", 32), "15 of 17 slices of 32 rows are held out"),
)
def test_what_cannot_be_held_out(options, message, search, tmp_path):
    assert message in search(*options, "--epochs", 1, code=2, evaluated=False)
    assert not (tmp_path / "search").exists()


def test_in_python_and_resumed(data, answer, tmp_path):
    found = mapreduce.search(
        data / "train", run=tmp_path / "found", epochs=1, trials=1, progress=False, executor="here"
    )
    assert found.best.plan.held_out == 0
    assert found.resume(trials=2, progress=False).table.num_rows == 2


def test_a_table_whose_optimizer_takes_all_rows(answer, tmp_path):
    """The optimizer of such data is L-BFGS, and with rows held out it would be SGD."""
    rows = [f"{i * 7 % 31},{i * 5 % 17},{'ab'[i * 7 % 31 > 15]}\n" for i in range(200)]
    (tmp_path / "table.csv").write_text("x,y,label\n" + "".join(rows))
    answer(0, "data", "import", tmp_path / "table.csv", tmp_path / "data")
    start = "search", tmp_path / "data", "--run", tmp_path / "found", "--executor", "here"
    found = json.loads(answer(0, *start, "--trials", 1, "--l2", "1e-3|1e-2", "--json", "-q").out)
    assert "--optimizer lbfgs" in (tmp_path / "found/trials.csv").read_text()
    assert "--held-out" in (tmp_path / "found/trials.csv").read_text()
    best = RunDir(tmp_path / "found/best").config.plan
    assert (best.optimizer, best.batch_size, best.held_out) == ("lbfgs", 200, 0)
    assert found["best"] == 0
