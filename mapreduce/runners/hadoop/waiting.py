"""Says what a step waits for: for room on the cluster, and for how long, or for its master."""

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass
class _Wait:
    """Something that a step waits for, and how long it has done so."""

    since: float | None = None
    _next: float = 0.0

    def seconds(self) -> float:
        """The seconds since the first call."""
        now = time.monotonic()
        if self.since is None:
            self.since, self._next = now, _SAID[0]
        return now - self.since

    def is_due(self) -> bool:
        """Whether it is to be said that the step waits."""
        waited = self.seconds()
        if waited < self._next:
            return False
        later = [seconds for seconds in _SAID if seconds > waited]
        self._next = later[0] if later else waited + _SAID[-1]
        return True

    def end(self) -> bool:
        """There is nothing to wait for; returns whether it was said that there is."""
        is_said = self.since is not None and self._next > _SAID[0]
        self.since = None
        return is_said


class Queue:
    """What one step's applications wait for: room, at most ``limit`` seconds at a time, or YARN."""

    def __init__(self, yarn: Yarn, what: str, limit: float | None) -> None:
        self._yarn, self._what, self._limit = yarn, what, limit
        self._room, self._silence = _Wait(), _Wait()
        self._is_guarded = False

    def look(self, application: str | None) -> Failure | None:
        """Say so if an application waits; returns why it is to be ended, once it is.

        Before the step is submitted, there is no application.
        """
        if self._is_guarded:
            return None
        try:
            found = _awaited(self._yarn, application)
        except (RestError, LookupError, TypeError) as error:
            if isinstance(error, RestError) and error.status is None:
                self._say_silent(error)
            # The interface is guarded, or another version's. Hadoop's own programs do not tell it.
            elif not isinstance(error, RestError) or error.status not in (404, 500, 503):
                self._is_guarded = True
                if self._limit is not None:
                    log.warning("--queue-wait cannot be kept: %r", error)
            return None
        if self._silence.end():
            log.info("%s: YARN's resource manager answers again", self._what)
        if found is None:
            self._room.end()
            return None
        place, needs = found
        waited = self._room.seconds()
        if self._limit is not None and waited >= self._limit:
            return Failure(
                f"{application} found no room in {place} within {self._limit:g} s: it {needs}. "
                f"Run the command again later, give it more time with --queue-wait, ask for less, "
                f"or name another queue with -D mapreduce.job.queuename=NAME",
                exit_code=AGAIN,
                final=True,
            )
        if self._room.is_due():
            said = f"waiting in {place} for {waited:.0f} s ({needs})"
            log.info("%s: %s", self._what, said)
            tell_waiting(f"{application}: {said}")
        return None

    def _say_silent(self, error: RestError) -> None:
        if self._silence.is_due():
            said = (
                f"YARN's resource manager has not answered for {self._silence.seconds():.0f} s, "
                f"and the step waits for it: {error}"
            )
            log.warning("%s: %s", self._what, said)
            tell_waiting(f"{self._what}: {said}")


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
