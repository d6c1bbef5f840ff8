"""An exercise: a folder whose exercise.py has a task, inputs, and the job that solves it.

Its docstring is the task, its only job the reference solution. ``SHOWN`` names the input files of
the example, which are beside it or in ``jobs/data``. ``inputs(random)`` yields a name and the lines
of each of these files: corner cases, and what it draws by ``random``, a ``random.Random``. Optional
are ``LAWS`` that matter; ``COST``, pairs and bytes that may be shuffled, as a multiple of the
reference's; ``TOLERANCE``, a relative difference of floats that is none; ``ORDERED``, whether the
order of the output's lines matters; and ``ARGUMENTS`` of every run, in which the name of a file
stands for its path.
"""

import inspect
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from mapreduce.checking.laws import LAWS
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.launch.load import import_file, only_job
from mapreduce.support.suggest import did_you_mean, missing, names_in

#: The lessons' exercises, and their data.
_JOBS = Path(__file__).parents[2] / "jobs"
_DATA = _JOBS / "data"

FILE = "exercise.py"

#: Where the exercises of the lessons are.
FOLDER = _JOBS / "exercises"

#: Inputs that are too many: a generator without an end.
_MOST = 1000

_TEXTS = "a list of texts", lambda value: value == [one for one in value if type(one) is str]
_NUMBER = "a number of at least 0", lambda value: type(value) in (int, float) and value >= 0
_BOOL = "True or False", lambda value: isinstance(value, bool)

#: Of each setting: its default, what it must be, and a test of that.
_SETTINGS: dict[str, tuple[Any, tuple[str, Callable[[Any], bool]]]] = {
    "SHOWN": ([], _TEXTS),
    "LAWS": ([law.name for law in LAWS], _TEXTS),
    "COST": (2.0, _NUMBER),
    "TOLERANCE": (1e-9, _NUMBER),
    "ORDERED": (False, _BOOL),
    "ARGUMENTS": ([], _TEXTS),
}


@dataclass(frozen=True)
class Case:
    """An input: its name, and the lines of each of its files."""

    name: str
    files: list[list[str]]


@dataclass(frozen=True)
class Exercise:
    """A task, as its file describes it; ``shown`` are paths, ``job`` is the reference solution."""

    id: str
    folder: Path
    text: str
    shown: list[Path]
    laws: list[str]
    cost: float
    tolerance: float
    ordered: bool
    arguments: list[str]
    job: type[Any] = field(repr=False)
    generator: Callable[[random.Random], Iterable[Any]] = field(repr=False)

    @property
    def file(self) -> Path:
        """The file that describes it."""
        return self.folder / FILE

    def inputs(self, seed: int = 0) -> list[Case]:
        """Inputs that are not shown; a generator that gives others for a seed is an error."""
        cases, again = self._drawn(seed), self._drawn(seed)
        if not cases:
            raise DataError(f"{self.file}: inputs yields nothing: yield 'a name', ['a line']")
        if cases != again:
            other = (a.name for a, b in zip(cases, again, strict=False) if a != b)
            raise DataError(
                f"{self.file}: inputs is not repeatable: {next(other, 'the number of inputs')!r} "
                f"is another one the second time. Draw from its argument, not from the module "
                f"random, the clock or a set"
            )
        return cases

    def _drawn(self, seed: int) -> list[Case]:
        try:
            found = [*islice(self.generator(random.Random(seed)), _MOST + 1)]
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise DataError(f"{self.file}: inputs fails with the seed {seed}: {what}") from error
        if len(found) > _MOST:
            raise DataError(f"{self.file}: inputs yields more than {_MOST:,} inputs")
        return [self._case(one) for one in found]

    def _case(self, given: Any) -> Case:
        name, *files = given if isinstance(given, tuple) and given else (None,)
        lines = [line for some in files if isinstance(some, list) for line in some]
        wrong = [line for line in lines if not isinstance(line, str) or "\n" in line]
        is_whole = len(files) == len(self.shown) and all(isinstance(some, list) for some in files)
        if isinstance(name, str) and is_whole and not wrong:
            return Case(name, files)
        raise DataError(
            f"{self.file}: inputs yields {wrong[0] if wrong else given!r:.80}; expected a name, "
            f"and a list of lines, without line feeds, for each of the {len(self.shown)} files of "
            f"SHOWN: {', '.join(path.name for path in self.shown)}"
        )


def exercise_folders() -> dict[str, Path]:
    """The folders of the lessons' exercises, by their names: ``4``, ``4b``."""
    found = {}
    for path in FOLDER.glob(f"*/{FILE}"):
        if name := re.match(r"0*(\d+)([a-z]?)_", path.parent.name):
            found[int(name[1]), name[2]] = path.parent
    return {f"{number}{letter}": found[number, letter] for number, letter in sorted(found)}


def load(name: str) -> Exercise:
    """An exercise of a lesson, by its number or its folder's name, or that in a folder."""
    numbers = exercise_folders()
    by_name = {folder.name: number for number, folder in numbers.items()}
    number = by_name.get(name) or name.lstrip("0")
    folder = numbers.get(number) or Path(name)
    if not folder.exists() and re.fullmatch(r"\w+", name):
        raise UsageError(
            f"there is no exercise {name}.{did_you_mean(name, numbers)} There are "
            f"{', '.join(numbers)}; one of your own is named by its folder"
        )
    folder = folder.parent if folder.name == FILE else folder
    if not folder.is_dir():
        wrong = "is not a folder" if folder.exists() else missing(name, names_in)
        raise MissingInputError(f"--exercise: {name} {wrong}")
    if not (folder / FILE).is_file():
        raise MissingInputError(
            f"--exercise: {folder} holds no {FILE}, which describes the exercise"
        )
    module = import_file(str(folder / FILE))
    try:
        # Tasks work in folders of their own.
        return _described(number if number in numbers else name, folder.absolute(), module)
    except DataError as error:
        raise DataError(f"{folder / FILE}: {error}") from None


def _described(name: str, folder: Path, module: ModuleType) -> Exercise:
    """The exercise that a module describes; raises DataError with what is wrong about it."""
    given, values = vars(module), {}
    for other in given:
        if not other.isupper() or other in _SETTINGS:
            continue
        # MOST may be a constant of the job, and is no COST.
        if hint := did_you_mean(other, _SETTINGS, alike=0.8):
            raise DataError(f"{other} means nothing here.{hint}")
    for setting, (default, (what, holds)) in _SETTINGS.items():
        values[setting.lower()] = value = given.get(setting, default)
        if not holds(value):
            raise DataError(f"{setting} is {value!r:.80}; expected {what}")
    if not values["shown"]:
        raise DataError("it has no inputs: SHOWN must name a file, such as ['packages.tsv']")
    if not callable(given.get("inputs")):
        raise DataError("it has no inputs: it must define inputs(random)")
    if not (module.__doc__ or "").strip():
        raise DataError("it has no task: its first lines must be a docstring")
    laws = _SETTINGS["LAWS"][0]
    for law in values["laws"]:
        if law not in laws:
            raise DataError(f"there is no law {law!r}.{did_you_mean(law, laws)}")
    for file in values["shown"]:
        if not _path(folder, file).is_file():
            hint = did_you_mean(file, [*names_in(str(folder)), *names_in(str(_DATA))])
            raise MissingInputError(
                f"{folder / FILE}: {file}, which SHOWN names, is neither beside it nor in "
                f"jobs/data.{hint}"
            )
    values["shown"] = [_path(folder, file) for file in values["shown"]]
    paths = [(_path(folder, one), one) for one in values["arguments"]]
    values["arguments"] = [str(path) if path.is_file() else one for path, one in paths]
    # Paragraphs are lines, which terminals and pages break where they end; lists stay.
    text = re.sub(r"(?<!\n)\n(?=[^\s*-])", " ", inspect.cleandoc(module.__doc__ or ""))
    job = only_job(module, str(folder / FILE))
    return Exercise(name, folder, text, **values, job=job, generator=given["inputs"])


def _path(folder: Path, name: str) -> Path:
    own = folder / name
    return own if own.is_file() else _DATA / name
