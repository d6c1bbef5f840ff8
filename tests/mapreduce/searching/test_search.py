"""A search has one table for any execution, and each row of it is a plain training."""

import hashlib
import json
import os
import shlex
import shutil
import signal
import sys

from datasets import blobs
from mapreduce.errors import DataError, Interrupted, MemberError
from mapreduce.runs import lease
from mapreduce.searching import directory, driver, trials
from mapreduce.searching.directory import SearchDir
from mapreduce.training import driver as training
from quick import cases

SPACE = ["--model", "mlp:4..16|softmax", "--learning-rate", "log:0.01..1", "--epochs", "2"]


def test_one_table_for_any_execution_and_after_an_extension(search, tmp_path):
    expected = search(*SPACE, "--trials", 6)
    content = (tmp_path / "search/trials.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == expected["table_sha256"]
    assert (expected["trials"], expected["ended"], expected["state"]) == (6, 6, "ended")
    inline = search(*SPACE, "--trials", 6, "-r", "inline", name="inline", executor="")
    part = search(*SPACE, "--trials", 4, name="part")
    whole = search(*SPACE, "--trials", 6, name="part")
    assert part["table_sha256"] != expected["table_sha256"]
    assert {each["table_sha256"] for each in (inline, whole)} == {expected["table_sha256"]}
    scores = {float(row["loss"]): row for row in expected["rows"]}
    assert scores[min(scores)]["trial"] == str(expected["best"])
    by_accuracy = search(*SPACE, "--trials", 6, "--metric", "accuracy", name="accuracy")
    best = max(by_accuracy["rows"], key=lambda row: (float(row["accuracy"]), -int(row["trial"])))
    assert str(by_accuracy["best"]) == best["trial"]


@cases("workers", 1, 2, 3)
def test_workers_that_are_killed_change_nothing(workers, search, tmp_path, monkeypatch):
    expected = search(*SPACE, "--trials", 5)
    train, killed = training.train, tmp_path / "killed"

    def die(run, *more, **options):
        if run.path.name in ("00001", "00003") and not (mark := killed / run.path.name).exists():
            mark.mkdir(parents=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return train(run, *more, **options)

    monkeypatch.setattr(training, "train", die)
    found = search(*SPACE, "--trials", 5, "--workers", workers, name="killed-ones", executor="")
    assert sorted(each.name for each in killed.iterdir()) == ["00001", "00003"]
    assert found["table_sha256"] == expected["table_sha256"]


def test_a_trial_that_kills_every_worker_is_named(search, tmp_path, monkeypatch):
    held = lease.hold

    def die(run, **options):
        context = held(run, **options)
        if run.name == "00002":
            context.__enter__()
            os.kill(os.getpid(), signal.SIGKILL)
        return context

    monkeypatch.setattr(training.lease, "hold", die)
    error = search(*SPACE, "--trials", 4, "--workers", 2, code=1, executor="")
    assert "worker of trial 2 was killed" in error
    assert "gradreduce train" in error and "--run trial-00002" in error


def test_a_stopped_search_goes_on(search, answer, refused, tmp_path, monkeypatch):
    expected = search(*SPACE, "--trials", 5)
    advance, done = training.Driver.advance, []

    def stop(self, position):
        done.append(position.completed)
        if len(done) == 3:
            raise Interrupted(signal.SIGINT)
        return advance(self, position)

    monkeypatch.setattr(training.Driver, "advance", stop)
    error = search(*SPACE, "--trials", 5, name="stopped", code=130)
    folder = tmp_path / "stopped"
    assert f"Continue with: gradreduce resume {folder}" in error
    assert len([*(folder / "results").iterdir()]) == 2 and not (folder / "trials.csv").exists()
    shown = json.loads(answer(0, "runs", "show", folder, "--json").out)
    assert (shown["state"], shown["ended"], shown["trials"]) == ("stopped", 2, 5)
    assert shown["table"] is None and shown["run"] is None
    printed = answer(0, "resume", folder, "--json")
    assert len(done) == 6
    assert json.loads(printed.out)["table_sha256"] == expected["table_sha256"]
    again = json.loads(answer(0, "resume", folder, "--json").out)
    assert again["table_sha256"] == expected["table_sha256"] and len(done) == 6
    more = json.loads(answer(0, "resume", folder, "--trials", "6", "--json").out)
    assert more["trials"] == 6 and len(done) == 7
    assert "has 6 trials already, expected as many or more" in refused(
        2, "resume", folder, "--trials", "5"
    )


#: Options of plans, each of which something of its own decides.
PLANS = {
    "sgd": "--schedule cosine --learning-rate log:0.01..1 --model mlp:4..16 --epochs 3",
    "adam": "--optimizer adam:beta1=0.8..0.99 --learning-rate 0.01|0.1 --epochs 3",
    "lbfgs": "--optimizer lbfgs --l2 log:0.01..1 --epochs 9",
    "patience": "--patience 1 --learning-rate 3|0.1 --epochs 6",
    "averaging": "--strategy averaging --replicas 2 --replica-state keep "
    "--optimizer momentum --local-steps 1..3 --epochs 3",
    "weights": "--class-weight balanced|2=3 --l1 log:0.001..0.1 --epochs 3",
    "dropout": "--model dense:6..9,relu,dropout:0.1..0.5,dense:3 --clip-norm 0.5..2.0 --epochs 3",
    "batch": "--batch-size 32|64 --slice-rows 8 --eval-every 3..5 --rounds 20..30",
    "tournament": "--strategy tournament --replicas 2 --local-steps 2 --spread 1.5..4.0 --epochs 2",
}


@cases("options", *PLANS.values(), ids=[*PLANS])
def test_each_row_is_its_command(options, search, answer, tmp_path, monkeypatch):
    found = search(*options.split(), "--trials", 3)
    monkeypatch.chdir(tmp_path)
    hashes = []
    for row in found["rows"]:
        _, *command = shlex.split(row["command"])
        run = json.loads(answer(0, *command, "-r", "inline", "--workers", 2, "--json", "-q").out)
        assert (run["model_sha256"], str(run["model_rounds"])) == (
            row["model_sha256"],
            row["rounds"],
        )
        assert (run["eval_loss"], run["accuracy"]) == (float(row["loss"]), float(row["accuracy"]))
        hashes.append(row["model_sha256"])
    assert len({*hashes}) > 1


def test_trials_start_from_another_run(search, data, answer, tmp_path, monkeypatch):
    run = tmp_path / "a..b|c"
    answer(0, "train", data / "train", "--run", run, "--epochs", 2, "--executor", "here")
    found = search("--init-from", run, "--learning-rate", "0.01|0.1", "--sampler", "grid")
    assert found["trials"] == 2
    monkeypatch.chdir(tmp_path)
    for row in found["rows"]:
        _, *command = shlex.split(row["command"])
        hashed = json.loads(answer(0, *command, "--executor", "here", "--json").out)
        assert hashed["model_sha256"] == row["model_sha256"]


def test_the_best_is_a_run(search, data, answer, tmp_path):
    found = search(*SPACE, "--trials", 1)
    best = tmp_path / "search/best"
    assert found["run"] == str(best)
    shown = json.loads(answer(0, "runs", "show", best, "--json").out)
    assert shown["model_sha256"] == found["model_sha256"]
    report = json.loads(answer(0, "evaluate", best, data / "test", "--json").out)
    assert report["loss"] == found["loss"]
    # An extension finds a better one.
    more = search(*SPACE, "--trials", 4)
    assert more["best"] > 0
    shown = json.loads(answer(0, "runs", "show", best, "--json").out)
    assert shown["model_sha256"] == more["model_sha256"] != found["model_sha256"]


def test_trials_that_fail_are_rows_with_a_reason(search):
    found = search(*["--learning-rate", "0.1|1e38", "--sampler", "grid", "--epochs", "2"])
    assert (found["ended"], found["failed"]) == (1, 1)
    (failed,) = (row for row in found["rows"] if row["state"] == "failed")
    assert "diverged" in failed["reason"] and failed["learning_rate"] == "1e38"
    assert not failed["loss"] and not failed["model_sha256"]
    options = ["--optimizer", "sgd|momentum", "--momentum", "0.5|0.8", "--sampler", "grid"]
    states = {row["optimizer"]: row for row in search(*options, name="unfit")["rows"]}
    assert states["momentum"]["state"] == "ended"
    assert "--momentum: sgd has no such option" in states["sgd"]["reason"]


def test_equal_plans_are_trained_once(search, monkeypatch):
    trained, train = [], training.train
    monkeypatch.setattr(
        training, "train", lambda run, *a, **more: trained.append(run) or train(run, *a, **more)
    )
    found = search(*["--learning-rate", "0.1|1e-1|0.2", "--sampler", "grid", "--epochs", "2"])
    assert (len(trained), found["equal"]) == (2, 1)
    same = next(row for row in found["rows"] if row["same_as"])
    first = found["rows"][int(same["same_as"])]
    assert first["model_sha256"] == same["model_sha256"] and first["loss"] == same["loss"]
    assert first["learning_rate"] != same["learning_rate"]


@cases(
    "options, message",
    ("--learning-rate 1..0.1", "LOW below HIGH"),
    ("--learning-rate -1..1", "--learning-rate: expected a finite, positive number, found -1"),
    ("--learning-rate 0.01...1", "or a range LOW..HIGH, found '0.01...1'"),
    ("--learning-rate fast", "--learning-rate: expected a number, alternatives A|B or a"),
    ("--learning-rate 0.1,1", "or a range LOW..HIGH, found '0.1,1'"),
    ("--epochs 1.5..2", "--epochs: expected a whole number"),
    ("--optimizer adam:beta1=0.5..1.5", "option beta1: expected a number in [0, 1), found '1.5'"),
    ("--model mlp:0..8", "the end 0 of a range cannot be taken: "),
    ("--model soft|mlp:8", "unknown model 'soft'"),
    ("--model boosting", "boosting is fitted without gradients"),
    ("--model mlp:3..4 --sampler grid", "found the range 3..4 in --model"),
    ("--learning-rate 0.1|0.2 --sampler grid --trials 3", "at most 2, the points of the grid"),
    ("--momentum 0.1|0.2 --optimizer sgd", "all 32 trials failed: 32 × --momentum: sgd has no"),
    ("--asynchronous", "No such option"),
    ("--trials 0", "--trials: expected a positive number up to 100,000, found 0"),
    ("--width 0", "--width: expected a positive number up to 1,024, found 0"),
)
def test_bad_options_begin_nothing(options, message, search, tmp_path):
    assert message in search(*options.split(), code=2)
    assert not (tmp_path / "search").exists()


def test_other_folders_and_other_searches(search, data, tmp_path, refused, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    assert "exists and is not a search" in search(*SPACE, name="full", code=73)
    search("--learning-rate", "0.1|0.2", "--sampler", "grid", "--epochs", 1)
    error = search("--learning-rate", "0.1|0.3", "--sampler", "grid", "--epochs", 1, code=73)
    assert "learning rate was 0.1|0.2, now 0.1|0.3" in error
    error = search("--learning-rate", "0.1|0.2", "--epochs", 1, code=73)
    assert "sampler was grid, now random" in error
    folder = tmp_path / "search"
    assert "the folder of a search: expected a run" in refused(2, "evaluate", folder, data / "test")
    assert "--keep is for trainings" in refused(2, "resume", folder, "--keep", 2)
    run = folder / "best"
    assert "--trials is for searches" in refused(2, "resume", run, "--trials", 2)
    with lease.hold(folder):
        monkeypatch.setattr(lease, "_ENDING_SECONDS", 0)
        assert "is in use by process" in refused(75, "resume", folder)
    (folder / "search.json").write_text("{}")
    assert "search.json is damaged" in refused(65, "resume", folder)


def test_data_that_change_end_the_search(data, answer, refused, tmp_path, monkeypatch):
    shutil.copytree(data / "train", tmp_path / "train")
    start = "search", tmp_path / "train", "--eval", data / "test", "--run", tmp_path / "search"
    options = "--executor", "here", "--epochs", 1, "--learning-rate", "0.1|0.2", "--sampler", "grid"
    answer(0, *start, *options, "--trials", 1)
    shutil.rmtree(tmp_path / "train")
    blobs(tmp_path / "train", seed=5)
    assert "is not the dataset that the run began with" in refused(
        65, "resume", tmp_path / "search", "--trials", 2
    )
    assert "data sha256 was" in refused(73, *start, *options)
    assert len([*(tmp_path / "search/results").iterdir()]) == 1


@cases("error, code", (DataError("the disk is broken"), 65), (OSError(28, "disk full"), 74))
def test_errors_that_are_not_a_trials_end_the_search(error, code, search, tmp_path, monkeypatch):
    def fail(*given, **more):
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(training, "train", fail)
        assert str(error) in search(*SPACE, "--trials", 2, code=code)
    assert search(*SPACE, "--trials", 2)["ended"] == 2


def test_a_model_of_ones_own_that_fails_is_a_row(search, monkeypatch):
    train = training.train

    def fail(run, *more, **options):
        if run.path.name == "00000":
            raise MemberError(f"{run.path}: the model has no answer")
        return train(run, *more, **options)

    monkeypatch.setattr(training, "train", fail)
    first, *_ = search(*SPACE, "--trials", 2)["rows"]
    assert first["reason"] == "trial 0: the model has no answer"


def test_progress_and_the_result_are_told(data, tmp_path, answer, monkeypatch):
    monkeypatch.setattr(driver.unit_files, "_TELL_SECONDS", 0.001)
    folder = tmp_path / "search"
    start = "search", data / "train", "--eval", data / "test", "--run", folder
    options = "--learning-rate", "0.001..1", "--epochs", 2, "--trials", 3, "--executor", "here"
    printed = answer(0, *start, *options)
    assert "note: --learning-rate: 0.001..1 draws mostly large numbers" in printed.err
    assert "3 trials by random: in this process" in printed.err
    best, command, *digests = printed.out.splitlines()
    assert best.startswith("best: trial ") and best.endswith(f"{folder}/best")
    assert command.startswith("gradreduce train ")
    assert [line.split()[0] for line in digests] == ["model_sha256", "table_sha256"]
    program = trials.Trials(str(folder / "results"), "", (0, 1, 2), 0)
    assert program.progress().startswith("3 of 3 trials, best loss ")


def test_files_that_are_damaged(search, tmp_path, refused):
    search(*SPACE, "--trials", 2)
    folder = SearchDir(tmp_path / "search")
    folder.result_path(1, 0).write_text('{"state": 3}')
    assert f"{folder.result_path(1, 0)} is damaged" in refused(65, "runs", "show", folder.path)
    assert directory.SearchDir(tmp_path).wanted == 0
    path = folder.path / "search.json"
    path.write_text(path.read_text().replace('"folds": 0', '"folds": 1000000000'))
    error = refused(65, "runs", "show", folder.path)
    assert "search.json is damaged: ValueError: folds: 1000000000 is not a number from 2" in error


OWN = """
from mapreduce.models.softmax import Softmax

print("imported")

class Own(Softmax):
    pass
"""


def test_code_of_ones_own_is_imported_by_its_user_alone(
    data, tmp_path, answer, refused, monkeypatch, forgotten
):
    (tmp_path / "own_for_searches.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    start = "search", data / "train", "--eval", data / "test", "--run", tmp_path / "search"
    options = "--model", "own_for_searches:Own|softmax", "--sampler", "grid", "--epochs", 1
    answer(0, *start, *options, "--workers", 1, "--trials", 1)
    # Another process, and somebody else's search.
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "")
    monkeypatch.delitem(sys.modules, "own_for_searches")
    resume = "resume", tmp_path / "search", "--trials", 2
    error = refused(2, *resume)
    assert "If you trust it, add --trust own_for_searches:Own" in error
    assert "own_for_searches" not in sys.modules
    answer(0, "runs", "show", tmp_path / "search")
    printed = answer(0, *resume, "--trust", "own_for_searches:Own", "--json")
    assert json.loads(printed.out)["ended"] == 2
