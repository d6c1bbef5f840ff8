"""What a check found, on a terminal: a line for each law, and the first broken one in full."""

from collections.abc import Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from mapreduce.teaching import terminal
from mapreduce.teaching.checking import Finding
from mapreduce.teaching.showing import text_of

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

    def __init__(self) -> None:
        self._console = terminal.new_console()

    def add(self, finding: Finding) -> None:
        """One law, in a line."""
        mark, style = _MARKS[finding.state]
        line = Text.assemble(
            (f"{mark} ", style), (f"{finding.law.name:<11}", style), finding.law.text
        )
        self._console.print(line, soft_wrap=True)
        if finding.state != "obeyed":
            self._say(finding.text, "dim" if finding.state == "skipped" else style)

    def close(self, findings: Sequence[Finding]) -> None:
        """What is wrong, in full: the first broken law, else the warnings."""
        broken = [finding for finding in findings if finding.state == "broken"]
        warnings = [finding for finding in findings if finding.state == "warning"]
        for finding in broken[:1] or warnings:
            self._explain(finding)
        self._console.print()
        if broken:
            more = f", and {len(broken) - 1} more: --law NAME shows one" if broken[1:] else ""
            self._console.print(Text(f"{broken[0].law.name} is broken{more}.", "bold red"))
        elif warnings:
            told = ", ".join(finding.law.name for finding in warnings)
            self._console.print(Text(f"No law is broken. Look at: {told}.", "yellow"))
        elif number := sum(finding.state == "obeyed" for finding in findings):
            laws = "law that was" if number == 1 else f"{number} laws that were"
            self._console.print(Text(f"It obeys the {laws} tested, on this input.", "green"))
        reasons: dict[str, list[str]] = {}
        for finding in findings:
            if finding.state == "skipped":
                reasons.setdefault(finding.text.rstrip("."), []).append(finding.law.name)
        for reason, names in reasons.items():
            line = Text(f"{reason}: {', '.join(names)}.", "dim")
            self._console.print(line, soft_wrap=True)

    def _explain(self, finding: Finding) -> None:
        console, law = self._console, finding.law
        console.print()
        console.rule(Text(law.name, "bold"), align="left", style="dim")
        console.print(Text(law.text, "bold"))
        self._say(law.why)
        if finding.lines:
            self._lines(finding)
        if finding.difference:
            self._difference(finding)
        console.print(Text("\nHow to mend it", "bold"))
        self._say(law.mend)

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(Padding(Text(text, style), (0, 0, 0, 2)))

    def _lines(self, finding: Finding) -> None:
        if len(finding.lines) == finding.of > _LINES:
            self._console.print(Text(f"\nInput: all {finding.of:,} lines", "bold"))
            return
        few = len(finding.lines) < finding.of
        made = f", found among {finding.of:,}" if few else ""
        noun = "line" if len(finding.lines) == 1 else "lines"
        self._console.print(Text(f"\nInput: {len(finding.lines):,} {noun}{made}", "bold"))
        self._some([text_of(line) or "(an empty line)" for line in finding.lines])

    def _difference(self, finding: Finding) -> None:
        difference = finding.difference
        assert difference
        if not finding.variation:
            self._console.print()
            self._some(difference.here)
            return
        for name, lines in (
            (finding.reference, difference.here),
            (finding.variation, difference.there),
        ):
            self._console.print(Text(f"\nOutput with {name}", "bold"))
            self._some(lines or ["(nothing, beyond what both have)"])

    def _some(self, lines: Sequence[str]) -> None:
        for line in lines[:_LINES]:
            shown = line if len(line) <= _WIDEST or "\n" in line else f"{line[:_WIDEST]}…"
            self._say(shown, "green")
        if len(lines) > _LINES:
            self._say(f"and {len(lines) - _LINES:,} more", "dim")


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """All findings, as plain data."""
    return {
        "laws": [
            {
                "law": finding.law.name,
                "state": finding.state,
                "text": finding.text,
                "runs": [finding.reference, finding.variation],
                "input": [text_of(line) for line in finding.lines],
                "output": [finding.difference.here, finding.difference.there]
                if finding.difference
                else [],
            }
            for finding in findings
        ]
    }
