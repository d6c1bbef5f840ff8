"""Folders from strangers: they run no program and touch nothing outside themselves."""

import copy
import json
import os
import shutil
import socket
from pathlib import Path

import pytest

import datasets
import programs
from mapreduce.cli import common
from mapreduce.cli.main import main
from mapreduce.errors import DataError, UntrustedError
from mapreduce.plan.settings import Settings
from mapreduce.runners.hadoop import installation
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver
from programs import fails, succeed
from quick import cases, first_of

pytestmark = pytest.mark.fault

HUGE = 10**18


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Datasets, and a run that has two of its four rounds still to go."""
    folder = tmp_path_factory.mktemp("strangers")
    datasets.blobs(folder / "train")
    datasets.blobs(folder / "test", (60,), seed=1)
    settings = Settings(
        "softmax", optimizer="momentum", batch_size=96, rounds=4, checkpoint_every=2, eval_every=2
    )
    run = creating.create(folder / "run", settings, folder / "train", folder / "test")
    driver.train(run, Execution("inline", workers=2), 0, Events())
    shutil.copytree(folder / "run", folder / "ended")
    (folder / "run/result.json").unlink()
    shutil.rmtree(folder / "run/checkpoints/00000004")
    for path in (folder / "run/rounds").iterdir():
        path.unlink()
    return folder


@pytest.fixture
def run(made, tmp_path):
    return Path(shutil.copytree(made / "run", tmp_path / "run", symlinks=True))


def change(path: Path, **values: object) -> None:
    """Give fields of a JSON file other values; those of objects within by ``object__field``."""
    content = json.loads(path.read_text())
    for name, value in values.items():
        *outer, last = name.split("__")
        place = content
        for key in outer:
            place = place[key]
        place[last] = value
    path.write_text(json.dumps(content))


def commands(run: Path, made: Path, out: Path) -> list[list[object]]:
    """Every command that opens a run."""
    return [
        ["resume", run],
        ["evaluate", run, made / "test", "-r", "inline"],
        ["predict", run, made / "test", out, "-r", "inline"],
        ["explain", run],
        ["runs", "show", run],
    ]


# What a run says of its execution


@pytest.mark.parametrize("runner", first_of("inline", "local", "parallel"))
def test_resume_leaves_out_arguments_that_can_run_a_program(run, tmp_path, runner):
    canary = tmp_path / "canary"
    arguments = ["--setup", f"touch {canary}", "--cmdenv", "PYTHONSTARTUP=x"]
    change(run / "execution.json", runner=runner, mrjob_arguments=arguments)
    done = programs.gradreduce("resume", run)
    assert done.returncode == 0, done.stderr
    assert not canary.exists()
    flags = f"-- --setup 'touch {canary}' --cmdenv PYTHONSTARTUP=x"
    assert f"gradreduce resume {run} {flags}" in done.stderr
    assert json.loads((run / "execution.json").read_text())["mrjob_arguments"] == []


def test_arguments_that_are_named_again_are_taken(run):
    change(run / "execution.json", mrjob_arguments=["--setup", "x"], runner="inline")
    done = programs.gradreduce("resume", run, "--", "--cmdenv", "A=B")
    assert done.returncode == 0, done.stderr
    assert "--setup" not in done.stderr
    recorded = json.loads((run / "execution.json").read_text())
    assert recorded["mrjob_arguments"] == ["--cmdenv", "A=B"]
    assert (recorded["runner"], recorded["workers"]) == ("inline", 2)


@pytest.mark.parametrize("runner", ["hadoop", "emr", "canary:Runner"])
def test_runners_of_clusters_are_named_again(run, tmp_path, runner):
    canary = tmp_path / "canary"
    arguments = ["--hadoop-bin", f"touch {canary}"]
    change(run / "execution.json", runner=runner, mrjob_arguments=arguments)
    before = (run / "execution.json").read_bytes()
    told = fails(2, "resume", run)
    assert f"gradreduce resume {run} -r {runner} -- --hadoop-bin 'touch {canary}'" in told
    assert (run / "execution.json").read_bytes() == before
    assert not canary.exists()
    assert programs.gradreduce("resume", run, "-r", "inline").returncode == 0


#: Values that no command writes to an execution, by the field.
EXECUTION = {
    "workers": ["many", -1, 1.5, True, HUGE],
    "threads": [HUGE],
    "blocks": [HUGE],
    "rounds_per_job": [HUGE],
    "fan_in": [3],
    "keep": [-1],
    "gang_wait": ["long", float("nan")],
    "executor": ["canary", "gang:x", "gang:wait=0", 7],
    "gang_fallback": [["error"]],
    "start_method": ["spawn"],
    "runner": [7],
    "mrjob_arguments": ["--setup x", [["--setup"]]],
}


def by_field(values):
    """Fields and values, one by one."""
    return cases("field, value", *((field, value) for field in values for value in values[field]))


@by_field(EXECUTION)
def test_what_is_taken_of_an_execution_is_checked(run, field, value):
    change(run / "execution.json", **{field: value})
    told = fails(65, "resume", run)
    assert str(run / "execution.json") in told
    assert field in told.replace("-", "_")


@pytest.mark.parametrize("options", ["", ":x", ":wait=3"])
def test_an_executor_of_a_stranger_is_not_imported(run, tmp_path, monkeypatch, options):
    canary = tmp_path / "canary"
    (tmp_path / "canary.py").write_text(f"open({str(canary)!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    change(run / "execution.json", executor=f"canary:Executor{options}")
    log = (run / "events.jsonl").read_bytes()
    assert "If you trust it, add --trust canary:Executor" in fails(2, "resume", run)
    assert not canary.exists()
    assert (run / "events.jsonl").read_bytes() == log


# Links, pipes and devices

#: Folders and files of a run that its commands write to.
WRITTEN = [
    *("rounds", "checkpoints", "checkpoints/00000002", "evaluations", "gang", "events.jsonl"),
    *("lease.json", "lease.lock", "execution.json", "profile.json"),
    *("result.json", "mixed_profiles.json"),
]


def tree(folder: Path) -> dict[str, object]:
    """All that could be changed in a folder."""
    found: dict[str, object] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        content = path.read_bytes() if path.is_file() else None
        found[str(path)] = path.lstat().st_mode, path.lstat().st_nlink, content
    return found


@pytest.mark.parametrize("name", WRITTEN)
def test_nothing_is_written_through_a_link_in_a_run(run, tmp_path, name):
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    target = outside / "target"
    if name.endswith((".json", ".jsonl", ".lock")):
        target.write_text("{}")
    else:
        target.mkdir(mode=0o755)
        (target / "precious.json").write_text("{}")
        (target / ".x.tmp").write_text("{}")
        (target / "00000001.00000-of-00001.block").write_text("mine")
    path = run / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    before = tree(outside)
    assert f"{path} is a symbolic link" in fails(65, "resume", run)
    assert tree(outside) == before
    assert path.is_symlink()


@pytest.mark.parametrize("name", ["events.jsonl", "run.json", "result.json", "lease.lock"])
def test_a_pipe_in_a_run_stops_no_command(run, made, tmp_path, name):
    shutil.copytree(made / "ended", tmp_path / "whole")
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    done = programs.gradreduce("runs", "list", tmp_path)
    assert done.returncode == 0
    assert f"{run / name} is a pipe" in done.stderr + done.stdout
    assert str(tmp_path / "whole") in done.stdout
    for command in commands(run, made, tmp_path / "out"):
        code = 66 if (name, command[0]) == ("run.json", "explain") else 65
        fails(code, *command)


def test_a_new_run_is_not_made_where_links_are(made, tmp_path):
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    run.mkdir()
    (run / "rounds").symlink_to(outside)
    assert "is not a run" in fails(73, "train", made / "train", "--run", run, "--rounds", 2)
    assert not any(outside.iterdir())


def test_the_path_of_a_run_may_be_a_link(run, made, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(run)
    assert programs.gradreduce("resume", link, "-r", "inline").returncode == 0
    assert link.is_symlink()
    assert json.loads((run / "result.json").read_text())["completed"] == 4


def test_the_path_of_a_run_may_be_no_unicode(made, tmp_path):
    path = tmp_path / os.fsdecode(b"l\xe4ufe")
    run = creating.create(path, Settings("softmax", rounds=2), made / "train", None)
    assert driver.train(run, Execution("inline"), 0, Events()).completed == 2


def test_a_failed_training_removes_what_it_made_and_no_link_to_it(made, tmp_path):
    (tmp_path / "place").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "place")
    shutil.copytree(made / "train", tmp_path / "train")
    shard = tmp_path / "train/shard-00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-1])
    fails(65, "train", tmp_path / "train", "--run", tmp_path / "run", "--rounds", 2)
    assert not list(tmp_path.glob("**/run.json"))
    assert not list(tmp_path.glob(".*.tmp"))


def test_runs_are_listed_beside_links_that_lead_back(made, tmp_path):
    shutil.copytree(made / "ended", tmp_path / "runs/whole")
    (tmp_path / "runs/again").symlink_to(tmp_path / "runs")
    (tmp_path / "runs/nothing").symlink_to(tmp_path / "nothing")
    found = json.loads(programs.succeed("runs", "list", tmp_path / "runs", "--json"))["runs"]
    assert [one["run"] for one in found] == [str(tmp_path / "runs/whole")]


def test_nothing_is_written_through_a_link_in_predictions(made, tmp_path):
    out, outside = tmp_path / "out", tmp_path / "outside"
    command = ["predict", made / "ended", made / "test", out, "-r", "inline"]
    programs.succeed(*command)
    outside.mkdir()
    (outside / "target").write_text("mine")
    before = tree(outside)
    for path in sorted(out.iterdir()):
        target = outside / ("target" if path.suffix == ".parquet" else path.name)
        kept = path.rename(tmp_path / "kept")
        path.symlink_to(target)
        programs.gradreduce(*command)
        assert tree(outside) == before
        path.unlink()
        kept.rename(path)


def test_what_a_run_shows_commands_no_terminal(run):
    change(run / "profile.json", cpu="\x1b]0;owned\x07", **{"\x1b[2J": "x"})
    out = succeed("runs", "show", run)
    assert "owned" in out
    assert "\x1b" not in out


def test_logs_are_of_applications_alone(run, monkeypatch, capsys):
    monkeypatch.setattr(installation, "find", lambda: pytest.fail("the cluster was asked"))
    with (run / "events.jsonl").open("a") as file:
        file.write('{"event": "JobSubmitted", "application": "../../conf", "time": 0}\n')
    assert main(["logs", str(run)]) == DataError.exit_code
    assert (
        "expected the name of a Hadoop application, found '../../conf'" in capsys.readouterr().err
    )


def test_shards_may_be_links_where_their_digests_fit(made, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(made / "train", data)
    shard = data / "shard-00000.arrow"
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    assert programs.gradreduce("data", "verify", data).returncode == 0


def test_datasets_and_predictions_with_pipes_end_in_errors(made, tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    os.mkfifo(data / "manifest.json")
    assert "manifest.json is a pipe" in fails(65, "data", "verify", data)
    out.mkdir()
    os.mkfifo(out / "_prediction.json")
    command = ["predict", made / "ended", made / "test", out, "-r", "inline"]
    assert "_prediction.json is a pipe" in fails(73, *command)


# Numbers


#: Values that no command writes to a run, by the field.
RUN = {
    "data": ["\ud800", None],
    "evaluation": ["\ud800", 7],
    "plan": [[]],
    "plan__rounds": [HUGE, "4", True],
    "plan__model": ["mlp:1000000000", "mlp:" + "9" * 400, "canary.py"],
    "plan__data__features": [HUGE, -12],
    "plan__data__classes": [HUGE],
    "plan__data__shard_rows": [[], [-1, 400]],
    "plan__data__sha256": [None],
    "plan__slice_rows": [HUGE, 0],
    "plan__batch_size": [HUGE],
    "plan__history_size": [HUGE],
    "plan__checkpoint_every": [0],
    "plan__eval_every": [-1],
    "plan__patience": ["x"],
    "plan__seed": [-1],
    "plan__learning_rate": [float("inf"), 10**400],
    "plan__schedule": ["step:0"],
    "plan__optimizer": ["canary"],
    "plan__strategy": ["canary:"],
    "plan__class_weight": [[1.0]],
    "plan__device": ["canary"],
    "plan__unknown": [1],
    "classes": [[1], {"a": 1}],
    "shape": [HUGE],
    "numeric_profile": ["canary"],
}


@by_field(RUN)
def test_a_hostile_plan_is_a_data_error(run, field, value):
    change(run / "run.json", **{field: value})
    with pytest.raises(DataError, match=r"run\.json is damaged"):
        assert RunDir(run).config


@pytest.mark.parametrize("field", ["model", "optimizer", "strategy", "schedule"])
def test_code_that_a_plan_names_has_to_be_named_again(run, tmp_path, monkeypatch, field):
    """It is not damage: a user's own plans name such code, and listing runs needs none of it."""
    canary = tmp_path / "canary"
    (tmp_path / "canary.py").write_text(f"open({str(canary)!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "other:Member,canary:Other")
    change(run / "run.json", **{f"plan__{field}": "canary:Member"})
    assert getattr(RunDir(run).config.plan, field) == "canary:Member"
    with pytest.raises(UntrustedError, match="--trust canary:Member") as caught:
        common.open_run(run, (), ())
    assert caught.value.exit_code == 2
    assert RunDir(run).summary()["run"] == str(run)
    assert not canary.exists()


@by_field({"plan__rounds": [HUGE], "plan__model": ["mlp:1000000000"]})
def test_every_command_refuses_a_hostile_plan(run, made, tmp_path, field, value):
    shutil.copytree(made / "ended", tmp_path / "whole")
    change(run / "run.json", **{field: value})
    for command in commands(run, made, tmp_path / "out"):
        assert "run.json" in fails(65, *command)
    done = programs.gradreduce("runs", "list", tmp_path)
    assert done.returncode == 0
    assert "run.json is damaged" in done.stderr + done.stdout
    assert str(tmp_path / "whole") in done.stdout


def test_a_plan_with_rows_that_its_data_lack(run):
    change(run / "run.json", plan__data__shard_rows=[10**9, 170, 97], plan__batch_size=96)
    assert "1,000,000,267 rows" in fails(65, "resume", run, "-r", "inline")


def test_a_name_that_no_program_gave(run):
    (run / "checkpoints/²").mkdir()
    assert programs.gradreduce("resume", run, "-r", "inline").returncode == 0


@cases(
    "name",
    *("run.json", "result.json", "profile.json"),
    *("checkpoints/00000002/model.safetensors", "checkpoints/00000002/optimizer.safetensors"),
)
def test_a_file_that_would_fill_the_memory(run, made, name):
    with (run / name).open("ab") as file:
        file.truncate(1 << 40)
    evaluate = ["evaluate", run, made / "test", "-r", "inline"]
    assert Path(name).name in fails(65, *(evaluate if "/" in name else ["resume", run]))


# Names of other machines and of programs


def test_another_machine_is_asked_only_if_it_is_named_again(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"hdfs://127.0.0.1:{server.getsockname()[1]}/data"
        change(run / "run.json", data=place)
        for command in ("resume", "explain"):
            assert f"--remote-data {place}" in fails(2, command, run)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert common.open_run(run, (place,), ()).config.data == place


@pytest.mark.slow
@pytest.mark.usefixtures("pinned")
def test_nothing_that_a_run_names_is_imported_or_run(run, made, tmp_path, monkeypatch, capsys):
    """Every text of a run and of its data is replaced by what would leave a canary behind."""
    canary = tmp_path / "canary"
    (tmp_path / "planted.py").write_text(f"open({str(canary)!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    data = Path(shutil.copytree(made / "train", tmp_path / "train"))
    change(run / "run.json", data=str(data))
    change(run / "execution.json", runner="inline")
    values = ["planted", "planted:Model", str(tmp_path / "planted.py"), f"$(touch {canary})"]
    tried = 0
    for file in (run / "run.json", run / "execution.json", data / "manifest.json"):
        whole = json.loads(file.read_text())
        for number, name in enumerate(_texts(whole)):
            content = copy.deepcopy(whole)
            _replace(content, name, values[number % len(values)])
            kept = shutil.copytree(run, tmp_path / "kept")
            file.write_text(json.dumps(content))
            for command in commands(run, made, tmp_path / "out"):
                code = main([*map(str, command)])
                assert code in (0, 1, 2, 65, 66, 74), (name, command, capsys.readouterr().err)
                assert not canary.exists(), (name, command)
                tried += 1
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
            shutil.rmtree(run)
            kept.rename(run)
        file.write_text(json.dumps(whole))
    assert tried > 100


def _texts(content: object, place: tuple = ()) -> list[tuple]:
    """Where texts are in JSON."""
    if isinstance(content, str):
        return [place]
    items = content.items() if isinstance(content, dict) else ()
    items = enumerate(content) if isinstance(content, list) else items
    return [found for key, part in items for found in _texts(part, (*place, key))]


def _replace(content: object, place: tuple, value: str) -> None:
    for key in place[:-1]:
        content = content[key]
    content[place[-1]] = value
