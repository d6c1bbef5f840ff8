"""Members of open families that are not the toolkit's own: found, shipped to tasks, and trusted."""

import contextlib
import io
import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

import datasets
import programs
from mapreduce import models, optim
from mapreduce.cli.main import main
from mapreduce.errors import MemberError, UntrustedError, UsageError
from mapreduce.plan import strategies
from mapreduce.plan.settings import Settings
from mapreduce.runners.yarn import shipping
from mapreduce.runs.directory import RunDir
from mapreduce.support import trust
from mapreduce.training import creating
from programs import fails
from quick import cases, first_of

MINE = '''\
"""A model of one's own, which begins where it is told to, and what else has a family."""

import numpy as np

import helping
from mapreduce.models.softmax import Softmax
from mapreduce.optim import elementwise, trace


class Mine(Softmax):
    def __init__(self, shape, classes, dtype, device="cpu", *, factors=(1,)):
        super().__init__(shape, classes, dtype, device)
        self.factor = sum(factors)

    def init(self, seed):
        return np.full(self.size, self.factor / 8, self.dtype)


heavy = elementwise(lambda options: [trace(options.momentum / helping.TWO)], "momentum")


def halved(rounds, every="1"):
    return lambda step: 0.5 ** (step // int(every))
'''


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch, forgotten):
    """What a test has imported is forgotten, too, when it ends."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("mine", "helping", "planted"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    datasets.blobs(folder / "train")
    datasets.blobs(folder / "test", (60,), seed=1)
    (folder / "mine.py").write_text(MINE)
    (folder / "helping.py").write_text("TWO = 2\n")
    return folder


TRAIN = "--batch-size 96 --rounds 2 --optimizer mine:heavy --momentum 0.5 --schedule mine:halved:2"


def train(folder: Path, run: Path, *more: str) -> dict:
    command = ["train", "train", "--run", run, *TRAIN.split(), "--json", *more]
    return json.loads(programs.succeed(*command, cwd=folder))


@pytest.fixture(scope="module")
def reference(made):
    return train(made, made / "run", "--model", "mine:Mine:1,2", "-r", "inline")


class TestEveryTask:
    @cases(
        "how",
        *first_of(
            "-r parallel --workers 2 --start-method forkserver",
            "-r parallel --workers 2 --start-method fork",
            "-r parallel --workers 2 --executor gang",
        ),
        pytest.param("-r local --workers 1", marks=pytest.mark.long),
    )
    def test_one_hash_on_every_runner(self, made, reference, tmp_path, how):
        found = train(made, tmp_path / "run", "--model", "mine:Mine:1,2", *how.split())
        assert found["model_sha256"] == reference["model_sha256"]

    def test_arguments_and_the_other_members_matter(self, made, reference, tmp_path):
        other = train(made, tmp_path / "other", "--model", "mine:Mine", "-r", "inline")
        plain = "train train --run {} --batch-size 96 --rounds 2 --model mine:Mine:1,2 --json"
        plain = programs.succeed(*plain.format(tmp_path / "plain").split(), cwd=made)
        hashes = {reference["model_sha256"], other["model_sha256"]}
        assert len({*hashes, json.loads(plain)["model_sha256"]}) == 3

    def test_hadoops_tasks_get_the_module_and_the_trust(self, made, monkeypatch):
        monkeypatch.chdir(made)
        before = shipping.archive()
        trust.trust("mine:Mine", "jobs.word_count:WordCount")
        name, content = shipping.archive()
        assert name != before[0]
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            assert archive.read("mine.py").decode() == MINE
            assert archive.namelist().count("jobs/word_count.py") == 1
        assert trust.environment() == {"GRADREDUCE_TRUSTED": "mine:Mine,jobs.word_count:WordCount"}

    def test_a_package_is_shipped_whole(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(tmp_path)
        for name in ("planted/__init__.py", "planted/inner/layers.py"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("x = 1\n")
        found = dict(trust.files("planted.inner.layers"))
        assert sorted(found) == ["planted/__init__.py", "planted/inner/layers.py"]
        assert "planted" not in sys.modules


@pytest.fixture
def run(made, reference, tmp_path):
    """A copy of the run of the user's own, which may as well be a stranger's."""
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


def commands(run: Path, out: Path) -> list[list[object]]:
    return [
        ["resume", run],
        ["evaluate", run, "test", "-r", "inline"],
        ["predict", run, "test", out, "-r", "inline"],
        ["explain", run],
    ]


class TestTrust:
    def test_a_run_imports_nothing_that_is_not_named_again(self, made, run, tmp_path):
        planted = tmp_path / "planted"
        shutil.copytree(made, planted)
        canary = tmp_path / "canary"
        (planted / "mine.py").write_text(f"open({str(canary)!r}, 'w')\n")
        for command in commands(run, tmp_path / "out"):
            assert "--trust mine:" in fails(2, *command, cwd=planted)
        for command in (["runs", "show", run], ["runs", "list", run.parent]):
            assert "mine:Mine:1,2" in programs.succeed(*command, cwd=planted)
        assert not canary.exists()
        assert not (tmp_path / "out").exists()

    def test_named_again_they_work(self, made, run, tmp_path):
        named = ["--trust", "mine:Mine", "--trust", "mine:heavy:0", "--trust", "mine:halved"]
        for command in commands(run, tmp_path / "out"):
            done = programs.gradreduce(*command, *named, cwd=made)
            assert done.returncode == 0, done.stderr
            assert "warning: the code" not in done.stderr
        shutil.copytree(made / "test", tmp_path / "test")
        for name in ("mine.py", "helping.py"):
            shutil.copy(made / name, tmp_path)
        with (tmp_path / "mine.py").open("a") as file:
            file.write("# Changed.\n")
        done = programs.gradreduce("evaluate", run, "test", "-r", "inline", *named, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "warning: the code of mine:Mine is not what it was" in done.stderr

    @pytest.mark.slow
    def test_in_python(self, made, run):
        """In new processes, which trust nothing yet: arrays train, and a run is opened again."""

        def python(program):
            command = [sys.executable, "-c", f"import mapreduce, numpy as np\n{program}"]
            return subprocess.run(
                command, cwd=made, capture_output=True, text=True, timeout=programs.PATIENCE
            )

        done = python(
            "x, y = np.arange(24.0).reshape(12, 2) / 24, np.arange(12) % 2\n"
            "run = mapreduce.train((x, y), 'mine:Mine:1,2', rounds=1, progress=False)\n"
            "print(run.predict(x).shape)"
        )
        assert done.stdout == "(12,)\n", done.stderr
        evaluated = "print(mapreduce.evaluate('run', 'test', runner='inline'{}).rows)"
        done = python(evaluated.format(", trust=['mine:Mine', 'mine:heavy', 'mine:halved']"))
        assert int(done.stdout) > 0, done.stderr
        done = python(evaluated.format(""))
        assert "UntrustedError: mine:Mine" in done.stderr
        assert "trust=['mine:Mine']" in done.stderr

    def test_the_same_call_works_once_the_code_is_repaired(self, made, tmp_path):
        shutil.copytree(made / "train", tmp_path / "train")
        own = "from mapreduce.models.softmax import Softmax\n\n\nclass Own(Softmax):\n    "
        wrong = "def init(self, seed):\n        return super().init(seed).astype('f8')\n"
        command = ["train", "train", "--run", "run", "--model", "own:Own", "--rounds", 1]
        (tmp_path / "own.py").write_text(own + wrong)
        assert "expected float32" in fails(2, *command, cwd=tmp_path)
        (tmp_path / "own.py").write_text(own + "pass\n")
        programs.succeed(*command, cwd=tmp_path)

    def test_the_plan_has_the_names_and_digests_of_what_is_not_built_in(self, run):
        plan = RunDir(run).config.plan
        assert (plan.model, plan.optimizer) == ("mine:Mine:1,2", "mine:heavy")
        assert [one.partition("=")[0] for one in plan.sources] == [
            *("mine:Mine", "mine:halved", "mine:heavy")
        ]
        assert {len(one.partition("=")[2]) for one in plan.sources} == {64}
        with pytest.raises(UntrustedError, match="--trust mine:Mine"):
            plan.create_model()

    def test_what_is_to_be_trusted_is_named_as_it_is_written(self):
        for wrong in ("mine", "mine:", ":Mine", "a b:c", "mine:Mine,x:y"):
            with pytest.raises(UsageError, match="expected MODULE:NAME"):
                trust.trust(wrong)


def test_plans_of_built_in_members_are_as_they_were(made, tmp_path):
    """The digests of plans that earlier versions made."""
    settings = Settings("mlp:7", optimizer="momentum", schedule="step:5+cosine", rounds=9)
    plan = replace(creating.plan(settings, made / "train", None), batch_invariant=False)
    assert "sources" not in plan.to_dict()
    assert plan.sha256 == "45e9e7f4fd16fca7047259bc9d9f5ea2a2cb9386dbff2f2a98f7c481208eff6f"


@cases(
    "family, builtin, named",
    ("models", models.MODELS, "Mine"),
    ("schedules", optim.SCHEDULES, "halved"),
)
def test_an_installed_package_adds_members(made, tmp_path, monkeypatch, family, builtin, named):
    programs.install(tmp_path, "extra", f"gradreduce.{family}", "fancy", f"mine:{named}")
    for folder in (tmp_path, made):
        monkeypatch.syspath_prepend(folder)
    name, arguments = builtin.split("fancy:3")
    assert (name, arguments) == ("fancy", "3")
    assert builtin.find(name).__name__ == named
    assert len(builtin.digest(name)) == 64
    with pytest.raises(UsageError, match=r"Did you mean fancy\?"):
        builtin.split("fanci")


def test_an_installed_package_adds_optimizers(made, monkeypatch):
    entry = SimpleNamespace(name="fancy", module="mine", attr="heavy")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry])
    monkeypatch.syspath_prepend(made)
    assert set(optim.find("fancy").takes) > {"momentum", "learning_rate"}


@pytest.mark.parametrize("family", [models.MODELS, optim.OPTIMIZERS, strategies.STRATEGIES])
def test_unknown_names(family):
    first = next(iter(family))
    with pytest.raises(UsageError, match=rf"unknown {family.kind} '{first}x': .*mean {first}\?"):
        family.split(f"{first}x")
    assert family.find(first) is not None
    with pytest.raises(UsageError, match="no arguments"):
        family.load(f"{first}:3")


@cases(
    "spec, expected",
    ("nowhere:Model", "ModuleNotFoundError: No module named 'nowhere'"),
    ("mine:Missing", "has no attribute 'Missing'"),
    ("mine:halved", "expected a mapreduce.parts.Model, found <func"),
    ("mine:np", "expected a mapreduce.parts.Model, found <mod"),
    ("broken:Model", "broken:Model cannot be imported: ZeroDivisionError"),
    ("leaving:Model", "leaving:Model cannot be imported: SystemExit: 3"),
    ("lacking:Half", "lacking:Half: it lacks the methods _parameters, gradient, init, logits"),
)
def test_what_cannot_be_used(made, tmp_path, monkeypatch, spec, expected):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "leaving.py").write_text("import sys\n\nsys.exit(3)\n")
    lacking = "from mapreduce.models.base import Model\n\nclass Half(Model): pass\n"
    (tmp_path / "lacking.py").write_text(lacking)
    monkeypatch.syspath_prepend(made)
    monkeypatch.chdir(tmp_path)
    trust.trust(spec)
    with pytest.raises(MemberError, match=expected) as caught:
        models.find(spec)
    assert caught.value.exit_code == 2


@pytest.mark.usefixtures("pinned")
def test_the_command_line_says_so_in_one_line(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(made)
    for spec, expected in (
        ("nowhere:Model", "error: --model nowhere:Model cannot be imported"),
        ("mine:Mine:0", "error: model 'mine:Mine:0': expected mine:Mine[:NUMBER,...]"),
        ("sofmax", "Did you mean softmax?"),
    ):
        with contextlib.suppress(SystemExit):
            assert main(["train", "train", "--run", str(tmp_path / "no"), "--model", spec]) == 2
        assert expected in capsys.readouterr().err
        assert not (tmp_path / "no").exists()


READER = """\
import numpy as np

from mapreduce.data.importer import Rows, Source


def source(paths, dtype):
    table = np.loadtxt(paths[0], dtype)
    chunks = [Rows(table[:, 1:], table[:, 0].astype(np.int64))]
    shape = (table.shape[1] - 1,)
    return Source(chunks=chunks, shape=shape, scale=1.0, bytes=table.nbytes, description={})
"""


def test_a_reader_of_ones_own(tmp_path, monkeypatch, answer):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted.py").write_text(READER)
    (tmp_path / "rows.txt").write_text("0 1.5 2\n1 3 4\n1 5 6\n")
    command = ["data", "import", "--format", "planted:source", "rows.txt", "out"]
    assert (
        "--label is for csv, parquet, not for planted:source"
        in answer(2, *command, "--label", "x").err
    )
    found = json.loads(answer(0, *command, "--dtype", "float64", "--json").out)
    assert (found["rows"], found["features"], found["dtype"]) == (3, 2, "float64")
    assert found["class_rows"] == [1, 2]
