"""The commands and tables of short pages of docs/: they work as they stand there, and are true."""

import json
import math
import os
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
from following import clone, follow
from test_readme import ROOT, blocks, shell

import programs
from mapreduce import models
from mapreduce.checking.laws import LAWS
from mapreduce.cli.main import main
from mapreduce.data.shards import Dataset
from mapreduce.exercises.exercise import _SETTINGS
from mapreduce.models.layers.spec import parse
from mapreduce.runs.directory import RunDir
from mapreduce.support.phases import PHASES
from mapreduce.timing import advice


def place(page):
    return ROOT / "docs" / f"{page}.md"


def text(page):
    return place(page).read_text()


def typed(page, folder):
    """What each command of a page prints, in order."""
    return [shell(line, folder) for one in blocks("sh", text(page)) for line in one.splitlines()]


def shown(folder, run):
    return json.loads(programs.succeed("runs", "show", folder / "runs" / run, "--json"))


def cells(page):
    """What the first cells of a page's tables name as code."""
    rows = re.findall(r"^\| (`[^|]+) \|", text(page), re.M)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


@pytest.mark.slow
def test_batches(tmp_path):
    names = re.findall(r"`(\w+\.py)`:\n", text("batches"))
    for name, program in zip(names, blocks("python", text("batches")), strict=True):
        (tmp_path / name).write_text(program)
    found = [Counter(printed.splitlines()) for printed in typed("batches", tmp_path)]
    assert found[3:] == [
        Counter(['"to"\t2', '"be"\t2', '"or"\t1', '"not"\t1']),
        Counter(['"Rome"\t301', '"Oslo"\t5020']),
        Counter(['"Rome"\t301', '"Oslo"\t20']),
    ]


@pytest.mark.long
def test_spark(tmp_path, monkeypatch):
    pytest.importorskip("pyspark", reason="needs PySpark and Java: pip install 'gradreduce[spark]'")
    clone(tmp_path)
    monkeypatch.setenv("GRADREDUCE_SPARK", str(tmp_path / "spark"))
    try:
        *_, listed, _ = [shell(line, tmp_path) for line in _spark_lines(yarn=False)]
    finally:
        programs.succeed("spark", "down")
    assert len({line.split()[-1] for line in listed.splitlines()}) == 1
    assert len(listed.splitlines()) == 3
    by_job, by_frame = blocks("python", text("spark"))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}

    def printed(program):
        # A context of its own needs a process of its own.
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert printed(by_job) == ["True 3"]
    rows, columns, *counts, is_one = printed(by_frame)
    assert (rows, is_one) == ("100", "True")
    assert columns.startswith("['id', 'size', 'side', 'prediction', 'probability'")
    assert sum(map(int, re.findall(r"\w\|\s*(\d+)\|", "\n".join(counts)))) == 100


def _spark_lines(yarn):
    """Commands of the page, with or without those of the section on YARN."""
    some = [block for block in blocks("sh", text("spark")) if ("cluster up" in block) == yarn]
    return [line for block in some for line in block.splitlines()]


@pytest.mark.long
def test_spark_on_yarn(own_cluster, tmp_path):
    pytest.importorskip("pyspark", reason="needs PySpark and Java: pip install 'gradreduce[spark]'")
    clone(tmp_path)
    lines = _spark_lines(yarn=False)
    digits, here = (line for line in lines if re.search("data digits|here$", line))
    *_, listed, _ = [shell(line, tmp_path) for line in (digits, here, *_spark_lines(yarn=True))]
    assert len(listed.splitlines()) == 2
    assert len({line.split()[-1] for line in listed.splitlines()}) == 1
    job = "gradreduce run jobs/top_k.py -r inline -q -k 5 jobs/data/packages.tsv"
    assert (tmp_path / "yarn.txt").read_text() == shell(job, tmp_path)


@pytest.mark.slow
def test_gang(tmp_path):
    """A slow worker changes no bit."""
    differing, told = typed("gang", tmp_path)[3:5]
    assert "plan: the same" in differing
    assert re.search(r"slow_worker +– +1:4", differing)
    assert "sha256" not in differing
    names = re.findall(r"^\| `(\w+)`", text("gang"), re.M)
    assert {*names} <= {*shown(tmp_path, "even")["scaling"]}
    assert all(name in told for name in names)


@pytest.mark.slow
def test_compare(tmp_path, monkeypatch, capsys):
    follow(place("compare"), tmp_path)
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("python", text("compare"))
    exec(program, {})
    assert "±" in capsys.readouterr().out
    assert {each.name for each in (tmp_path / "runs/penguins").iterdir()} - {"lease.lock"} == {
        name.rstrip("/") for name in cells("compare")
    }


@pytest.mark.slow
def test_timing(tmp_path):
    """Its commands print a sentence and write files; its table has all causes."""
    clone(tmp_path)
    _, _, reported, page, files, _, _, of_job, _, judged = typed("timing", tmp_path)
    for said in (reported, of_job, judged):
        assert re.search(r"Nothing stands out|of [\d.e+]+ s \(\d+%\): ", said)
    assert page.startswith("traced.html: ")
    assert len(files.splitlines()) == 3
    assert {*cells("timing")} == {
        *("busy processors", "slow reads", "hot key", "large split"),
        *advice._TRAININGS,
        *advice._JOBS,
        *(name for name in PHASES if name not in ("load", "read")),
    }


@pytest.mark.slow
def test_levels(tmp_path):
    """All trainings have one digest; a test of its own runs the benchmark that comes first."""
    benchmark, trainings = blocks("sh", text("levels"))
    assert benchmark == "python -m benchmarks levels --quick\n"
    *_, listed = [shell(line, tmp_path) for line in trainings.splitlines()]
    assert len({line.split()[-1] for line in listed.splitlines()}) == 1
    assert len(listed.splitlines()) == 2


class TestNetworks:
    def test_commands_and_program(self, tmp_path, monkeypatch, capsys):
        told, *_ = [shell(block, tmp_path) for block in blocks("sh", text("networks"))]
        features = np.array(pq.read_table(tmp_path / "features.parquet")["features"].to_pylist())
        # After a ReLU, of which the page says the number.
        assert (features.shape[1], features.min()) == (64, 0)
        total = re.search(r"^all +([\d,]+) ", told, re.M)
        run = shown(tmp_path, "network")
        assert total[1] == f"{models.create(run['model'], (8, 8), 10, 'float32').size:,}"
        assert min(run["accuracy"], shown(tmp_path, "fed")["accuracy"]) > 0.95
        monkeypatch.chdir(tmp_path)
        (program,) = blocks("python", text("networks"))
        exec(program, {})
        assert float(capsys.readouterr().out.splitlines()[-1]) > 0.95

    def test_the_tables_name_every_layer_and_network(self):
        written = {*cells("networks")}
        networks = written & {*models.NETWORKS}
        assert networks == {*models.NETWORKS}
        layers = written - networks - {"--model", "residual(...)"}
        assert {parse(spec)[0].name() for spec in layers} | {"residual"} == {*models.LAYERS}

    @pytest.mark.parametrize("name", models.NETWORKS)
    def test_numbers_of_parameters(self, name):
        shape = {"lenet5": (28, 28), "char-gru": (64,)}.get(name, (3, 32, 32))
        size = models.create(name, shape, 256 if name == "char-gru" else 10, "float32").size
        assert re.search(rf"^\| `{name}` .* {size:,} \|$", text("networks"), re.M)


@pytest.mark.slow
def test_rounds(tmp_path):
    """The naive job and the trainer give one model."""
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    *_, one, two = typed("rounds", tmp_path)
    (program,) = blocks("python", text("rounds"))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert one.splitlines()[-1] == two.splitlines()[-1]
    assert one.splitlines()[-1].startswith("model_sha256 ")


class TestSequences:
    @pytest.mark.slow
    def test_commands(self, tmp_path):
        (tmp_path / "docs").symlink_to(ROOT / "docs")
        typed("sequences", tmp_path)
        assert shown(tmp_path, "text")["eval_loss"] / math.log(2) < 4
        assert shown(tmp_path, "rows")["accuracy"] > 0.9

    def test_numbers_and_table(self):
        assert f"`{models.NETWORKS['char-gru']}`" in text("sequences")
        assert f"ln 256, about {math.log(256):.2f}" in text("sequences")
        assert f"ln 2, about {math.log(2):.3f}" in text("sequences")
        names = {parse(spec)[0].name() for spec in cells("sequences")}
        assert names == {"embedding", "rnn", "lstm", "gru", "last", "layernorm"}


@pytest.mark.slow
def test_strategies(tmp_path):
    for block in blocks("sh", text("strategies")):
        shell(block, tmp_path)
    runs = re.findall(r"--run runs/(\S+)", "".join(blocks("sh", text("strategies"))))
    found = {run: shown(tmp_path, run) for run in runs}
    # Of the bad learning rate a tournament makes a good one.
    assert found.pop("slow")["accuracy"] < 0.6
    assert min(run["accuracy"] for run in found.values()) > 0.85
    assert found["won"]["matches_won"] > 15
    # An epoch of 1,437 digits is 12 rounds of 128 rows.
    assert (found["sync"]["rounds"], found["local"]["rounds"]) == (120, 30)
    # Each shard has the rows of one digit, and the test rows have the same features.
    uneven, test = (Dataset(tmp_path / name) for name in ("uneven", "uneven-test"))
    entries = enumerate(uneven.manifest.shards)
    labels = [{*uneven.shard(at).rows(0, one.rows).labels.tolist()} for at, one in entries]
    assert labels == [{digit} for digit in range(10)]
    assert test.manifest.recipe == uneven.manifest.recipe
    assert (uneven.manifest.rows, test.manifest.rows) == (1438, 359)


class TestExplain:
    @pytest.mark.slow
    def test_commands(self, tmp_path, monkeypatch, pinned, capsys):
        (tmp_path / "jobs").symlink_to(ROOT / "jobs")
        # Each law runs the job again and again: the beginning has words enough.
        beginning = (ROOT / "README.md").read_text().splitlines(keepends=True)[:20]
        (tmp_path / "README.md").write_text("".join(beginning))
        monkeypatch.chdir(tmp_path)
        lines = [line for block in blocks("sh", text("explain")) for line in block.splitlines()]
        assert len(lines) == 13
        for line in lines:
            program, *arguments = line.split()
            assert program == "gradreduce"
            # The law of the seeds starts two processes, which a test of its own does.
            names = [name for law in LAWS if law.name != "seeds" for name in ("--law", law.name)]
            if arguments[0] == "check" and "--law" not in arguments:
                arguments += names
            assert main(arguments) == 0, line
            assert capsys.readouterr().out
        for name in ("page.html", "round.html"):
            assert (tmp_path / name).stat().st_size < 500_000

    def test_the_table_names_every_law(self):
        assert re.findall(r"^\| `(\w+)`", text("explain"), re.M) == [law.name for law in LAWS]


@pytest.mark.slow
def test_the_commands_of_the_first_page(tmp_path):
    typed("index", tmp_path)
    assert (tmp_path / "runs" / "first" / "result.json").exists()


@pytest.mark.slow
def test_predicting(tmp_path):
    assert follow(place("predicting"), tmp_path) == []
    of_rows = ["row", "prediction", "probability", "probabilities"]
    files = ["sparse.parquet", "again/part-00000.parquet", "together/part-00000.parquet"]
    found = [pq.read_table(tmp_path / file).column_names for file in files]
    assert found == [of_rows, ["row", "label", *of_rows[1:]], of_rows]


class TestFirstJob:
    """It leads from an empty folder to a job that is checked, and runs anywhere."""

    @pytest.mark.slow
    def test_the_page_in_order(self, tmp_path):
        written = follow(place("first_job"), tmp_path)
        assert written == ["mean_length.py", "mean_length.py", "test_mean_length.py"]
        # Its last commands run the same job.
        (block,) = [block for block in blocks("sh", text("first_job")) if "-r local" in block]
        outputs = [sorted(shell(line, tmp_path).splitlines()) for line in block.splitlines()]
        assert outputs[0] == outputs[1] == outputs[2] != []

    def test_the_message_of_the_mistake(self, tmp_path):
        job = blocks("python", text("first_job"))[0]
        (wrong,) = re.findall(r"`(yield word\[0\])`", text("first_job"))
        lines = job.splitlines(keepends=True)
        assert lines[14].startswith(f"            {wrong},")
        lines[14] = f"            {wrong}\n"
        (tmp_path / "mean_length.py").write_text("".join(lines))
        (tmp_path / "mean_length.txt").write_text("to be\n")
        done = programs.gradreduce("run", "mean_length.py", "mean_length.txt", cwd=tmp_path)
        (message,) = blocks("none", text("first_job"))
        assert message.strip() in done.stderr

    @pytest.mark.slow
    @pytest.mark.cluster
    def test_on_hadoop(self, tmp_path, cluster):
        (tmp_path / "mean_length.py").write_text(blocks("python", text("first_job"))[1])
        (tmp_path / "mean_length.txt").write_text("to be or not to be\n")
        (command,) = re.findall(r"`(gradreduce run [^`]* -r\s+hadoop [^`]*)`", text("first_job"))
        assert '"b"\t2.0' in shell(command.replace("\n", " "), tmp_path)


class TestTeaching:
    """A student's check, and an exercise of one's own in thirty lines."""

    @pytest.mark.slow
    def test_the_page_in_order(self, tmp_path):
        written = follow(place("teaching"), tmp_path)
        assert written == ["ranges.py", "widest.py", "exercise.py", "first.py"]

    def test_an_exercise_takes_thirty_lines(self):
        exercise = blocks("python", text("teaching"))[2]
        assert len([line for line in exercise.splitlines() if line.strip()]) <= 30

    def test_the_settings_are_those_of_the_program(self):
        rows = re.findall(r"^\| `([A-Z]+)` \|.*\| (?:`(.*)`|all .*) \|$", text("teaching"), re.M)
        named = {name: default for name, default in rows if default}
        assert [name for name, _ in rows] == [name for name in _SETTINGS if name != "SHOWN"]
        assert named == {name: repr(_SETTINGS[name][0]).replace("1e-09", "1e-9") for name in named}


@pytest.mark.slow
def test_pytorch(tmp_path, monkeypatch, forgotten, capsys):
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'gradreduce[torch]'")
    assert follow(place("pytorch"), tmp_path) == ["networks.py"]
    assert RunDir(tmp_path / "runs" / "digits").summary()["accuracy"] > 0.9
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    namespace = {}
    for block in blocks("python", text("pytorch"))[1:]:
        exec(block, namespace)
    sys.modules.pop("networks")
    assert capsys.readouterr().out == "True\n(5, 32)\n<All keys matched successfully>\n"


def test_onnx(tmp_path, monkeypatch, capsys):
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason="needs ONNX: pip install 'gradreduce[onnx]' onnxruntime")
    clone(tmp_path)
    assert "penguins.onnx: graph (string[rows] island, " in typed("onnx", tmp_path)[-1]
    monkeypatch.chdir(tmp_path)
    (program,), (printed,) = (blocks(kind, text("onnx")) for kind in ("python", "text"))
    exec(program, {})
    assert capsys.readouterr().out == printed


@pytest.mark.slow
def test_search(tmp_path, monkeypatch, capsys):
    """A search that is extended has the table of one that had all trials from the start."""
    *_, shown_first, page, _, held_out, folds, extended = typed("search", tmp_path)
    assert "trials              8" in shown_first and page.startswith("search.html: ")
    assert "trained again on all rows" in held_out
    assert " --fold 1/5 " in folds and "trained again on all rows" in folds
    (table,) = re.findall("table_sha256 (.*):", extended)
    command = blocks("sh", text("search"))[0].splitlines()[1].replace("--trials 8", "--trials 12")
    again = shell(command.replace("runs/search", "runs/again"), tmp_path)
    assert f"table_sha256 {table}: " in again
    monkeypatch.chdir(tmp_path)
    (program,), (printed,) = (blocks(kind, text("search")) for kind in ("python", "text"))
    exec(program, {})
    assert capsys.readouterr().out == printed
