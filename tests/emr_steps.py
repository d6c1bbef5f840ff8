"""An EMR that runs: moto keeps clusters and steps, and an executor really runs the steps.

moto takes clusters and steps, and leaves them as they are. The executor does what a cluster would:
it starts, takes streaming steps one after the other, runs mapper, sort, combiner and reducer as
processes with their files unpacked, from and to S3 or a folder in the place of HDFS, ends by itself
when it has no more steps, and copies logs to S3 when it ends, or some time later. What a key is,
which reduce task gets it and in which order, is what ``-r parallel`` makes of a step's properties.
"""

import contextlib
import gzip
import importlib.util
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
import zipfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mapreduce.runners.parallel import partition
from mapreduce.runners.parallel.comparator import order_of_keys

RELEASES = re.compile(r"emr-[67]\.1?\d\.\d")

#: Seconds after which logs of a cluster that goes on are on S3.
LOG_SECONDS = 0.5


class StepError(Exception):
    """A step failed."""


@dataclass
class Executor:
    """Runs the steps of all of moto's clusters."""

    folder: Path
    endpoint: str
    #: Requests for clusters, as they came.
    requests: list = field(default_factory=list)
    #: Environments that map tasks got.
    environments: list = field(default_factory=list)
    #: Clusters end with this reason instead of starting.
    broken: str = ""
    _logs: list = field(default_factory=list)
    _applications: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self):
        import boto3

        options = {"endpoint_url": self.endpoint, "region_name": "us-east-1"}
        self.s3 = boto3.client("s3", **options)
        (self.folder / "bin").mkdir(parents=True)
        # What a node has after the bootstrapping.
        python = self.folder / "bin" / f"python3.{sys.version_info.minor}"
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        self._over.set()
        self._thread.join()

    @property
    def clusters(self):
        from moto.emr.models import emr_backends

        return [
            cluster
            for account in list(emr_backends.values())
            for backend in list(account.values())
            for cluster in list(backend.clusters.values())
            # moto tells of a cluster before it has made it.
            if getattr(cluster, "state", None)
        ]

    def client(self):
        import boto3

        return boto3.client("emr", endpoint_url=self.endpoint, region_name="us-east-1")

    def steps(self):
        return [step for cluster in self.clusters for step in cluster.steps]

    # A cluster

    def _run(self):
        try:
            while not self._over.wait(0.01):
                for cluster in self.clusters:
                    self._look_at(cluster)
                self._copy_logs(time.monotonic() - LOG_SECONDS)
        except BaseException:
            # Nobody waits for steps that will never be run.
            for step in self.steps():
                step.state = "FAILED"
            raise

    def _look_at(self, cluster):
        if cluster.state == "TERMINATING":
            for step in cluster.steps:
                if step.state in ("PENDING", "RUNNING", "CANCEL_PENDING"):
                    step.state = "CANCELLED"
            self._copy_logs(time.monotonic())
            cluster.state = "TERMINATED_WITH_ERRORS" if self.broken else "TERMINATED"
        if cluster.state == "STARTING" and not self.broken:
            cluster.state = "WAITING"
        elif cluster.state == "STARTING" and cluster.steps:
            cluster.last_state_change_reason = self.broken
            cluster.ready_datetime = None
            cluster.terminate()
        if cluster.state not in ("WAITING", "RUNNING"):
            return
        pending = [step for step in cluster.steps if step.state == "PENDING"]
        if pending:
            self._take(cluster, pending[0])
        elif cluster.steps and not cluster.keep_job_flow_alive_when_no_steps:
            cluster.terminate()
        else:
            cluster.state = "WAITING"

    def _take(self, cluster, step):
        cluster.state = step.state = "RUNNING"
        step.start()
        self._applications += 1
        application = f"application_1700000000000_{self._applications:04d}"
        said = [f"Submitted application {application}"]
        try:
            counters = _Streaming(self, cluster, step, application).run()
            said.append(_told(counters))
            step.state = "COMPLETED"
        except Exception as error:
            if not isinstance(error, StepError):
                traceback.print_exc(file=sys.__stderr__)
            said.append(f"ERROR Streaming Command Failed! {error}")
            if step.state == "RUNNING" and not cluster.state.startswith("TERMINAT"):
                step.state = "FAILED"
                self._fail(cluster, step)
            else:
                step.state = "CANCELLED"
        prefix = f"steps/{step.id}"
        self.log(cluster, f"{prefix}/syslog.gz", "\n".join(said))

    def _fail(self, cluster, step):
        if step.action_on_failure == "TERMINATE_CLUSTER":
            cluster.terminate()
        elif step.action_on_failure == "CANCEL_AND_WAIT":
            for other in cluster.steps:
                if other.state == "PENDING":
                    other.state = "CANCELLED"

    def log(self, cluster, name, text):
        place = cluster.log_uri.removeprefix("s3://")
        bucket, _, prefix = place.partition("/")
        key = f"{prefix}{cluster.id}/{name}"
        self._logs.append((time.monotonic(), bucket, key, gzip.compress(text.encode())))

    def _copy_logs(self, until):
        while self._logs and self._logs[0][0] <= until:
            _, bucket, key, content = self._logs.pop(0)
            self.s3.put_object(Bucket=bucket, Key=key, Body=content)

    # Files

    def read(self, uri):
        """(name, content) of the files at a place."""
        if uri.startswith("hdfs://"):
            files = sorted(self._hdfs(uri).iterdir())
            found = [(str(path), path.read_bytes()) for path in files]
        else:
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
            keys = [name for name in keys if name == key or name.startswith(key.rstrip("/") + "/")]
            found = [(f"s3://{bucket}/{name}", self._get(bucket, name)) for name in keys]
        found = [(n, c) for n, c in found if n.rpartition("/")[2][:1] not in ("_", ".")]
        if not found:
            raise StepError(f"Input path does not exist: {uri}")
        return found

    def _get(self, bucket, key):
        return self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()

    def write(self, uri, name, content):
        if uri.startswith("hdfs://"):
            folder = self._hdfs(uri)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            return
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        self.s3.put_object(Bucket=bucket, Key=f"{key.rstrip('/')}/{name}", Body=content)

    def exists(self, uri):
        if uri.startswith("hdfs://"):
            return self._hdfs(uri).exists()
        try:
            return bool(self.read(uri))
        except StepError:
            return False

    def _hdfs(self, uri):
        return self.folder / "hdfs" / uri.removeprefix("hdfs://").strip("/")


class _Streaming:
    """One step of Hadoop streaming."""

    def __init__(self, executor, cluster, step, application):
        self._executor, self._cluster, self._step = executor, cluster, step
        self._application = application
        self._folder = executor.folder / application
        program, *arguments = step.hadoop_jar_step["Args"]
        assert (step.hadoop_jar_step["Jar"], program) == ("command-runner.jar", "hadoop-streaming")
        options = defaultdict(list)
        for flag, value in zip(arguments[::2], arguments[1::2], strict=True):
            options[flag].append(value)
        self._options = options
        self._conf = dict(one.split("=", 1) for one in options["-D"])
        self._reduces = int(self._conf.get("mapreduce.job.reduces", 1))
        how = partition.configured(
            "".join(options["-partitioner"]), self._conf, max(1, self._reduces), _refuse
        )
        self._key_fields, self._partition_of = how.key_fields, partition.partitioner(how)
        self._order = order_of_keys(how) or (lambda key: b"")
        self._counters = defaultdict(int)

    def run(self):
        (output,) = self._options["-output"]
        if self._executor.exists(output):
            raise StepError(f"FileAlreadyExistsException: Output directory {output} already exists")
        self._folder.mkdir()
        self._fetch()
        with ThreadPoolExecutor(2) as pool:
            splits = list(enumerate(self._splits()))
            mapped = list(pool.map(lambda one: self._map(*one), splits))
            parts = mapped
            if self._reduces:
                # The last one comes first: no order of map tasks may be relied on.
                shuffled = [
                    self._sorted(pair for pairs in mapped[::-1] for pair in pairs[n])
                    for n in range(self._reduces)
                ]
                parts = list(pool.map(lambda one: self._reduce(*one), enumerate(shuffled)))
        for number, content in enumerate(parts):
            self._executor.write(output, f"part-{number:05d}", content)
        self._executor.write(output, "_SUCCESS", b"")
        shutil.rmtree(self._folder)
        return self._counters

    def _fetch(self):
        """Bring files and archives to the node, under their own names, as YARN does."""
        self._links = []
        for flag in ("-files", "-archives"):
            for place in filter(None, ",".join(self._options[flag]).split(",")):
                uri, _, name = place.partition("#")
                ((_, content),) = self._executor.read(uri)
                local = self._folder / "cache" / str(len(self._links)) / uri.rpartition("/")[2]
                local.parent.mkdir(parents=True)
                local.write_bytes(content)
                local.chmod(0o755)
                if flag == "-archives":
                    local = _unpacked(local)
                self._links.append((name, local))

    def _splits(self):
        (maps,) = {int(self._conf.get("mapreduce.job.maps", 2))}
        for uri in self._options["-input"]:
            for name, content in self._executor.read(uri):
                lines = content.splitlines(keepends=True) or [b""]
                size = -(-len(lines) // maps)
                for start in range(0, len(lines), size):
                    yield name, b"".join(lines[start : start + size])

    def _map(self, number, split):
        name, content = split
        environment = {
            "mapreduce_map_input_file": name,
            "mapreduce_map_input_start": "0",
            "mapreduce_map_input_length": str(len(content)),
        }
        (mapper,) = self._options["-mapper"]
        output = self._task("m", number, mapper, content, environment)
        if not self._reduces:
            return output
        parts = [[] for _ in range(self._reduces)]
        for key, value in self._pairs(output):
            parts[self._partition_of(key)].append((key, value))
        if combiner := self._options["-combiner"]:
            for at, pairs in enumerate(parts):
                content = _text(self._sorted(pairs))
                output = self._task("m", number, combiner[0], content, environment)
                parts[at] = list(self._pairs(output))
        return parts

    def _reduce(self, number, pairs):
        (reducer,) = self._options["-reducer"]
        return self._task("r", number, reducer, _text(pairs), {})

    def _pairs(self, output):
        """Keys and values of lines; a line with too few TABs is all key."""
        for line in output.splitlines():
            fields = line.split(b"\t", self._key_fields)
            yield b"\t".join(fields[: self._key_fields]), b"".join(fields[self._key_fields :])

    def _sorted(self, pairs):
        return sorted(pairs, key=lambda pair: (self._order(pair[0]), pair[0]))

    def _task(self, kind, number, command, content, environment):
        attempt = f"attempt_{self._application[12:]}_{kind}_{number:06d}_0"
        folder = Path(tempfile.mkdtemp(prefix=attempt, dir=self._folder))
        for name, local in self._links:
            (folder / name).symlink_to(local)
        environment = self._environment(folder, attempt, number) | environment
        if kind == "m":
            self._executor.environments.append(environment)
        process = subprocess.Popen(
            shlex.split(command),
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        watching = threading.Thread(target=self._end_if_cancelled, args=[process])
        watching.start()
        output, said = process.communicate(content)
        watching.join()
        self._log(attempt, said.decode())
        if process.returncode:
            raise StepError(f"{attempt}: subprocess failed with code {process.returncode}")
        return output

    def _end_if_cancelled(self, process):
        while process.poll() is None:
            if self._step.state != "RUNNING" or self._cluster.state.startswith("TERMINAT"):
                self._step.state = "CANCEL_PENDING"
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)

    def _log(self, attempt, said):
        container = attempt.replace("attempt", "container")
        self._executor.log(
            self._cluster, f"containers/{self._application}/{container}/stderr.gz", said
        )
        for line in said.splitlines():
            if line.startswith("reporter:counter:"):
                group, counter, amount = line.removeprefix("reporter:counter:").rsplit(",", 2)
                self._counters[group, counter] += int(amount)

    def _environment(self, folder, attempt, number):
        conf = {key.replace(".", "_"): value for key, value in self._conf.items()}
        return {
            **conf,
            "PATH": f"{self._executor.folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(folder),
            # As of the node's role.
            "AWS_ACCESS_KEY_ID": "node",
            "AWS_SECRET_ACCESS_KEY": "node",
            "mapreduce_task_attempt_id": attempt,
            "mapreduce_task_partition": str(number),
            "NM_HOST": "ip-10-0-0-1",
            **dict(one.split("=", 1) for one in self._options["-cmdenv"]),
        }


def _text(pairs):
    """What a reducer reads: there is a TAB even if the value is empty."""
    return b"".join(b"%b\t%b\n" % pair for pair in pairs)


def _refuse(message):
    raise StepError(message)


def _unpacked(local):
    folder = local.parent / "unpacked"
    if zipfile.is_zipfile(local):
        with zipfile.ZipFile(local) as archive:
            archive.extractall(folder)
    else:
        with tarfile.open(local) as archive:
            # Python has it from 3.11.4 on.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
    return folder


def _told(counters):
    """Counters as Hadoop's client tells of them."""
    lines = [f"Counters: {len(counters)}"]
    for group in sorted({group for group, _ in counters}):
        lines.append(f"\t{group}")
        lines += [f"\t\t{name}={amount}" for (g, name), amount in counters.items() if g == group]
    first = "2026-01-01 00:00:00,000 INFO org.apache.hadoop.mapreduce.Job (main): "
    return first + "\n".join(lines)


@contextlib.contextmanager
def simulated(endpoint, folder, patch):
    """An executor for the EMR of a moto of this process, whose files are in a new folder.

    ``patch`` is a pytest.MonkeyPatch, which changes moto.
    """
    from moto.emr import models, responses
    from moto.emr.exceptions import InvalidRequestException, ValidationException

    executor = Executor(folder, endpoint)
    _run_job_flow = responses.ElasticMapReduceResponse.run_job_flow

    def start(cluster):
        cluster.state, cluster.ready_datetime = "STARTING", models.utcnow()

    def terminate(cluster):
        if cluster.state not in ("TERMINATED", "TERMINATED_WITH_ERRORS"):
            cluster.state = "TERMINATING"

    def add_steps(cluster, steps):
        # Of a cluster that has no state yet, which is being made.
        if str(getattr(cluster, "state", "")).startswith("TERMINAT"):
            raise ValidationException("A job flow that is shutting down may not be modified.")
        found = [models.Step(state="PENDING", **step) for step in steps]
        cluster.steps += found
        return found

    def add_applications(cluster, applications):
        for entry in applications:
            cluster.applications.append(models.Application(entry["Name"], "3.4.1", [], {}))

    def run_job_flow(response):
        request = response._get_params()
        executor.requests.append(request)
        if not RELEASES.fullmatch(request["ReleaseLabel"]):
            raise ValidationException("The supplied release label is invalid.")
        return _run_job_flow(response)

    def describe_release_label(response):
        if not RELEASES.fullmatch(response._get_param("ReleaseLabel")):
            raise InvalidRequestException("The supplied release label is invalid.")
        return responses.EmptyResult()

    def cancel_steps(response):
        cluster = response.backend.clusters[response._get_param("ClusterId")]
        for step in cluster.steps:
            if step.id in response._get_param("StepIds"):
                if step.state == "PENDING":
                    step.state = "CANCELLED"
                elif step.state == "RUNNING":
                    step.state = "CANCEL_PENDING"
        return responses.EmptyResult()

    patch.setattr(models.Cluster, "run_bootstrap_actions", start)
    patch.setattr(models.Cluster, "terminate", terminate)
    patch.setattr(models.Cluster, "add_steps", add_steps)
    patch.setattr(models.Cluster, "add_applications", add_applications)
    answers = responses.ElasticMapReduceResponse
    patch.setattr(answers, "describe_release_label", describe_release_label, raising=False)
    patch.setattr(answers, "run_job_flow", run_job_flow)
    patch.setattr(answers, "cancel_steps", cancel_steps, raising=False)
    try:
        yield executor
    finally:
        executor.stop()
        for account in list(models.emr_backends.values()):
            for backend in list(account.values()):
                backend.clusters.clear()


@pytest.fixture(scope="session")
def _moto():
    """S3 of moto, in a thread of this process."""
    pytest.importorskip("moto.server", reason="moto is not installed")
    with served() as endpoint:
        yield endpoint


@pytest.fixture
def s3(_moto, monkeypatch):
    """A bucket of moto's S3, as a URI; the environment leads there."""
    use(_moto, monkeypatch)
    return "s3://bucket"


@pytest.fixture
def emr(s3, _moto, tmp_path, monkeypatch):
    """An executor for moto's EMR, and a bucket for temporary files; the environment leads there."""
    import boto3

    monkeypatch.setenv("MRJOB_CONF", os.devnull)
    boto3.client("s3", endpoint_url=_moto, region_name="us-east-1").create_bucket(
        Bucket="mrjob-tests"
    )
    for bucket in ("bucket", "mrjob-tests"):
        boto3.resource("s3", endpoint_url=_moto).Bucket(bucket).objects.delete()
    with simulated(_moto, tmp_path / "emr", monkeypatch) as executor:
        yield executor


@contextlib.contextmanager
def served():
    """The address of moto's server, which is in a thread of this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


def use(endpoint, patch):
    """Lead the environment to a server of moto, and have a bucket there."""
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)
    boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint).create_bucket(
        Bucket="bucket"
    )


def main(command):
    """Run a command, by default a shell, that finds moto where Amazon is; returns its status."""
    # It is the command's.
    signal.signal(signal.SIGINT, lambda *_: None)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        served() as endpoint,
    ):
        use(endpoint, patch)
        with simulated(endpoint, Path(folder, "emr"), patch):
            return subprocess.run(command or [os.environ.get("SHELL", "sh")]).returncode


if __name__ == "__main__":
    if not importlib.util.find_spec("moto"):
        sys.exit("moto, which simulates S3 and EMR, is not installed: pip install -e '.[test]'")
    sys.exit(main(sys.argv[1:]))
