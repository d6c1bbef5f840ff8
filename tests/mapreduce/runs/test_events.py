"""The log of a training: every damage of a line is told, and none changes what is read."""

import json
import os
import random
import signal
import warnings

import pytest

from builders import damages
from mapreduce.errors import Interrupted, LeftOutWarning
from mapreduce.runs import events
from mapreduce.runs.events import Evaluated, JsonLines, RoundCompleted, RunStarted
from mapreduce.support import signals
from quick import cases


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "events.jsonl"
    write = JsonLines(path)
    write(RunStarted("r", 0, 3, 64, "inline", 2, model="logistic"))
    for completed in (1, 2, 3):
        write(RoundCompleted(completed, 64, 0.693 / completed, 64.0))
    write(Evaluated(3, 100, 0.75, 0.3))
    return path


def test_no_damage_changes_what_is_read(log):
    content, whole = log.read_bytes(), events.read(log)
    chance = random.Random(1)
    for damaged in damages(content, chance, 400):
        log.write_bytes(damaged)
        messages = []
        found = events.read(log, messages.append)
        assert all(event in whole for event in found)
        # A cut may take whole lines.
        assert len(found) == len(whole) or messages or damaged in content


@cases("old, new", ('"loss"', '"lo3s"'), ('"weight"', '"wei8ht"'), ("64.0", '"64"'))
def test_a_line_of_an_earlier_version_has_the_fields_of_its_event(log, old, new):
    """It has no checksum."""
    lines = [json.dumps({k: v for k, v in e.items() if k != "crc32"}) for e in events.read(log)]
    log.write_text("\n".join(lines) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(events.read(log)) == 5
    lines[2] = lines[2].replace(old, new)
    log.write_text("\n".join(lines) + "\n")
    with pytest.warns(LeftOutWarning, match="1 of 5 lines are not events, and are left out"):
        found = events.read(log)
    assert [event.get("completed") for event in found] == [0, 1, 3, 3]


def test_a_signal_while_events_are_written_writes_none_twice(tmp_path, monkeypatch):
    fdopen = os.fdopen

    class Interrupting:
        """A file during whose closing a signal comes."""

        def __init__(self, *arguments):
            self._file = fdopen(*arguments)

        def __enter__(self):
            return self._file

        def __exit__(self, *error):
            self._file.close()
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(events.os, "fdopen", Interrupting)
    write = JsonLines(tmp_path / "events.jsonl")
    with pytest.raises(Interrupted), signals.interrupting():
        write(RoundCompleted(1, 2, 0.5, 2.0))
        write.flush()
    monkeypatch.setattr(events.os, "fdopen", fdopen)
    write.close()
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 1
