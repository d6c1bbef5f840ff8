"""Traces for other programs: Chrome's JSON, Parquet, and a CSV file for scripts in R."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mapreduce.support.phases import SAMPLE
from mapreduce.timing.figures import EXCHANGES, Array
from mapreduce.timing.trace import Trace

#: Exchanges, by the names of the operations of MPI that do the same: readers take what is called so
#: for communication.
_MPI = {"exchange": "MPI_Reduce_scatter", "spread": "MPI_Allgather"}


def operations(trace: Trace, case: str, rounds_per_epoch: int | None = None) -> pa.Table:
    """All events and tasks, by rank and start.

    Parameters
    ----------
    trace : Trace
    case : str
        What to call the run.
    rounds_per_epoch : int, optional

    Returns
    -------
    pyarrow.Table
        Case, Node, Rank, Thread, Iteration, Epoch, Operation, Type, Start, End, Duration, Bytes,
        Units and Imbrication, the number of phases around an operation. Times are seconds. Node is
        the segment, or the job; Rank is the rank, or the worker of a task.
    """
    parts = [*_events(trace), _tasks(trace.tasks)]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort([whole[name] for name in ("Imbrication", "Iteration", "ns", "Rank", "Node")])
    whole = {name: values[order] for name, values in whole.items()}
    start, stop = (whole.pop(name) - trace.start for name in ("ns", "end"))
    columns = {
        "Case": np.full(len(start), case),
        **{name: whole[name] for name in ("Node", "Rank", "Thread", "Iteration")},
        "Epoch": np.maximum(whole["Iteration"] - 1, 0) // (rounds_per_epoch or 1 << 62),
        **{name: whole[name] for name in ("Operation", "Type")},
        **{"Start": start / 1e9, "End": stop / 1e9, "Duration": (stop - start) / 1e9},
        **{name: whole[name] for name in ("Bytes", "Units", "Imbrication")},
    }
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    for segment in trace.segments:
        names = np.array(segment.phases)
        for rank, events in enumerate(segment.ranks):
            events = events[events["code"] != SAMPLE]
            yield {
                "Node": np.full(len(events), segment.name),
                "Rank": np.full(len(events), rank),
                "Thread": events["thread"].astype(np.int64),
                "Iteration": events["round"].astype(np.int64),
                "Operation": names[events["code"]],
                "Type": np.where(np.isin(names, EXCHANGES), "MPI", "Application")[events["code"]],
                **_common(events, "bytes", "units"),
                "Imbrication": events["depth"].astype(np.int64),
            }


def _tasks(tasks: Array) -> dict[str, Any]:
    return {
        "Node": np.array([f"job {job + 1}" for job in tasks["job"]], str),
        "Rank": tasks["worker"].astype(np.int64),
        "Thread": np.zeros(len(tasks), np.int64),
        "Iteration": tasks["step"].astype(np.int64) + 1,
        "Operation": tasks["kind"].astype(str),
        "Type": np.full(len(tasks), "Application"),
        **_common(tasks, "read", "records"),
        "Imbrication": np.zeros(len(tasks), np.int64),
    }


def _common(rows: Array, *names: str) -> dict[str, Array]:
    wanted = zip(("ns", "end", "Bytes", "Units"), ("start", "stop", *names), strict=True)
    return {to: rows[name].astype(np.int64) for to, name in wanted}


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table.drop_columns(["Imbrication"]), path)


def write_csv(table: pa.Table, path: Path) -> None:
    """Rank, Start, End, Imbrication, Operation, Bytes and Units, without a header.

    Readers add up all rows whose operation has no MPI in its name: so only the phases of rounds are
    written, and none of those within. A row ``iteration`` is in front of those of its round.
    """
    with path.open("w", encoding="utf-8") as file:
        for row in _rows(table):
            name, depth = row["Operation"], row["Imbrication"]
            is_round = name == "round" and not depth
            if not row["Iteration"] or row["Thread"] or not (depth == 1 or is_round):
                continue
            name = "iteration" if is_round else _MPI.get(name, name.replace("MPI", "mpi"))
            # As its readers do, who know no quotes.
            name = "".join(one if one.isalnum() or one in "_- ." else "_" for one in name)
            times = f"{row['Start']:.9f},{row['End']:.9f}"
            file.write(f"{row['Rank']},{times},{depth},{name},{row['Bytes']},{row['Units']}\n")


def write_chrome(table: pa.Table, path: Path) -> None:
    """Events of Chrome's format, for ``ui.perfetto.dev``: strictly nested, by rank and thread."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        for number, event in enumerate(_chrome_events(table)):
            file.write(f"{',' * (number > 0)}\n{json.dumps(event)}")
        file.write("\n]}\n")


def _chrome_events(table: pa.Table) -> Iterator[dict[str, Any]]:
    segments = {name: n for n, name in enumerate(table["Node"].unique().to_pylist())}
    ranks = sorted(table["Rank"].unique().to_pylist())
    for rank in ranks:
        yield _named("process_name", f"rank {rank}", rank)
    for name, at in segments.items():
        for rank in ranks:
            yield _named("thread_name", f"{name}", rank, at << 16)
    ends: dict[tuple[int, int], list[float]] = {}
    for row in _rows(table):
        place = row["Rank"], (segments[row["Node"]] << 16) + row["Thread"]
        start, stop = row["Start"], row["End"]
        around = ends.setdefault(place, [])
        while around and around[-1] <= start:
            around.pop()
        # What overlaps its neighbours is dropped by readers.
        stop = min(stop, around[-1]) if around else stop
        around.append(stop)
        values = {name.lower(): row[name] for name in ("Iteration", "Bytes", "Units")}
        times = {"ts": round(start * 1e6, 3), "dur": round((stop - start) * 1e6, 3)}
        yield (
            {"ph": "X", "name": row["Operation"], "pid": place[0], "tid": place[1]}
            | times
            | {"args": values}
        )


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows, some at a time: as Python's objects all of them may not fit into memory."""
    for batch in table.to_batches(max_chunksize=4096):
        yield from batch.to_pylist()


def _named(what: str, name: str, pid: int, tid: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
