"""What a report says, as numbers and texts: all that ``--json`` prints."""

from typing import Any

import numpy as np

from mapreduce.runs.directory import RunDir
from mapreduce.timing.advice import advise
from mapreduce.timing.cause import Cause
from mapreduce.timing.causes import NAMED, causes, standing_out
from mapreduce.timing.figures import efficiencies, imbalance, rounds_of, table, usage
from mapreduce.timing.trace import Segment, Trace, by_step

#: Of a trace that has nothing.
_EMPTY = (
    "The trace has no rounds and no tasks, so nobody knows what held it back: only the executors "
    "gang and here, and jobs on -r parallel and -r hadoop, note what they do."
)


def summarise(trace: Trace, run: RunDir | None) -> dict[str, Any]:
    """What held a run, or a job, back, and all figures of it.

    Parameters
    ----------
    trace : Trace
    run : RunDir or None
        None for the trace of a job.

    Returns
    -------
    dict
        As JSON has it. Times are seconds; ``by_rank`` has a list for each phase, ``load`` one for
        each rank.
    """
    seconds = (trace.stop - trace.start) / 1e9
    is_empty = not any(one.rounds for one in trace.segments) and not trace.tasks.size
    every = [] if is_empty else causes(trace)
    named = standing_out(every, seconds)
    advice = advise(named[0], run, trace.workers) if named else None
    return {
        "sentence": _EMPTY if is_empty else sentence(named, seconds),
        "seconds": seconds,
        "workers": trace.workers,
        "next": advice and {"text": advice[0], "command": advice[1]},
        "causes": [
            {
                "kind": one.kind,
                "ranks": list(one.ranks),
                "seconds": one.seconds,
                "text": one.text,
                "is_named": one in named,
            }
            for one in every
        ],
        "segments": [_segment(one) for one in trace.segments],
        "tasks": _tasks(trace),
        "run": run and _run(run),
    }


def sentence(named: list[Cause], seconds: float) -> str:
    """What held a run of some seconds back; that nothing did, if no cause is to be named."""
    if not named:
        return f"Nothing stands out: of {seconds:.3g} s no cause took {NAMED:.0%}."
    texts = [
        f"{one.kind}, {one.seconds:.3g} of {seconds:.3g} s ({one.seconds / seconds:.0%}): "
        f"{one.text}"
        for one in named
    ]
    text = ". Beside it, ".join(texts)
    return f"{text[0].upper()}{text[1:]}."


def _segment(segment: Segment) -> dict[str, Any]:
    rounds = rounds_of(segment)
    columns, times = table(segment, rounds), [usage(events) for events in segment.ranks]
    return {
        "name": segment.name,
        "ranks": len(segment.ranks),
        "rounds": segment.rounds,
        "clock_errors": [
            one if np.isfinite(one) else None for one in segment.clock_errors.tolist()
        ],
        "by_rank": columns
        | {
            "on a processor": [one for one, _ in times],
            "without a processor": [one for _, one in times],
        },
        "units": rounds.units.sum(1).tolist(),
        "efficiencies": efficiencies(columns),
        "imbalance": {name: one.tolist() for name, one in imbalance(rounds.useful).items()},
        "numbers": rounds.numbers.tolist(),
        "load": rounds.useful.tolist(),
    }


def _tasks(trace: Trace) -> list[dict[str, Any]]:
    """The tasks of each kind of a step, in a row."""
    rows = []
    for some in by_step(trace.tasks):
        key = some[0]
        seconds = (some["stop"] - some["start"]) / 1e9
        rows.append(
            {
                "job": int(key["job"]) + 1,
                "step": int(key["step"]) + 1,
                "kind": str(key["kind"]),
                "tasks": len(some),
                "seconds": float(seconds.sum()),
                "median": float(np.median(seconds)),
                "longest": float(seconds.max()),
                "bytes": int(some["read"].clip(0).sum()),
            }
        )
    return rows


def _run(run: RunDir) -> dict[str, Any]:
    summary = run.summary()
    names = "run", "state", "model", "completed", "rounds", "loss", "accuracy", "model_sha256"
    return {name: summary[name] for name in names} | {"plan": run.config.plan.to_dict()}
