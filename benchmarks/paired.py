"""Paired measurements: ours and each peer in turn, again and again, in one run.

Times on a shared machine drift; ratios of two times taken in one round drift much less. So a result
is the median of the ratios, with their range. What runs before a program may slow it down, or warm
what it needs: no round has the order of the one before.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
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
        One for each of the first repetitions, or of all.
    limit : tuple of str and float, or None
        The peer whose median ratio, or "" for our own median, must not be above a number.
    skipped : dict of str to str
        Peers that were not there, and why.
    limits : list of tuple of (tuple of str) and float
        More limits: the fastest of some peers, to which the median ratio must not be above a
        number. All of them must have been measured.
    """

    title: str
    unit: str
    note: str
    ours: list[float]
    peers: dict[str, list[float]] = field(default_factory=dict)
    limit: tuple[str, float] | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    limits: list[tuple[tuple[str, ...], float]] = field(default_factory=list)

    def ratios(self, peer: str) -> list[float]:
        """Ours by theirs, for each repetition that both took part in."""
        their_times = self.peers[peer]
        our_times = self.ours[: len(their_times)]
        return [ours / theirs for ours, theirs in zip(our_times, their_times, strict=True)]

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.ours or self.peers)

    def verdict(self) -> str:
        """Whether the limits hold, with the numbers that decide."""
        limits = [*([((self.limit[0],), self.limit[1])] if self.limit else []), *self.limits]
        if limits and not self.measured:
            return f"not measured: {next(iter(self.skipped.values()))}"
        return "; ".join(self._verdict(*limit) for limit in limits) or "no limit"

    def _verdict(self, among: tuple[str, ...], most: float) -> str:
        missing = [peer for peer in among if peer and peer not in self.peers]
        if missing:
            return f"not measured: {self.skipped[missing[0]]}"
        if among == ("",):
            value, of = statistics.median(self.ours), ""
        else:
            value, of = max((statistics.median(self.ratios(peer)), peer) for peer in among)
        beside = f" of {of}" if self.limits and of else ""
        verdict = "holds" if value <= most else "MISSED"
        return f"{verdict}: {value:.3g}{beside}, at most {most:g} wanted"

    def lines(self) -> list[str]:
        """The result as a Markdown section."""
        rows = []
        for who, times in {
            **({"this toolkit": self.ours} if self.ours else {}),
            **self.peers,
        }.items():
            ratio = spread(self.ratios(who)) if who in self.peers else ""
            span = f"{min(times):.4g}–{max(times):.4g}"
            rows.append([who, f"{statistics.median(times):.4g}", span, ratio])
        heads = ["who", f"median, {self.unit}", "range", "ours / theirs: median (range)"]
        lines = [f"## {self.title}", "", self.note, "", *table(heads, rows)]
        lines += [f"| {peer} | skipped: {reason} | | |" for peer, reason in self.skipped.items()]
        return [*lines, "", f"Limit: {self.verdict()}.", ""]


def spread(values: Sequence[float], form: str = ".3g") -> str:
    """The median of some numbers, and their range."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


@dataclass
class Table:
    """What a benchmark with a table of its own found: many rows, or what is not a time.

    Attributes
    ----------
    title, note : str
    heads : sequence of str
    rows : list of sequence of str
    missed : list of str
        Limits that do not hold.
    skipped : str
        Why nothing was measured, or not all.
    after : list of str
        More lines below the table.
    """

    title: str
    note: str
    heads: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    skipped: str = ""
    after: list[str] = field(default_factory=list)

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.rows)

    def verdict(self) -> str:
        """Whether the limits hold."""
        if self.missed:
            return f"MISSED: {'; '.join(self.missed)}"
        return "holds" if self.rows else f"not measured: {self.skipped}"

    def lines(self) -> list[str]:
        """The result as a Markdown section."""
        rows = table(self.heads, self.rows) if self.rows else []
        skipped = [f"Skipped: {self.skipped}.", ""] if self.skipped else []
        lines = [f"## {self.title}", "", self.note, "", *rows, "", *self.after, *skipped]
        return [*lines, f"Limit: {self.verdict()}.", ""]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    head, *others = (f"| {' | '.join(row)} |" for row in (heads, *rows))
    return [head, "|" + "---|" * len(heads), *others]


def in_turn(
    ours: Timed, peers: Mapping[str, Timed], repeats: int, few: Mapping[str, int] | None = None
) -> tuple[list[float], dict[str, list[float]]]:
    """Times of ours and of the peers, measured in turn.

    Each round starts with another program than the one before, and every other round goes
    backwards, so that none always follows the same one.

    Parameters
    ----------
    ours : callable
        Runs our program; returns its time.
    peers : dict of str to callable
    repeats : int
        Rounds.
    few : dict of str to int, optional
        Peers that take long, and in how many rounds, the first ones, they take part.

    Returns
    -------
    tuple of list of float and dict of str to list of float
        Ours, and those of each peer, in the order of the rounds.
    """
    our_times: list[float] = []
    peer_times: dict[str, list[float]] = {peer: [] for peer in peers}
    wanted = {peer: (few or {}).get(peer, repeats) for peer in peers}
    for number in range(repeats):
        present = [peer for peer in peers if number < wanted[peer]]
        turns = [(ours, our_times), *((peers[peer], peer_times[peer]) for peer in present)]
        step = -1 if number % 2 else 1
        for turn in range(len(turns)):
            timed, times = turns[(number + step * turn) % len(turns)]
            times.append(timed())
    return our_times, peer_times
