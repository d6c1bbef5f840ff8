"""The runner ``-r emr``: mrjob's, with current defaults, and a question before a cluster starts.

A cluster is started for the job, or for all jobs of a training, and ends with it; or one is used
that the user names, or that a pool has. The toolkit is shipped once for its content.
"""

import logging
import os
import posixpath
import re
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from mrjob.emr import EMRJobRunner
from mrjob.fs.s3 import _endpoint_url
from mrjob.parse import is_s3_uri, parse_s3_uri

from hdfs_utils.errors import ClusterError, IncompleteOutputError
from hdfs_utils.publish import SUCCESS, check_part_names
from mapreduce.errors import MissingInputError, OutputError, UsageError
from mapreduce.runners import applications
from mapreduce.runners.emr import clients, clusters, logs
from mapreduce.runners.emr.errors import ClientError, aws_errors, code_of, s3_errors
from mapreduce.runners.yarn.failures import Failure, JobFailedException
from mapreduce.runners.yarn.on_yarn import OPTIONS, OnYarn
from mapreduce.runners.yarn.task import PACKAGES
from mapreduce.support.printable import echo

log = logging.getLogger("mrjob.emr")

#: The release that is started by default: Hadoop 3.4 on Amazon Linux 2023.
RELEASE = "7.12.0"

#: Seconds to wait for the logs of a cluster that goes on; EMR copies them every five minutes.
_LOG_SECONDS = 420.0

_PARTS = ("mapper", "combiner", "reducer")

#: Cores of the instances that are started by default, which have no other.
_CORES = 4


class EmrMRJobRunner(OnYarn, EMRJobRunner):
    """Runs a job on Amazon EMR."""

    OPT_NAMES = EMRJobRunner.OPT_NAMES | OPTIONS | {"dry_run", "price_per_hour", "yes"}

    _cluster_id: str | None
    _created_cluster: bool
    _step_ids: list[str]
    _log_interpretations: list[dict[str, Any]]

    def __init__(self, mrjob_cls: type | None = None, **kwargs: Any) -> None:
        self._mrjob_cls = mrjob_cls
        self._shared: clusters.Shared | None = None
        output = kwargs.get("output_dir")
        if output and not is_s3_uri(output):
            raise UsageError(f"-o {output}: the runner emr writes to S3: expected s3://BUCKET/...")
        clients.set_up()
        super().__init__(**kwargs)
        if self._opts["dry_run"] and clusters.current():
            raise UsageError(
                "--dry-run after -- shows one job, and a training has many. Write it before the --"
            )
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
            "image_version": RELEASE,
            "region": clients.default_region(),
        }
        return {**super()._default_opts(), **ours}

    # Before anything starts

    def _fix_s3_tmp_and_log_uri_opts(self) -> None:
        for name in ("cloud_tmp_dir", "cloud_log_dir"):
            if self._opts[name] and not is_s3_uri(self._opts[name]):
                flag = name.replace("_", "-")
                raise UsageError(
                    f"--{flag} {self._opts[name]}: expected s3://BUCKET/..., a place on S3"
                )
        if self._opts["dry_run"] and not self._opts["cloud_tmp_dir"]:
            # Which of the account's buckets it is, only credentials would tell.
            self._opts["cloud_tmp_dir"] = "s3://mrjob-.../tmp/"
        with aws_errors("S3: the list of buckets, to find one for temporary files"):
            super()._fix_s3_tmp_and_log_uri_opts()

    def _check_input_paths(self) -> None:
        with aws_errors(f"EMR in {self._opts['region']}"):
            if self._cluster_id:
                self._describe_cluster()
            else:
                self._check_release(self._opts["release_label"])
        super()._check_input_paths()
        with s3_errors(self._output_dir):
            if not self._output_dir.startswith(self._cloud_tmp_dir):
                self.fs.s3.make_s3_client().head_bucket(Bucket=parse_s3_uri(self._output_dir)[0])
            if self.fs.exists(self._output_dir):
                raise OutputError(
                    f"the output folder {self._output_dir} exists. Name another with -o"
                )

    def _check_release(self, label: str) -> None:
        """Raise an error if EMR does not answer, has no such release, or one that is too old."""
        match = re.match(r"emr-(\d+)\.", label)
        if match and int(match[1]) < 7 and not self._opts["python_bin"]:
            raise UsageError(
                f"--release-label {label}: its nodes have no Python 3.11. Expected emr-7.0.0 or "
                f"later, or a Python of your own by --python-bin and --bootstrap"
            )
        try:
            self.make_emr_client().describe_release_label(ReleaseLabel=label)
        except ClientError as error:
            # Those who may start a cluster need not be allowed to ask.
            if "AccessDenied" not in code_of(error):
                raise

    def _check_input_path(self, path: str) -> None:
        if not is_s3_uri(path):
            self._check_local_input(path)
            return
        with s3_errors(path):
            found = list(self.fs.ls(path))
        if not found:
            raise MissingInputError(f"the input {path} does not exist")
        for folder, names in _folders(path, found).items():
            if what := check_part_names(folder, names):
                self._unfinished[folder] = what
        super()._check_input_path(path)

    def _confirm(self) -> None:
        """Ask whether a cluster is to start, which costs money; raise a UsageError if not."""
        what = f"This starts {self._cluster_in_words()}\n"
        if self._opts["yes"]:
            echo(what, err=True, nl=False)
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(
                f"{what}Nothing was started, because there is no terminal on which to ask. Add "
                f"--yes to start it"
            )
        echo(f"{what}Start it? [y/N] ", err=True, nl=False)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError("the cluster was not confirmed: nothing was started")

    def _cluster_in_words(self) -> str:
        how_long = "until the job ends"
        if self._shared is not None:
            how_long = "until the training ends"
        elif self._opts["pool_clusters"]:
            how_long = f"until it was idle for {self._opts['max_mins_idle']:g} minutes"
        instances = [f"{one['InstanceCount']} {one['InstanceType']}" for one in self._groups()]
        price = self._price_per_hour()
        cost = "money: see https://aws.amazon.com/emr/pricing"
        if price is not None:
            cost = f"${price:.2f} per hour"
        return (
            f"a cluster of Amazon EMR in {self._opts['region']}, {self._opts['release_label']}, "
            f"{how_long}: {', '.join(instances) or 'the configured instance fleets'}. "
            f"It costs {cost}"
        )

    def _groups(self) -> list[dict[str, Any]]:
        """The instance groups of a cluster that would be started; none if it has fleets."""
        return [] if self._opts["instance_fleets"] else self._instance_groups()

    def _price_per_hour(self) -> float | None:
        """What such a cluster costs in dollars, by the option of that name."""
        given = self._opts["price_per_hour"]
        if given is None:
            return None
        groups = self._groups()
        prices = dict(re.findall(r"([\w.-]+)=(\d+(?:\.\d+)?)(?:,|$)", given))
        kinds = dict.fromkeys(one["InstanceType"] for one in groups)
        if missing := [kind for kind in kinds or ["fleets"] if kind not in prices]:
            raise UsageError(
                f"--price-per-hour {given}: expected TYPE=DOLLARS for each type of the cluster, "
                f"with commas between them; there is no price for {', '.join(missing)}"
            )
        return sum(float(prices[one["InstanceType"]]) * int(one["InstanceCount"]) for one in groups)

    def _tell_cost(self) -> None:
        """Say for how long the cluster ran, and what that costs: a minute at least."""
        minutes = (time.monotonic() - self._since) / 60
        price, cost = self._price_per_hour(), ""
        if price is not None:
            cost = f" at ${price:.2f} per hour, about ${price / 60 * max(minutes, 1):.3f}"
        echo(f"The cluster ran for {minutes:.1f} minutes{cost}", err=True)

    def run(self) -> None:
        if self._opts["dry_run"]:
            self._show()
        else:
            super().run()

    def _show(self) -> None:
        """Print what :meth:`run` would do, without a call of AWS."""
        for path in self._input_paths:
            self._check_local_input(path)
        named = self._opts["cluster_id"]
        echo(f"would run on {named}" if named else f"would start {self._cluster_in_words()}")
        commands = [line for (line,) in self._bootstrap_python()] + self._opts["bootstrap"]
        for what, found in (
            ("input", self._input_paths),
            ("output", [self._output_dir]),
            ("temporary files", [self._opts["cloud_tmp_dir"]]),
            ("roles", [self._opts["iam_service_role"], self._opts["iam_instance_profile"]]),
            ("each node runs", [] if named else commands),
            ("steps", [", ".join(filter(step.__contains__, _PARTS)) for step in self._get_steps()]),
        ):
            for number, text in enumerate(found):
                echo(f"{'' if number else what:17}{text}")
        echo("Nothing was started.")

    # What tasks need

    def _python_bin(self) -> list[str]:
        return list(self._opts["python_bin"] or [f"python3.{sys.version_info.minor}"])

    def _bootstrap_python(self) -> list[list[str]]:
        """Commands that bring a node the Python of this process, and the packages that tasks need.

        Amazon Linux 2023 calls its packages as the programs.
        """
        if self._opts["python_bin"] or self._opts["bootstrap_python"] is False:
            return []
        python = f"python3.{sys.version_info.minor}"
        wanted = " ".join(f"{name}=={version(name)}" for name in PACKAGES)
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

    def _ship(self, name: str, content: bytes) -> str:
        uri = f"{self._opts['cloud_tmp_dir']}gradreduce/code/{name}"
        bucket, key = parse_s3_uri(uri)
        with s3_errors(uri):
            self.fs.mkdir(uri)
            if not any(found.size == len(content) for _, found in self.fs.s3._ls(uri)):
                self.fs.s3.make_s3_client().put_object(Bucket=bucket, Key=key, Body=content)
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
        if persistent or self._shared or self._opts["pool_clusters"]:
            request["Instances"]["KeepJobFlowAliveWhenNoSteps"] = True
            seconds = int(self._opts["max_mins_idle"] * 60)
            policy = {"IdleTimeout": min(max(seconds, 60), 7 * 86400)}
            request.setdefault("AutoTerminationPolicy", policy)
        return request

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
        for mark in applications.marks():
            self._opts["tags"] = {**self._opts["tags"], clusters.TAG: mark}
        return str(super()._create_cluster(persistent))

    def _add_tags(self, tags: dict[str, str], cluster_id: str) -> None:
        # The cluster is reported at once: from here on it is known, and will be ended.
        self._cluster_id, self._created_cluster = cluster_id, True
        self._since = time.monotonic()
        if self._shared:
            self._shared.note_start(cluster_id, self.make_emr_client, self._tell_cost)
        applications.tell(cluster_id)
        super()._add_tags(tags, cluster_id)

    def _run(self) -> None:
        try:
            with aws_errors(f"EMR in {self._opts['region']}"):
                super()._run()
        except BaseException:
            if self._cluster_id and not self._is_own:
                self._cancel_steps(self._cluster_id)
            raise

    def _cancel_steps(self, cluster: str) -> None:
        """End the job's steps on a cluster that goes on. An error is logged."""
        client = self.make_emr_client()
        try:
            clusters.cancel(client, cluster, lambda step: step["Name"].startswith(self._job_key))
        except Exception as error:
            log.error("steps on the cluster %s could not be cancelled: %s", cluster, error)

    def cleanup(self, mode: Any = None) -> None:
        cluster, own = self._cluster_id, self._is_own
        if cluster and own:
            # First of all: it would miss its files.
            clusters.terminate(self.make_emr_client(), cluster)
            self._tell_cost()
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

    def _wait_for_step_to_complete(self, step_id: str, step_num: int) -> None:
        """Wait for a step to end; the one that sets up the master node has the number -1."""
        client = self.make_emr_client()
        interpretation = {"step_id": step_id}
        if step_num >= 0:
            self._log_interpretations.append(interpretation)
        logged, name = "", f"step {step_num + 1} of {self._num_steps()}"
        while True:
            found = client.describe_step(ClusterId=self._cluster_id, StepId=step_id)["Step"]
            state = found["Status"]["State"]
            text = f"{name}: {state.lower()}"
            if state == "COMPLETED":
                log.info("%s", text)
                if step_num >= 0 and not self._shared:
                    # If they are on S3 already: nobody waits for counters.
                    self._log_counters(interpretation, step_num)
                return
            if state in ("FAILED", "CANCELLED", "INTERRUPTED", "CANCEL_PENDING"):
                self._fail(client, step_id, step_num, found["Status"])
            cluster = self._describe_cluster()["Status"]
            if state == "PENDING":
                if cluster["State"] in clusters.ENDED:
                    self._fail(client, step_id, step_num, cluster)
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
        if self._opts["dry_run"]:
            return
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


def _folders(path: str, uris: list[str]) -> dict[str, set[str]]:
    """The names in each folder that an input, which may be a glob, stands for."""
    found: dict[str, set[str]] = {}
    for uri in uris:
        folder, _, name = uri.rpartition("/")
        top, temporary, _ = f"{folder}/".partition("/_temporary/")
        folder, name = (top, "_temporary") if temporary else (folder, name)
        # A file that is named itself is read, whatever else lies beside it.
        if folder.count("/") >= path.rstrip("/").count("/"):
            found.setdefault(folder, set()).add(name)
    return found
