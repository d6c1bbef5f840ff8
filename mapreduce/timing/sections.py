"""A report as sections of tables, for a terminal and a page."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from mapreduce.errors import UsageError
from mapreduce.report.blocks import Block, Cell, Note, Section, Table, View, bars, cell, table
from mapreduce.runs.directory import RunDir
from mapreduce.support.printable import printable
from mapreduce.support.words import count

#: Segments, steps, causes and ranks of which a report has tables; ``--json`` has all.
_SEGMENTS, _STEPS, _CAUSES, _RANKS = 3, 12, 6, 8

_TERMS = {
    "rank": "a task of a gang, which stays through the training",
    "round": "one update of the model",
    "wait": "the time in which a rank is ready to receive, and the last sender has not begun",
    "transfer": "the time of an exchange in which all have begun",
    "exchange": "messages among ranks: sums to their owners, and new parameters to all",
    "load": "the seconds of a rank in a round in all phases but exchanges",
    "load balance": "the mean of the ranks' useful time, as a part of the longest",
    "communication efficiency": "the longest useful time of a rank, as a part of the whole",
    "idle": "the part of the ranks' time in which they wait or exchange",
    "unit": "the input of one map in a round, such as a slice",
}


def view(summary: Mapping[str, Any], command: str, title: str, is_page: bool = False) -> View:
    """A report of what :func:`mapreduce.timing.summary.summarise` returns.

    A page also has what to try next, drawings and the plan.
    """
    segments = sorted(summary["segments"], key=_seconds, reverse=True)
    sections = [_causes(summary, is_page)]
    for segment in segments[:_SEGMENTS]:
        name = f", {segment['name']}" if len(segments) > 1 else ""
        sections += [
            replace(section, name=f"{section.name}-{len(sections)}")
            for section in (_time(segment, name), _balance(segment, name))
        ]
    if summary["tasks"]:
        sections.append(_tasks(summary["tasks"]))
    if summary["run"] and is_page:
        sections.append(_run(summary["run"]))
    return View(
        command=command,
        title=title,
        text=f"{summary['seconds']:.3g} s, {count(summary['workers'], 'worker')}.",
        flows={},
        sections=sections[1:],
        pictures=[],
        foot="Seconds are those of the trace.",
        first=sections[:1],
        subject="where the time went",
        maker="gradreduce report",
        terms=_TERMS,
    )


def page(summary: Mapping[str, Any], command: str, title: str, run: RunDir | None) -> str:
    """A report as a page; without matplotlib it has no drawings."""
    from mapreduce.report import page

    made = view(summary, command, title, is_page=True)
    with contextlib.suppress(UsageError):
        made.sections[:] = _with_drawings(made.sections, summary, run)
    return page.page(made)


def _with_drawings(
    sections: Sequence[Section], summary: Mapping[str, Any], run: RunDir | None
) -> list[Section]:
    from mapreduce.timing import drawings

    segments = sorted(summary["segments"], key=_seconds, reverse=True)
    of_time = iter(segments)
    result = []
    for section in sections:
        if section.name.startswith("time"):
            section = replace(section, blocks=[*drawings.drawings(next(of_time)), *section.blocks])
        elif section.name == "run" and run is not None:
            section = replace(section, blocks=[drawings.losses(run), *section.blocks])
        result.append(section)
    return result


def _seconds(segment: Mapping[str, Any]) -> float:
    """Of all ranks."""
    return float(sum(map(sum, segment["by_rank"].values())))


def _causes(summary: Mapping[str, Any], has_next: bool) -> Section:
    some = [one for one in summary["causes"] if one["seconds"] > 0][:_CAUSES]
    rows = [
        [one["kind"], Cell(f"{one['seconds']:.3g}", is_number=True), printable(one["text"])]
        for one in some
    ]
    blocks: list[Block] = []
    if summary["next"] and has_next:
        text = f"Next, {summary['next']['text']}:"
        blocks.append(Note(text, code=summary["next"]["command"]))
    note = "What a run without the cause would have saved; causes may overlap."
    blocks.append(Table("What costs time", ["cause", "seconds", "what is seen"], rows, note))
    return Section("causes", "What held it back", summary["sentence"], blocks)


def _time(segment: Mapping[str, Any], name: str) -> Section:
    """Seconds by phase and rank, and the efficiencies that follow."""
    columns = {key: one for key, one in segment["by_rank"].items() if max(one) > 0}
    head = [f"rank {rank}" for rank in range(segment["ranks"])]
    if len(head) > _RANKS:
        head = ["shortest", "mean", "longest", "that of rank"]
        columns = {
            key: [min(one), float(np.mean(one)), max(one), int(np.argmax(one))]
            for key, one in columns.items()
        }
    most = max(
        (value for one in columns.values() for value in one if isinstance(value, float)),
        default=1.0,
    )
    rows = [[key, *(_seconds_cell(value, most) for value in one)] for key, one in columns.items()]
    part = segment["efficiencies"]
    figures = {
        "load balance": part["load_balance"],
        "communication efficiency": part["communication"],
        "both": part["parallel"],
        "idle": part["idle_percent"] / 100,
    }
    text = (
        f"{count(segment['rounds'], 'round')} of {count(segment['ranks'], 'rank')}. Divided evenly,"
        f" and without any wait or transfer, they would take {part['ideal_seconds']:.3g} s."
    )
    errors = [one for one in segment["clock_errors"] if one is not None]
    if max(errors, default=0.0) > 0:
        text += f" Times of other machines may be wrong by {1e3 * max(errors):.3g} ms."
    note = "Seconds. A thread without a processor was ready, while others had all of them."
    blocks = [
        Table("Time by phase and rank", ["phase", *head], rows, note),
        bars("Efficiency", figures, lambda value: f"{value:.1%}", ""),
    ]
    return Section("time", f"Where the time went{printable(name)}", text, blocks)


def _seconds_cell(value: float, most: float) -> Cell:
    """Seconds with their heat, or the number of a rank."""
    if isinstance(value, int):
        return cell(value)
    return Cell(f"{value:.3g}", heat=value / most, is_number=True)


def _balance(segment: Mapping[str, Any], name: str) -> Section:
    load = np.array(segment["load"])
    rows = [
        [key, float(np.mean(one)) if one else 0.0, float(np.max(one)) if one else 0.0]
        for key, one in segment["imbalance"].items()
    ]
    units = sum(segment["units"]) or 1
    columns: dict[str, Any] = {
        "rank": itemgetter(0),
        "of the units": lambda one: Cell(f"{one[1] / units:.1%}", is_number=True),
        "seconds of load": lambda one: float(load[one[0]].sum()),
    }
    ranks = table("Load by rank", "rank", [*enumerate(segment["units"])], columns, 2 * _RANKS)
    blocks = [
        ranks,
        Table("Imbalance of the rounds", ["measure", "mean", "largest"], rows),
    ]
    return Section("balance", f"How even the load is{printable(name)}", "", blocks)


def _tasks(tasks: Sequence[Mapping[str, Any]]) -> Section:
    longest = sorted(tasks, key=lambda one: one["seconds"], reverse=True)
    names = ("job", "step", "kind", "tasks", "seconds", "median", "longest", "bytes")
    columns: dict[str, Any] = {name: itemgetter(name) for name in names}
    text = f"{count(sum(one['tasks'] for one in tasks), 'task')}; seconds are those of the workers."
    return Section("tasks", "Tasks", text, [table("By step", "step", longest, columns, _STEPS)])


def _run(run: Mapping[str, Any]) -> Section:
    facts = {name: value for name, value in run.items() if name != "plan" and value is not None}
    rows = [[name, printable(str(value))] for name, value in facts.items()]
    plan = [
        [name, printable(str(value))[:100]]
        for name, value in run["plan"].items()
        if isinstance(value, str | int | float)
    ]
    return Section("run", "The run", "", [Table("", [], rows), Table("Its plan", [], plan)])
