"""Every rung: against a program of one process, on every runner, and started in every way."""

import ast
import re
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from itertools import pairwise

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
        assert set(HEADINGS) - found.keys() <= ({"next"} if path.stem == "predict" else set())
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
    assert chain() == [*CASES, "train", "predict"]
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
    options = {"run": folder / "run", "epochs": 3, "progress": False, "runner": "inline"}
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
    assert main(["run", str(JOBS / "predict.py"), *arguments]) == 0
    printed = capfdbinary.readouterr().out
    assert dict(job("predict")([]).parse_output([printed])) == Counter(said)


def test_a_run_that_is_not_there_is_named(tmp_path):
    arguments = ["--no-conf", "--run", "nope", JOBS / "data/digits.tsv"]
    done = gradreduce("run", JOBS / "predict.py", *arguments, cwd=tmp_path)
    assert done.returncode != 0
    assert "nope is not a directory" in done.stderr


def test_train_shows_its_options_and_takes_those_without_a_value(capsys):
    with pytest.raises(SystemExit):
        Train(["--help"])
    assert "5 % of the" in " ".join(capsys.readouterr().out.split())
    assert Train(["data"]).options.asynchronous is False
    assert Train(["--asynchronous", "data"]).options.asynchronous is True
