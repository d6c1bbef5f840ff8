"""Names that are nearly those of a step's methods, and helpers, which are left in peace."""

import inspect
from importlib import import_module
from pkgutil import iter_modules

import mrjob.examples
import pytest
from mrjob.examples.mr_word_freq_count import MRWordFreqCount
from mrjob.job import MRJob

import jobs
import mapreduce.job
from mapreduce.job import Job, MRStep
from mapreduce.job.mistyped import mistyped
from programs import gradreduce
from quick import cases


class Maps(MRJob):
    def mapper(self, _, line):
        yield line, 1


def new(base, *names):
    return type("New", (base,), {name: lambda self, *rest: None for name in names})


LINE = new.__code__.co_firstlineno + 1


@cases(
    "name, meant",
    ("reduce", "reducer"),
    ("combine", "combiner"),
    ("Reducer", "reducer"),
    ("reducers", "reducer"),
    ("reducer_int", "reducer_init"),
    ("init_mapper", "mapper_init"),
    ("mapper_finish", "mapper_final"),
    ("map_init", "mapper_init"),
    ("mapper_inti", "mapper_init"),
    ("step", "steps"),
)
def test_a_mistyped_name(name, meant):
    (sentence,) = mistyped(new(Maps, name))
    assert sentence == (
        f"test_mistyped.py:{LINE}: New.{name} is never called: mrjob knows no method of this name. "
        f"Did you mean {meant}?"
    )


@pytest.mark.parametrize("name", ["map", "mappper", "maper"])
def test_a_mistyped_mapper(name):
    assert mistyped(new(MRJob, name, "reducer"))[0].endswith("Did you mean mapper?")
    assert mistyped(new(Maps, name)) == []  # it has one


@pytest.mark.parametrize("name", ["helper", "reduce_all", "mapped", "map_of", "parse", "init"])
def test_other_names(name):
    assert mistyped(new(Maps, name)) == []


class Steps(Maps):
    def mapper_2(self, key, value):
        yield key, value

    def reduce(self, key, values):
        yield key, sum(values)

    def steps(self):
        return [MRStep(mapper=self.mapper, reducer=self.reduce), MRStep(mapper=self.mapper_2)]


class ByName(Maps):
    def combine(self, values):
        return sum(values)

    def reducer(self, key, values):
        yield key, getattr(self, "combine")(values)  # noqa: B009


class Alias(Maps):
    def reduce(self, key, values):
        yield key, sum(values)

    combiner = reduce


class OfABase(ByName, Job):
    def combine(self, values):
        return max(values)


class InATable(Maps):
    STEPS = ({"mapper": "mapper", "reducer": "reduce"},)

    def reduce(self, key, values):
        yield key, sum(values)

    def steps(self):
        return [
            MRStep(**{name: getattr(self, method) for name, method in step.items()})
            for step in self.STEPS
        ]


@pytest.mark.parametrize("job", [Steps, ByName, Alias, OfABase, InATable])
def test_a_helper_that_is_mentioned(job):
    assert mistyped(job) == []


def test_no_job_here_and_no_example_of_mrjob_is_suspected():
    found = []
    for package in (jobs, mrjob.examples):
        for module in iter_modules(package.__path__):
            if not module.ispkg and "spark" not in module.name:
                found += vars(import_module(f"{package.__name__}.{module.name}")).values()
    classes = {one for one in found if inspect.isclass(one) and issubclass(one, MRJob)}
    assert MRWordFreqCount in classes
    assert len(classes) > 40
    assert [sentence for job in classes for sentence in mistyped(job)] == []


def test_commands_say_it(tmp_path):
    job, words = tmp_path / "job.py", tmp_path / "words.txt"
    job.write_text(inspect.getsource(Maps).replace("Maps", "New"))
    job.write_text(
        f"from mrjob.job import MRJob\n{job.read_text()}\n    def reduce(self, k, v):\n"
        f"        yield k, sum(v)\n"
    )
    words.write_text("a\na\n")
    said = "New.reduce is never called: mrjob knows no method of this name. Did you mean reducer?"
    for command in ("run", "explain", "check"):
        done = gradreduce(command, job, words, *(["--law", "names"] if command == "check" else []))
        assert done.returncode == 0
        assert f"warning: job.py:6: {said}\n" in done.stderr
    assert "! names" in done.stdout
    assert "No law is broken. Look at: names." in done.stdout
    assert gradreduce("check", job, words, "--law", "names", "--strict").returncode == 1


@pytest.mark.parametrize(("name", "meant"), [("Step", "MRStep"), ("JsonProtocol", "JSONProtocol")])
def test_a_name_that_is_imported(name, meant):
    with pytest.raises(ImportError, match=f"has no attribute '{name}'. Did you mean {meant}"):
        exec(f"from mapreduce.job import {name}")
    assert not hasattr(mapreduce.job, "__wrapped__")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from mapreduce.job import nothing")
