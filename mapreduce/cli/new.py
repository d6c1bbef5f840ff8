"""``gradreduce new``: a job to begin with, its test, and three lines of input."""

import keyword
import sys
from importlib.resources import files
from pathlib import Path

import click

from mapreduce.errors import OutputError, UsageError
from mapreduce.support.commands import command
from mapreduce.support.outputs import writing
from mapreduce.support.printable import echo

#: Names that a job's file would hide.
_TAKEN = {*sys.stdlib_module_names, "hdfs_utils", "jobs", "kernels", "mapreduce", "mrjob", "pytest"}


@click.command()
@click.argument("path", metavar="MY_JOB.py", type=click.Path(path_type=Path))
def new(path: Path) -> None:
    """Write a job to begin with, MY_JOB.py, with test_MY_JOB.py and MY_JOB.txt beside it.

    The job counts words, and says in comments what each part is for. It runs, passes gradreduce
    check, and its test passes. Nothing is overwritten.

    \b
    gradreduce new my_job.py
    """
    name = path.stem
    if path.suffix != ".py" or not name.isidentifier() or keyword.iskeyword(name):
        raise UsageError(
            f"{path.name}: expected the name of a Python module, which tests can import: letters, "
            f"digits and _, then .py. Write: gradreduce new my_job.py"
        )
    if name in _TAKEN:
        hint = f"Write: gradreduce new my_{name}.py"
        raise UsageError(f"{path.name} would hide the module {name} from Python. {hint}")
    kind = "".join(part.capitalize() for part in name.split("_")) or "Job"
    # A class of its own: Job is the one that it extends.
    names = {"MyJob": "MyJob" if kind == "Job" else kind, "my_job": name}
    targets = {
        path: "job.txt",
        path.with_name(f"test_{name}.py"): "test.txt",
        path.with_suffix(".txt"): "input.txt",
    }
    for target in targets:
        if target.exists() or target.is_symlink():
            raise OutputError(f"{target} exists, and is not overwritten. Choose another name")
    for target, source in targets.items():
        text = files("mapreduce.cli").joinpath("template", source).read_text("utf-8")
        for old, given in names.items():
            text = text.replace(old, given)
        with writing(target), target.open("x", encoding="utf-8") as file:
            file.write(text)
    job, test, lines = targets
    echo(f"{job}, {test} and {lines} are written. Next:\n")
    for words in (("gradreduce", "run", job, lines), ("gradreduce", "check", job, lines)):
        echo(command(*words))
    echo(command("python", "-m", "pytest", test))
