"""Follows a step of a job: reads what Hadoop's client says, shows progress, ends it if asked to."""

import logging
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from mrjob.logs.step import _interpret_hadoop_jar_command_stderr

from mapreduce.runners.hadoop import failures, submissions
from mapreduce.runners.hadoop.failures import Failure
from mapreduce.runners.hadoop.programs import Program
from mapreduce.runners.hadoop.rest import RestError, Yarn

# mrjob's logger: mrjob sets up what its log shows.
log = logging.getLogger("mrjob.hadoop")

_SUBMITTED = re.compile(r"Submitted application (application_\d+_\d+)")
_FAILED = re.compile(r"Task Id *: (attempt_\d+_\d+_[mr]_\d+_\d+), Status *: FAILED")

#: Seconds between two looks at a job's progress.
_LOOK_SECONDS = 1.0

#: Seconds without an answer of the resource manager after which a job is given up, and between two
#: attempts to find out.
_LOST_SECONDS = 120.0

#: Lines of the client that are kept for a message.
_KEPT_LINES = 200


@dataclass
class Outcome:
    """How a step ended.

    Attributes
    ----------
    return_code : int
    application : str or None
    interpretation : dict
        mrjob's reading of what the client said, with the counters.
    failure : Failure or None
        Why, if it failed.
    """

    return_code: int
    application: str | None
    interpretation: dict[str, Any]
    failure: Failure | None = None


@dataclass
class Client:
    """Follows a step that a program gives to Hadoop.

    Parameters
    ----------
    yarn : Yarn
    tag : str
        The tag by which the job's applications are found again.
    what : str
        The step, for messages.
    before : Failure, optional
        Of an earlier try at the step: an attempt that fails alike is the last one.
    """

    yarn: Yarn
    tag: str
    what: str
    before: Failure | None = None
    application: str | None = None
    _said: list[str] = field(default_factory=list)
    _failures: "dict[str, Future[Failure]]" = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _over: threading.Event = field(default_factory=threading.Event)
    _final: Failure | None = None
    _program: Program | None = None

    def run(self, program: Program) -> Outcome:
        """Run the step to its end; if interrupted, end it on the cluster too.

        Parameters
        ----------
        program : Program
            The program that runs the step.
        """
        self._program = program
        looking = threading.Thread(target=self._look, name="progress", daemon=True)
        looking.start()
        try:
            found = _interpret_hadoop_jar_command_stderr(
                program.lines(), record_callback=self._heard
            )
            code = program.wait()
            failure = self._failure() if code else None
        except BaseException:
            self.kill()
            raise
        finally:
            self._over.set()
            program.close()
            looking.join(_LOOK_SECONDS)
            self._pool.shutdown(wait=False, cancel_futures=True)
        return Outcome(code, self.application, found, failure)

    def kill(self) -> None:
        """End the client, and the application on the cluster."""
        if self._program is not None:
            self._program.kill()
        try:
            # One that was just submitted is found by its tag only.
            for application in {*self.yarn.live(self.tag), *filter(None, [self.application])}:
                self.yarn.kill(application)
        except RestError as error:
            log.error(
                "%s could not be ended: %s. End it with: yarn application -kill %s",
                self.application or "the application",
                error,
                self.application or "ID",
            )

    # What the client says

    def _heard(self, record: Mapping[str, Any]) -> None:
        message = record["message"]
        if not message.startswith("Counters: "):
            log.debug("%s", message)
            self._said = [*self._said[-_KEPT_LINES:], *message.splitlines()]
        if match := _SUBMITTED.search(message):
            self.application = match[1]
            submissions.tell(match[1])
            log.info("%s: %s, %s", self.what, match[1], self._page())
        if (match := _FAILED.search(message)) and self.application:
            attempt, said = match[1], message
            if attempt not in self._failures:
                self._failures[attempt] = self._pool.submit(self._explain, attempt, said)

    def _page(self) -> str:
        return f"{self.yarn.installation.resource_managers[0]}/proxy/{self.application}/"

    def _explain(self, attempt: str, said: str) -> Failure:
        assert self.application is not None
        failure = failures.of_attempt(self.yarn, self.application, attempt, said)
        if self._final is not None:
            return failure
        # What one attempt lacks, such as a file, the others often lack too.
        level = logging.DEBUG if failure.what in self._told else logging.WARNING
        log.log(level, "an attempt failed: %s", failure)
        self._told.add(failure.what)
        if self._is_final(attempt, failure):
            self._final = failure
            self.yarn.kill(self.application)
        return failure

    def _is_final(self, attempt: str, failure: Failure) -> bool:
        """Whether trying again is of no use: it was the same exception twice."""
        if failure.final or not failure.traceback:
            return failure.final
        if self.before is not None and self.before.traceback == failure.traceback:
            return True
        task = attempt.rpartition("_")[0]
        before = [
            future.result()
            for name, future in list(self._failures.items())
            if name != attempt and name.startswith(task) and future.done()
        ]
        return any(other.traceback == failure.traceback for other in before)

    def _failure(self) -> Failure:
        """Why the job failed: the last of its failed attempts that has something to say."""
        found = [_result(future) for future in self._failures.values()]
        known = [failure for failure in found if failure is not None]
        if self._final is not None:
            return self._final
        said = "\n".join(self._said)
        if not self.application:
            return failures.not_submitted(said)
        named = re.search(r"Task failed (task_\d+_\d+_[mr]_\d+)", said)
        if named and known:
            kind = named[1].replace("task_", "attempt_")
            of_task = [
                _result(future) for name, future in self._failures.items() if name.startswith(kind)
            ]
            known = [failure for failure in of_task if failure is not None] or known
        explained = [failure for failure in known if failure.traceback]
        if explained or known:
            return (explained or known)[-1]
        return failures.of_job(self.yarn, self.application, said)

    # Progress

    def _look(self) -> None:
        """Log progress as it changes, and give up a cluster that no longer answers."""
        logged, answered = "", time.monotonic()
        while not self._over.wait(_LOOK_SECONDS):
            if self.application is None:
                answered = time.monotonic()
                continue
            try:
                text = _progress(self.yarn, self.application)
                answered = time.monotonic()
            except RestError as error:
                if time.monotonic() - answered > _LOST_SECONDS and error.status is None:
                    self._lost(error)
                    return
                continue
            if text != logged and not self._over.is_set():
                log.info("%s: %s", self.what, text)
                logged = text

    def _lost(self, error: RestError) -> None:
        self._final = Failure(
            f"the resource manager has not answered for {_LOST_SECONDS:.0f} seconds: {error}. "
            f"Look at it with 'gradreduce cluster status' or 'yarn node -list'"
        )
        if self._program is not None:
            self._program.kill()


def _result(future: "Future[Failure]") -> Failure | None:
    try:
        return future.result(timeout=15)
    except Exception:
        return None


def _progress(yarn: Yarn, application: str) -> str:
    """How far a job is, in words."""
    state = yarn.application(application)
    if state["state"] != "RUNNING":
        return str(state["state"]).lower().replace("_", " ")
    try:
        job = yarn.job(application)
    except RestError:
        return "running"
    parts = []
    for kind in ("map", "reduce"):
        total = job[f"{kind}sTotal"]
        if total:
            parts.append(f"{kind} {job[f'{kind}sCompleted']:,} of {total:,}")
    running = job.get("runningMapAttempts", 0) + job.get("runningReduceAttempts", 0)
    failed = job.get("failedMapAttempts", 0) + job.get("failedReduceAttempts", 0)
    killed = job.get("killedMapAttempts", 0) + job.get("killedReduceAttempts", 0)
    parts.append(f"{running:,} running")
    parts += [
        f"{number:,} {word}" for number, word in ((failed, "failed"), (killed, "killed")) if number
    ]
    return ", ".join(parts)
