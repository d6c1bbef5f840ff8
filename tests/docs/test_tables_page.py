"""Every command of docs/tables.md works as it stands there."""

import re
import tomllib

import pyarrow.parquet as pq
import pytest
from test_readme import ROOT, blocks, shell

import mapreduce
from mapreduce.cli import data
from mapreduce.cli.data_split import split
from mapreduce.data.manifest import load
from mapreduce.data.recipes.kinds import KINDS
from mapreduce.data.recipes.recipe import MISSING_RULES, Recipe
from mapreduce.runs.directory import RunDir
from raw_tables import write_generated

TEXT = (ROOT / "docs" / "tables.md").read_text()
SPLIT = TEXT[TEXT.index("## Split") :]
BEFORE = TEXT[: TEXT.index("## Split")]


@pytest.mark.slow
# A few towns are not among those of the training data.
@pytest.mark.filterwarnings("ignore:column town.* count as other")
def test_commands_in_order(tmp_path, monkeypatch, capsys):
    write_generated(tmp_path / "table.csv", 3000)
    five, evaluated, by_file, trees, recipe, by_job, described = blocks("sh", BEFORE)
    assert "when nearly all" not in shell(five, tmp_path)
    found = pq.read_table(tmp_path / "predictions.parquet")
    lines = (tmp_path / "parts" / "test.csv").read_text().splitlines()[1:]
    assert found["id"].to_pylist() == [line.partition(",")[0].strip('"') for line in lines]
    assert found["row"].to_pylist() == [*range(750)]
    accuracy = float(shell(evaluated, tmp_path).split()[1].rstrip(","))
    assert accuracy > 0.7
    shell(by_file, tmp_path)
    file, named = tmp_path / "parts" / "train.csv", {"label": "label", "id": "id"}
    run = mapreduce.train(file, "logistic", run=tmp_path / "python", progress=False, **named)
    by_file = RunDir(tmp_path / "runs" / "file").summary()
    assert by_file["model_sha256"] == run.model_sha256
    shell(trees, tmp_path)
    by_trees = pq.read_table(tmp_path / "by-trees.parquet")
    assert by_trees["id"].to_pylist() == found["id"].to_pylist()
    (toml,) = blocks("toml", BEFORE)
    (tmp_path / "recipe.toml").write_text(toml)
    shell(recipe, tmp_path)
    shell(by_job, tmp_path)
    assert load(tmp_path / "by-job").sha256 == load(tmp_path / "train").sha256
    assert load(tmp_path / "by-recipe").features != load(tmp_path / "train").features
    assert "it is the same in all rows" in shell(described.splitlines()[0], tmp_path)
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("python", BEFORE)
    exec(program, {})
    assert "{'id': '" in capsys.readouterr().out


def test_split(tmp_path, monkeypatch, capsys):
    lines = [f"{i},2024-01-{1 + i:02},{i % 2}" for i in range(20)]
    (tmp_path / "table.csv").write_text("\n".join(["size,day,label", *lines]) + "\n")
    (command,) = blocks("sh", SPLIT)
    assert shell(command, tmp_path).splitlines() == [
        "parts/train.csv: 14 rows",
        "parts/validation.csv: 2 rows",
        "parts/test.csv: 4 rows",
    ]
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("python", SPLIT)
    exec(program, {})
    assert capsys.readouterr().out == "{'train.csv': 15, 'test.csv': 5}\n"


def options(command):
    return {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}


def test_options_of_split_are_the_commands():
    rows = re.findall(r"^\| (`--[^|]+) \|", SPLIT, re.MULTILINE)
    named = {flag for row in rows for flag in re.findall(r"--[\w-]+", row)}
    known = options(split)
    assert named <= known
    assert known - named == {"sources", "out", "--seed", "--header", "--quiet", "-q", "--json"}


def test_options_of_the_import_are_the_commands():
    named = {flag for code in re.findall(r"`(--[^`]+)`", BEFORE) for flag in code.split()[:1]}
    assert named - {"--workers"} <= options(data.import_)


def test_names_of_recipes_are_the_programs():
    recipe = Recipe.parse(tomllib.loads(blocks("toml", BEFORE)[0]))
    assert recipe.columns["day"].format == "YYYY-MM-DD"
    for name in (*KINDS, *MISSING_RULES):
        assert f"`{name}`" in BEFORE or f"| {name} |" in BEFORE, name
