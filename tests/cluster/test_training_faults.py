"""A training on a real Hadoop whose processes are killed: the same bits, and nothing left."""

import re
import shutil
import threading
import time

import pytest

from hdfs_utils import cluster as hadoop
from mapreduce.runners.hadoop.runner import JobFailedException
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import RoundCompleted
from mapreduce.runs.execution import Execution
from programs import wait_until

from drills import (  # isort: skip
    Applications,
    attempts,
    holding,
    kill_one,
    masters,
    name_node,
    once,
    tasks,
    train,
)
from slow_chain import StragglingChain  # isort: skip

pytestmark = pytest.mark.fault


@pytest.fixture
def held(tmp_path):
    """A file for which tasks wait."""
    return tmp_path / "held"


SPECULATIVE = ("-D", "mapreduce.map.speculative=true", "-D", "mapreduce.reduce.speculative=true")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mapper", pytest.param("reducer", marks=pytest.mark.long)])
def test_a_task_is_killed(kind, run, expected, yarn, chance, held):
    """Rows 1 and 2."""
    seen = Applications()
    wait = chance.uniform(0, 1.5)

    def later(_):
        time.sleep(wait)
        # What was seen first may have been about to become another program.
        return kill_one(tasks(kind))

    execution = holding(held, kind)
    with once(lambda: tasks(kind), later, held):
        assert train(run, seen, execution=execution) == expected
    name = "failedMap" if kind == "mapper" else "failedReduce"
    assert attempts(yarn, seen, name) >= 1


@pytest.mark.long
def test_a_task_is_killed_until_the_job_fails(run, yarn, held):
    """Row 3."""
    over = threading.Event()

    def killer():
        while not over.wait(0.05):
            kill_one(tasks("mapper"))

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        with pytest.raises(JobFailedException) as error:
            train(run, execution=holding(held))
    finally:
        over.set()
        thread.join()
    text = str(error.value)
    assert "step 1 of 2 failed: its process was killed" in text
    assert "map task" in text
    assert "attempt_" in text
    assert "gradreduce logs application_" in text
    assert RunDir(run.path).config


@pytest.mark.slow
@pytest.mark.long
def test_a_second_attempt_runs_beside_a_slow_one(run, expected, yarn):
    """Row 4."""
    seen, rounds = Applications(), []
    execution = Execution("hadoop", workers=2, mrjob_arguments=SPECULATIVE)
    subscribers = (seen, lambda e: rounds.append(e) if isinstance(e, RoundCompleted) else None)
    model = train(run, *subscribers, execution=execution, job_class=StragglingChain)
    assert model == expected
    assert attempts(yarn, seen, "killedMap") >= 1
    # Beside, not after: none had failed.
    assert attempts(yarn, seen, "failedMap") == 0
    assert [(event.completed, event.rows) for event in rounds] == [(1, 96), (2, 96)]


@pytest.mark.long
def test_the_application_master_is_killed(run, expected, cluster, held):
    """Row 7."""
    seen, execution = Applications(), holding(held)
    with once(lambda: tasks("mapper"), lambda _: hadoop.kill("appmaster", 1), held):
        assert train(run, seen, execution=execution) == expected
    assert max(len(masters(cluster, application)) for application in seen) == 2


@pytest.mark.long
def test_a_data_node_is_killed(run, expected, chance, cluster, held):
    """Row 8."""
    number, execution = chance.randint(1, 3), holding(held)
    with once(lambda: tasks("mapper"), lambda _: hadoop.kill("datanode", number), held):
        assert train(run, execution=execution) == expected
    wait_until(lambda: name_node(cluster, "FSNamesystemState")["NumDeadDataNodes"] == 1)
    hadoop.start("datanode", number)
    wait_until(lambda: name_node(cluster, "FSNamesystemState")["NumDeadDataNodes"] == 0)
    wait_until(lambda: name_node(cluster, "FSNamesystem")["UnderReplicatedBlocks"] == 0)


@pytest.mark.slow
@pytest.mark.long
def test_a_node_manager_is_killed(run, expected, yarn, chance, held):
    """Row 9."""
    number, execution = chance.randint(1, 3), holding(held)
    with once(lambda: tasks("mapper"), lambda _: hadoop.kill("nodemanager", number), held):
        assert train(run, execution=execution) == expected
    wait_until(lambda: yarn.metrics()["lostNodes"] == 1)


@pytest.mark.long
def test_the_resource_manager_is_killed(run, expected, held):
    """The job goes on when it is there again."""

    def restart(_):
        hadoop.kill("resourcemanager")
        return hadoop.start("resourcemanager")

    execution = holding(held)
    with once(lambda: tasks("mapper"), restart, held):
        assert train(run, execution=execution) == expected


@pytest.mark.long
def test_the_resource_manager_has_forgotten_the_job(run, expected, cluster, held):
    """As where it keeps no records: the training goes on when it is asked to."""

    def restart(_):
        hadoop.kill("resourcemanager")
        shutil.rmtree(cluster.folder / "tmp" / "resourcemanager")
        return hadoop.start("resourcemanager")

    forgotten = r"does not know application_\d+_\d+ any more.* Run the command again"
    execution = holding(held)
    with once(lambda: tasks("mapper"), restart, held), pytest.raises(JobFailedException) as error:
        train(run, execution=execution)
    assert re.search(forgotten, str(error.value))
    assert error.value.exit_code == 75
    assert "gradreduce logs" not in str(error.value)
    wait_until(lambda: not tasks("mapper"))
    assert train(RunDir(run.path)) == expected
