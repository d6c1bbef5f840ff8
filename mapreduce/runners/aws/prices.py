"""What a cluster may cost, as an estimate, and the question whether to start it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mapreduce.errors import UsageError

#: US dollars an hour of EC2's own on-demand price, by the size of an instance. Source: AWS's price
#: list, by its API, as in the table that Karpenter generates from it
#: (github.com/aws/karpenter-provider-aws, pkg/providers/pricing/zz_generated.pricing_aws.go).
AS_OF = "us-east-1, 19 January 2026"
_PRICES = {
    "c5": (0.170, 0.340, 0.680),
    "c6i": (0.170, 0.340, 0.680),
    "c7i": (0.1785, 0.357, 0.714),
    "g4dn": (0.526, 0.752, 1.204),
    "g5": (1.006, 1.212, 1.624),
    "g6": (0.8048, 0.9776, 1.3232),
    "m5": (0.192, 0.384, 0.768),
    "m5a": (0.172, 0.344, 0.688),
    "m6a": (0.1728, 0.3456, 0.6912),
}
_SIZES = ("xlarge", "2xlarge", "4xlarge")


@dataclass(frozen=True)
class Group:
    """Instances of one role.

    Attributes
    ----------
    role : str
        MASTER, CORE or TASK.
    types : tuple of str
        The type, or those that a fleet may choose from.
    count : int
        At most.
    bid : float or None
        Of spot instances, the most that is paid for one, in US dollars an hour.
    spot : bool
    """

    role: str
    types: tuple[str, ...]
    count: int
    bid: float | None = None
    spot: bool = False

    def __str__(self) -> str:
        kind = " or ".join(self.types)
        return f"{self.count} {kind} ({self.role.lower()}{', spot' if self.spot else ''})"


def groups(instances: Mapping[str, Any]) -> list[Group]:
    """The instances of a request for a cluster.

    Parameters
    ----------
    instances : mapping
        ``Instances`` of EMR's ``RunJobFlow``, with groups or fleets.
    """
    found = [
        Group(
            entry["InstanceRole"],
            (entry["InstanceType"],),
            int(entry["InstanceCount"]),
            _number(entry.get("BidPrice")),
            entry.get("Market") == "SPOT",
        )
        for entry in instances.get("InstanceGroups") or ()
    ]
    for entry in instances.get("InstanceFleets") or ():
        types = entry.get("InstanceTypeConfigs") or ()
        # Of the lightest instances, most are needed.
        weight = min((int(one.get("WeightedCapacity") or 1) for one in types), default=1)
        names = tuple(one["InstanceType"] for one in types)
        for capacity in ("OnDemand", "Spot"):
            target = int(entry.get(f"Target{capacity}Capacity") or 0)
            if target:
                bids = [_number(one.get("BidPrice")) for one in types]
                bid = max((one for one in bids if one is not None), default=None)
                spot = capacity == "Spot"
                count = -(-target // weight)
                found.append(
                    Group(entry["InstanceFleetType"], names, count, bid if spot else None, spot)
                )
    return found


def _number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def own_prices(text: str | None) -> dict[str, float]:
    """The prices of ``--hourly-price``: TYPE=USD, several joined by commas.

    Raises
    ------
    UsageError
        They make no sense.
    """
    found = {}
    for part in filter(None, (text or "").split(",")):
        kind, _, price = part.partition("=")
        amount = _number(price)
        if not kind.strip() or amount is None or not 0 <= amount < 1e6:
            raise UsageError(
                f"--hourly-price: expected TYPE=USD, as m5.xlarge=0.24, several joined by commas; "
                f"found {part!r}"
            )
        found[kind.strip()] = amount
    return found


def estimate(wanted: Sequence[Group], own: Mapping[str, float]) -> str:
    """What a cluster costs, in words that say where they come from.

    Parameters
    ----------
    wanted : sequence of Group
    own : mapping
        The user's prices, by type, in US dollars an hour.
    """
    total, unknown, from_table = 0.0, set(), False
    for group in wanted:
        prices = []
        for kind in group.types:
            price = own.get(kind, _listed(kind))
            from_table |= kind not in own and price is not None
            if price is None and group.bid is None:
                unknown.add(kind)
            bounds = [one for one in (price, group.bid) if one is not None]
            prices += [min(bounds)] if bounds else []
        total += group.count * max(prices, default=0.0)
    if unknown:
        return (
            f"What it costs cannot be estimated: the price of {', '.join(sorted(unknown))} is not "
            f"known here. Name it with --hourly-price TYPE=USD, from aws.amazon.com/ec2/pricing"
        )
    source = f"EC2's on-demand prices in {AS_OF}" if from_table else "your --hourly-price"
    return (
        f"An estimate of what it costs: at most ${total:,.2f} an hour, by {source}. "
        f"EMR's own charge, disks, requests to S3 and traffic come on top"
    )


def _listed(kind: str) -> float | None:
    family, _, size = kind.partition(".")
    if family not in _PRICES or size not in _SIZES:
        return None
    return _PRICES[family][_SIZES.index(size)]


def confirm(what: str, yes: bool) -> None:
    """Ask whether a cluster is to start.

    Parameters
    ----------
    what : str
        Which, and what it costs.
    yes : bool
        The answer that was given beforehand.

    Raises
    ------
    UsageError
        The answer is no, or nobody is there to answer.
    """
    if yes:
        sys.stderr.write(f"{what}\n")
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"{what}. Nothing was started, since nobody can be asked here: say --yes to start it"
        )
    sys.stderr.write(f"{what}\nStart it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("the cluster was not confirmed: nothing was started")
