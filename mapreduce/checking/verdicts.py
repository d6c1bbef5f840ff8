"""What a check found, on a terminal: a line for each law, and the first broken one in full."""

import shlex
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding

from mapreduce.checking.checker import Finding, law_names
from mapreduce.explaining.showing import printf
from mapreduce.report import terminal
from mapreduce.report.blocks import Block, Note, Section, Table, code, table
from mapreduce.report.terminal import Text
from mapreduce.support.words import count

_MARKS = {
    "obeyed": ("✓", "green"),
    "broken": ("✗", "bold red"),
    "warning": ("!", "yellow"),
    "skipped": ("–", "dim"),
}

#: Lines of input and of output that are shown.
_LINES = 6

#: Characters of one of them.
_WIDEST = 400


class View:
    """Prints findings as they come."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def add(self, finding: Finding) -> None:
        """One law, in a line."""
        mark, style = _MARKS[finding.state]
        self._say(f"{mark} {finding.law.name:<11}", style, finding.law.text)
        if finding.state != "obeyed":
            text = Text(finding.text, "dim" if finding.state == "skipped" else style)
            self._console.print(Padding(text, (0, 0, 0, 2)))

    def close(self, findings: Sequence[Finding]) -> None:
        """What is wrong, in full: the first broken law, else the warnings."""
        broken, warnings, obeyed, skipped = (
            [one for one in findings if one.state == state]
            for state in ("broken", "warning", "obeyed", "skipped")
        )
        terminal.show(self._console, map(section, broken[:1] or warnings))
        self._console.print()
        if broken:
            names = ", ".join(law_names(findings, "broken"))
            more = " --law NAME shows one of them." if broken[1:] else ""
            self._say(f"The job breaks {count(len(broken), 'law')}: {names}.{more}", "bold red")
        elif warnings:
            names = ", ".join(law_names(findings, "warning"))
            self._say(f"No law is broken. Look at: {names}.", "yellow")
        elif obeyed:
            laws = f"{len(obeyed)} laws that were" if obeyed[1:] else "law that was"
            self._say(f"The job obeys the {laws} tested on this input.", "green")
        if len(findings) > 1:
            self._say(f"{len(obeyed)} hold, {len(skipped)} not tested.", "dim")
        reasons: dict[str, list[str]] = {}
        for finding in skipped:
            reasons.setdefault(finding.text.rstrip("."), []).append(finding.law.name)
        for reason, of_it in reasons.items():
            self._say(f"{reason}: {', '.join(of_it)}.", "dim")

    def _say(self, text: str, style: str, more: str = "") -> None:
        self._console.print(Text.assemble((text, style), more), soft_wrap=True)


def section(finding: Finding) -> Section:
    """A law in full: why it is one, what shows that it is broken, and how to mend the job."""
    law, difference = finding.law, finding.difference
    blocks: list[Block] = [Table("", [], [[law.why]])]
    if len(finding.lines) == finding.of > _LINES:
        blocks.append(Table(f"Input: all {finding.of:,} lines", [], []))
    elif finding.lines:
        among = f", found among {finding.of:,}" if len(finding.lines) < finding.of else ""
        lines = [line or "(an empty line)" for line in finding.input]
        blocks.append(some(f"Input: {count(len(lines), 'line')}{among}", lines))
        if len(lines) <= _LINES and any("\t" in line for line in finding.lines):
            blocks.append(_commands(finding))
    if difference and not finding.variation:
        blocks.append(some("", difference.here))
    elif difference:
        nothing = ["(nothing else)"]
        here, there = difference.here or nothing, difference.there or nothing
        runs = (finding.reference, here), (finding.variation, there)
        for (name, output), values in zip(runs, finding.values, strict=True):
            if values:
                blocks.append(some(f"Values of the reducer with {name}", values))
            blocks.append(some(f"Output with {name}", output))
    blocks.append(Table("How to mend it", [], [[law.mend]]))
    is_broken = finding.state == "broken"
    text = f"This does not hold: {law.text[0].lower()}{law.text[1:]}" if is_broken else law.text
    return Section(law.name, law.name, text, blocks)


def _commands(finding: Finding) -> Note:
    """Commands that write the lines of input into files of other names than the input's."""
    given = finding.files or [""] * len(finding.lines)
    names = [shlex.quote(f"few-{name}") if name else "few.txt" for name in given]
    commands = [
        f"{printf(line)} {'>>' if name in names[:number] else '>'} {name}"
        for number, (line, name) in enumerate(zip(finding.lines, names, strict=True))
    ]
    text = "TABs are shown as spaces here. This writes these lines with them"
    return Note(text, code="\n".join(commands))


def some(caption: str, lines: Sequence[str]) -> Table:
    short = [
        line if len(line) <= _WIDEST or "\n" in line else f"{line[:_WIDEST]}…" for line in lines
    ]
    return table(caption, "line", short, {"": code}, _LINES)


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """All findings, as plain data."""
    return {
        "laws": [
            {
                "law": finding.law.name,
                "state": finding.state,
                "text": finding.text,
                "why": finding.law.why,
                "mend": finding.law.mend,
                "runs": [finding.reference, finding.variation],
                "values": [*finding.values],
                "input": finding.input,
                "output": [finding.difference.here, finding.difference.there]
                if finding.difference
                else [],
            }
            for finding in findings
        ]
    }
