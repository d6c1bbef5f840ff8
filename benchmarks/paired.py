"""Paired measurements: ours and each peer in turn, again and again, in one run.

Times on a shared machine drift; ratios of two times taken one after the other drift much less. So
a result is the median of the ratios, with their range.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

Timed = Callable[[], float]


@dataclass
class Result:
    """What a benchmark found.

    Attributes
    ----------
    title, unit, note : str
    ours : list of float
        One for each repetition.
    peers : dict of str to list of float
    limit : tuple of str and float, or None
        The peer whose median ratio, or "" for our own median, must not be above a number.
    skipped : dict of str to str
        Peers that were not there, and why.
    """

    title: str
    unit: str
    note: str
    ours: list[float]
    peers: dict[str, list[float]] = field(default_factory=dict)
    limit: tuple[str, float] | None = None
    skipped: dict[str, str] = field(default_factory=dict)

    def ratios(self, peer: str) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.peers[peer], strict=True)]

    def verdict(self) -> str:
        """Whether the limit holds, with the number that decides."""
        if self.limit is None:
            return "no limit"
        peer, most = self.limit
        if peer and peer not in self.peers:
            return f"not measured: {self.skipped[peer]}"
        value = statistics.median(self.ratios(peer) if peer else self.ours)
        return f"{'holds' if value <= most else 'MISSED'}: {value:.3g}, at most {most:g} wanted"

    def lines(self) -> list[str]:
        """The result as a Markdown section."""
        rows = [("this toolkit", self.ours, "")] if self.ours else []
        for peer, times in self.peers.items():
            ratios = self.ratios(peer)
            spread = f"{min(ratios):.3g}–{max(ratios):.3g}"
            rows.append((peer, times, f"{statistics.median(ratios):.3g} ({spread})"))
        lines = [
            f"## {self.title}",
            "",
            self.note,
            "",
            f"| who | median, {self.unit} | range | ours / theirs: median (range) |",
            "|---|---|---|---|",
        ]
        for who, times, ratio in rows:
            middle, least, most = statistics.median(times), min(times), max(times)
            lines.append(f"| {who} | {middle:.4g} | {least:.4g}–{most:.4g} | {ratio} |")
        for peer, reason in self.skipped.items():
            lines.append(f"| {peer} | skipped: {reason} | | |")
        return [*lines, "", f"Limit: {self.verdict()}.", ""]


def in_turn(
    ours: Timed, peers: dict[str, Timed], repeats: int
) -> tuple[list[float], dict[str, list[float]]]:
    """Times of ours and of the peers, measured in turn."""
    our_times: list[float] = []
    peer_times: dict[str, list[float]] = {peer: [] for peer in peers}
    for _ in range(repeats):
        our_times.append(ours())
        for peer, timed in peers.items():
            peer_times[peer].append(timed())
    return our_times, peer_times
