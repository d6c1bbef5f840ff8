"""Follows a step of a job: reads what Hadoop's client says, and ends the step if asked to."""

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mrjob.logs.step import _interpret_hadoop_jar_command_stderr

from mapreduce.runners import applications
from mapreduce.runners.hadoop import causes, waiting
from mapreduce.runners.hadoop.programs import Program, counters, refusal
from mapreduce.runners.hadoop.rest import RestError, Yarn
from mapreduce.runners.yarn.failures import Failure
from mapreduce.support.periodic import every

# mrjob's logger: mrjob sets up what its log shows.
log = logging.getLogger("mrjob.hadoop")

_SUBMITTED = re.compile(r"Submitted application (application_\d+_\d+)")
_PROGRESS = re.compile(r"map \d+% reduce \d+%")
_FAILED = re.compile(r"Task Id *: (attempt_\d+_\d+_[mr]_\d+_\d+), Status *: FAILED")

#: Seconds for which the resource manager may be silent while an application is followed.
_SILENT_SECONDS = 60.0

#: Lines of the client that are kept for a message.
_KEPT_LINES = 200


@dataclass
class Outcome:
    """How a step ended; ``interpretation`` is mrjob's reading of what the client said."""

    return_code: int
    application: str | None
    interpretation: dict[str, Any]
    failure: Failure | None = None


@dataclass
class Client:
    """Follows a step that a program gives to Hadoop.

    By the ``tag`` the job's applications are found again. ``arguments`` and ``environment`` are the
    program of its own that would give the step to Hadoop, to ask it why it did not. An application
    may wait ``queue_wait`` seconds for room; None for as long as it takes.
    """

    yarn: Yarn
    tag: str
    what: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    queue_wait: float | None = None
    application: str | None = None
    _said: list[str] = field(default_factory=list)
    _failures: dict[str, Failure] = field(default_factory=dict)
    #: That the application found no room in time.
    _final: Failure | None = None

    def run(self, program: Program) -> Outcome:
        """Run the step to its end; if interrupted, end it on the cluster too."""
        queue = waiting.Queue(self.yarn, self.what, self.queue_wait)
        try:
            with every(waiting.SECONDS, lambda: self._look(queue, program), "queue"):
                found = _interpret_hadoop_jar_command_stderr(
                    program.lines(), record_callback=self._heard
                )
            code = program.wait()
            failure = self._failure() if code else None
        except BaseException:
            program.kill()
            self._kill()
            raise
        finally:
            program.close()
        return Outcome(code, self.application, found, failure)

    def follow(self, application: str) -> Outcome:
        """Follow an application that another driver has submitted, as :meth:`run` does.

        Raises RestError (the resource manager does not answer; the application is left as it is).
        """
        self.application = application
        applications.tell(application)
        log.info("%s: %s, of a driver that was killed", self.what, application)
        queue = waiting.Queue(self.yarn, self.what, self.queue_wait)
        ended, answered = "", time.monotonic()
        try:
            while not ended:
                try:
                    ended, answered = self.yarn.final_status(application), time.monotonic()
                except RestError as error:
                    if error.status == 404:
                        ended = "LOST"
                    elif time.monotonic() - answered > _SILENT_SECONDS:
                        raise
                self._look(queue)
                time.sleep(0 if ended else waiting.SECONDS)
        except RestError:
            # It may go on, and can be followed again.
            raise
        except BaseException:
            self._kill()
            raise
        found = {"application_id": application, "counters": {}}
        if ended != "SUCCEEDED":
            failure = causes.of_job(self.yarn, application, f"failed with state {ended}")
            return Outcome(1, application, found, self._final or failure)
        found["counters"] = counters(self.yarn.installation, application)
        return Outcome(0, application, found)

    def _look(self, queue: waiting.Queue, program: Program | None = None) -> None:
        if self._final is None:
            self._final = queue.look(self.application)
            if self._final is not None:
                self._kill()
                if program is not None:
                    program.kill()

    def _kill(self) -> None:
        """End the application on the cluster."""
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

    def _heard(self, record: Mapping[str, Any]) -> None:
        message = record["message"]
        if not message.startswith("Counters: "):
            log.debug("%s", message)
            self._said = [*self._said[-_KEPT_LINES:], *message.splitlines()]
        if match := _SUBMITTED.search(message):
            self.application = match[1]
            applications.tell(match[1])
            page = f"{self.yarn.installation.resource_managers[0]}/proxy/{match[1]}/"
            log.info("%s: %s, %s", self.what, match[1], page)
        elif match := _PROGRESS.search(message):
            log.info("%s: %s", self.what, match[0])
        elif (match := _FAILED.search(message)) and match[1] not in self._failures:
            self._explain(match[1], message)

    def _explain(self, attempt: str, said: str) -> None:
        if self.application is None:
            return
        failure = causes.of_attempt(self.yarn, self.application, attempt, said)
        # What one attempt lacks, such as a file, the others often lack too.
        told = {other.what for other in self._failures.values()}
        level = logging.DEBUG if failure.what in told else logging.WARNING
        log.log(level, "an attempt failed: %s", failure)
        self._failures[attempt] = failure

    def _failure(self) -> Failure:
        """Why the job failed: the last of its failed attempts that has something to say."""
        if self._final is not None:
            return self._final
        said = "\n".join(self._said)
        if not self.application:
            if self.arguments and not re.search(r"Exception|ERROR", said):
                said = refusal(self.arguments, self.environment) or said
            return causes.not_submitted(said, self.arguments)
        named = re.search(r"Task failed task_(\d+_\d+_[mr]_\d+)", said)
        known = [
            failure
            for attempt, failure in self._failures.items()
            if named and attempt.startswith(f"attempt_{named[1]}_")
        ] or list(self._failures.values())
        # What failed before is not why, if YARN has forgotten the job.
        if not known or "Unknown Job job_" in said:
            return causes.of_job(self.yarn, self.application, said, self.arguments)
        return next((failure for failure in reversed(known) if failure.traceback), known[-1])
