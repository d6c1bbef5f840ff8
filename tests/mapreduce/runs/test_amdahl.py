"""Amdahl's law, from rounds whose phases are known."""

import json

import pytest
from hypothesis import given, strategies as st

import datasets
from builders import trained
from mapreduce.plan.settings import Settings
from mapreduce.runs.amdahl import scaling, speedup
from mapreduce.runs.execution import Execution


def timed(workers, mapped, rest):
    return {"event": "PhasesTimed", "workers": workers, "mapped": mapped, "rest": rest}


@given(st.floats(0, 1), st.integers(1, 1000))
def test_the_law(serial, workers):
    """One worker gains nothing, and no number gains more than the inverse of the fraction."""
    found = speedup(serial, workers)
    assert 1 - 1e-12 <= found <= workers * (1 + 1e-12)
    assert speedup(serial, 1) == pytest.approx(1)
    if serial:
        assert found <= 1 / serial * (1 + 1e-12)
    # What one worker takes in a second, by the time that this many take.
    assert found == pytest.approx(1 / (serial + (1 - serial) / workers))


def test_a_run_of_which_a_fifth_is_serial():
    events = [timed(2, 99.0, 1.0), timed(4, 6.0, 1.0), {"event": "Warned"}, timed(4, 2.0, 1.0)]
    assert scaling(events) == {
        "workers": 4,
        "parallel_share": pytest.approx(0.8),
        "serial_fraction": pytest.approx(0.2),
        "speedup_of_2": pytest.approx(1 / 0.6),
        "speedup_of_4": pytest.approx(2.5),
        "speedup_of_8": pytest.approx(1 / 0.3),
    }


@pytest.mark.parametrize("events", [[], [{"event": "Warned"}], [timed(2, 0.0, 0.0)]])
def test_a_run_without_such_times(events):
    assert scaling(events) is None


@pytest.mark.parametrize("executor", ["gang", "chain"])
def test_a_run_is_shown_with_it(executor, tmp_path, answer):
    datasets.blobs(tmp_path / "train")
    settings = Settings("softmax", batch_size=60, slice_rows=15, rounds=6)
    run = trained(
        tmp_path / "run", tmp_path / "train", settings, Execution("parallel", 2, executor=executor)
    )
    found = json.loads(answer(0, "runs", "show", run.path, "--json").out)["scaling"]
    if executor == "chain":
        assert found is None
        return
    assert found["workers"] == 2
    assert 0 < found["parallel_share"] < 1
    assert 1 < found["speedup_of_2"] < found["speedup_of_8"] < 1 / found["serial_fraction"]
    assert "serial_fraction" in answer(0, "runs", "show", run.path).out
