"""The runner ``-r emr``: mrjob's, with current defaults, and a question before a cluster starts.

A cluster is started for the job, or for all jobs of a training, and ends with it; or one is used
that the user names, or that a pool has. The toolkit is shipped once for its content.
"""

import logging
import os
import posixpath
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from mrjob.emr import EMRJobRunner
from mrjob.fs.composite import CompositeFilesystem
from mrjob.fs.local import LocalFilesystem
from mrjob.fs.s3 import _endpoint_url
from mrjob.parse import is_s3_uri, parse_s3_uri

from hdfs_utils.errors import ClusterError, IncompleteOutputError
from hdfs_utils.publish import SUCCESS
from mapreduce.errors import MissingInputError, OutputError, UsageError
from mapreduce.runners.emr import checks, clients, clusters, logs
from mapreduce.runners.emr.clients import FEW, MANY, S3
from mapreduce.runners.emr.errors import ClientError, aws_errors, code_of, s3_errors
from mapreduce.runners.hadoop import packing, submissions
from mapreduce.runners.hadoop.failures import Failure, JobFailedException
from mapreduce.runners.hadoop.on_yarn import OPTIONS, OnYarn
from mapreduce.support.suggest import missing

log = logging.getLogger("mrjob.emr")

#: Steps of a job that a cluster is given at a time; EMR takes 256 that have not ended.
_MOST_STEPS = 200

#: Seconds to wait for the logs of a cluster that goes on; EMR copies them every five minutes.
_LOG_SECONDS = 420.0

#: Cores of the instances that are started by default, which have no other.
_CORES = 4


class EmrMRJobRunner(OnYarn, EMRJobRunner):
    """Runs a job on Amazon EMR."""

    OPT_NAMES = EMRJobRunner.OPT_NAMES | OPTIONS | {"yes"}

    _fs: Any
    _cluster_id: str | None
    _created_cluster: bool
    _step_ids: list[str]
    _log_interpretations: list[dict[str, Any]]

    def __init__(self, mrjob_cls: type | None = None, **kwargs: Any) -> None:
        self._mrjob_cls = mrjob_cls
        self._shared: clusters.Shared | None = None
        self._clients: dict[tuple[str, int], Any] = {}
        output = kwargs.get("output_dir")
        if output and not is_s3_uri(output):
            raise UsageError(f"-o {output}: the runner emr writes to S3: expected s3://BUCKET/...")
        super().__init__(**kwargs)
        self._check_numbers()
        if not (self._opts["cluster_id"] or self._opts["pool_clusters"]):
            self._shared = clusters.current()
            self._cluster_id = self._shared.id if self._shared else None
        workers = self._num_instances("CORE") + self._num_instances("TASK")
        self._cores = _CORES * max(1, workers)

    @classmethod
    def _default_opts(cls) -> dict[str, Any]:
        ours = {
            "add_steps_in_batch": True,
            "applications": ["Hadoop"],
            "bootstrap_mrjob": False,
            "check_cluster_every": 10,
            # S3 has been consistent since 2020.
            "cloud_fs_sync_secs": 0,
            "iam_instance_profile": "EMR_EC2_DefaultRole",
            "iam_service_role": "EMR_DefaultRole",
            "image_version": checks.RELEASE,
            "region": clients.default_region(),
        }
        return {**super()._default_opts(), **ours}

    # Clients

    @property
    def fs(self) -> Any:
        if self._fs is None:
            self._fs = CompositeFilesystem()
            s3 = S3(
                aws_access_key_id=self._opts["aws_access_key_id"],
                aws_secret_access_key=self._opts["aws_secret_access_key"],
                aws_session_token=self._opts["aws_session_token"],
                s3_endpoint=self._opts["s3_endpoint"],
                s3_region=self._opts["region"],
                part_size=self._upload_part_size(),
            )
            self._fs.add_fs("s3", s3)
            self._fs.add_fs("local", LocalFilesystem())
        return self._fs

    def _client(self, service: str, attempts: int = MANY) -> Any:
        """A client of a service, made once: that takes a while."""
        key = service, attempts
        if key not in self._clients:
            self._clients[key] = self._make_client(service, attempts)
        return self._clients[key]

    def _make_client(self, service: str, attempts: int) -> Any:
        return clients.client(
            service,
            attempts,
            aws_access_key_id=self._opts["aws_access_key_id"],
            aws_secret_access_key=self._opts["aws_secret_access_key"],
            aws_session_token=self._opts["aws_session_token"],
            endpoint_url=_endpoint_url(self._opts[f"{service}_endpoint"]),
            region_name=self._opts["region"],
        )

    def make_emr_client(self) -> Any:
        return self._client("emr")

    def make_ec2_client(self) -> Any:
        return self._client("ec2")

    def make_iam_client(self) -> Any:
        return self._client("iam")

    @property
    def _s3(self) -> Any:
        return self.fs.s3.make_s3_client()

    @property
    def _where(self) -> str:
        return f"EMR in {self._opts['region']}"

    # Before anything starts

    def _fix_s3_tmp_and_log_uri_opts(self) -> None:
        clients.check_region(self._opts["region"])
        for name in ("cloud_tmp_dir", "cloud_log_dir"):
            if self._opts[name] and not is_s3_uri(self._opts[name]):
                flag = name.replace("_", "-")
                raise UsageError(
                    f"--{flag} {self._opts[name]}: expected s3://BUCKET/..., a place on S3"
                )
        with aws_errors("S3: the list of buckets, to find one for temporary files"):
            super()._fix_s3_tmp_and_log_uri_opts()

    def _check_input_paths(self) -> None:
        with aws_errors(self._where):
            client = self._client("emr", FEW)
            if self._cluster_id:
                client.describe_cluster(ClusterId=self._cluster_id)
            else:
                own_python = bool(self._opts["python_bin"])
                checks.check_release(client, self._opts["release_label"], own_python)
        super()._check_input_paths()
        with s3_errors(self._output_dir):
            if not self._output_dir.startswith(self._cloud_tmp_dir):
                checks.require_bucket(self._s3, "the output", self._output_dir, OutputError)
            if self.fs.exists(self._output_dir):
                raise OutputError(
                    f"the output folder {self._output_dir} exists. Name another with -o, or "
                    f"remove it first: aws s3 rm --recursive {self._output_dir}"
                )

    def _check_input_path(self, path: str) -> None:
        if not is_s3_uri(path):
            self._check_local_input(path)
            return
        with s3_errors(path):
            checks.require_bucket(self._s3, "the input", path, MissingInputError)
            found = [uri for uri, _ in self.fs.s3._ls(path)]
            if not found:
                said = missing(path, partial(checks.names_in, self._s3))
                raise MissingInputError(f"the input {path} {said}")
        checks.require_success(path, found)
        super()._check_input_path(path)

    def _confirm(self) -> None:
        """Ask whether a cluster is to start, which costs money.

        Raises
        ------
        UsageError
            The answer is no, or nobody is there to answer.
        """
        how_long = "until the job ends"
        if self._shared is not None:
            how_long = "until the training ends"
        elif self._opts["pool_clusters"]:
            how_long = f"until it was idle for {self._opts['max_mins_idle']:g} minutes"
        groups = [] if self._opts["instance_fleets"] else self._instance_groups()
        instances = [f"{one['InstanceCount']} {one['InstanceType']}" for one in groups]
        what = (
            f"This starts a cluster of Amazon EMR in {self._opts['region']}, "
            f"{self._opts['release_label']}, {how_long}: "
            f"{', '.join(instances) or 'the configured instance fleets'}. It costs money: see "
            f"https://aws.amazon.com/emr/pricing\n"
        )
        if self._opts["yes"]:
            sys.stderr.write(what)
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(
                f"{what}Nothing was started, since nobody can be asked here: say --yes to start it"
            )
        sys.stderr.write(f"{what}Start it? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError("the cluster was not confirmed: nothing was started")

    # What tasks need

    def _python_bin(self) -> list[str]:
        return list(self._opts["python_bin"] or [f"python3.{sys.version_info.minor}"])

    def _bootstrap_python(self) -> list[list[str]]:
        """Commands that bring a node the Python of this process, and packages if none are packed.

        Amazon Linux 2023 calls its packages as the programs.
        """
        if self._opts["python_bin"] or self._opts["bootstrap_python"] is False:
            return []
        python = f"python3.{sys.version_info.minor}"
        if self._opts["packed"]:
            return [[f"sudo dnf install -y -q {python}"]]
        wanted = " ".join(packing.pinned())
        return [
            [f"sudo dnf install -y -q {python} {python}-pip"],
            [f"sudo {python} -m pip install -q {wanted}"],
        ]

    def _cmdenv(self) -> dict[str, str]:
        passed = {"AWS_REGION": self._opts["region"]}
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            if os.environ.get(name):
                passed[name] = os.environ[name]
        if self._opts["s3_endpoint"]:
            passed["AWS_ENDPOINT_URL_S3"] = _endpoint_url(self._opts["s3_endpoint"])
        return {**passed, **super()._cmdenv()}

    def _ship(self, kind: str, name: str, content: bytes) -> str:
        uri = f"{self._opts['cloud_tmp_dir']}gradreduce/{kind}/{name}"
        bucket, key = parse_s3_uri(uri)
        client = self.fs.s3.make_s3_client()
        with s3_errors(uri):
            self.fs.mkdir(uri)
            try:
                there = client.head_object(Bucket=bucket, Key=key)["ContentLength"]
            except ClientError as error:
                if code_of(error) not in ("404", "NoSuchKey"):
                    raise
                there = None
            if there != len(content):
                client.put_object(Bucket=bucket, Key=key, Body=content)
        return uri

    def _unreadable(self, path: str) -> str:
        if is_s3_uri(path):
            return ""
        return f"is not on S3, where the nodes could read it: aws s3 cp {path} s3://..."

    # The cluster

    def _cluster_kwargs(self, persistent: bool = False) -> dict[str, Any]:
        request: dict[str, Any] = super()._cluster_kwargs(persistent)
        # mrjob's way of ending idle clusters is older than EMR's own.
        request["BootstrapActions"] = [
            action for action in request["BootstrapActions"] if action["Name"] != "idle timeout"
        ]
        if persistent or self._is_kept:
            request["Instances"]["KeepJobFlowAliveWhenNoSteps"] = True
            seconds = int(self._opts["max_mins_idle"] * 60)
            policy = {"IdleTimeout": min(max(seconds, 60), 7 * 86400)}
            request.setdefault("AutoTerminationPolicy", policy)
        return request

    @property
    def _is_kept(self) -> bool:
        """Whether a cluster that is started waits for more steps than those that it is given."""
        # With the one that sets up the master node. More are added while the first ones run, and a
        # cluster that is through with those may not end meanwhile.
        at_once = self._add_steps_in_batch() and self._num_steps() < _MOST_STEPS
        return bool(self._shared or self._opts["pool_clusters"] or not at_once)

    @property
    def _is_own(self) -> bool:
        """Whether the cluster ends with the job."""
        return self._created_cluster and not self._shared and not self._opts["pool_clusters"]

    def _action_on_failure(self) -> str:
        if self._shared and not self._opts["emr_action_on_failure"]:
            return "CANCEL_AND_WAIT"
        return str(super()._action_on_failure())

    def _launch(self) -> None:
        if not self._cluster_id and not self._opts["pool_clusters"]:
            self._confirm()
        super()._launch()

    def _create_cluster(self, persistent: bool = False) -> str:
        if self._opts["pool_clusters"]:
            # Only now it is known that none of the pool is free.
            self._confirm()
        for mark in submissions.marks():
            self._opts["tags"] = {**self._opts["tags"], clusters.TAG: mark}
        return str(super()._create_cluster(persistent))

    def _add_tags(self, tags: dict[str, str], cluster_id: str) -> None:
        # The cluster is reported at once: from here on it is known, and will be ended.
        self._cluster_id, self._created_cluster = cluster_id, True
        if self._shared:
            self._shared.started(cluster_id, self.make_emr_client)
        submissions.tell(cluster_id)
        super()._add_tags(tags, cluster_id)

    def _add_steps_to_cluster(self, steps: list[dict[str, Any]]) -> None:
        super()._add_steps_to_cluster(steps[:_MOST_STEPS])

    def _run(self) -> None:
        try:
            with aws_errors(self._where):
                super()._run()
        except BaseException:
            if self._cluster_id and not self._is_own:
                clusters.cancel(self.make_emr_client(), self._cluster_id, self._unfinished())
            raise

    def _unfinished(self) -> list[str]:
        """The job's steps on the cluster, also those of a request that was interrupted."""
        try:
            return [
                step["Id"]
                for step in clusters.unfinished(self.make_emr_client(), str(self._cluster_id))
                if step["Name"].startswith(self._job_key)
            ]
        except Exception as error:
            # It is an error already that has brought us here.
            log.debug("%s", error)
            return self._step_ids

    def cleanup(self, mode: Any = None) -> None:
        cluster, own = self._cluster_id, self._is_own
        if cluster and own:
            # First of all: it would miss its files.
            clusters.terminate(self.make_emr_client(), cluster)
            self._created_cluster = False
        # mrjob would end clusters by rules of its own, and delete logs of others.
        self._cluster_id = None
        try:
            super().cleanup(mode)
        finally:
            self._cluster_id = cluster

    def _cleanup_logs(self) -> None:
        # They are the cluster's.
        pass

    # Steps

    def _wait_for_steps_to_complete(self) -> None:
        steps = self._steps_to_submit()
        self._log_interpretations, self._mns_log_interpretation = [], None
        client = self.make_emr_client()
        before = 1 if self._master_node_setup_script_path else 0
        for index in range(len(steps)):
            ahead = index + (_MOST_STEPS // 2 if self._add_steps_in_batch() else 1)
            if len(self._step_ids) < min(ahead, len(steps)):
                most = index + (_MOST_STEPS if self._add_steps_in_batch() else 1)
                self._add_steps_to_cluster(steps[len(self._step_ids) : most])
            self._wait_for(client, self._step_ids[index], index - before)
        if not self._shared:
            for number, found in enumerate(self._log_interpretations):
                # Where they are on S3 already: nobody waits for counters.
                self._log_counters(found, number)

    def _wait_for(self, client: Any, step: str, number: int) -> None:
        """Wait for a step to end.

        Raises
        ------
        JobFailedException
            It failed, or was cancelled.
        ClusterError
            The cluster did not even start.
        """
        interpretation = {"step_id": step}
        if number >= 0:
            self._log_interpretations.append(interpretation)
        logged, name = "", f"step {number + 1} of {self._num_steps()}"
        while True:
            status = client.describe_step(ClusterId=self._cluster_id, StepId=step)["Step"]["Status"]
            state = status["State"]
            text = f"{name}: {state.lower()}"
            if state == "COMPLETED":
                log.info("%s", text)
                return
            if state in ("FAILED", "CANCELLED", "INTERRUPTED", "CANCEL_PENDING"):
                self._fail(client, step, number, status)
            cluster = self._describe_cluster()["Status"]
            if state == "PENDING":
                if cluster["State"] in clusters.ENDED:
                    self._fail(client, step, number, cluster)
                text += f", the cluster {self._cluster_id} is {cluster['State'].lower()}"
            if cluster["State"] in ("RUNNING", "WAITING"):
                self._set_up_ssh_tunnel_and_hdfs()
                self._release_cluster_lock()
            if text != logged:
                log.info("%s", text)
                logged = text
            time.sleep(self._opts["check_cluster_every"])

    def _fail(self, client: Any, step: str, number: int, status: dict[str, Any]) -> None:
        """Raise the error for a step that did not complete, by its state or the cluster's."""
        reason = _reason(status)
        cluster = client.describe_cluster(ClusterId=self._cluster_id)["Cluster"]
        folder = f"{self._opts['cloud_log_dir']}{self._cluster_id}/"
        if cluster.get("LogUri"):
            folder = f"{cluster['LogUri'].replace('s3n://', 's3://').rstrip('/')}/{cluster['Id']}/"
        state = cluster["Status"]["State"]
        if state in clusters.ENDED and not cluster["Status"].get("Timeline", {}).get(
            "ReadyDateTime"
        ):
            raise ClusterError(
                f"the cluster {self._cluster_id} did not start: "
                f"{_reason(cluster['Status']) or reason or state}. Logs of its bootstrapping: "
                f"aws s3 ls --recursive {folder}node/"
            )
        self._check_for_pooled_cluster_self_termination(cluster, {"Status": status})
        failure = None
        if self._opts["read_logs"] is not False:
            failure = self._failure(client, step, folder, reason)
        if failure is None:
            state_reason = _reason(cluster["Status"]) if state in clusters.ENDED else ""
            failure = Failure(reason or state_reason or "EMR does not say why")
        command = f"aws s3 ls --recursive {folder}"
        raise JobFailedException(failure, max(number, 0), self._num_steps(), command)

    def _failure(self, client: Any, step: str, folder: str, reason: str) -> Failure | None:
        """Why the step failed, by its logs, once they are on S3."""
        assert self._cluster_id is not None
        every = self._opts["check_cluster_every"]
        if self._is_own or self._shared:
            # It has nothing more to do, and copies its logs when it ends.
            clusters.terminate(client, self._cluster_id)
            clusters.wait_for_end(client, self._cluster_id, every)
        end = time.monotonic() + _LOG_SECONDS
        while True:
            with s3_errors(folder):
                found = logs.failure_of(self.fs.s3, folder, step, reason)
            is_over = self._is_own or self._shared or time.monotonic() > end
            if is_over or (found is not None and found.traceback):
                return found
            log.info("the step failed; EMR copies its logs to S3 within minutes")
            time.sleep(every)

    def _wait_for_logs_on_s3(self) -> None:
        # mrjob would sleep for ten minutes.
        pass

    def cat_output(self) -> Iterator[bytes]:
        if self._output_dir and self._ran_job:
            with s3_errors(self._output_dir):
                if not self.fs.exists(posixpath.join(self._output_dir, SUCCESS)):
                    raise IncompleteOutputError(
                        f"{self._output_dir} holds no {SUCCESS}: the job did not finish it"
                    )
        with s3_errors(self._output_dir):
            yield from super().cat_output()


def _reason(status: dict[str, Any]) -> str:
    """What EMR says of the state of a cluster or a step."""
    details = status.get("FailureDetails") or {}
    change = status.get("StateChangeReason") or {}
    found = [details.get("Reason"), details.get("Message"), change.get("Message")]
    return ". ".join(dict.fromkeys(filter(None, found)))
