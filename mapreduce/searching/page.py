"""A search as one page: the best trial, drawings of the scores, and the table of all trials."""

import csv
import io
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mapreduce.errors import UsageError
from mapreduce.report import page
from mapreduce.report.blocks import (
    Block,
    Cell,
    Drawings,
    Note,
    Section,
    Table,
    View,
    cell,
    code,
    table,
)
from mapreduce.searching import plotting
from mapreduce.searching.directory import FOLDS, TABLE, SearchDir
from mapreduce.support.words import count

#: Rows of the table, at most.
_ROWS = 1000
#: States of trials, and of a search in words.
_STATES = ("ended", "cut", "failed", "equal")
_HOW = {"ended": "all done", "stopped": "stopped", "running": "under way"}
#: Digits of a digest.
_DIGITS = 12


def page_of(search: SearchDir) -> str:
    """The page of a search, which has ended, was stopped, or goes on."""
    summary, config = search.summary(), search.config
    counts = [f"{n:,} {name}" for name in _STATES if (n := summary[name])]
    text = f"{count(summary['trials'], 'trial')} by {config.sampler}, {_HOW[summary['state']]}"
    held_out, each, file = "rows that are held out", "Each trial", TABLE
    if config.folds:
        held_out, each, file = f"each of {config.folds} folds", "Each fold of a trial", FOLDS
    options = [[_words(name), code(text)] for name, text in config.options.items()]
    facts = {
        "data": config.data,
        "data sha256": config.data_sha256,
        "evaluated on": config.evaluation or held_out,
        "sampler": f"{config.sampler}, seed {config.sampler_seed}",
        "rungs": ", ".join(map(str, config.rungs)) or "none",
        "table sha256": summary["table_sha256"],
    }
    rows = [*options, *([name, code(fact)] for name, fact in facts.items())]
    has_scores = summary["best"] is not None
    sections = [
        *([Section("scores", "Scores", "", [_drawings(search)])] if has_scores else []),
        Section("trials", "All trials", "The best come first.", [_table(search)]),
        Section("search", "What was searched", "", [Table("", [], rows)]),
    ]
    return page.page(
        View(
            command=summary["search"],
            title=f"Search {search.path.name}",
            text=": ".join(filter(None, [text, ", ".join(counts)])),
            flows={},
            sections=sections,
            pictures=[],
            foot=f"{each} is a training: {file} has the commands of all.",
            first=[_best(summary, config.metric)],
            subject="",
            maker="gradreduce runs show --html",
            terms={},
        )
    )


def _best(summary: dict[str, Any], metric: str) -> Section:
    if summary["best"] is None:
        return Section("best", "No trial has a score yet", "")
    rows: list[list[Any]] = [[_words(n), code(text)] for n, text in summary["options"].items()]
    scores = {name: summary[name] for name in ("loss", "accuracy") if summary[name] is not None}
    for name, score in scores.items():
        spread = summary.get(f"{name}_std")
        rows.append([name, f"{score:.4g}" if spread is None else f"{score:.4g} ± {spread:.2g}"])
    digest = f"model_sha256 {summary['model_sha256']}"
    what = "the first of its folds" if "folds" in summary else "it"
    again = Note(f"The command that trains {what}:", code=f"{summary['command']}\n{digest}")
    title = f"The best: trial {summary['best']}, {metric} {summary[metric]:.4g}"
    warning = "It was chosen by this score, so the score is too good. Test it on other data."
    return Section("best", title, warning, [Table("", [], rows), again])


def _drawings(search: SearchDir) -> Block:
    try:
        drawings = plotting.drawings(search)
    except UsageError as error:
        return Note(f"There are no drawings: {error}")
    caption = (
        "The best score so far, and scores against each option. Trials that were cut are grey. "
        "Texts that differ in their numbers alone lie side by side, in the order of the numbers."
    )
    return Drawings(caption, drawings)


def _table(search: SearchDir) -> Table:
    trials, varying = search.standing(search.wanted).trials, search.config.space.varying
    rows = [*csv.DictReader(io.StringIO(search.table(trials)))]
    ranked = [trial.number for trial in search.ranking(trials)]
    order = dict.fromkeys(sorted(ranked, key=lambda number: rows[number]["state"] == "cut"))
    order |= dict.fromkeys(range(len(rows)))
    scores = ["loss", "loss_std", "accuracy", "accuracy_std"]
    scores = scores if search.config.folds else scores[::2]
    some = [name for name in ("same_as", "reason") if any(row[name] for row in rows)]
    names = ["trial", *varying, "state", "rounds", *scores, *some]
    columns: dict[str, Callable[[Any], Any]] = {
        _words(name): partial(_cell, name) for name in [*names, "model_sha256"]
    }
    return table("", "trial", [rows[number] for number in order], columns, _ROWS)


def _cell(name: str, row: Mapping[str, str]) -> Cell:
    text = row[name]
    if text and name.removesuffix("_std") in ("loss", "accuracy"):
        return cell(float(text))
    if text and name in ("trial", "rounds", "same_as"):
        return cell(int(text))
    if name in ("state", "reason"):
        return cell(text)
    return code(text[:_DIGITS] if name == "model_sha256" else text)


def _words(name: str) -> str:
    return name.replace("_", " ")
