"""The REST interfaces of YARN and its jobs: resource manager, master, history, nodes."""

import contextlib
import json
import logging
import socket
import urllib.error
from collections.abc import Iterator
from typing import Any

from hdfs_utils import web
from hdfs_utils.errors import ClusterError, KerberosError, StorageError, TicketError
from hdfs_utils.filesystem import is_secure, refused, user_name
from hdfs_utils.paths import RemotePath
from mapreduce.runners.hadoop import programs
from mapreduce.runners.hadoop.installation import Installation
from mapreduce.runners.yarn.bootstrap import MARK

log = logging.getLogger("mrjob.hadoop")

#: Seconds that a server may take to answer.
SECONDS = 5.0

#: Bytes of a container's log that are fetched: its end.
LOG_BYTES = 1 << 18

_LIVE = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"


#: The status of a web server that does not answer, of a resource manager that else does.
GUARDED = 0


class RestError(ClusterError):
    """A server did not answer, or with an error, whose HTTP status it has then."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class RefusedError(KerberosError, RestError):
    """A server asks for a proof of the user's ticket, and there is none for it."""


@contextlib.contextmanager
def _else(error: RestError) -> Iterator[None]:
    """Do by Hadoop's own programs, which have other ways, what the web server has refused."""
    if error.status in (None, 404):
        raise error
    log.debug("%s", error)
    try:
        yield
    except ClusterError as other:
        if isinstance(error, KerberosError):
            raise error from None
        raise RestError(f"{error}; {other}", error.status) from None


class Yarn:
    """The REST interfaces of a cluster.

    What concerns applications is asked by Hadoop's own programs where its web servers refuse it.
    """

    def __init__(self, installation: Installation, reports: RemotePath | None = None) -> None:
        """``reports`` is the folder where a job's failing tasks leave theirs."""
        self.installation = installation
        self._reports = reports

    # The resource manager

    def _manager(self, path: str, **options: Any) -> Any:
        *others, last = self.installation.resource_managers
        for place in others:
            try:
                return self._call(f"{place}/{path}", **options)
            except RestError as error:
                if error.status in (401, 403, 404):
                    raise
        try:
            return self._call(f"{last}/{path}", **options)
        except RestError as error:
            is_silent = error.status is None and not isinstance(error, KerberosError)
            if is_silent and self._listens():
                raise RestError(str(error), GUARDED) from None
            raise

    def _listens(self) -> bool:
        """Whether the resource manager takes calls of Hadoop's own programs."""
        for host, port in self.installation.resource_manager_calls:
            with contextlib.suppress(OSError):
                socket.create_connection((host, port), SECONDS).close()
                return True
        return False

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
        try:
            return self.described(application)
        except RestError as error:
            with _else(error):
                return programs.application(self.installation, application)

    def described(self, application: str) -> dict[str, Any]:
        """An application with all that the resource manager's web server alone tells of it."""
        return dict(self._manager(f"ws/v1/cluster/apps/{application}")["app"])

    def final_status(self, application: str) -> str:
        """How an application has ended, as ``SUCCEEDED``; "" if it waits or runs."""
        try:
            found = self.application(application)["finalStatus"]
        except RestError as error:
            if error.status != 404:
                raise
            # The resource manager has forgotten it.
            found = self.job(application)["state"]
        return "" if found == "UNDEFINED" else str(found)

    def applications_with_tag(self, tag: str, states: str = "") -> list[str]:
        """Applications with a tag, in some states or in any."""
        query = f"applicationTags={tag.lower()}{f'&states={states}' * bool(states)}"
        try:
            return self._applications(query)
        except RestError as error:
            with _else(error):
                return programs.applications(self.installation, tag.lower(), states or "ALL")

    def live(self, tag: str) -> list[str]:
        """Applications with a tag that wait or run."""
        return self.applications_with_tag(tag, _LIVE)

    def live_of(self, user: str) -> list[str]:
        """Applications of a user that wait or run."""
        return self._applications(f"user={user}&states={_LIVE}")

    def _applications(self, query: str) -> list[str]:
        found = (self._manager(f"ws/v1/cluster/apps?{query}").get("apps") or {}).get("app") or []
        return [entry["id"] for entry in found]

    def kill(self, application: str) -> None:
        """End an application, if it has not ended."""
        path = f"ws/v1/cluster/apps/{application}/state?user.name={user_name()}"
        try:
            self._manager(path, method="PUT", body={"state": "KILLED"})
        except RestError as error:
            with _else(error):
                programs.kill(self.installation, application)

    # The application master, and the history of jobs that have ended

    def job(self, application: str) -> dict[str, Any]:
        """Progress and numbers of tasks and attempts."""
        return dict(self._of_job(application, "")["job"])

    def tasks(self, application: str) -> list[dict[str, Any]]:
        """All tasks of the job."""
        return list((self._of_job(application, "/tasks").get("tasks") or {}).get("task") or [])

    def attempts(self, application: str, task: str) -> list[dict[str, Any]]:
        found = self._of_job(application, f"/tasks/{task}/attempts")
        return list((found.get("taskAttempts") or {}).get("taskAttempt") or [])

    def attempt(self, application: str, attempt: str) -> dict[str, Any]:
        """An attempt: state, node, container and diagnostics."""
        task = attempt.replace("attempt_", "task_").rpartition("_")[0]
        return dict(self._of_job(application, f"/tasks/{task}/attempts/{attempt}")["taskAttempt"])

    def counters(self, application: str, task: str) -> dict[str, Any]:
        """The groups of a task's counters."""
        found = self._of_job(application, f"/tasks/{task}/counters")
        return dict(found["jobTaskCounters"])

    def _of_job(self, application: str, path: str) -> Any:
        job = application.replace("application_", "job_")
        with contextlib.suppress(RestError):
            # The proxy sends those who ask for a job that has ended to a page of the history.
            return self._manager(f"proxy/{application}/ws/v1/mapreduce/jobs/{job}{path}")
        place = self.installation.history_server
        return self._call(f"{place}/ws/v1/history/mapreduce/jobs/{job}{path}")

    def node(self) -> dict[str, Any]:
        """What a node that runs containers says of itself; empty if there is none."""
        for node in self.nodes()[:1]:
            url = self.installation.node_url(node["nodeHTTPAddress"])
            return dict(self._call(f"{url}/ws/v1/node/info")["nodeInfo"])
        return {}

    def history(self) -> dict[str, Any]:
        """What the history server says of itself."""
        place = self.installation.history_server
        return dict(self._call(f"{place}/ws/v1/history/info")["historyInfo"])

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
            places.insert(0, f"{self.installation.node_url(node)}/ws/v1/node")
        for place in places:
            with contextlib.suppress(RestError):
                return self._text(f"{place}/containers/{container}/logs/{name}?size=-{LOG_BYTES}")
        return None

    def report(self, attempt: str) -> str | None:
        """What a failing task has left in the job's folder, as its log would have it."""
        if self._reports is None:
            return None
        with contextlib.suppress(OSError, StorageError):
            return f"{MARK}{(self._reports / attempt).read_bytes().decode('utf-8', 'replace')}"
        return None

    # Requests

    def _call(self, url: str, method: str = "GET", body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        answer = self._open(url, method, content)
        with contextlib.suppress(ValueError):
            found = json.loads(answer)
            if isinstance(found, dict):
                return found
        # A page for people, from where a proxy has sent us.
        raise RestError(f"{url}: expected JSON, found {answer[:60]!r}", 200)

    def _text(self, url: str) -> str:
        text = self._open(url, "GET", None).decode("utf-8", "replace")
        # The nodes put lines of their own around a log.
        if "LogContents:\n" in text:
            text = text.partition("LogContents:\n")[2].partition("\nEnd of LogType:")[0]
        return text

    def _open(self, url: str, method: str, content: bytes | None) -> bytes:
        # YARN wants the second header if it guards against forged requests.
        headers = {"Accept": "application/json, text/plain", "X-XSRF-HEADER": "gradreduce"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        trusted = self.installation.certificate
        try:
            with web.ask(url, SECONDS, method, content, headers, trusted) as response:
                return bytes(response.read())
        except KerberosError as error:
            # On a secure cluster, Hadoop's own programs would try for a minute with such a ticket.
            status = None if isinstance(error, TicketError) and is_secure() else 401
            raise RefusedError(f"{url}: {refused(error)}", status) from error
        except urllib.error.HTTPError as error:
            with error:
                raise RestError(f"{url}: HTTP {error.code} {error.reason}", error.code) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RestError(f"{url} does not answer: {reason}") from None
