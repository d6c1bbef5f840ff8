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
