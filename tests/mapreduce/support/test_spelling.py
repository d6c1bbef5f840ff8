"""Messages that name options as a command does, in the words of Python."""

import ast
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from mrjob.job import MRJob

import mapreduce
from mapreduce.errors import DataError, GradreduceError, UsageError
from mapreduce.support.spelling import in_python
from mapreduce.training.api.calls import KEYWORDS

SPELLED = {
    "--learning-rate 0.1: expected less": "learning_rate=0.1: expected less",
    "--model dense:64,relu: expected --device cpu": (
        'model="dense:64,relu": expected device="cpu"'
    ),
    "say --task regression if they are numbers": 'say task="regression" if they are numbers',
    "take more --epochs": "take more epochs",
    "Leave --keep out, and join": "Leave keep out, and join",
    "Say --number price, or --drop 'the price'.": 'Say number=["price"], or drop=["the price"].',
    "--na '?' or --decimal , --number a,b": 'na=["?"] or decimal="," number=["a", "b"]',
    "Say --no-standardise and --missing median": 'Say standardise=False and missing="median"',
    "a run with --asynchronous. The": "a run with asynchronous=True. The",
    "ids (--id '') if": 'ids (id="") if',
    "Add --eval DATA, or --label NAME": "Add evaluation=DATA, or label=NAME",
    "--l2 1e-3 or --l1, and --unlabelled": "l2=1e-3 or l1, and labelled=False",
    "--to a.x: expected": 'path="a.x": expected',
    "--columns a: expected": 'only=["a"]: expected',
    "--date-format day=DD/MM/YYYY if": (
        'columns={"day": {"kind": "date", "format": "DD/MM/YYYY"}} if'
    ),
    "Take -r parallel, or -r": 'Take runner="parallel", or runner',
    "standardise the features with 'gradreduce data standardise', or": (
        "standardise the features with NumPy, or those of a dataset with 'gradreduce data "
        "standardise', or"
    ),
    "with 'gradreduce resume /a/run'": 'with mapreduce.open_run("/a/run").resume()',
    "over: gradreduce resume '/a b' --take-over": (
        'over: mapreduce.open_run("/a b").resume(take_over=True)'
    ),
    """--drop 'o'"'"'neil', or""": 'drop=["o\'neil"], or',
    "run: gradreduce resume /a -r hadoop --data FOLDER, or": (
        'run: mapreduce.open_run("/a").resume(runner="hadoop", data=FOLDER), or'
    ),
    "run.json. Start one with 'gradreduce train'": "run.json. Start one with mapreduce.train",
    "anew: 'gradreduce export RUN --to a.safetensors'": (
        'anew: mapreduce.open_run(RUN).export("a.safetensors")'
    ),
    # Other programs.
    "by rm -r out, or hadoop fs -rm -r 'a b'": "by rm -r out, or hadoop fs -rm -r 'a b'",
    # Python has no such function.
    "by 'gradreduce data import --label x'": "by 'gradreduce data import --label x'",
    "a-b -- x--y": "a-b -- x--y",
}


@pytest.mark.parametrize("text", SPELLED)
def test_options_are_keywords(text):
    assert in_python(text) == SPELLED[text]
    assert in_python(in_python(text)) == in_python(text)


def test_others_than_the_known_ones_stay():
    assert in_python("--like X and --label X", {"label"}) == '--like X and label="X"'


def test_errors_and_warnings_of_a_training_name_keywords(tmp_path, capsys):
    names, labels = ["1", "2", "x"] * 20, [0, 1, 0] * 20
    table, options = pa.table({"price": names, "y": labels}), {"label": "y", "runner": "inline"}
    with pytest.raises(DataError, match=r'Say number=\["price"\] if .*, na=\["x"\] if .* or drop='):
        mapreduce.train(table, "logistic", progress=False, **options)
    with pytest.raises(UsageError, match="recipe and number: expected all options in the file"):
        mapreduce.train(table, "logistic", number="price", recipe="a.toml", **options)
    # As it says.
    options |= {"optimizer": "lbfgs", "rounds": 1, "l2": 0.0}
    asked = {**options, "number": "price", "na": ["x"]}
    run = mapreduce.train(table, "logistic", run=tmp_path / "run", **asked)
    assert run.recipe.columns[0].kind == "number"
    said = capsys.readouterr().err
    assert "take more rounds, or a larger tol" in said
    assert "--" not in said
    for call, message in (
        (lambda: run.predict(table, layer="x"), "^layer=.x.: "),
        (lambda: run.evaluate(table, by="x"), "^by=.x.: "),
        (lambda: run.export(tmp_path / "a.txt"), "^path=.*/a.txt.: expected a name"),
        (lambda: run.resume(workers=0), "^workers: expected"),
        (
            lambda: mapreduce.train((np.ones((2, 3)), [0.5, 1.5]), "softmax"),
            'need task="regression" and a model of numbers, such as linear',
        ),
        (
            lambda: mapreduce.train(table, run=run.path, **asked),
            r"mapreduce.open_run\(.*\).resume\(\)",
        ),
    ):
        with pytest.raises(GradreduceError, match=message) as error:
            call()
        assert "--" not in str(error.value)


def test_errors_of_a_job_name_the_parameters_of_the_function_alone():
    """Its options are those of a command in Python, too."""
    with pytest.raises(UsageError, match=r"leave out runner, -o and --step-output-dir"):
        mapreduce.check(Words, lines=["a"], arguments=["-o", "out"])


class Words(MRJob):
    def mapper(self, _, line):
        yield line, 1


def messages():
    """The texts of the toolkit that may be part of a message, with {} for what is put in."""
    for path in Path(mapreduce.__file__).parent.rglob("*.py"):
        if {"cli", "compat", "exercises", "mrjob_patches", "runners"} & {*path.parts}:
            continue
        tree = ast.parse(path.read_text())
        parts = {id(part) for node in ast.walk(tree) for part in getattr(node, "values", ())}
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr):
                parts.add(id(node.value))
            if isinstance(node, ast.JoinedStr):
                texts = (getattr(part, "value", None) for part in node.values)
                text = "".join(one if isinstance(one, str) else "{}" for one in texts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = "" if id(node) in parts else node.value
            else:
                continue
            if " " in text and "--" in text:
                yield path, text


#: What stands behind an option in a message, and is a value.
VALUES = re.compile(
    r"\{\}.*|[\d.]+|full|gang|chain|here|cpu|cuda|dense|float(32|64)|mixed|sync|downpour|sgd|momentum"
    r"|balanced|boosting|portable|torch(:\{\})?|text|regression|classification|grid|random|drop|keep|median|warmup"
    r"|dense:64,relu|parallel|N|NAME|DATA|WORD|,|"
)


def test_each_message_of_the_toolkit_is_spelled():
    found = [*messages()]
    assert len(found) > 100
    for path, text in found:
        spelled = in_python(text, KEYWORDS)
        outside = re.sub("'gradreduce [^']*'", "", spelled)
        for name in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", outside):
            assert name.replace("-", "_") not in KEYWORDS, (path, text)
        for value in re.findall(r'(?:^|[\s(])[a-z_]+=\[?"([^"]*)"', spelled):
            assert VALUES.fullmatch(value), (path, text, spelled)


def test_splits_name_keywords(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("size,kind\n1,2\n3,4\n")
    for options, message in (
        ({"test": 2}, "test=2, validation=0.0: expected shares"),
        ({"stratify": "zz"}, r"stratify=.zz.: .*a.csv has no such column"),
        ({"stratify": "size", "group": "kind"}, "stratify and group: expected one of"),
    ):
        with pytest.raises(UsageError, match=f"^{message}"):
            mapreduce.split([path], tmp_path / "out", **options)


#: They raise nothing that names an option: what is wrong is in a job's report.
SILENT = {"submit"}


def public_functions():
    """The functions of the toolkit's door, and the methods of the classes there."""
    for name in mapreduce._LAZY:
        found = getattr(mapreduce, name)
        if not isinstance(found, type):
            yield name, found
        elif found.__module__.startswith("mapreduce.training"):
            # Options of jobs are those of a command in Python, too.
            members = [(one, getattr(found, one)) for one in dir(found) if one[0] != "_"]
            yield from ((f"{name}.{one}", each) for one, each in members if callable(each))


def test_each_public_function_has_the_words_of_python():
    functions = dict(public_functions())
    assert {"train", "split", "Run.resume", "TrainedModel.predict"} <= functions.keys()
    doors = {"evaluate", "predict"}
    bare = {name for name, one in functions.items() if not hasattr(one, "__wrapped__")}
    assert bare - SILENT - doors == set()
