"""Clusters that outlive a job: one for all jobs of a training, or left by a killed driver."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from mapreduce.runners import applications
from mapreduce.runners.emr import clients
from mapreduce.runners.emr.errors import aws_errors, boto3, code_of

log = logging.getLogger("mrjob.emr")

#: The tag of a cluster that says which run started it.
TAG = "gradreduce-run"

#: States from which a cluster does not come back.
ENDED = ("TERMINATING", "TERMINATED", "TERMINATED_WITH_ERRORS")

#: Seconds that a cluster may take to end.
_END_SECONDS = 600.0


class Shared:
    """The cluster that the first job of several starts and the others use."""

    def __init__(self) -> None:
        self.id: str | None = None
        self._client: Callable[[], Any] | None = None
        self._ended: Callable[[], None] | None = None

    def note_start(
        self, cluster: str, client: Callable[[], Any], ended: Callable[[], None]
    ) -> None:
        """A job has started it; ``client`` makes a client of EMR, ``ended`` follows its end."""
        self.id, self._client, self._ended = cluster, client, ended

    def end(self) -> None:
        """Terminate it, if there is one."""
        cluster, self.id = self.id, None
        if cluster is not None and self._client is not None and self._ended is not None:
            terminate(self._client(), cluster)
            self._ended()


_shared: list[Shared] = []


def current() -> Shared | None:
    return _shared[-1] if _shared else None


@contextlib.contextmanager
def shared() -> Iterator[Shared]:
    """Run all jobs of the block on one cluster, which the first starts and which ends with them.

    Jobs for which the user has named a cluster, or a pool of them, are left alone.
    """
    holder = Shared()
    _shared.append(holder)
    try:
        yield holder
    finally:
        _shared.remove(holder)
        holder.end()


def terminate(client: Any, cluster: str) -> None:
    """End a cluster. An error is logged and not raised: it would hide an earlier one."""
    log.info("terminating the cluster %s", cluster)
    try:
        client.terminate_job_flows(JobFlowIds=[cluster])
    except Exception as error:
        log.error(
            "the cluster %s could not be terminated and may still cost money: %s. "
            "Do it with: aws emr terminate-clusters --cluster-ids %s",
            cluster,
            error,
            cluster,
        )


def wait_for_end(client: Any, cluster: str, every: float) -> None:
    """Wait until a cluster that is ending has ended, when its logs are on S3; but not forever."""
    end = time.monotonic() + _END_SECONDS
    while time.monotonic() < end:
        state = client.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]["State"]
        if state in ("TERMINATED", "TERMINATED_WITH_ERRORS"):
            return
        time.sleep(every)


def cancel(client: Any, cluster: str, mine: Callable[[dict[str, Any]], bool]) -> bool:
    """End those steps of a cluster, which goes on, that a function picks; whether there were any.

    The function gets a step as EMR describes it.
    """
    pages = client.get_paginator("list_steps").paginate(
        ClusterId=cluster, StepStates=["PENDING", "RUNNING"]
    )
    steps = [step["Id"] for page in pages for step in page["Steps"] if mine(step)]
    if steps:
        log.info("cancelling %d steps on the cluster %s", len(steps), cluster)
        client.cancel_steps(
            ClusterId=cluster, StepIds=steps, StepCancellationOption="TERMINATE_PROCESS"
        )
    return bool(steps)


def end_left_behind(run: str, cluster: str) -> list[str]:
    """End what a killed driver left of a run on EMR, its cluster or steps; returns the cluster."""
    mark = applications.mark(run)
    region = clients.default_region()
    with aws_errors(f"EMR in {region}: the cluster {cluster}, which the last driver used"):
        clients.set_up()
        client = boto3.client("emr", region_name=region)
        try:
            found = client.describe_cluster(ClusterId=cluster)["Cluster"]
        except client.exceptions.InvalidRequestException as error:
            # It is of another region, or of long ago.
            log.debug("%s: %s", code_of(error), error)
            return []
        if found["Status"]["State"] in ENDED:
            return []
        if any(tag["Key"] == TAG and tag["Value"] == mark for tag in found.get("Tags") or ()):
            client.terminate_job_flows(JobFlowIds=[cluster])
            wait_for_end(client, cluster, 2.0)
            return [cluster]
        is_cancelled = cancel(
            client,
            cluster,
            lambda step: any(mark in text for text in step["Config"].get("Args") or ()),
        )
        return [cluster] if is_cancelled else []
