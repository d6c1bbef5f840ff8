"""Says what a step waits for: for room on the cluster, and for how long, or for its master."""

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from mapreduce.runners.applications import tell_waiting
from mapreduce.runners.hadoop.rest import RestError, Yarn
from mapreduce.runners.hadoop.submissions import fits, of_queue
from mapreduce.runners.yarn.failures import Failure

log = logging.getLogger("mrjob.hadoop")

#: Seconds between two looks at an application.
SECONDS = 1.0

#: Seconds of waiting after which it is said; then it is said after each minute.
_SAID = (10.0, 30.0, 60.0)

#: The exit code of a job that found no room in time, or was forgotten: it may be tried again.
AGAIN = 75

#: Resources whose names in YARN people do not use.
_OWN = {"memory-mb": "{:,} MB", "vcores": ""}


class Queue:
    """What one step waits for: room, at most ``limit`` seconds at a time, or YARN's answers."""

    def __init__(self, yarn: Yarn, what: str, limit: float | None) -> None:
        self._yarn, self._what, self._limit = yarn, what, limit
        #: What it waits for, since when, and after how many seconds it is said next.
        self._kind, self._since, self._next = "", 0.0, 0.0
        self._is_guarded = False

    def look(self, application: str | None) -> Failure | None:
        """Say so if a step waits; returns why its application is to be ended, once it is.

        Before the step is submitted, there is no application.
        """
        if self._is_guarded:
            return None
        try:
            found = _awaited(self._yarn, application)
        except (RestError, LookupError, TypeError) as error:
            if isinstance(error, RestError) and error.status is None:
                waited = self._waited("YARN")
                said = f"YARN's resource manager has not answered for {waited:.0f} s"
                self._say(waited, f"{said}, and the step waits for it: {error}")
            # The interface is guarded, or another version's. Hadoop's own programs do not tell it.
            elif not isinstance(error, RestError) or error.status not in (404, 500, 503):
                self._is_guarded = True
                if self._limit is not None:
                    log.warning("--queue-wait cannot be kept: %r", error)
            return None
        waited = self._waited("room" if found else "")
        if found is None:
            return None
        place, needs = found
        self._say(waited, f"waiting in {place} for {waited:.0f} s ({needs})", application)
        if self._limit is not None and waited >= self._limit:
            return Failure(
                f"{application} found no room in {place} within {self._limit:g} s: it {needs}. "
                f"Run the command again later, give it more time with --queue-wait, ask for less, "
                f"or name another queue with -D mapreduce.job.queuename=NAME",
                exit_code=AGAIN,
                final=True,
            )
        return None

    def _waited(self, kind: str) -> float:
        """The seconds since the step waits for this, and for nothing else."""
        now = time.monotonic()
        if kind != self._kind:
            self._kind, self._since, self._next = kind, now, _SAID[0]
        return now - self._since

    def _say(self, waited: float, said: str, application: str | None = None) -> None:
        if waited >= self._next:
            log.info("%s: %s", self._what, said)
            tell_waiting(f"{application or self._what}: {said}")
            later = [seconds for seconds in _SAID if seconds > waited]
            self._next = later[0] if later else waited + _SAID[-1]


def _awaited(yarn: Yarn, application: str | None) -> tuple[str, str] | None:
    """The queue, and what an application needs, if nothing of it runs but its master."""
    if application is None:
        # Only to see whether YARN answers.
        yarn.metrics()
        return None
    found = yarn.described(application)
    asked = [
        (one["numContainers"], _resources(one["capability"]))
        for one in found.get("resourceRequests") or []
        if one["resourceName"] == "*" and one["numContainers"] > 0
    ]
    if not asked or found.get("runningContainers", 0) > (found["state"] == "RUNNING"):
        return None
    queue = yarn.queue(found["queue"])
    nodes = [_resources(node["availableResource"]) for node in yarn.nodes()]
    left = of_queue(queue, yarn.metrics())
    has_master, master = found["state"] == "RUNNING", " for its application master"
    needs = []
    for number, size in asked:
        room = sum(min(node.get(name, 0) // size[name] for name in size) for node in nodes)
        room = min(room, fits(left, (size["memory-mb"], size.get("vcores", 1))))
        words = [_OWN.get(name, f"{{:,}} {name}").format(amount) for name, amount in size.items()]
        need = f"{number:,} x {' and '.join(filter(None, words))}{'' if has_master else master}"
        needs.append(f"{need}, {max(0, room):,} free")
    # As "Queue's AM resource limit exceeded".
    why = re.search(r"activated\. +(.+?)\. +Details", found.get("diagnostics") or "")
    reason = f"; {why[1]}" if why and not has_master else ""
    place = queue.get("queuePath", found["queue"])
    return f"queue {place}", f"needs {'; '.join(needs)}{reason}"


def _resources(entry: Mapping[str, Any]) -> dict[str, int]:
    """Amounts by their names in YARN, but for those that are zero."""
    named = entry["resourceInformations"]["resourceInformation"]
    return {one["name"]: one["value"] for one in named if one["value"]}
