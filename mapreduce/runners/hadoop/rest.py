"""The REST interfaces of YARN and its jobs: resource manager, master, history, nodes."""

import contextlib
import json
import urllib.error
import urllib.request
from typing import Any

from hdfs_utils.errors import ClusterError
from hdfs_utils.filesystem import user_name
from mapreduce.runners.hadoop.installation import Installation

#: Seconds that a server may take to answer.
SECONDS = 5.0

#: Bytes of a container's log that are fetched: its end.
LOG_BYTES = 1 << 18

_LIVE = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"

#: The nodes' names may be known to a proxy, but it would not reach them.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class RestError(ClusterError):
    """A server did not answer, or with an error, whose HTTP status it has then."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Yarn:
    """The REST interfaces of a cluster."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation

    # The resource manager

    def _manager(self, path: str, **options: Any) -> Any:
        *others, last = self.installation.resource_managers
        for place in others:
            try:
                return _call(f"{place}/{path}", **options)
            except RestError as error:
                if error.status in (401, 403, 404):
                    raise
        return _call(f"{last}/{path}", **options)

    def metrics(self) -> dict[str, Any]:
        """Nodes, memory and cores of the cluster."""
        return dict(self._manager("ws/v1/cluster/metrics")["clusterMetrics"])

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that run containers, with their free memory and cores."""
        found = (self._manager("ws/v1/cluster/nodes?states=RUNNING").get("nodes") or {}).get("node")
        return list(found or [])

    def queue(self, name: str) -> dict[str, Any]:
        """A leaf queue of the capacity scheduler, by its name or path; empty if it has none."""
        waiting = [self._manager("ws/v1/cluster/scheduler")["scheduler"]["schedulerInfo"]]
        while waiting:
            found = waiting.pop()
            below = (found.get("queues") or {}).get("queue") or []
            if not below and name in (found.get("queueName"), found.get("queuePath")):
                return dict(found)
            waiting += below
        return {}

    def application(self, application: str) -> dict[str, Any]:
        """State, progress and diagnostics of an application."""
        return dict(self._manager(f"ws/v1/cluster/apps/{application}")["app"])

    def live(self, tag: str) -> list[str]:
        """Applications with a tag that wait or run."""
        query = f"ws/v1/cluster/apps?applicationTags={tag.lower()}&states={_LIVE}"
        found = (self._manager(query).get("apps") or {}).get("app") or []
        return [entry["id"] for entry in found]

    def kill(self, application: str) -> None:
        """End an application, if it has not ended."""
        path = f"ws/v1/cluster/apps/{application}/state?user.name={user_name()}"
        self._manager(path, method="PUT", body={"state": "KILLED"})

    # The application master, and the history of jobs that have ended

    def job(self, application: str) -> dict[str, Any]:
        """Progress and numbers of tasks and attempts."""
        return dict(self._of_job(application, "")["job"])

    def tasks(self, application: str) -> list[dict[str, Any]]:
        """All tasks of the job."""
        return list((self._of_job(application, "/tasks").get("tasks") or {}).get("task") or [])

    def attempts(self, application: str, task: str) -> list[dict[str, Any]]:
        """All attempts of a task."""
        found = self._of_job(application, f"/tasks/{task}/attempts")
        return list((found.get("taskAttempts") or {}).get("taskAttempt") or [])

    def attempt(self, application: str, attempt: str) -> dict[str, Any]:
        """An attempt: state, node, container and diagnostics."""
        task = attempt.replace("attempt_", "task_").rpartition("_")[0]
        return dict(self._of_job(application, f"/tasks/{task}/attempts/{attempt}")["taskAttempt"])

    def _of_job(self, application: str, path: str) -> Any:
        job = application.replace("application_", "job_")
        with contextlib.suppress(RestError):
            # The proxy sends those who ask for a job that has ended to a page of the history.
            found = self._manager(f"proxy/{application}/ws/v1/mapreduce/jobs/{job}{path}")
            if isinstance(found, dict):
                return found
        place = self.installation.history_server
        return _call(f"{place}/ws/v1/history/mapreduce/jobs/{job}{path}")

    # Logs

    def log(self, container: str, node: str, name: str = "stderr") -> str | None:
        """The end of a container's log, from its node or from the history; None if it is gone.

        ``node`` is the host and port of the node's web server; a log is ``stderr``, ``stdout`` or
        ``syslog``.
        """
        own = self.installation.own
        if own is not None:
            for file in (own.logs / "containers").glob(f"*/*/{container}/{name}"):
                with contextlib.suppress(OSError):
                    return file.read_bytes()[-LOG_BYTES:].decode("utf-8", "replace")
        places = [f"{self.installation.history_server}/ws/v1/history"]
        if node:
            places.insert(0, f"http://{self.installation.reachable(node)}/ws/v1/node")
        for place in places:
            with contextlib.suppress(RestError):
                return _text(f"{place}/containers/{container}/logs/{name}?size=-{LOG_BYTES}")
        return None


def _call(url: str, method: str = "GET", body: Any = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    answer = _open(url, method, content)
    try:
        return json.loads(answer)
    except ValueError:
        # A page for people, from where a proxy has sent us.
        return None


def _text(url: str) -> str:
    text = _open(url, "GET", None).decode("utf-8", "replace")
    # The nodes put lines of their own around a log.
    if "LogContents:\n" in text:
        text = text.partition("LogContents:\n")[2].partition("\nEnd of LogType:")[0]
    return text


def _open(url: str, method: str, content: bytes | None) -> bytes:
    # YARN wants the second header if it guards against forged requests.
    headers = {"Accept": "application/json, text/plain", "X-XSRF-HEADER": "gradreduce"}
    if content is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, content, headers, method=method)  # noqa: S310
    try:
        with _opener.open(request, timeout=SECONDS) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        with error:
            raise RestError(f"{url}: HTTP {error.code} {error.reason}", error.code) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RestError(f"{url} does not answer: {reason}") from None
