"""Programs of several rounds: the same state from every executor, also after a kill."""

import json
import os
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import programs
from mapreduce import testing
from mapreduce.algorithms.boosting import Boosting
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.engine.executor import Hooks, Limit, Progress, publish_first, total
from mapreduce.engine.program import InBlocks, Phase, cache_program
from mapreduce.engine.registry import EXECUTORS
from mapreduce.engine.rounds import RoundFiles
from mapreduce.engine.state import InFolder, InMemory
from mapreduce.engine.sums import Sum
from mapreduce.errors import GradreduceError, LeaseError, UsageError
from mapreduce.executors import here
from mapreduce.executors.chain import Chain, ChainJob
from mapreduce.executors.gang.job import Gang
from mapreduce.executors.gang.rank import Rank, Role
from mapreduce.executors.gang.rendezvous import Meeting
from mapreduce.executors.here import Here, InProcess
from mapreduce.executors.resumable import Resumable
from mapreduce.reduction.message import Message
from mapreduce.runners.parallel.runner import TaskFailedException
from mapreduce.runs import lease
from mapreduce.runs.execution import Execution
from mapreduce.support import traits
from mapreduce.testing import Elements, Mixed, Parts, Roots, check_executor, check_program
from quick import cases


@dataclass(frozen=True)
class Killed(Mixed):
    """Kills the process that a file names, if that is there, in the fourth round."""

    mark: str = ""

    def step(self, now, key, messages):
        if now.completed == 3 and Path(self.mark).exists():
            victim = int(Path(self.mark).read_text())
            Path(self.mark).unlink(missing_ok=True)
            os.kill(victim, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().step(now, key, messages)


class MapsMisspelt(Mixed):
    def mapped(self):
        return ("y",)


class ReadsMisspelt(Mixed):
    def whole(self):
        return ("larges",)


@cases(
    "kind, message",
    (MapsMisspelt, "names 'y' in its mapped or whole: expected arrays of its state, x, "),
    (ReadsMisspelt, "names 'larges' in its mapped or whole: .* Did you mean largest"),
)
def test_names_of_arrays_that_the_state_has_not(kind, message):
    with pytest.raises(UsageError, match=message):
        Here().advance(kind(0.0))


def joined(found):
    """The rounds, and the bytes of the whole state."""
    x = np.concatenate([block.arrays["x"] for block in found.blocks])
    first = found.blocks[0].arrays
    return found.completed, x.tobytes(), first["fixed"].tobytes(), first["largest"].tobytes()


#: A program that goes to its last round, and one that is over before.
LIMITS = {0.0: 9, 0.72: 6}


@pytest.fixture(params=LIMITS)
def program(request, forgotten):
    return Mixed(request.param)


@pytest.fixture
def expected(program):
    found = Here().advance(program)
    assert found.completed == LIMITS[program.limit]
    return joined(found)


EXECUTIONS = [
    Execution("inline"),
    Execution("inline", 3, blocks=3, rounds_per_job=2),
    Execution("inline", 2, blocks=2),
    Execution("parallel", 2, blocks=3, start_method="fork"),
    Execution("parallel", 3, start_method="forkserver"),
]


GANGS = [
    Execution("parallel", ranks, blocks=blocks, start_method="fork", executor="gang")
    for ranks, blocks in ((1, 1), (3, 2), (2, 3))
]


HERE = [Execution("inline", blocks=blocks, executor="here") for blocks in (1, 3)]


def test_the_contract(program):
    check_program(program)


@pytest.mark.every_case
@pytest.mark.parametrize("execution", [EXECUTIONS[1], EXECUTIONS[3], *GANGS, *HERE], ids=str)
def test_the_contract_of_executors(execution, forgotten):
    kind = EXECUTORS.load(execution.executor)
    check_executor(lambda folder: kind(execution, place=folder))


def test_the_contract_of_an_executor_without_a_folder(forgotten):
    check_executor(lambda folder: Here())
    check_executor(lambda folder: Here(InMemory(3)))


@pytest.mark.parametrize("execution", [*EXECUTIONS, *GANGS, *HERE], ids=str)
def test_executors_agree(program, expected, tmp_path, execution):
    executor = Resumable.of(execution, place=tmp_path / "rounds")
    assert joined(executor.advance(program)) == expected
    # It has nothing more to do, and the last two rounds are there.
    assert joined(executor.advance(program)) == expected
    count = program.blocks_for(execution.blocks)
    assert RoundFiles(tmp_path / "rounds").latest_whole(count) == expected[0]
    names = {path.name[:8] for path in (tmp_path / "rounds").glob("*.unit")}
    # And what units own since the first round.
    assert names <= {"00000000", *(f"{expected[0] - back:08d}" for back in (0, 1))}


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_state_in_a_folder(program, expected, tmp_path, blocks):
    """What one executor has begun, another goes on with."""
    files = RoundFiles(tmp_path)
    begun = Here(InFolder(files, blocks, program.owners())).advance(program, 0, 4)
    assert begun.completed == 4
    chain = Chain(Execution("inline", 2, blocks=blocks), place=tmp_path)
    assert joined(chain.advance(program)) == expected
    (tmp_path / "here").mkdir()
    state = InFolder(RoundFiles(tmp_path / "here"), blocks, program.owners())
    Here(state).advance(program, 0, 2)
    state = InFolder(RoundFiles(tmp_path / "here"), blocks, program.owners())
    assert joined(Here(state).advance(program, 2)) == expected
    # An array that never changes is written once.
    block = RoundFiles(tmp_path / "here").read(expected[0], 0, blocks)
    assert block.origins["fixed"] < block.origins["x"] == expected[0]


def ran_until(executor, program, files, place, stop):
    """Run the rounds up to one by an executor, in this process, whose tasks keep the program."""
    completed = files.latest_whole(1, program.owners())
    state, near = (
        InFolder(files, 1, program.owners()),
        cache_program(program.describe(), "driver").program,
    )
    if executor == "a state":
        Here(state).advance(near, completed, stop)
    elif executor == "here":
        InProcess(HERE[0]).go_on(near, state, completed, Limit(until=stop))
    elif executor == "chain":
        how = Execution("inline")
        Chain(how, place=place, driver="driver").run(program, completed, stop, 1)
    else:
        meeting, limit = Meeting.prepare(place), Limit(until=stop)
        role = Role(str(place), meeting.token, 1, 1, str(place), programs.PATIENCE, limit=limit)
        Rank(near, role, 0, lambda _: None).run()
        meeting.clear()


@pytest.mark.parametrize("first", ["chain", "gang", "here", "a state"])
@pytest.mark.parametrize("second", ["chain", "gang", "here", "a state"])
def test_an_executor_goes_on_after_another_in_one_process(
    program, expected, tmp_path, first, second
):
    """Each begins a state of its own: not all publish what they have made."""
    files = RoundFiles(tmp_path)
    publish_first(program, InFolder(files, 1, program.owners()))
    for executor, stop in ((first, 2), (second, 4), (first, 5), (second, expected[0])):
        ran_until(executor, program, files, tmp_path, stop)
        assert files.latest_whole(1, program.owners()) == stop
    block = InFolder(files, 1, program.owners()).block(expected[0], 0)
    assert joined(Progress(expected[0], [block])) == expected


@pytest.mark.fault
@pytest.mark.parametrize("executor", ["chain", "gang", "here"])
def test_the_driver_is_killed(tmp_path, forgotten, executor):
    mark = tmp_path / "kill"
    runner = {"gang": "parallel"}.get(executor, "inline")
    text = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from test_states import *\n"
        f"how = Execution({runner!r}, 2, blocks=3, executor={executor!r})\n"
        f"mark = Path({str(mark)!r})\n"
        "if sys.argv[1:]: mark.write_text(str(os.getpid()))\n"
        "place = Path('rounds').absolute()\n"
        "found = Resumable.of(how, place=place).advance(Killed(mark=str(mark)))\n"
        "print(joined(found)[1].hex())"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = programs.ran(sys.executable, "-c", text, "kill", check=False, cwd=tmp_path, env=env)
    assert process.returncode == -signal.SIGKILL
    # What it has started ends a moment later, and holds its lock until then.
    programs.wait_until(lambda: not programs.processes_of(str(mark)))
    # Others publish only now and then what is not due.
    assert RoundFiles(tmp_path / "rounds").latest_whole(3) == {"chain": 3}.get(executor, 0)
    found = programs.ran(sys.executable, "-c", text, cwd=tmp_path, env=env).stdout
    assert found.strip() == joined(Here().advance(Mixed(0.0)))[1].hex()


def folders_of(place, monkeypatch, seconds, program, hooks):
    """The names of the files after each round of a program that is computed here."""
    monkeypatch.setattr(here, "PUBLISH_SECONDS", seconds)
    monkeypatch.setattr(here, "PUBLISH_SHARE", 0)
    state, seen = InFolder(RoundFiles(place), 2, program.owners()), []
    publish_first(program, state)

    def step(self, now, key, messages):
        if key == (1,):
            seen.append({path.name for path in place.iterdir()})
        yield from Mixed.step(self, now, key, messages)

    monkeypatch.setattr(Stepwise, "step", step)
    times = InProcess(HERE[1]).go_on(program, state, 0, Limit(until=4), hooks)
    assert times.completed == 4
    return [*seen, {path.name for path in place.iterdir()}]


class Stepwise(Mixed):
    pass


def test_rounds_that_are_computed_here_are_published_now_and_then(tmp_path, monkeypatch, forgotten):
    """Those between stay in memory. Of what units own, the folder has one round, and the first one,
    since which some of it has not changed.
    """
    told = []
    hooks = Hooks(news=lambda *news: told.append(news))
    (tmp_path / "rare").mkdir()
    *rare, last = folders_of(tmp_path / "rare", monkeypatch, 1e9, Stepwise(), hooks)
    assert rare == rare[:1] * 4
    assert told == []
    (tmp_path / "each").mkdir()
    *each, end = folders_of(tmp_path / "each", monkeypatch, 0.0, Stepwise(), hooks)
    assert told == [(completed, 2) for completed in (1, 2, 3, 4)]
    assert [sorted({int(name[:8]) for name in names if "unit" in name}) for names in each] == [
        [0],
        [0, 1],
        [0, 2],
        [0, 3],
    ]
    for place, names in (("rare", last), ("each", end)):
        files = RoundFiles(tmp_path / place)
        assert files.latest_whole(2, 5) == 4
        assert {name for name in names if "unit" in name} == {
            f"{completed:08d}.{unit:05d}-of-00005.unit" for unit in range(5) for completed in (0, 4)
        }
    final = [RoundFiles(tmp_path / place).read(4, 1, 2).arrays["x"] for place in ("rare", "each")]
    assert final[0].tobytes() == final[1].tobytes()


def test_an_error_here_costs_no_round_before_it(tmp_path, forgotten):
    (stop := tmp_path / "stop").touch()
    executor = Resumable.of(HERE[1], place=tmp_path / "rounds")
    with pytest.raises(GradreduceError, match="stopped"):
        executor.advance(Mixed(stop=str(stop)))
    # The round of the error was begun: some of its units have kept what they own.
    assert RoundFiles(tmp_path / "rounds").latest_whole(3, 5) == 3


def test_who_has_lost_the_lease_publishes_nothing_here(tmp_path, forgotten):
    files, program = RoundFiles(tmp_path / "rounds"), Mixed()
    files.folder.mkdir()
    state = InFolder(files, 1, program.owners())
    publish_first(program, state)
    executor = InProcess(HERE[0], place=files.folder, home=tmp_path)
    with lease.hold(tmp_path):
        (tmp_path / "lease.json").unlink()
        with pytest.raises(LeaseError, match=r"the lease of .* was removed"):
            executor.go_on(program, state, 0)
    assert files.latest_whole(1, 5) == 0


def jobs_of(chain_traits, monkeypatch, program, place):
    """The rounds of each job of a chain."""
    found = []

    class Noted(ChainJob):
        def steps(self):
            steps = super().steps()
            if not found or found[-1][0] != self.options.start:
                found.append((self.options.start, self.options.stop))
            return steps

    monkeypatch.setattr(Execution, "traits", chain_traits)
    Chain(Execution("inline"), place=place, job_class=Noted).advance(program)
    return [stop - start for start, stop in found]


def test_jobs_grow_where_a_step_after_the_end_is_dear(tmp_path, monkeypatch, forgotten):
    dear = replace(traits.INLINE, joins_rounds=True)
    assert jobs_of(traits.INLINE, monkeypatch, Mixed(0.72), tmp_path / "cheap") == [9]
    assert jobs_of(dear, monkeypatch, Mixed(0.72), tmp_path / "dear") == [1, 2, 4]


@pytest.mark.parametrize("dear", [False, True])
def test_rounds_of_one_task(program, expected, tmp_path, monkeypatch, dear):
    monkeypatch.setattr(Execution, "traits", replace(traits.INLINE, joins_rounds=dear))
    assert joined(Chain(Execution("inline"), place=tmp_path).advance(program)) == expected


def test_rounds_of_an_earlier_version_go_on(tmp_path, forgotten):
    """Which had fewer fields: they count as their defaults."""
    x = np.zeros((40, 2), np.float32)
    rows = Source([Rows(x, np.arange(40) % 2)], (2,), 1.0, x.nbytes, {})
    import_rows(rows, tmp_path / "data", 0)
    make = partial(Boosting.over, Dataset(tmp_path / "data"), features=2, classes=2, trees=1)
    place = tmp_path / "rounds"
    Chain(Execution("inline"), place=place).advance(make())
    name, fields = json.loads((place / "program").read_text())
    assert fields.pop("categories") == []
    (place / "program").write_text(json.dumps([name, fields]))
    Chain(Execution("inline"), place=place).advance(make())
    for other in ({"categories": ((0, 3),)}, {"trees": 2}):
        with pytest.raises(UsageError, match="has the rounds of another program than this boost"):
            Chain(Execution("inline"), place=place).advance(make(**other))
    (place / "program").write_text("[")
    with pytest.raises(UsageError, match="has the rounds of another program than this boost"):
        Chain(Execution("inline"), place=place).advance(make())


def test_a_folder_has_the_rounds_of_one_program(tmp_path, forgotten):
    Chain(Execution("inline"), place=tmp_path).advance(Mixed(0.72))
    with pytest.raises(UsageError, match=r"has the rounds of another program than this .*Mixed"):
        Chain(Execution("inline"), place=tmp_path).advance(Mixed(0.71))
    with pytest.raises(UsageError, match=r"the program .*:Mixed needs a folder for its rounds"):
        Chain(Execution("inline")).advance(Mixed())


@dataclass(frozen=True)
class Threads(Sum):
    """The threads that BLAS has where units are mapped, one at most."""

    MONOID = replace(Roots.MONOID, combine=max)

    def units(self, completed):
        return 4

    def lift(self, now, unit):
        return max(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")


@cases(
    "execution",
    Execution("inline"),
    Execution("parallel", 2, start_method="fork"),
    Execution("parallel", 2, start_method="forkserver"),
    ids=str,
)
def test_tasks_have_one_thread_of_blas(execution, forgotten):
    with threadpool_limits(2, "blas"):
        assert total(Threads(), Chain(execution)) == 1
        assert total(Threads(), Here()) == 1


def test_a_class_that_is_defined_again(forgotten, monkeypatch):
    first = Chain(Execution("inline")).advance(Parts(3)).blocks

    @dataclass(frozen=True)
    class Again(Parts):
        def map(self, now, units):
            for key, message in super().map(now, units):
                yield key, Message({}, {"part": 2 * message.arrays["part"]})

    monkeypatch.setattr(Again, "name", Parts.name)
    monkeypatch.setattr(testing, "Parts", Again)
    second = Chain(Execution("inline")).advance(Again(3)).blocks
    for one, two in zip(first, second, strict=True):
        assert (2 * one.arrays["part"]).tolist() == two.arrays["part"].tolist()


def test_it_goes_on_in_as_many_blocks_as_it_began_with(tmp_path, expected, program):
    files = RoundFiles(tmp_path)
    Here(InFolder(files, 3, 5)).advance(program, until=4)
    seen = []

    class Noted(ChainJob):
        def steps(self):
            seen.append((self.options.start, self.options.blocks))
            return super().steps()

    chain = Chain(Execution("inline", 2, blocks=1), place=tmp_path, job_class=Noted)
    assert joined(chain.advance(program)) == expected
    assert set(seen) == {(4, 3)}


def test_a_folder_is_used_by_one_driver(tmp_path, forgotten):
    with lease.hold(tmp_path), pytest.raises(LeaseError, match="is in use by process"):
        Chain(Execution("inline"), place=tmp_path).advance(Mixed())


def test_the_folder_of_a_program_is_taken_over_from_another_machine(
    tmp_path, program, expected, monkeypatch
):
    """It is no run, which a command would take over."""
    chain, name = Chain(Execution("inline"), place=tmp_path), tmp_path / "lease.json"
    name.write_text(json.dumps({**asdict(lease.myself()), "host": "pod-7f9c"}))
    with pytest.raises(LeaseError, match=rf"ended, remove {name}, then start it again"):
        chain.advance(program)
    name.unlink()
    assert joined(chain.advance(program)) == expected
    with lease.hold(tmp_path):
        name.unlink()
        with pytest.raises(LeaseError, match=r"works on it any more, start it again$"):
            lease.check(tmp_path)


def test_where_here_begins_and_stops(program, expected):
    state = InMemory(1)
    assert Here(state).advance(program, until=3).completed == 3
    assert Here(state).advance(program, 3, until=3).completed == 3
    found = Here(state).advance(program, 3)
    assert joined(found) == joined(Here(state).advance(program, found.completed)) == expected


def test_a_relative_folder(tmp_path, monkeypatch, expected, program):
    monkeypatch.chdir(tmp_path)
    execution = Execution("parallel", 2, start_method="fork")
    assert joined(Chain(execution, place=Path("rounds")).advance(program)) == expected
    assert joined(Chain(execution, place="rounds").advance(program)) == expected


class NoDataclass(Sum):
    def units(self, completed):
        return 1

    def lift(self, now, unit):
        return 0


@pytest.mark.every_case
@cases(
    "made, message",
    (lambda: Roots(float("nan")), "Roots cannot be described to its tasks: Out of range"),
    (lambda: Roots(Path("x")), "Roots cannot be described .* Expected a frozen dataclass"),
    (NoDataclass, "NoDataclass cannot be described .* Expected a frozen dataclass"),
    (lambda: type("Inner", (Roots,), {"__qualname__": "f.<locals>.Inner"})(1), "function"),
)
def test_what_cannot_be_described(made, message, forgotten):
    with pytest.raises(UsageError, match=message):
        made().describe()


def test_a_program_of_the_script_that_was_started(monkeypatch, forgotten):
    monkeypatch.setattr(Parts, "name", "__main__:Parts")
    monkeypatch.setattr(sys.modules["__main__"], "Parts", Parts, raising=False)
    assert len(Chain(Execution("inline")).advance(Parts(2)).blocks) == 2
    with pytest.raises(UsageError, match="of -r local do not import: define it in a module"):
        Chain(Execution("local")).advance(Parts(2))


class Disagrees(Mixed):
    """Blocks look at their own elements alone."""

    def is_over(self, completed, arrays):
        return completed >= 9 or bool(arrays["x"].max() < 0.15)


class GivesNoBlock(Mixed):
    def step(self, now, key, messages):
        return () if key[0] == 1 else super().step(now, key, messages)


class GivesABlockTwice(Mixed):
    def step(self, now, key, messages):
        return [*super().step(now, key, messages)] * 2


class TellsOtherThings(Mixed):
    """What all blocks should have in common is each one's own."""

    def step(self, now, key, messages):
        for other, block in super().step(now, key, messages):
            arrays = {**block.arrays, "largest": np.array([1.0 + key[0]])}
            yield other, Message({}, arrays)


class Grows(Mixed):
    """A vector that maps read does not keep its length."""

    def step(self, now, key, messages):
        for other, block in super().step(now, key, messages):
            yield other, Message({}, {**block.arrays, "x": np.append(block.arrays["x"], 1.0)})


class AsksMore(Mixed):
    """Its end depends on what not all tasks have."""

    def is_over(self, completed, arrays):
        return completed >= 9 or bool(arrays["x"].max() < 0)


class ByTime(Mixed):
    def first_own(self):
        own = {"own": np.array([time.perf_counter() % 1 + 1])}
        return {unit: arrays | own for unit, arrays in super().first_own().items()}


@pytest.mark.every_case
@cases(
    "kind, message",
    (Disagrees, "round 2: whether the blocks agree if it is over: expected 1, found 2"),
    (GivesNoBlock, r"round 0: keys of the blocks: expected \[\(0,\), \(1,\), \(2,\)\], found"),
    (GivesABlockTwice, r"keys of the blocks: .* found \[\(0,\), \(0,\)"),
    (ByTime, "round 0, map: whether a repeated task sends the same bytes"),
)
def test_a_wrong_program_does_not_pass(kind, message, forgotten):
    with pytest.raises(AssertionError, match=message):
        check_program(kind())


@pytest.mark.every_case
@cases(
    "kind, message",
    (TellsOtherThings, "round 0: number of different 'largest' in the blocks: expected 1, f"),
    (AsksMore, "round 0: whether is_over reads arrays of whole alone: expected True, found Fa"),
    (Grows, r"round 0, block 0: shape of 'x': expected \(11,\), found \(12,\)"),
)
def test_what_maps_read_is_not_as_a_program_says(kind, message, tmp_path, forgotten):
    with pytest.raises(AssertionError, match=message):
        check_program(kind(notes=str(tmp_path)))


@dataclass(frozen=True)
class Longer(InBlocks):
    """A state that grows in each round."""

    def most_rounds(self):
        return 4

    def units(self, completed):
        return 3

    def blocks_for(self, wanted):
        return min(wanted, 2)

    def first(self, blocks):
        return [{"x": np.ones(1 + number)} for number in range(blocks)]

    def phases(self, completed, layout):
        return (Phase("grown", layout.blocks),)

    def map(self, now, units):
        x = now.vector("x")
        for unit in units:
            for number in range(now.layout.blocks):
                yield (number,), Message({"unit": unit}, {"x": x * (unit + 1)})

    def grown(self, now, key, messages):
        found = {one.meta["unit"]: one.arrays["x"] for one in messages}
        yield key, Message({}, {"x": np.concatenate([found[unit] for unit in range(3)])})


@pytest.mark.every_case
def test_a_vector_that_grows_in_a_gang(tmp_path, forgotten):
    (tmp_path / "notes").mkdir()
    gang = Gang(GANGS[1], place=tmp_path / "rounds")
    message = r"1 rounds, block \d: expected the array 'x' of shape \(\d,\), as .* found \(\d,\)"
    with pytest.raises(TaskFailedException, match=message):
        gang.advance(Grows(notes=str(tmp_path / "notes")))
    # Without a name for what maps read, all of it may grow.
    state = InMemory(2)
    blocks = [one.advance(Longer()).blocks for one in (Gang(GANGS[1], place=tmp_path), Here(state))]
    assert [one.arrays["x"].tobytes() for one in blocks[0]] == [
        one.arrays["x"].tobytes() for one in blocks[1]
    ]


@pytest.mark.every_case
@pytest.mark.parametrize("workers", [1, 2])
@cases(
    "kind, message",
    (GivesNoBlock, r"GivesNoBlock, 'step', gave \[\] for the key \(1,\): expected its block"),
    (GivesABlockTwice, r"Twice, 'step', gave \[\(0,\), \(0,\)\] for the key \(0,\): expected"),
)
def test_what_breaks_a_law_is_named(kind, message, workers, tmp_path, forgotten):
    with pytest.raises(GradreduceError, match=message):
        Chain(Execution("inline", workers, blocks=3), place=tmp_path).advance(kind())
    with pytest.raises(
        GradreduceError, match=r"gave the blocks .*: expected each once, \(0,\), \(1,\), \(2,\)"
    ):
        Here(InMemory(3)).advance(kind())


@dataclass(frozen=True)
class Sized(Mixed):
    """Begins with elements of another size, of which a file tells."""

    size: str = ""

    def first(self, blocks):
        factor = float(Path(self.size).read_text())
        for one in super().first(blocks):
            yield {**one, "x": factor * one["x"]}


@pytest.mark.parametrize("executor", ["chain", "gang"])
def test_a_folder_that_was_emptied_is_begun_anew(tmp_path, forgotten, executor):
    runner = {"chain": "inline", "gang": "parallel"}[executor]
    told = []
    for factor in (1.0, 3.0):
        notes = tmp_path / f"notes-{factor}"
        notes.mkdir()
        (tmp_path / "size").write_text(f"{factor}")
        program = Sized(notes=str(tmp_path / "notes"), size=str(tmp_path / "size"))
        notes.rename(tmp_path / "notes")
        execution = Execution(runner, 2, blocks=2, executor=executor)
        Resumable.of(execution, place=tmp_path / "rounds").advance(program)
        (tmp_path / "notes").rename(notes)
        shutil.rmtree(tmp_path / "rounds")
        told.append({path.name: path.read_bytes() for path in notes.iterdir()})
    assert told[0].keys() == told[1].keys() == {"3", "6"}
    assert all(told[0][name] != told[1][name] for name in told[0])


class OddKey(Roots):
    """A key that its phase does not have."""

    def map(self, now, units):
        for _, message in super().map(now, units):
            yield (1,), message


@dataclass(frozen=True)
class Unnamed(Mixed):
    """Tasks cannot know of what is beside its rounds."""

    besides = ()


class TwoBlocks(Elements):
    def total(self, now, key, messages):
        for _, block in super().total(now, key, messages):
            yield from (((number,), block) for number in range(2))


class GivesTwo(Mixed):
    besides = (TwoBlocks,)

    def beside(self, completed, arrays):
        return TwoBlocks(self.elements)


class NotLater(Mixed):
    def next_due(self, completed):
        return completed


@pytest.mark.every_case
@pytest.mark.parametrize("executor", ["memory", "here", "chain", "gang"])
@cases(
    "kind, message",
    (OddKey, r"OddKey, phase 'total': expected keys that begin with a number below 1, found \(1"),
    (Unnamed, "name that class in its attribute besides"),
    (GivesTwo, r"TwoBlocks(, 'total',)? gave (the blocks )?\[\(0,\), \(1,\)\]"),
    (NotLater, r"expected a later round than 0 from next_due\(0\), found 0"),
)
def test_mistakes_are_named(kind, message, executor, tmp_path, forgotten):
    (tmp_path / "notes").mkdir()
    program = kind(9) if kind is OddKey else kind(notes=str(tmp_path / "notes"))
    if kind is NotLater and executor in ("memory", "gang"):
        pytest.skip("does not plan jobs by it")
    runner = {"gang": "parallel"}.get(executor, "inline")
    made = Here()
    if executor != "memory":
        execution = Execution(runner, 2, blocks=2, executor=executor)
        made = Resumable.of(execution, place=tmp_path / "rounds")
    with pytest.raises((GradreduceError, TaskFailedException), match=message):
        made.advance(program)


def test_a_rank_that_comes_after_the_end_takes_nothing_away(tmp_path, forgotten):
    """Its second attempt, if it was killed before its output was taken."""
    (tmp_path / "home").mkdir()
    meeting = Meeting.prepare(tmp_path / "home")
    role = Role(str(tmp_path / "home"), meeting.token, 2, 1, wait=programs.PATIENCE)
    ranks = [Rank(Parts(5), role, at, lambda _: None) for at in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(Rank.run, ranks)] == [None, None]
    for at in range(2):
        Rank(Parts(5), role, at, lambda _: None).run()
    expected = Here().advance(Parts(5)).blocks
    found = meeting.blocks()
    assert sorted(key for key, _ in found) == [(number,) for number in range(5)]
    for key, block in found:
        assert block.arrays["part"].tobytes() == expected[key[0]].arrays["part"].tobytes()
    meeting.clear()
    with pytest.raises(GradreduceError, match="the gang's job ended without its result"):
        meeting.blocks()
