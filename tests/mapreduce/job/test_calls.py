"""Every method of a job is called exactly once for each item, however it gives its pairs."""

from pathlib import Path

import pytest
from mrjob.job import MRJob
from mrjob.step import MRStep

import mapreduce.job  # noqa: F401  (installs the calls)
from mapreduce.job.calls import call
from mapreduce.launch.run import run

#: Containers in which callers of a job's methods have its records.
HOLDERS = {
    "list": list,
    "tuple": tuple,
    "iterator": iter,
    "generator": lambda items: (item for item in items),
}
FORMS = [*HOLDERS, "generator method", "None"]


class Calls(MRJob):
    """Yields each call of a method, in one of the forms in which methods give pairs."""

    form = "generator method"

    def steps(self):
        parts = ("mapper", "combiner", "reducer")
        names = [name for part in parts for name in (f"{part}_init", part, f"{part}_final")]
        return [MRStep(**{name: self.method(name) for name in names})]

    def method(self, name):
        def give(*arguments):
            self.seen.append((name, *arguments))
            if self.form == "None":
                return None
            return HOLDERS[self.form]([(name, self.named(arguments))])

        def generate(*arguments):
            self.seen.append((name, *arguments))
            yield name, self.named(arguments)

        def generate_two(key, value):
            yield from generate(key, value)

        def generate_none():
            yield from generate()

        if self.form != "generator method":
            return give
        return generate_none if name.endswith(("init", "final")) else generate_two

    def named(self, arguments):
        return [one if isinstance(one, int | str) else list(one) for one in arguments]


class Raw(Calls):
    def steps(self):
        names = ("mapper_init", "mapper_raw", "mapper_final")
        return [MRStep(**{name: self.method(name) for name in names})]


def job(kind, form, arguments=()):
    made = kind([*arguments])
    made.form, made.seen = form, []
    return made


def expected(form, mrc, items, part=None):
    calls = [(f"{part or mrc}_init", [])]
    calls += [(mrc, list(item)) for item in items]
    calls.append((f"{part or mrc}_final", []))
    return [] if form == "None" else calls


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_mapper_is_called_once_for_each_record(form, holder):
    records = [(0, "a"), (1, "b"), (1, "b")]
    made = job(Calls, form)
    pairs = list(made.map_pairs(HOLDERS[holder](records), 0))
    assert pairs == expected(form, "mapper", records)
    assert len(made.seen) == 5


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("mrc", ["combiner", "reducer"])
def test_a_reducer_is_called_once_for_each_key(form, holder, mrc):
    made = job(Calls, form)
    function = made.combine_pairs if mrc == "combiner" else made.reduce_pairs
    pairs = list(function(HOLDERS[holder]([("a", 1), ("a", 2), ("b", 3)]), 0))
    assert pairs == expected(form, mrc, [("a", [1, 2]), ("b", [3])])
    assert len(made.seen) == 4
    groups = [("a", iter([1, 2])), ("b", iter([3]))]
    made = job(Calls, form)
    assert list(call(made, mrc, 0, HOLDERS[holder](groups))) == pairs
    assert len(made.seen) == 4


@pytest.mark.parametrize("form", FORMS)
def test_a_raw_mapper_is_called_once_for_each_file(form):
    made = job(Raw, form, ["a.txt", "file:///a.txt"])
    pairs = list(made.map_pairs(iter(()), 0))
    assert pairs == expected(form, "mapper_raw", [("a.txt", "file:///a.txt")], "mapper")
    assert len(made.seen) == 3


class Lines(MRJob):
    """Yields the lines of files that its mappers open themselves."""

    def mapper_raw(self, path, uri):
        with Path(path).open() as file:
            for line in file:
                yield uri.rpartition("/")[2], line


@pytest.mark.parametrize("runner", ["inline", "parallel"])
def test_a_raw_mapper_reads_a_file_once_on_every_runner(tmp_path, runner):
    path = tmp_path / "two.txt"
    path.write_text("a\nb\n")
    assert run(Lines, [path], runner=runner).pairs == [("two.txt", "a\n"), ("two.txt", "b\n")]
