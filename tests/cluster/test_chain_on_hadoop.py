"""A chain on a real Hadoop: rounds of one task within the master, and of several tasks."""

import pytest

import datasets
from mapreduce.plan.settings import Settings
from mapreduce.runners import traits
from mapreduce.runners.hadoop import installation
from mapreduce.runners.hadoop.rest import Yarn
from mapreduce.runs.events import Events, JobSubmitted
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

SETTINGS = Settings("mlp:9", optimizer="adam", batch_size=96, rounds=3)


@pytest.fixture(scope="module")
def data(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    datasets.blobs(folder / "train")
    return folder


def trained(folder, name, execution):
    """The digest of the model, and the applications of its jobs."""
    events, found = Events(), []
    events.subscribe(lambda event: found.append(event) if type(event) is JobSubmitted else None)
    run = driver.create(folder / name, SETTINGS, folder / "train", None)
    digest = driver.train(run, execution, 2, events).model_sha256
    return digest, [event.application for event in found]


@pytest.fixture(scope="module")
def expected(data):
    return trained(data, "inline", Execution("inline", executor="chain"))[0]


@pytest.mark.slow
def test_one_task_does_whole_rounds_within_the_master(data, expected):
    digest, applications = trained(data, "one", Execution("hadoop", 1, executor="chain"))
    assert digest == expected
    yarn = Yarn(installation.find())
    jobs = [yarn.job(application) for application in applications]
    assert [(job["mapsTotal"], job["reducesTotal"]) for job in jobs] == [(1, 0)] * 3
    assert all(job["uberized"] for job in jobs)


@pytest.mark.slow
def test_each_of_several_tasks_has_a_range(data, expected):
    digest, applications = trained(data, "two", Execution("hadoop", 2, executor="chain"))
    assert digest == expected
    yarn, records = Yarn(installation.find()), []
    for application in applications:
        for task in yarn.tasks(application):
            if task["type"] == "MAP":
                found = yarn._of_job(application, f"/tasks/{task['id']}/counters")
                groups = found["jobTaskCounters"]["taskCounterGroup"]
                counters = {one["name"]: one["value"] for each in groups for one in each["counter"]}
                records.append(counters["MAP_INPUT_RECORDS"])
    assert records == [1] * 2 * SETTINGS.rounds


@pytest.mark.slow
def test_a_gang_whose_run_is_on_this_machine(data, expected):
    digest, _ = trained(data, "gang", Execution("hadoop", 1, executor="gang"))
    assert digest == expected


def test_tasks_at_once_are_no_more_than_cores(cluster):
    assert traits.of("hadoop").tasks_at_once() == min(3 * 3 - 1, traits.available_cores())
