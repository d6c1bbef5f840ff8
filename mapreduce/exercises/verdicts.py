"""What a check of an answer found, on a terminal. The last line says whether it is right."""

from collections.abc import Sequence
from dataclasses import replace

from mapreduce.checking import verdicts
from mapreduce.checking.checker import Finding, law_names
from mapreduce.exercises.telling import beside
from mapreduce.report import terminal
from mapreduce.report.blocks import Section
from mapreduce.support.words import count


class View(verdicts.View):
    """Prints findings as they come, the answer first."""

    def close(self, findings: Sequence[Finding]) -> None:
        """The answer if it is wrong, and the first law that is broken; then the verdict."""
        answer, *others = findings
        broken, warnings = (
            [one for one in others if one.state == state] for state in ("broken", "warning")
        )
        is_wrong = answer.state == "broken"
        shown = [answer] * is_wrong + broken[:1]
        terminal.show(self._console, map(section, shown or warnings))
        self._console.print()
        if skipped := law_names(others, "skipped"):
            self._say(f"Not tested: {', '.join(skipped)}.", "dim")
        if broken[1:]:
            self._say("--law NAME shows one of the laws.", "dim")
        self._say(
            verdict(findings), "bold red" if shown else "yellow" if warnings else "bold green"
        )


def verdict(findings: Sequence[Finding]) -> str:
    """Whether the answer is right, wrong or lawless, in a line."""
    answer, *others = findings
    broken, warnings = law_names(others, "broken"), law_names(others, "warning")
    breaks = f"the job breaks {count(len(broken), 'law')}: {', '.join(broken)}."
    if answer.state == "broken":
        text = answer.text[0].lower() + answer.text[1:]
        return f"The answer is wrong: {text}" + f" And {breaks}" * bool(broken)
    if "combiner" in broken:
        return f"The answer is right only where no combiner runs: {breaks}"
    if broken:
        return f"The answer is right, but {breaks}"
    return "The answer is right." + f" Look at: {', '.join(warnings)}." * bool(warnings)


def section(finding: Finding) -> Section:
    """A finding in full; of a wrong answer, both outputs beside each other."""
    found, difference = verdicts.section(finding), finding.difference
    if (
        finding.law.name != "answer"
        or not difference
        or any("\n" in one for one in difference.there)
    ):
        return found
    blocks = [one for one in found.blocks if not getattr(one, "caption", "").startswith("Output")]
    blocks.insert(-1, replace(beside(difference.here, difference.there), caption="Output"))
    return replace(found, blocks=blocks)
