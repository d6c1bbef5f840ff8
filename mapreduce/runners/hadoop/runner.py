"""The runner ``-r hadoop``: mrjob's, without a Java for each look at a file, and with plain errors.

It finds the Hadoop of the environment or that of ``gradreduce cluster up``, ships the toolkit once
for its content, and says of a failed task what its user needs: the exception, the traceback, the
input. All else, as scripts, files and archives beside a job, is mrjob's own machinery.
"""

import contextlib
import logging
import posixpath
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from mrjob.fs.composite import CompositeFilesystem
from mrjob.fs.local import LocalFilesystem
from mrjob.hadoop import HadoopJobRunner, _fix_env
from mrjob.parse import is_uri
from mrjob.setup import UploadDirManager

from hdfs_utils.atomic import temporary_name
from hdfs_utils.cluster import compiled
from hdfs_utils.errors import ClusterError, KerberosError, StorageError
from hdfs_utils.filesystem import user_name
from hdfs_utils.mrjob_fs import RemoteFilesystem
from hdfs_utils.paths import RemotePath, escaped, hadoop_pattern
from hdfs_utils.publish import SUCCESS, check_parts
from mapreduce.batches.parts import visible_files
from mapreduce.errors import OutputError, UsageError
from mapreduce.runners import applications
from mapreduce.runners.hadoop import history, installation, uber
from mapreduce.runners.hadoop.client import Client
from mapreduce.runners.hadoop.programs import Program, Submitter
from mapreduce.runners.hadoop.rest import RestError, Yarn
from mapreduce.runners.hadoop.waiting import AGAIN
from mapreduce.runners.yarn import shipping
from mapreduce.runners.yarn.failures import JobFailedException, meaning_of
from mapreduce.runners.yarn.on_yarn import OPTIONS, OnYarn
from mapreduce.runners.yarn.task import REPORTS
from mapreduce.support import tasks, unfinished
from mapreduce.support.commands import command, is_read, or_remove
from mapreduce.support.traits import Keeper, Step

log = logging.getLogger("mrjob.hadoop")

#: What an XML file cannot hold, or changes.
_CONTROLS = r"[\0-\x1f]"

#: What separates or ends the URIs of files that come along, or cannot be in one.
_UNFIT = r"[^\w.~!$&'()*+=@:;/-]"


class HadoopMRJobRunner(OnYarn, HadoopJobRunner):
    """Runs a job on a Hadoop cluster."""

    alias = "hadoop"

    OPT_NAMES = HadoopJobRunner.OPT_NAMES | OPTIONS | {"queue_wait", "uber"}

    _fs: Any
    _working_dir_mgr: Any
    _step_output_dir: str | None
    _hadoop_streaming_jar: str | None

    def __init__(self, mrjob_cls: type | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._mrjob_cls = mrjob_cls
        self._check_numbers()
        if (wait := self._opts["queue_wait"]) is not None and not wait >= 0:
            raise UsageError(f"--queue-wait: expected seconds, found {wait!r}")
        #: Numbers of steps that run within the application master.
        self._small: set[int] = set()
        #: Numbers of those that failed there, and so are run again.
        self._again: set[int] = set()
        self._submitter: Submitter | None = None
        self.keeper = Keeper()
        self._installation = installation.find(self._opts["hadoop_bin"] or None)
        asked = self._opts["uber"]
        self._uber = self._installation.is_local if asked is None else bool(asked)
        if self._installation.own and not self._hadoop_streaming_jar:
            self._hadoop_streaming_jar = str(self._installation.own.streaming_jar)
        self._name_places(kwargs.get("output_dir"))
        remote = self._remote.can_handle_path(self._reports)
        self._yarn = Yarn(self._installation, RemotePath(self._reports) if remote else None)

    @classmethod
    def _default_opts(cls) -> dict[str, Any]:
        ours = {"bootstrap_mrjob": False, "cleanup_on_failure": ["ALL"]}
        return {**super()._default_opts(), **ours}

    # Where everything is

    @property
    def _home(self) -> RemotePath:
        """The user's folder in the cluster's file system."""
        return RemotePath(f"hdfs:///user/{user_name()}").absolute()

    def _name_places(self, output: str | None) -> None:
        """Give folders their full names: listings have them too."""
        temporary = self._opts["hadoop_tmp_dir"]
        self._hadoop_tmp_dir = self._full(posixpath.join(temporary, self._job_key))
        self._upload_mgr = UploadDirManager(posixpath.join(self._hadoop_tmp_dir, "files", ""))
        self._output_dir = self._full(output or posixpath.join(self._hadoop_tmp_dir, "output"))
        if self._step_output_dir:
            self._step_output_dir = self._full(self._step_output_dir)

    @property
    def _reports(self) -> str:
        """The folder where failing tasks say why."""
        return posixpath.join(self._hadoop_tmp_dir, "reports")

    def _full(self, place: str) -> str:
        if not is_uri(place):
            return (self._home / place).uri
        return RemotePath(place).uri if self._remote.can_handle_path(place) else place

    @cached_property
    def _remote(self) -> RemoteFilesystem:
        return RemoteFilesystem()

    @property
    def fs(self) -> Any:
        if self._fs is None:
            self._fs = CompositeFilesystem()
            self._fs.add_fs("hadoop", self._remote)
            self._fs.add_fs("local", LocalFilesystem())
        return self._fs

    def get_hadoop_version(self) -> str:
        # Only one that is older than 2 would make a difference.
        return "3"

    def get_hadoop_bin(self) -> list[str]:
        return self._opts["hadoop_bin"] or [self._installation.program]

    def _find_binaries_and_jars(self) -> None:
        if self._has_hadoop_streaming_steps() and not self.get_hadoop_streaming_jar():
            raise ClusterError(
                f"there is no hadoop-streaming jar beside {self._installation.program}. Name it "
                f"with --hadoop-streaming-jar"
            )
        if self._has_spark_steps():
            self.get_spark_submit_bin()

    # Every try at a step writes to a folder that none had before. Seconds after its job, an
    # application master deletes _temporary in the folder of its output, whosever that is by then:
    # https://issues.apache.org/jira/browse/MAPREDUCE-7351

    @cached_property
    def _unpublished(self) -> RemotePath | None:
        """What becomes the output once it is whole; None where folders cannot be renamed."""
        if not self._remote.can_handle_path(self._output_dir):
            return None
        output = RemotePath(self._output_dir)
        return temporary_name(output) if output.can_rename else None

    def _step_input_uris(self, step_num: int) -> list[str]:
        places = super()._step_input_uris(step_num)
        return [hadoop_pattern(x) if self._remote.can_handle_path(x) else x for x in places]

    def _step_output_uri(self, step_num: int) -> str:
        if step_num in self.keeper.taken:
            return self.keeper.taken[step_num].output
        if self._unpublished is None or step_num < self._num_steps() - 1:
            return str(super()._step_output_uri(step_num))
        return self._of_this_try(step_num, str(self._unpublished))

    def _intermediate_output_dir(self, step_num: int, local: bool = False) -> str:
        if step_num in self.keeper.taken:
            return self.keeper.taken[step_num].output
        place = super()._intermediate_output_dir(step_num, local)
        return self._of_this_try(step_num, place)

    def _of_this_try(self, step_num: int, place: str) -> str:
        return f"{place}-again" if step_num in self._again else place

    def _publish(self) -> None:
        if self._unpublished is None:
            return
        written = RemotePath(self._step_output_uri(self._num_steps() - 1))
        output = RemotePath(self._output_dir)
        if not written.exists():
            is_streaming = self._get_step(self._num_steps() - 1)["type"] == "streaming"
            # A driver that was killed may have given the output its name.
            if is_streaming and not self.keeper.is_published:
                raise StorageError(f"the job succeeded, but its output {written} does not exist")
            # A step of Spark, or of a jar, may write elsewhere.
            return
        self.keeper.publishes()
        try:
            if self._is_begun:
                # Nothing was brought to the folder of this job.
                output.parent.mkdir(parents=True, exist_ok=True)
            written.rename(output)
        except FileExistsError:
            raise OutputError(
                f"the output folder {output} was made by another program while the job ran. The "
                f"job's output is whole, and waits for another name: "
                f"{command('hadoop', 'fs', '-mv', escaped(written.uri), f'{output}-2')}"
            ) from None

    def _cleanup_hadoop_tmp(self) -> None:
        log.info("Removing HDFS temp directory %s...", self._hadoop_tmp_dir)
        try:
            self.fs.rm(self._hadoop_tmp_dir)
        except StorageError as error:
            # Where HDFS refuses everything, the job's own error says why.
            log.debug("%s is left: %s", self._hadoop_tmp_dir, error)

    def _remove_partial_output(self) -> None:
        """What was not there before, and is not whole, would be in the way."""
        output = RemotePath(self._step_output_uri(self._num_steps() - 1))
        with contextlib.suppress(StorageError, FileNotFoundError):
            if self._unpublished is not None or not (output / SUCCESS).exists():
                output.rmtree()

    # Before anything starts

    @property
    def _reads(self) -> list[str]:
        return [*self._input_paths, *self._opts["upload_files"], *self._opts["upload_archives"]]

    def _check_input_paths(self) -> None:
        for path in self._input_paths:
            _check_name(path, _CONTROLS)
        for kind in ("file", "archive"):
            for name, path in self._working_dir_mgr.name_to_path(kind).items():
                _check_name(posixpath.basename(path), _UNFIT)
                _check_name(name, _UNFIT)
        _check_name(self._hadoop_tmp_dir, _UNFIT)
        # Inputs are escaped.
        _check_name(self._output_dir, rf"{_CONTROLS}|\$\{{")
        self._check_cluster()
        super()._check_input_paths()
        if not self.keeper.is_published:
            _check_is_free(RemotePath(self._output_dir), self._reads)
            self._check_may_write()

    def _check_may_write(self) -> None:
        """Make the folder of the output, and remove it: Hadoop wants to make it itself."""
        if self._unpublished is None or self._output_dir.startswith(self._hadoop_tmp_dir):
            return
        try:
            self._unpublished.mkdir(parents=True)
        except StorageError as error:
            why = meaning_of(str(error)) or error
            raise OutputError(
                f"the output folder {self._output_dir} cannot be made: {why}"
            ) from error
        self._unpublished.rmtree()

    def _check_cluster(self) -> None:
        """Raise an error if no job could run: the resource manager is away or has no nodes."""
        try:
            found = self._yarn.metrics()
        except RestError as error:
            if error.status is not None:
                # Guarded by something that we do not know: Hadoop's own client may do better.
                log.debug("%s", error)
                return
            if isinstance(error, KerberosError):
                raise
            raise ClusterError(
                f"YARN's resource manager does not answer: {error}. Is the cluster up? "
                f"'gradreduce cluster status' shows one of your own; of another, the address is "
                f"in {self._installation.conf_dir or 'HADOOP_CONF_DIR'}/yarn-site.xml"
            ) from None
        self._cores = max(1, found.get("totalVirtualCores", 1))
        if not found.get("activeNodes"):
            raise ClusterError(
                f"no node manager is active ({found.get('lostNodes', 0)} lost, "
                f"{found.get('unhealthyNodes', 0)} unhealthy): see 'yarn node -list -all'"
            )

    def _check_input_path(self, path: str) -> None:
        if not self._remote.can_handle_path(path):
            self._check_local_input(path)
            return
        self._unfinished |= unfinished.check_input(path)

    # What tasks need

    def _python_bin(self) -> list[str]:
        if self._opts["python_bin"]:
            return list(self._opts["python_bin"])
        return [sys.executable] if self._installation.is_local else ["python3"]

    def _ship(self, name: str, content: bytes) -> str:
        target = self._home / shipping.FOLDER / name
        try:
            shipping.ship(target, content)
        except StorageError as error:
            if self._has_home():
                raise
            raise StorageError(_no_home(self._home, error)) from error
        return str(target)

    def _has_home(self) -> bool:
        try:
            return bool(self._home.exists())
        except StorageError:
            # Nothing is known of it.
            return True

    def _unreadable(self, path: str) -> str:
        if is_uri(path) or self._installation.is_local:
            return ""
        return (
            f"is a file of this machine, which the nodes cannot read. Copy it to the cluster: "
            f"{command('hadoop', 'fs', '-put', path, f'{self._home}/')}"
        )

    # Steps

    def _cmdenv(self) -> dict[str, str]:
        return {REPORTS: self._reports, **super()._cmdenv()}

    def _env_for_step(self, step_num: int) -> dict[str, str]:
        return {**super()._env_for_step(step_num), **self._installation.environment}

    def _run(self) -> None:
        if (trace := tasks.current()) is not None:
            trace.job += 1
        try:
            if self._has_hadoop_streaming_steps() and not self._is_begun:
                # It starts while files are brought to the cluster.
                self._resident(_fix_env(self._env_for_step(0)))
            super()._run()
        except RestError:
            # What another driver has begun is not lost by that.
            raise
        except BaseException:
            self._remove_partial_output()
            raise
        finally:
            self._end_submitter()
        self._publish()

    @property
    def _is_begun(self) -> bool:
        """Whether a killed driver has submitted all steps."""
        return len(self.keeper.taken) == int(self._num_steps())

    def _upload_local_files(self) -> None:
        if not self._is_begun:
            super()._upload_local_files()

    def going_on(self, left: Any) -> dict[str, Any]:
        """What is to be changed in a killed driver's record, to go on with what it has begun.

        These are the first steps that have succeeded or still run, and whether their output has its
        name.

        Raises ClusterError (the resource manager does not answer), OutputError (another output has
        that name).
        """
        known = {step.application for step in left.steps}
        tagged = {
            one
            for run in left.marks
            for one in self._yarn.applications_with_tag(applications.mark(run))
        }
        # At most one application was submitted that is not on record.
        *_, last = ["", *sorted(tagged - known, key=lambda one: (len(one), one))]
        steps, ends = [], []
        for application, output in left.steps:
            ended = self._ended(application or last)
            if ended not in ("", "SUCCEEDED"):
                break
            steps.append(Step(application or last, output))
            ends.append(ended)
        is_whole = len(steps) == self._num_steps()
        named = [left.output] if left.is_published and is_whole else []
        # Of the others the output was read, and may be gone.
        while steps and ends.pop():
            if any(RemotePath(one).exists() for one in (steps[-1].output, *named)):
                break
            steps.pop()
            named = []
        written = steps[-1].output if steps else ""
        if written != left.output and not (named and not RemotePath(written).exists()):
            _check_is_free(RemotePath(left.output), self._reads)
        return {"steps": tuple(steps), "is_published": bool(named)}

    def _ended(self, application: str) -> str:
        """How an application has ended, as of :meth:`Yarn.ended`; "LOST" if nobody knows it."""
        try:
            return self._yarn.final_status(application) if application else "LOST"
        except RestError as error:
            if error.status != 404:
                raise
            return "LOST"

    def _program(self, arguments: list[str], env: dict[str, str]) -> Program:
        """The program that gives a step to Hadoop: if it can be, one for all streaming steps."""
        streaming = [*self.get_hadoop_bin(), "jar", self.get_hadoop_streaming_jar()]
        is_streaming = arguments[: len(streaming)] == streaming
        resident = self._resident(env) if is_streaming else None
        if resident is None:
            return Program(arguments, env)
        resident.submit(arguments[len(streaming) :])
        return resident

    def _resident(self, env: dict[str, str]) -> Submitter | None:
        """The Java for all streaming steps; None if each needs one of its own."""
        own = self._installation.own
        theirs = self._opts["hadoop_bin"] or self._opts["hadoop_streaming_jar"]
        if own is None or theirs or self._opts["libjars"] or not compiled.exists(own.hadoop):
            return None
        if self._submitter is None or not self._submitter.serves(env):
            self._end_submitter()
            self._submitter = Submitter(own, env)
        return self._submitter

    def _end_submitter(self) -> None:
        if self._submitter is not None:
            self._submitter.end()
            self._submitter = None

    def _run_hadoop(
        self, hadoop_args: list[str], env: dict[str, str], record_callback: Any
    ) -> tuple[int, dict[str, Any]]:
        number, steps = len(self._log_interpretations) - 1, self._num_steps()
        what = f"step {number + 1} of {steps}"
        wait = self._opts["queue_wait"]
        client = Client(self._yarn, self._tag, what, hadoop_args, env, wait)
        if number in self.keeper.taken:
            outcome = client.follow(self.keeper.taken[number].application)
        else:
            self.keeper.begins(number, self._step_output_uri(number))
            outcome = client.run(self._program(hadoop_args, env))
        failure = outcome.failure
        if number in self._small and failure and outcome.application and not failure.final:
            # Hadoop's uber mode tries nothing twice.
            log.warning("%s failed within the application master: %s", what, failure.what)
            log.warning("%s is run again, with tasks of its own", what)
            self._uber = False
            RemotePath(self._step_output_uri(number)).rmtree()
            self.keeper.taken.pop(number, None)
            self._again.add(number)
            self.keeper.begins(number, self._step_output_uri(number))
            program = self._program(self._args_for_step(number), env)
            outcome = Client(self._yarn, self._tag, what, queue_wait=wait).run(program)
        if (trace := tasks.current()) is not None and outcome.application and not outcome.failure:
            history.note_tasks(trace, self._yarn, outcome.application, number)
        if outcome.failure is not None:
            self._log_counters({"step": outcome.interpretation}, number)
            has_run = outcome.application and outcome.failure.exit_code != AGAIN
            logs = f"gradreduce logs {outcome.application}" if has_run else None
            raise JobFailedException(outcome.failure, number, steps, logs)
        return outcome.return_code, outcome.interpretation

    # Small steps

    def _for_its_size(self, step_num: int, given: dict[str, Any]) -> dict[str, Any]:
        if not (self._uber and uber.leaves_tasks_to_us(given) and self._is_small(step_num)):
            return {}
        self._small.add(step_num)
        return uber.properties(self._installation)

    def _is_small(self, step_num: int) -> bool:
        """Whether a step reads one file of few bytes, by lines."""
        if self._unpublished is None:
            # Nor could a second try write elsewhere.
            return False
        by_lines = not self._get_step(step_num).get("input_manifest") and (
            step_num > 0 or not (self._references or self._hadoop_input_format)
        )
        places = super()._step_input_uris(step_num)
        known = all(self._remote.can_handle_path(place) for place in places)
        if not (by_lines and known) or self._opts["libjars"]:
            return False
        sizes = [size for place in places for _, size in visible_files(place)]
        return len(sizes) == 1 and sizes[0] <= uber.BYTES

    def _read_logs(self) -> bool:
        # What mrjob would look for in logs, we know already.
        return False

    def cat_output(self) -> Iterator[bytes]:
        if self._output_dir and self._ran_job:
            # A cluster may be told to set no mark; that the job succeeded, YARN has said.
            check_parts(RemotePath(self._output_dir))
        yield from super().cat_output()


def _check_name(path: str, signs: str) -> None:
    if match := re.search(signs, path):
        raise UsageError(
            f"{path!r} holds {match[0]!r}, which the configuration of a job on Hadoop does not "
            f"keep. Expected a path without it"
        )


def _check_is_free(output: RemotePath, reads: list[str]) -> None:
    if output.exists():
        state = "is also the input" if is_read(output, reads) else "exists"
        raise OutputError(
            f"the output folder {output} {state}. Name another with -o"
            f"{or_remove(output, reads, 'hadoop', 'fs', '-rm', '-r')}"
        )


def _no_home(home: RemotePath, error: StorageError) -> str:
    path, user = f"/user/{home.name}", home.name
    return (
        f"{error}\nThe user {user} has no folder {home}, where code and temporary files go. Ask "
        f"whoever runs the cluster for it: hadoop fs -mkdir -p {path}; hadoop fs -chown {user} "
        f"{path}. HADOOP_USER_NAME names another user, where there is no Kerberos"
    )
