"""What ranks did with their time: seconds by phase, waits for late ranks, and how even the load is.

A round of rank r is a row of pieces of work with exchanges in between::

    work 0   exchange 0   work 1   exchange 1   ...   work n

The k-th exchanges of all ranks in a round belong together. A rank that receives waits until the
last rank that sends has begun to (the *late sender* of M. Geimer et al., The Scalasca performance
toolset architecture, 2010); what is left of its exchange is the transfer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mapreduce.support.phases import PHASES
from mapreduce.timing.trace import Segment

Array = npt.NDArray[Any]

#: Phases in which ranks exchange messages.
EXCHANGES = ("exchange", "spread")

#: What work consists of: phases, those of one's own, and what is in none.
WORK = ("map", "read", "pack", "reduce", "publish", "settle", "evaluate", "own", "other")

#: What :func:`table` divides a rank's time into.
COLUMNS = ("start", *WORK[:-1], "wait", "transfer", "other")


@dataclass(frozen=True)
class Rounds:
    """The rounds of which there are events of all ranks; times are seconds.

    Attributes
    ----------
    numbers : array of int, shape (rounds,)
    work : array of float, shape (exchanges + 1, len(WORK), ranks, rounds)
        Before each exchange, and after the last one. ``map`` is without ``read``.
    begun, ended : array of float, shape (exchanges, ranks, rounds)
        Of exchanges, from the first event on; nan if a rank has none.
    bytes : array of float, shape (exchanges, ranks, rounds)
        Sent.
    units : array of float, shape (ranks, rounds)
        Mapped.
    sends, receives : array of bool, shape (exchanges, ranks, rounds)
    """

    numbers: Array
    work: Array
    begun: Array
    ended: Array
    bytes: Array
    units: Array
    sends: Array
    receives: Array

    @cached_property
    def latest(self) -> Any:
        """When the last other rank that sends began to, for those that receive; else -inf."""
        begun = np.where(self.sends, self.begun, -np.inf)
        others = [
            np.delete(begun, rank, 1).max(1, initial=-np.inf) for rank in range(len(self.units))
        ]
        return np.where(self.receives, np.stack(others, 1), -np.inf)

    @cached_property
    def wait(self) -> Any:
        """Seconds that ranks wait for late ones, in the shape of ``begun``."""
        return np.nan_to_num(np.clip(self.latest - self.begun, 0, self.ended - self.begun))

    @cached_property
    def transfer(self) -> Any:
        """Seconds of exchanges without ``wait``."""
        return np.nan_to_num(self.ended - self.begun) - self.wait

    def of(self, *names: str) -> Any:
        """Work of some kinds, of shape (exchanges + 1, kinds, ranks, rounds)."""
        return self.work[:, [WORK.index(name) for name in names]]

    @cached_property
    def load(self) -> Any:
        """Seconds of maps with their reads, of shape (ranks, rounds)."""
        return self.of("map", "read").sum((0, 1))

    @cached_property
    def useful(self) -> Any:
        """Seconds of all phases but exchanges, of shape (ranks, rounds)."""
        return self.of(*WORK[:-1]).sum((0, 1))

    def with_all(self) -> tuple[Array, Array, Array]:
        """Work, transfers and senders, had all ranks units in each round that has enough.

        Where a rank had none, messages take as long as in rounds in which all had some: as in a
        good one, since the first rounds are cold, and a rank that slept is.
        """
        work, transfer, sends = self.work.copy(), self.transfer.copy(), self.sends.copy()
        has_all = (self.units > 0).all(0)
        lacks = ~has_all & (self.units.sum(0) >= len(self.units))
        if has_all.any() and lacks.any():
            for target in (*(work[:, WORK.index(name)] for name in ("pack", "reduce")), transfer):
                typical = np.quantile(target[..., has_all], 0.25, -1, keepdims=True)
                if target is transfer:
                    # New blocks come to all in any case.
                    own = np.median(target[1:][..., lacks], -1, keepdims=True)
                    typical[1:] = np.minimum(typical[1:], own)
                target[..., lacks] = typical
            sends[..., lacks] = sends[..., has_all].any(-1, keepdims=True)
        return work, transfer, sends

    def replay(
        self,
        work: Array | None = None,
        transfer: Array | None = None,
        senders: Array | None = None,
    ) -> float:
        """Seconds of all rounds, with other work, transfers or senders than there were.

        Parameters
        ----------
        work : array, shape (exchanges + 1, ranks, rounds), optional
        transfer : array, shape (exchanges, ranks, rounds), optional
        senders : array of bool, shape (exchanges, ranks, rounds), optional
        """
        work = self.work.sum(1) if work is None else work
        transfer = self.transfer if transfer is None else transfer
        senders = self.sends if senders is None else senders
        at = np.zeros(self.units.shape)
        for number, sends in enumerate(senders):
            at = at + work[number]
            latest = np.where(sends, at, -np.inf).max(0)
            at = np.where(self.receives[number], np.maximum(at, latest), at) + transfer[number]
        at = at + work[-1]
        if len(senders) and at.size:
            # Nobody waits in the next round for a rank without units: it may still be in this one.
            awaited = np.roll(senders[0] | self.receives[0], -1, -1)
            awaited[:, -1] = True
            at = np.where(awaited, at, 0.0)
        return float(at.max(0).sum())


def rounds_of(segment: Segment) -> Rounds:
    """The rounds of a segment."""
    names, ranks = list(segment.phases), len(segment.ranks)
    rank = np.repeat(np.arange(ranks), [*map(len, segment.ranks)])
    events = np.concatenate(segment.ranks)
    rank, events = (one[events["code"] != names.index("sample")] for one in (rank, events))
    order = np.lexsort((events["start"], events["round"], rank))
    rank, events = rank[order], events[order]
    code, depth, seconds = events["code"], events["depth"], (events["stop"] - events["start"]) / 1e9
    is_main = events["thread"] == 0
    is_round = is_main & (code == names.index("round")) & (depth == 0)
    numbers, times = np.unique(events["round"][is_round], return_counts=True)
    numbers = numbers[times == len(np.unique(rank))]
    known, at = np.isin(events["round"], numbers), np.searchsorted(numbers, events["round"])
    inner = known & is_main & (depth == 1)
    is_exchange = inner & np.isin(code, [names.index(name) for name in EXCHANGES])
    # Exchanges count from the first event of their round.
    slot = np.cumsum(is_exchange) - is_exchange
    keys = rank * (1 << 32) + events["round"]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    slot -= slot[first][inverse]
    most, shape = int(slot[is_exchange].max(initial=-1)) + 1, (ranks, len(numbers))

    def sums(chosen: Array, values: Array) -> Array:
        target = np.zeros(shape)
        np.add.at(target, (rank[chosen], at[chosen]), values[chosen])
        return target

    own = WORK.index("own")
    kind = np.array([WORK.index(name) if name in WORK[:own] else own for name in names])[code]
    work, plain = np.zeros((most + 1, len(WORK), *shape)), inner & ~is_exchange
    np.add.at(work, (slot[plain], kind[plain], rank[plain], at[plain]), seconds[plain])
    work[0, -1] += np.maximum(sums(known & is_round, seconds) - sums(inner, seconds), 0)
    is_read = known & (depth == 2) & (code == names.index("read"))
    # Threads read at the same time.
    threads = [len(np.unique(events["thread"][is_read & (rank == n)])) or 1 for n in range(ranks)]
    read = np.minimum(sums(is_read, seconds) / np.array(threads)[:, None], work[0, 0])
    work[0, 0] -= read
    work[0, 1] += read

    begun, ended, sizes = np.full((3, most, *shape), np.nan)
    place = slot[is_exchange], rank[is_exchange], at[is_exchange]
    zero = int(events["start"].min()) if len(events) else 0
    for target, values in ((begun, events["start"] - zero), (ended, events["stop"] - zero)):
        target[place] = values[is_exchange] / 1e9
    sizes[place] = events["bytes"][is_exchange]
    reduces = inner & (code == names.index("reduce"))
    is_owner = np.any(sums(reduces, events["units"]) > 0, 1, keepdims=True)
    is_spread = np.zeros(begun.shape, bool)
    is_spread[place] = code[is_exchange] == names.index("spread")
    # What rank 0 says after an evaluation goes to all, too.
    is_spread = np.logical_or.accumulate(is_spread, 0)
    takes_part = ~np.isnan(begun)
    units = sums(inner & (code == names.index("map")), events["units"])
    # A rank without units sends nothing of its maps; only owners have sums to send.
    sends = takes_part & np.where(np.arange(most)[:, None, None], is_owner, units > 0)
    sends = np.where(sends.any(1, keepdims=True), sends, takes_part)
    receives = takes_part & (is_spread | is_owner)
    return Rounds(numbers, work, begun, ended, np.nan_to_num(sizes), units, sends, receives)


def table(segment: Segment, rounds: Rounds) -> dict[str, list[float]]:
    """Seconds by phase and rank, which add up to the time from a rank's first event to its last."""
    sums = {name: segment.seconds[:, n] for n, name in enumerate(segment.phases)}
    exchanges = (rounds.wait + rounds.transfer).sum((0, 2))
    part = sums["round"] / np.maximum(rounds.work.sum((0, 1, 3)) + exchanges, 1e-12)
    work = rounds.work.sum((0, 3))
    columns = {name: work[n] * part for n, name in enumerate(WORK)}
    columns |= {
        "wait": rounds.wait.sum((0, 2)) * part,
        "transfer": rounds.transfer.sum((0, 2)) * part,
    }
    wall = np.array([_span(events) for events in segment.ranks])
    columns["start"] = np.maximum(wall - sums["round"], 0)
    return {name: columns[name].tolist() for name in COLUMNS}


def _span(events: Array) -> float:
    return (int(events["stop"].max()) - int(events["start"].min())) / 1e9 if len(events) else 0.0


def imbalance(load: Array) -> dict[str, Array]:
    """Five measures of how uneven the load of ranks is, by round; 0 is even, but for the norm.

    With L the loads of n ranks, m their mean and M the largest one:

    - percent imbalance: ``(M / m - 1) / (M / m)`` (O. Pearce et al., Quantifying the effectiveness
      of load balance algorithms, 2012, as a part of the longest)
    - imbalance percentage: ``(M - m) / M * n / (n - 1)`` (L. DeRose et al., Detecting application
      load imbalance on high end massively parallel systems, 2007)
    - imbalance time: ``(M - m) / M`` (the same, as a part of the longest)
    - standard deviation: that of a sample, as a part of M
    - norm: ``mean(abs(L)) / M``

    Parameters
    ----------
    load : array of float, shape (ranks, rounds)
        Seconds.

    Returns
    -------
    dict of array of float, shape (rounds,)
        One rank is even, and so are rounds without load.
    """
    count = len(load)
    most, mean = load.max(0), load.mean(0)
    whole = np.where(most > 0, most, 1.0)
    late = (most - mean) / whole
    deviation = load.std(0, ddof=1) / whole if count > 1 else np.zeros_like(most)
    ratio = np.where(mean > 0, most / np.where(mean > 0, mean, 1.0), 1.0)
    return {
        "percent imbalance": (ratio - 1) / ratio,
        "imbalance percentage": late * count / max(count - 1, 1),
        "imbalance time": late,
        "standard deviation": deviation,
        "norm": np.where(most > 0, np.abs(load).mean(0) / whole, 1.0),
    }


def efficiencies(columns: Mapping[str, list[float]]) -> dict[str, float]:
    """The efficiencies of POP, the centre of excellence for performance, and what they mean here.

    Parameters
    ----------
    columns : dict
        Of :func:`table`.

    Returns
    -------
    dict of float
        ``load_balance``, the mean useful time of ranks by the longest; ``communication``, the
        longest by the whole; ``parallel``, their product. ``idle``: percent of the time of all
        ranks in which they wait or exchange. ``ideal_seconds``: the whole, if all time that is
        useful were divided evenly, and nothing else were needed.
    """
    useful = np.array([columns[name] for name in WORK[:-1]]).sum(0)
    wall = max(np.array([*columns.values()]).sum(0).max(), 1e-12)
    longest = max(useful.max(), 1e-12)
    balance, communication = float(useful.mean() / longest), float(longest / wall)
    lost = np.array(columns["wait"]) + columns["transfer"]
    return {
        "load_balance": balance,
        "communication": communication,
        "parallel": balance * communication,
        "idle_percent": float(100 * lost.mean() / wall),
        "ideal_seconds": float(useful.mean()),
    }


def usage(events: Array) -> tuple[float, float]:
    """Seconds of a rank on a processor, and those in which it was ready and had none."""
    samples = events[events["code"] == PHASES.index("sample")]
    return float(samples["bytes"].sum() / 1e9), float(np.maximum(samples["units"], 0).sum() / 1e9)
