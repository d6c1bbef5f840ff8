"""Programs: the toolkit's own keep the contract, what breaks it is told, and executors agree."""

import json
import shutil
import zlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import pytest

import datasets
import mapreduce
from builders import HERE, keywords
from mapreduce.algorithms.boosting import Boosting
from mapreduce.algorithms.gram import FloatGram, Gram
from mapreduce.algorithms.k_means import KMeans
from mapreduce.data import standardisation
from mapreduce.data.readers import csv, opening
from mapreduce.data.readers.reading import Reading
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.engine import executor
from mapreduce.engine.executor import total
from mapreduce.engine.program import PROGRAMS, Layout, Phase, Program, built
from mapreduce.errors import DataError, GradreduceError, UntrustedError, UsageError
from mapreduce.executors.chain import Chain
from mapreduce.executors.here import Here
from mapreduce.executors.resumable import Resumable
from mapreduce.inference import cutting
from mapreduce.inference.files import PredictFile
from mapreduce.inference.groups import GroupTallies
from mapreduce.inference.importance import Permute
from mapreduce.inference.predict import Predict
from mapreduce.inference.predictor import NOTHING
from mapreduce.inference.report import Tallies
from mapreduce.inference.request import Request
from mapreduce.plan.settings import Settings
from mapreduce.reduction.message import Message, WireProtocol
from mapreduce.runners.keys import read_key, spelled
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.strategies.program import Training
from mapreduce.support import trust
from mapreduce.tables import shuffle, tables
from mapreduce.tables.standardise import Standardise, SumMoments
from mapreduce.testing import Roots, check_program
from mapreduce.training import creating, driver
from quick import cases
from raw_tables import write_generated

TWO_BLOCKS = Settings("mlp:2000", batch_size=800, slice_rows=200, rounds=2)


def of_an_import(path, recipe, folder):
    """The programs of an import by jobs, with copies of what their tasks read."""
    found = []

    class Noting(Chain):
        def advance(self, program):
            noted = program
            if hasattr(program, "out"):
                shutil.copytree(program.out, folder / program.name)
                noted = replace(program, out=str(folder / program.name))
            found.append(noted)
            return super().advance(program)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "Chain", Noting)
        reading = Reading(opening.open_table([path], "csv", recipe), recipe)
        shuffle.import_table(reading, folder / "out", 0, Execution("inline"))
    return found


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """An instance of each program of the toolkit, by its name."""
    folder = tmp_path_factory.mktemp("programs")
    data = datasets.blobs(folder / "data", (900, 700, 1300))
    run = creating.create(folder / "run", Settings("softmax", rounds=2), data.folder, None)
    driver.train(run, HERE, 1, Events())
    of_a_model = Request(checkpoint.fitted(run, 2), data.folder, Execution("inline"))
    path = write_generated(folder / "table.csv", 2000)
    recipe = Recipe(label="label", id="id", weights="weight")
    (folder / "out").mkdir()
    moments = SumMoments(str(data.folder), data.manifest.sha256)
    statistics = standardisation.finish(total(moments, Here()), centred=True)
    described = statistics.save(folder / "out", centred=True)
    learned = mapreduce.train(
        path,
        "logistic",
        run=folder / "of-a-table",
        **keywords("id=id weights=weight progress=False executor=here rounds=1"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "BLOCK_BYTES", 1 << 14)
        patch.setattr(cutting, "_PART_BYTES", 1 << 15)
        of_a_table = checkpoint.fitted(RunDir(learned.path))
        request = Request(of_a_table, path, Execution("inline"), folder / "of-a-table")
        file = cutting.cut(request)
        assert file is not None
        patch.setattr(csv, "PIECE_BYTES", 1 << 16)
        patch.setattr(shuffle, "rows_per_shard", lambda row_bytes: 500)
        (folder / "import").mkdir()
        # Which of three groups each row of the source is in.
        (folder / "codes").write_bytes(bytes(row % 3 for row in range(2900)))
        made = [
            *of_an_import(path, recipe, folder / "import"),
            moments,
            Gram.over(data),
            FloatGram.over(data),
            KMeans.over(data, clusters=3, limit=3),
            Boosting.over(data, features=data.manifest.features, classes=3, trees=1, leaves=4),
            Standardise(
                str(data.folder), moments.sha256, str(folder / "out"), described, "float32"
            ),
            Predict.of(of_a_model, out=str(folder), id_name="id", made_from="", extras=NOTHING),
            PredictFile.of(request, file, "content"),
            Tallies.of(of_a_model),
            GroupTallies.of(of_a_model, codes=str(folder / "codes")),
            Permute.of(of_a_model, ranges=((0, 2), (2, 3)), repeats=2, seed=4),
            Training.of(creating.create(folder / "begun", TWO_BLOCKS, data.folder, data.folder)),
        ]
        yield {program.name: program for program in made}


#: Evaluations read the state of a training, and are computed beside it. Trials are whole trainings,
#: which the tests of searches start on each executor.
NAMES = [name for name in PROGRAMS if name not in ("evaluate", "trials")]


#: Tasks of other processes would find fewer blocks.
OF_BLOCKS = ("find-blocks", "summarise", "name-rows", "shuffle")


@pytest.mark.every_case
@pytest.mark.parametrize("name", NAMES)
def test_a_program_keeps_the_contract(programs, name):
    assert programs[name].units(0) > 2
    check_program(programs[name])


@pytest.mark.parametrize("name", NAMES)
def test_executors_agree(programs, name, tmp_path):
    expected = Here().advance(programs[name]).blocks
    for execution in (
        Execution("inline", 2),
        Execution("parallel", 3, start_method="fork"),
        Execution("parallel", 2, start_method="fork", executor="gang"),
    ):
        if name not in OF_BLOCKS or execution.runner == "inline":
            place = tmp_path / f"{execution.runner}-{execution.executor}"
            found = Resumable.of(execution, place=place).advance(programs[name]).blocks
            assert [*map(line, found)] == [*map(line, expected)]


def line(block):
    """The line of a block, whose arrays have no order."""
    return WireProtocol().write("", Message(block.meta, dict(sorted(block.arrays.items()))))


SUM = Roots.MONOID


@pytest.fixture
def trusted(forgotten):
    kinds = InTwoPhases, *(kind for kind, _ in WRONG)
    trust.trust(*(f"{__name__}:{kind.__name__}" for kind in kinds))


def test_a_program_of_ones_own(trusted):
    check_program(Roots(100))
    assert total(Roots(100), Here()) == pytest.approx(sum(np.sqrt(range(100))))


class CountsTwice(Roots):
    """What is sent by a repeated task is counted twice."""

    def total(self, now, key, messages):
        yield key, SUM.to_message(sum(sorted(SUM.from_message(message) for message in messages)))


class InOrderOfArrival(Roots):
    def total(self, now, key, messages):
        yield key, SUM.to_message(next(SUM.from_message(message) for message in messages))


class KeyOfData(Roots):
    def map(self, now, units):
        for _, message in super().map(now, units):
            yield (int(SUM.from_message(message)),), message


class BlockTwice(Roots):
    def total(self, now, key, messages):
        return [*super().total(now, key, messages)] * 2


class NoBlock(Roots):
    def total(self, now, key, messages):
        return ()


class ByTasks(Roots):
    """A task sends one sum of its units, whatever the tree is."""

    def map(self, now, units):
        message = SUM.to_message(reduce(add, (float(unit) ** 0.5 for unit in units)))
        yield (0,), Message({"start": units.start}, message.arrays)

    def total(self, now, key, messages):
        found = {message.meta["start"]: SUM.from_message(message) for message in messages}
        yield key, SUM.to_message(reduce(add, (found[at] for at in sorted(found))))


class PhasesOfAnInstance(Roots):
    def phases(self, completed, layout):
        return (Phase("total", 1 + id(self) % 1009),)


class OtherName(Roots):
    name = Roots.name


class SaysNothing(Roots):
    def total(self, now, key, messages):
        return None


WRONG = [
    (CountsTwice, "whether the blocks are those of one task: expected True"),
    (InOrderOfArrival, "phase 'total', key \\(0,\\): whether a repeated task sends the same bytes"),
    (KeyOfData, "phase 'total': keys that do not begin with a block's"),
    (ByTasks, "whether the blocks are those of one task: expected True"),
    (PhasesOfAnInstance, "phases of another: expected"),
    (OtherName, "the program of its description: expected OtherName"),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("kind", "message"), WRONG)
def test_a_wrong_program_does_not_pass(trusted, kind, message):
    with pytest.raises(AssertionError, match=message):
        check_program(kind(40))


@pytest.mark.every_case
@cases(
    "kind, message",
    (BlockTwice, r"the last phase of the program .*:BlockTwice gave the blocks \[\(0,\), \(0,\)\]"),
    (NoBlock, r"the last phase of the program .*:NoBlock gave the blocks \[\]: expected each"),
    (KeyOfData, r"KeyOfData, phase 'total': expected .* below 1, found \(165,\)"),
    (SaysNothing, "SaysNothing, phase 'total': expected pairs, or .* found None"),
)
def test_what_breaks_a_law_is_named(kind, message):
    with pytest.raises(GradreduceError, match=message):
        Here().advance(kind(40))


@dataclass(frozen=True)
class InTwoPhases(Program):
    """Sums of the units by their last digit, and then of all."""

    count: int

    def units(self, completed):
        return self.count

    def phases(self, completed, layout):
        return Phase("by_digit", 3), Phase("all", 2)

    def map(self, now, units):
        for unit in units:
            yield (unit % 3, unit % 10), Message({"unit": unit})

    def by_digit(self, now, key, messages):
        units = {message.meta["unit"] for message in messages}
        yield (key[0] % 2,), Message({"key": [*key], "sum": sum(units)})

    def all(self, now, key, messages):
        sums = {tuple(message.meta["key"]): message.meta["sum"] for message in messages}
        yield key, Message({"sum": sum(sums.values())})


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_program_of_two_phases_and_blocks(trusted, tasks):
    check_program(InTwoPhases(50))
    expected = [sum(n for n in range(50) if n % 3 != 1), sum(range(1, 50, 3))]
    for one in (Here(), Chain(Execution("inline", tasks))):
        assert [block.meta["sum"] for block in one.advance(InTwoPhases(50)).blocks] == expected


def test_keys_are_spelled_and_read():
    for key in ((0,), (40_000 % 29_791, 7), (5, 0, 99_999_999)):
        assert read_key(spelled(key)) == key


def coded(content):
    return urlsafe_b64encode(zlib.compress(json.dumps(content).encode())).decode().rstrip("=")


STRANGE = [
    ("%%", DataError, "the description of a program is damaged"),
    (urlsafe_b64encode(b"[1]").decode(), DataError, "is damaged"),
    (coded(["moments"]), DataError, "is damaged"),
    (coded(["moments", {"data": "x"}]), DataError, "the field 'sha256' is missing"),
    (coded(["moments", {"data": "x", "sha256": 1}]), DataError, "sha256: expected str, found 1"),
    (coded(["moments", {"data": "", "sha256": "", "more": 1}]), DataError, "'more' is unknown"),
    (coded(["moment", {}]), UsageError, "unknown program 'moment': .*Did you mean moments"),
    (coded(["os:system", {}]), UntrustedError, "Importing it can run any program"),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("description", "error", "message"), STRANGE)
def test_a_strange_description_is_refused(description, error, message):
    with pytest.raises(error, match=message):
        built(description)


def test_a_description_says_all(programs):
    for program in programs.values():
        text = program.describe()
        assert built(text) == program
        assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    moments = programs["moments"]
    assert built(replace(moments, sha256="0").describe()) != moments
    assert executor.blocks_of(moments, [((0,), Message())], 1) == [Message()]
    assert moments.phases(0, Layout(2, 1)) == (Phase("total", 1),)
