"""What more workers could gain, by Amdahl's law, from what a run's own rounds took."""

from collections.abc import Iterable, Mapping
from typing import Any

#: Workers whose speedup is told.
_WORKERS = (2, 4, 8)


def speedup(serial: float, workers: int) -> float:
    """The largest speedup over one worker for a ``serial`` fraction f, ``1 / (f + (1 - f) / n)``.

    G. Amdahl, Validity of the single processor approach to achieving large scale computing
    capabilities, 1967.
    """
    return 1 / (serial + (1 - serial) / workers)


def scaling(recorded: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The serial fraction of a run, and the speedups that it allows; None if nothing was timed.

    Rank 0 of a gang adds up the seconds that the maps of all ranks took, W, and those of all else,
    S: each round without its longest map, and publishing. One worker would take about W + S, so the
    parallel share is ``W / (W + S)``, and the serial fraction ``f = 1 - W / (W + S)``.

    S was measured with some workers. It contains messages that one worker does not send, and more
    workers send more of them, so f holds best near that number. What ranks wait for the slowest map
    is in neither. Where ranks share a core their maps seem longer than they are, and f smaller.
    Those events of the log count whose number of workers is that of the last.
    """
    timed = [event for event in recorded if event["event"] == "PhasesTimed"]
    if not timed:
        return None
    workers = timed[-1]["workers"]
    alike = [event for event in timed if event["workers"] == workers]
    mapped, rest = (sum(event[name] or 0.0 for event in alike) for name in ("mapped", "rest"))
    if not mapped > 0 or not rest >= 0:
        return None
    serial = rest / (mapped + rest)
    return {
        "workers": workers,
        "parallel_share": 1 - serial,
        "serial_fraction": serial,
        **{f"speedup_of_{count}": speedup(serial, count) for count in _WORKERS},
    }
