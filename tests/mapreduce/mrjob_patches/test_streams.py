"""The streams of this process, which mrjob's inline runner puts aside for each task."""

import contextlib
import sys

import pytest
from mrjob import inline

from mapreduce.job import Job


class Passing(Job):
    def mapper(self, _, line):
        yield line, 1


@contextlib.contextmanager
def never_put_back():
    """As if an interruption came before the first stream is put back."""
    yield
    raise KeyboardInterrupt


def test_an_interruption_while_they_are_put_back(tmp_path, monkeypatch):
    (path := tmp_path / "text").write_text("a\n")
    before = sys.stdin, sys.stdout, sys.stderr
    monkeypatch.setattr(inline, "save_sys_std", never_put_back)
    with (
        pytest.raises(KeyboardInterrupt),
        Passing(["-r", "inline", "--no-conf", str(path)]).make_runner() as runner,
    ):
        runner.run()
    assert (sys.stdin, sys.stdout, sys.stderr) == before
    sys.stderr.write("")


class Prints(Job):
    def mapper(self, _, line):
        print("seen", line)
        yield line, 1


class PrintsWarm(Prints):
    WARM = True


@pytest.mark.every_case
@pytest.mark.parametrize("kind", [Prints, PrintsWarm])
def test_what_is_printed_is_no_record(kind, tmp_path, caplog):
    (path := tmp_path / "text").write_text("a\nb\n")
    with kind(["-r", "inline", "--no-conf", str(path)]).make_runner() as runner:
        runner.run()
        assert sorted(b"".join(runner.cat_output()).splitlines()) == [b'"a"\t1', b'"b"\t1']
    # Once, though both tasks do it.
    (told,) = [each.getMessage() for each in caplog.records if "printed" in each.getMessage()]
    assert told.startswith("a mapper printed to standard output, which on Hadoop would")
    assert told.endswith("It printed:\nseen a")
