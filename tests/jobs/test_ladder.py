"""Every rung: against a program of one process, on every runner, and started in every way."""

import ast
import gzip
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import single_process
from ladder import CASES, HEADINGS, JOBS, README, ROOT, chain, comparable, readme, sections
from sklearn.datasets import load_digits

import mapreduce
from jobs import inputs
from jobs.train import Train
from mapreduce.cli.main import main
from mapreduce.launch.run import load_job
from programs import gradreduce
from quick import each, first_of

RUNGS = sorted(path for path in JOBS.glob("[a-z]*.py") if path.stem != "inputs")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """What a rung prints on ``inline``, computed once."""
    known = {}

    def lines(name, capture):
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            command = ["-r", "inline", "--no-conf", "-q", *command_line(name, folder)]
            code = main(["run", str(JOBS / f"{name}.py"), *command])
            out, err = capture.readouterr()
            assert code == 0, err
            known[name] = output(name, folder, out)
        return known[name]

    return lines


def command_line(name, folder):
    """A case's options and inputs. Where the order matters, parts are written: none is printed."""
    case = CASES[name]
    return [*(["-o", str(folder / "out")] if case.ordered else []), *case.command_line()]


def output(name, folder, printed):
    """The lines, in an order of their own if theirs says nothing."""
    if not CASES[name].ordered:
        return sorted(printed.splitlines())
    assert printed == b""
    parts = sorted((folder / "out").glob("part-*"))
    return [line for part in parts for line in part.read_bytes().splitlines()]


def job(name):
    return load_job(str(JOBS / f"{name}.py"))


def close(found, expected):
    """The same structure and values, floats to eight digits; returns the first."""
    if isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    elif isinstance(expected, dict):
        close(sorted(found.items()), sorted(expected.items()))
    else:
        assert found == expected
    return found


@pytest.mark.every_case
@pytest.mark.parametrize("name", CASES)
def test_against_one_process(name, reference, capfdbinary):
    case = CASES[name]
    lines = [line for path in case.inputs for line in (ROOT / path).read_text().splitlines()]
    files = {"replicated_join": "jobs/data/countries.tsv", "k_means": "tests/jobs/centres.tsv"}
    more = [(ROOT / files[name]).read_text().splitlines()] if name in files else []
    printed = b"".join(line + b"\n" for line in reference(name, capfdbinary))
    found = comparable(job(name)(case.command_line()).parse_output([printed]), case.ordered)
    expected = comparable(getattr(single_process, name)(lines, *more), case.ordered)
    # Oracles add floats in another order than jobs do.
    assert close(found, expected) != []


@pytest.mark.slow
@pytest.mark.parametrize("name", each(4, CASES))
def test_as_a_module_on_parallel(name, reference, capfdbinary, monkeypatch, tmp_path):
    expected = reference(name, capfdbinary)
    arguments = ["-r", "parallel", "--no-conf", "-q", "--workers", "2"]
    several = ["-D", "mapreduce.job.maps=3", "-D", "mapreduce.job.reduces=3"]
    command = [f"jobs/{name}.py", *arguments, *several, *command_line(name, tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.delitem(sys.modules, f"jobs.{name}", raising=False)
    # What python -m does.
    runpy.run_module(f"jobs.{name}", run_name="__main__", alter_sys=True)
    assert output(name, tmp_path, capfdbinary.readouterr().out) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", each(5, [*CASES][::7]))
def test_as_a_script_on_local(name, reference, capfdbinary, tmp_path):
    # Some of them, with one core: a new Python for each of two tasks takes its time.
    command = [sys.executable, JOBS / f"{name}.py", "-r", "local", "--num-cores", "1"]
    # From another folder: a script finds what it needs from anywhere.
    arguments = ["--no-conf", "-q", *command_line(name, tmp_path)]
    done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert output(name, tmp_path, done.stdout) == reference(name, capfdbinary)


@pytest.mark.parametrize("path", RUNGS, ids=lambda path: path.stem)
class TestFile:
    """What holds for each file."""

    def test_is_short(self, path):
        assert len(path.read_text().splitlines()) <= 80

    def test_says_where_on_the_ladder_it_is(self, path):
        found = sections(path)
        assert set(HEADINGS) - found.keys() <= ({"next"} if path.stem == "transfer" else set())
        text = ast.get_docstring(ast.parse(path.read_text()))
        assert text.splitlines()[0].endswith(("?", ".", ":"))

    def test_imports_nothing_that_it_does_not_need(self, path):
        source = path.read_text()
        assert not re.search(r"import \*|^\s*from jobs|^\s*import jobs", source, re.M)

    def test_its_commands_are_understood(self, path):
        text = re.sub(r"\$\(python -m jobs\.inputs ([\w ]+)\)", r"@\1@", sections(path)["run me"])
        commands = re.split(r" (?=python |gradreduce |cat )", text)
        assert any(command.startswith(f"python jobs/{path.name} ") for command in commands)
        for command in commands:
            named = re.findall("@(.*?)@", command)
            assert {name for names in named for name in names.split()} <= {*inputs.NAMES}
            program, script, *arguments = shlex.split(re.split("[|>]", command.replace("@", ""))[0])
            if program == "python":
                load_job(str(ROOT / script))(arguments)


def test_each_rung_names_the_next_and_the_one_before():
    assert chain() == [*CASES, "train", "predict", "transfer"]
    assert {path.stem for path in RUNGS} == {*chain()}
    for before, name in pairwise(chain()):
        assert sections(JOBS / f"{name}.py")["builds on"].startswith(f"{before}.py")


def test_the_map_is_up_to_date():
    assert README.read_text() == readme(README.read_text())
    for target in re.findall(r"\]\(([^)h#][^)]*)\)", README.read_text()):
        assert (JOBS / target).exists(), target


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The folder of a run that was trained on digits."""
    folder = tmp_path_factory.mktemp("network")
    digits = load_digits()
    options = {"run": folder / "run", "epochs": 3, "progress": False, "executor": "here"}
    mapreduce.train((digits.data / 16, digits.target), "mlp:32", **options)
    return folder / "run"


# mrjob unpacks a folder for tasks as Python 3.14 will not by default.
@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")
@pytest.mark.parametrize("runner", first_of("inline", "parallel", "local"))
def test_a_job_predicts_as_a_process_does(network, runner, capfdbinary, monkeypatch):
    path = JOBS / "data/digits.tsv"
    images = np.loadtxt(path, delimiter="\t") / 16
    said = mapreduce.open_run(network).predict(images).tolist()
    # A run is named from where the user is, which is not where tasks are.
    monkeypatch.chdir(network.parent)
    monkeypatch.setattr("jobs.predict.ROWS", 7)
    arguments = ["-r", runner, "--no-conf", "-q", "--run", "run", str(path)]
    if runner == "local":
        arguments += ["--num-cores", "1"]
    # A script would be a module of its own, with other rows at once.
    assert main(["run", "jobs.predict:Predict", *arguments]) == 0
    printed = capfdbinary.readouterr().out
    assert dict(job("predict")([]).parse_output([printed])) == Counter(said)


def test_a_run_that_is_not_there_is_named(tmp_path):
    arguments = ["--no-conf", "--run", "nope", JOBS / "data/digits.tsv"]
    done = gradreduce("run", JOBS / "predict.py", *arguments, cwd=tmp_path)
    assert done.returncode != 0
    assert "nope is not a directory" in done.stderr


def transferred(capture, *arguments):
    """How many digits are right that the network has not learned, and of how many."""
    assert main(["run", str(JOBS / "transfer.py"), "--no-conf", "-q", *map(str, arguments)]) == 0
    ((_, found),) = job("transfer")([]).parse_output([capture.readouterr().out])
    return found


def by_least_squares(lines, features):
    """The same in one process: the penalty is rows of its own, and the solver another one."""
    few = np.array([blake2b(line.encode()).digest()[0] % 20 == 0 for line in lines])
    digits = np.array([int(line.split("\t")[0]) for line in lines])
    x, y = features.astype(float)[few], np.eye(10)[digits[few]]
    size = x.shape[1]
    penalty = np.sqrt(4 * np.square(x).mean()) * np.eye(size)
    padded = np.vstack([x, penalty]), np.vstack([y, np.zeros((size, 10))])
    answers = (features[~few] @ np.linalg.lstsq(*padded)[0]).argmax(axis=1)
    return [int((answers == digits[~few]).sum()), int((~few).sum())]


# mrjob unpacks a folder for tasks as Python 3.14 will not by default.
@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")
def test_what_a_network_sees_helps_with_digits_that_it_has_not_learned(tmp_path, capfdbinary):
    (path,) = inputs.find("numerals", tmp_path)
    lines = [line for line in path.read_text().splitlines() if int(line[0]) >= 5]
    images = np.loadtxt(lines, int)[:, 1:].reshape(-1, 8, 8) / 16
    pixels = transferred(capfdbinary, path)
    assert pixels == by_least_squares(lines, images.reshape(-1, 64))
    run = tmp_path / "run"
    pooled = transferred(capfdbinary, "--run", run, path)
    network = mapreduce.open_run(run)
    assert network.classes == (0, 1, 2, 3, 4)
    assert pooled == by_least_squares(lines, network.predict(images, layer=2, here=True))
    before = (run / "run.json").read_bytes()
    answers = transferred(capfdbinary, "-r", "parallel", "--layer", "-2", "--run", run, path)
    assert (run / "run.json").read_bytes() == before
    # Here 794, 773 and 744 of 857.
    assert pooled[0] > pixels[0] + 10
    assert pixels[0] > answers[0] + 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")
def test_transfer_on_parallel(network, capfdbinary):
    path = JOBS / "data/numerals.tsv"
    for options in ([], ["--run", network, "--layer", "layers.0"]):
        expected = transferred(capfdbinary, *options, path)
        assert transferred(capfdbinary, "-r", "parallel", *options, path) == expected
        assert expected[1] > 50


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")
def test_transfer_between_digits_of_mnist(tmp_path, capfdbinary, monkeypatch):
    source = Path(os.environ.get("GRADREDUCE_DATA", ""), "mnist")
    if not source.is_dir():
        pytest.skip("GRADREDUCE_DATA names no folder with mnist/")
    images, digits = (
        np.frombuffer(gzip.decompress((source / f"t10k-{name}.gz").read_bytes()), np.uint8)
        for name in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    levels, digits = images[16:].reshape(-1, 784)[:2000] // 16, digits[8:2008].astype(int)
    np.savetxt(tmp_path / "mnist.tsv", np.column_stack([digits, levels]), "%d", "\t")
    known = levels[digits < 5].reshape(-1, 28, 28) / 16, digits[digits < 5]
    layers = "conv:8x5,relu,pool:2,conv:16x5,relu,pool:2,dropout:0.5,dense:64,relu"
    mapreduce.train(known, layers, run=tmp_path / "run", epochs=5, progress=False)
    pixels = transferred(capfdbinary, tmp_path / "mnist.tsv")
    run = ("--run", tmp_path / "run", tmp_path / "mnist.tsv")
    pooled = transferred(capfdbinary, "--layer", "5", *run)
    answers = transferred(capfdbinary, "--layer", "-2", *run)
    # Here 620, 682 and 755 of 889.
    assert pixels[0] + 20 < answers[0] < pooled[0] - 20


def test_transfer_needs_rows_to_learn_from(tmp_path, capfd):
    lines = (JOBS / "data/numerals.tsv").read_text().splitlines()
    rows = [line for line in lines if blake2b(line.encode()).digest()[0] % 20]
    (tmp_path / "rest.tsv").write_text("\n".join(rows))
    assert main(["run", str(JOBS / "transfer.py"), "--no-conf", str(tmp_path / "rest.tsv")]) != 0
    assert "expected a row to learn from, found none" in capfd.readouterr().err


def test_train_shows_its_options_and_takes_those_without_a_value(capsys):
    with pytest.raises(SystemExit):
        Train(["--help"])
    assert "5 % of the" in " ".join(capsys.readouterr().out.split())
    assert Train(["data"]).options.asynchronous is False
    assert Train(["--asynchronous", "data"]).options.asynchronous is True
