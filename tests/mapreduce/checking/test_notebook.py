"""``mapreduce.explain`` and ``mapreduce.check``: what a notebook calls, of jobs and of rounds."""

import pytest
import taught

import datasets
from builders import trained
from mapreduce import check, explain
from mapreduce.errors import DataError, MissingInputError, OutputError, UsageError
from mapreduce.explaining import summary
from mapreduce.plan.settings import Settings
from quick import cases


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    datasets.blobs(folder / "data")
    settings = Settings("softmax", batch_size=120, slice_rows=20, rounds=2)
    run = trained(folder / "run", folder / "data", settings)
    return run.path


def test_a_class_with_lines(tmp_path, capsys):
    class Local(taught.Count):
        """Defined where it is used."""

    found = explain(Local, lines=["to be", "or not to be"], maps=2, reducers=3)
    (step,) = found.trace.steps
    assert sum(summary.reducer_records(step)) == 6
    assert len(step.reduces) == 3
    assert "Local" in found.page
    shown = found._repr_html_()
    assert shown.startswith("<iframe")
    # The page is one attribute: what is in it cannot end it.
    assert shown.count('"') == shown.split("srcdoc=")[0].count('"') + 8
    found.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == found.page
    found.show()
    assert "REDUCE_SHUFFLE_BYTES" in capsys.readouterr().out
    with pytest.raises(OutputError):
        found.save(tmp_path)


def test_a_round(run, capsys):
    found = explain(run, round_number=1, maps=3)
    assert len(found.trace.steps[0].maps) == 3
    assert not found.trace.is_other
    assert explain(str(run)).trace.number == 2
    found.show()
    assert "yes, to the bit" in capsys.readouterr().out


@pytest.mark.slow
def test_a_check_of_a_class(capsys):
    class Means(taught.CombinedMeans):
        """Defined where it is used, and so in no file that another Python could read."""

    lines = ["a 1", "a 2", "a 9", "b 3"]
    found = check(Means, lines=lines, laws=["combiner", "splits", "seeds", "names"])
    assert found.broken == ["combiner", "splits"]
    skipped = {one.law.name: one.text for one in found.findings if one.state == "skipped"}
    assert skipped["seeds"] == "Not tested, since its class is in no file."
    found.show()
    shown = capsys.readouterr().out
    assert shown == repr(found)
    assert "The job breaks 2 laws: combiner, splits." in shown
    html = found._repr_html_()
    assert "The job breaks 2 laws" in html
    assert html.startswith("<pre")
    assert capsys.readouterr().out == ""
    assert check(taught.Lists, lines=lines, laws=["values"]).warnings == ["values"]


@pytest.mark.slow
def test_a_check_of_a_file(tmp_path):
    (tmp_path / "hashes.py").write_text(
        "from mrjob.job import MRJob\nclass Hashes(MRJob):\n"
        "    def mapper(self, _, line):\n        yield hash(line), 1\n"
    )
    (tmp_path / "words.txt").write_text("to be\nor not\n")
    found = check(tmp_path / "hashes.py", tmp_path / "words.txt", laws=["seeds", "names"])
    assert [(one.law.name, one.state) for one in found.findings] == [
        ("names", "obeyed"),
        ("seeds", "broken"),
    ]
    assert check(taught.Count, lines=["a b"], laws=["seeds"]).broken == []


@cases(
    "call, given, error, message",
    (explain, {}, UsageError, "either inputs"),
    (explain, {"inputs": "a", "lines": ["b"]}, UsageError, "either inputs"),
    (explain, {"lines": ["b"], "round_number": 1}, UsageError, "round_number is for"),
    (check, {}, UsageError, "check: give either inputs"),
    (check, {"lines": ["a"], "laws": ["seed"]}, UsageError, r"no law 'seed'\. Did you mean seeds"),
    (check, {"lines": []}, DataError, "holds no lines"),
)
def test_what_makes_no_sense_of_a_job(call, given, error, message):
    with pytest.raises(error, match=message):
        call(taught.Count, **given)


def test_what_makes_no_sense_of_a_run(run, tmp_path):
    with pytest.raises(UsageError, match="needs no input"):
        explain(run, lines=["b"])
    with pytest.raises(UsageError, match="Expected a number from 1 to 2"):
        explain(run, round_number=3)
    with pytest.raises(MissingInputError, match="is not a run"):
        explain(tmp_path)
    with pytest.raises(MissingInputError, match=r"none\.py does not exist"):
        check(tmp_path / "none.py", lines=["a"])
