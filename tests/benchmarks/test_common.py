"""Cases: the harness times their programs, and says what is missing."""

import pytest

from benchmarks.common import OURS, Missing, case
from benchmarks.paired import Table

LIMITS = [(("peer",), 0.4)]


@pytest.mark.parametrize(("quick", "times", "verdict"), [(True, 1, "no limit"), (False, 3, "MISS")])
def test_programs_are_timed_and_whole_runs_have_limits(quick, times, verdict):
    places, calls = [], []

    @case("A title", "ms", repeats=(1, 3), limits=LIMITS)
    def measure(bench):
        places.append(bench.path)
        assert bench.path.is_dir()
        bench.note = lambda: f"{len(calls)} calls of {bench.pick('few', 'many')}"
        bench.skipped["absent"] = "it is not here"
        return {OURS: lambda: calls.append(1) or 1.0, "peer": lambda: 2.0}

    result = measure(quick)
    assert (result.ours, result.peers) == ([1.0] * times, {"peer": [2.0] * times})
    assert result.note == f"{times} calls of {'few' if quick else 'many'}"
    assert result.skipped == {"absent": "it is not here"}
    assert result.verdict().startswith(verdict)
    assert not places[0].exists()


def test_a_case_that_cannot_be_measured_says_why():
    @case("A title", limits=LIMITS)
    def measure(bench):
        raise Missing("no device")

    result = measure(quick=False)
    assert not result.measured
    assert result.skipped == {"peer": "no device"}
    assert result.verdict() == "not measured: no device"


def test_a_peer_without_an_interpreter_is_skipped(monkeypatch, tmp_path):
    monkeypatch.setenv("PEER", str(tmp_path / "python"))

    @case("A title")
    def measure(bench):
        assert bench.interpreter("PEER", "torch.nn", "a", "b") == ""
        return {OURS: lambda: 1.0}

    reason = "PEER names no interpreter with torch"
    assert measure(quick=True).skipped == {"a": reason, "b": reason}


def test_a_table_is_missed_or_skipped():
    table = Table("A title", "A note.", ["a", "b"], skipped="no rows")
    assert table.verdict() == "not measured: no rows"
    table.rows.append(["1", "2"])
    assert table.lines()[2:8] == ["A note.", "", "| a | b |", "|---|---|", "| 1 | 2 |", ""]
    assert table.verdict() == "holds"
    table.missed.append("too long")
    assert table.verdict() == "MISSED: too long"
