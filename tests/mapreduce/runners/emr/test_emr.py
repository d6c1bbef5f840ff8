"""The runner ``-r emr``, on moto's EMR with an executor that really runs the steps.

A training is run there by the commands of docs/emr.md, in ``test_emr_page.py``.
"""

import gc
import io
import json
import os
import random
import re
import signal
import sys
import tarfile
import threading
import time

import pytest
from test_readme import ROOT

import datasets
from hdfs_utils.errors import ClusterError, IncompleteOutputError, StorageError
from mapreduce.errors import Interrupted, MissingInputError, OutputError, UsageError
from mapreduce.launch import run as launch
from mapreduce.runners import applications
from mapreduce.runners.emr import clusters
from mapreduce.runners.yarn.bootstrap import PACKED
from mapreduce.runners.yarn.failures import JobFailedException
from programs import COUNT, FAILING, gradreduce, wait_until
from quick import cases

EMR = ("-r", "emr", "--check-cluster-every", "0.1", "--yes")

#: Counts words, and then how often each count occurs; the mapper needs a module that is packed.
CHAIN = """\
from mrjob.job import MRJob
from mrjob.step import MRStep


class Chain(MRJob):
    def steps(self):
        return [
            MRStep(mapper=self.split, combiner=self.total, reducer=self.total),
            MRStep(mapper=self.swap, reducer=self.total),
        ]

    def split(self, _, line):
        import packed_words

        self.increment_counter("words", "lines")
        for word in packed_words.of(line):
            yield word, 1

    def swap(self, word, count):
        yield count, 1

    def total(self, key, counts):
        yield key, sum(counts)

    def jobconf(self):
        return {**super().jobconf(), "mapreduce.job.reduces": 2}
"""

#: Sessions of a stream of clicks, which have to come in the order of their times, and how many
#: clicks they have by the name of the country in which they began.
SESSIONS = """\
from mrjob.job import MRJob
from mrjob.step import MRStep


class Sessions(MRJob):
    SORT_VALUES = True

    def configure_args(self):
        super().configure_args()
        self.add_file_arg("--countries")

    def steps(self):
        return [
            MRStep(
                mapper=self.clicks,
                reducer=self.sessions,
                jobconf={"mapreduce.job.reduces": "4"},
            ),
            MRStep(
                reducer_init=self.load,
                reducer=self.by_country,
                jobconf={"mapreduce.job.reduces": "2"},
            ),
        ]

    def clicks(self, _, line):
        user, time, country = line.split()
        yield user, [int(time), country]

    def sessions(self, user, clicks):
        last, first, number = None, None, 0
        for time, country in clicks:
            assert last is None or last <= time, f"not sorted: {user} {last} {time}"
            if last is not None and time - last > 1800:
                yield first, [user, number]
                first, number = None, 0
            last, first, number = time, first or country, number + 1
        yield first, [user, number]

    def load(self):
        with open(self.options.countries) as lines:
            self.names = dict(line.split() for line in lines)

    def by_country(self, country, sessions):
        yield self.names.get(country, country), list(sessions)
"""

SLEEPING = """\
from mrjob.job import MRJob
from mrjob.step import MRStep


class Sleeping(MRJob):
    def steps(self):
        return [MRStep(mapper_cmd="sleep 60"), MRStep(mapper_cmd="cat")]
"""

COPYING = """\
from mrjob.job import MRJob


class Copying(MRJob):
    def mapper_cmd(self):
        return "cat"
"""


@pytest.fixture
def script(write):
    def make(text):
        return write(text, "job_of_tests.py")

    return make


@pytest.fixture
def text(write):
    return write("a b\nb c\n" * 5, "text")


def run(script, *arguments):
    launch.execute(launch.load_job(str(script)), [*map(str, arguments)], str(script))


def put(emr, uri, content):
    folder, _, name = uri.rpartition("/")
    emr.write(folder, name, content)


# What works


def test_words_are_counted_as_inline(emr, script, text, capfdbinary):
    run(script(COUNT), *EMR, "--price-per-hour", "m5.xlarge=3.00", text)
    found = capfdbinary.readouterr()
    assert sorted(found.out.splitlines()) == [b'"a"\t5', b'"b"\t10', b'"c"\t5']
    # Amazon's shortest time is a minute.
    assert re.search(rb"ran for \d\.\d minutes at \$3\.00 per hour, about \$0\.05", found.err)
    assert (
        b"This starts a cluster of Amazon EMR in us-east-1, emr-7.12.0, until the job" in found.err
    )
    (request,) = emr.requests
    assert "KeepJobFlowAliveWhenNoSteps" not in request["Instances"]
    assert request["Applications"] == [{"Name": "Hadoop"}]
    assert (request["JobFlowRole"], request["ServiceRole"]) == (
        "EMR_EC2_DefaultRole",
        "EMR_DefaultRole",
    )
    (action,) = request["BootstrapActions"]
    assert action["Name"] == "master"
    (step,) = emr.steps()
    arguments = step.hadoop_jar_step["Args"]
    assert "mapreduce.fileoutputcommitter.algorithm.version=1" in arguments
    assert step.action_on_failure == "TERMINATE_CLUSTER"
    # The toolkit came with the job, by S3.
    assert re.search(r"s3://mrjob-tests/tmp/gradreduce/code/gradreduce-\w{20}.zip#", str(arguments))


@pytest.mark.slow
def test_two_steps_with_modules_that_are_sent_along(emr, s3, script, write, tmp_path, capfdbinary):
    packed = tmp_path / "packed.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        content = b"def of(line):\n    return line.split()\n"
        entry = tarfile.TarInfo("packed_words.py")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    for name in ("one", "two"):
        put(emr, f"{s3}/in/{name}", b"a b\nb c\nc c\n")
    sent = write("import packed_words\n", "sent_along.py")
    options = ("--archives", f"{packed}#{PACKED}", "--files", sent, "-o", f"{s3}/out")
    job = CHAIN.replace("import packed_words", "from sent_along import packed_words")
    run(script(job), *EMR, *options, f"{s3}/in")
    lines = b"".join(content for _, content in emr.read(f"{s3}/out")).splitlines()
    assert sorted(lines) == [b"2\t1", b"4\t1", b"6\t1"]
    assert [step.state for step in emr.steps()] == ["COMPLETED"] * 2
    # All is cleaned up but what the next job needs too.
    found = {name for name, _ in emr.read("s3://mrjob-tests/tmp")}
    kinds = {name.split("/")[4] for name in found if "/logs/" not in name}
    assert kinds == {"gradreduce"}
    with pytest.raises(OutputError, match=f"the output folder {s3}/out/ exists"):
        run(script(CHAIN), *EMR, *options, f"{s3}/in")
    assert len(emr.requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("order", ["", "-k1,1r -k2"])
def test_sorted_values_come_in_the_parts_of_parallel(emr, s3, script, write, tmp_path, order):
    chance = random.Random(7)
    clicks = [
        f"u{chance.randrange(9)} {1_700_000_000 + chance.randrange(86400)} {country}\n"
        for country in ["DE", "FR", "ÖS", "XX"] * 60
    ]
    text = write("".join(clicks), "clicks")
    countries = write("DE Germany\nFR France\nÖS Österreich\n", "countries")
    options = ["--countries", countries]
    if order:
        comparator = "org.apache.hadoop.mapreduce.lib.partition.KeyFieldBasedComparator"
        options += ["-D", f"mapreduce.job.output.key.comparator.class={comparator}"]
        options += ["-D", f"mapreduce.partition.keycomparator.options={order}"]
    options += ["-o"]
    run(script(SESSIONS), *EMR, *options, f"{s3}/sessions", text)
    run(script(SESSIONS), "-r", "parallel", *options, tmp_path / "sessions", text)
    found = {name.rpartition("/")[2]: content for name, content in emr.read(f"{s3}/sessions")}
    assert {"part-00000", "part-00001"} == {*found}
    assert all(found.values())
    for name, content in found.items():
        assert (tmp_path / "sessions" / name).read_bytes() == content


# What fails


def test_a_failing_mapper_shows_its_own_traceback(emr, s3, script, tmp_path):
    put(emr, f"{s3}/in/numbers", b"1\n2\nthree\n")
    with pytest.raises(JobFailedException) as caught:
        run(script(FAILING), *EMR, f"{s3}/in", "-D", "mapreduce.job.maps=1")
    told = str(caught.value)
    assert "step 1 of 1 failed: ValueError: invalid literal for int() with base 10: 'three'" in told
    assert f"input {s3}/in/numbers:0+10, record 3 of it: 'three'" in told
    assert 'File "job_of_tests.py", line 9, in parse' in told
    assert "The whole log: aws s3 ls --recursive s3://mrjob-tests/tmp/logs/j-" in told
    assert [cluster.state for cluster in emr.clusters] == ["TERMINATED"]


@pytest.mark.slow
def test_a_failure_on_a_cluster_that_goes_on(emr, s3, script):
    cluster = started(emr)
    put(emr, f"{s3}/in/numbers", b"three\n")
    with pytest.raises(JobFailedException, match="ValueError: invalid literal"):
        run(script(FAILING), *EMR[:-1], "--cluster-id", cluster.id, f"{s3}/in")
    assert cluster.state == "WAITING"


def started(emr):
    """A cluster of somebody's own."""
    emr.client().run_job_flow(
        Name="own",
        ReleaseLabel="emr-7.5.0",
        LogUri="s3://mrjob-tests/own/",
        JobFlowRole="role",
        ServiceRole="role",
        Instances={
            "MasterInstanceType": "m5.xlarge",
            "InstanceCount": 1,
            "KeepJobFlowAliveWhenNoSteps": True,
        },
    )
    return emr.clusters[-1]


# A socket that was in use is closed by nobody.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("whose", ["own", "named", "pooled"])
def test_an_interrupt_ends_what_the_job_has_started(emr, script, text, whose):
    arguments = EMR
    if whose == "named":
        arguments = (*EMR, "--cluster-id", started(emr).id)
    elif whose == "pooled":
        arguments = (*EMR, "--pool-clusters")

    def interrupt():
        while not any(step.state == "RUNNING" for step in emr.steps()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted):
        run(script(SLEEPING), *arguments, text)
    thread.join()
    (cluster,) = emr.clusters
    wait_until(lambda: {step.state for step in emr.steps()} == {"CANCELLED"})
    wait_until(lambda: cluster.state == ("TERMINATED" if whose == "own" else "WAITING"))
    # It is found here, not in the next test.
    gc.collect()


@pytest.mark.slow
def test_a_cluster_that_does_not_start(emr, script, text):
    emr.broken = "On the master instance, bootstrap action 1 returned a non-zero return code"
    with pytest.raises(ClusterError, match=r"did not start: On the master.* aws s3 ls .*/node/"):
        run(script(COUNT), *EMR, text)


def test_what_a_killed_driver_left_is_ended(emr, s3):
    cluster = started(emr)
    mark = applications.mark(f"{s3}/run")
    client = emr.client()
    assert clusters.end_left_behind(f"{s3}/run", cluster.id) == []
    arguments = ["hadoop-streaming", "-input", f"{s3}/in", "-mapper", "sleep 60"]
    put(emr, f"{s3}/in/one", b"a\n")
    for place, tag in (("one", mark), ("two", "another")):
        jar = [*arguments, "-output", f"{s3}/{place}", "-D", f"mapreduce.job.tags={tag}"]
        step = {"Name": tag, "HadoopJarStep": {"Jar": "command-runner.jar", "Args": jar}}
        client.add_job_flow_steps(JobFlowId=cluster.id, Steps=[step])
    assert clusters.end_left_behind(f"{s3}/run", cluster.id) == [cluster.id]
    wait_until(lambda: [step.state for step in emr.steps()] == ["CANCELLED", "RUNNING"])
    client.add_tags(ResourceId=cluster.id, Tags=[{"Key": clusters.TAG, "Value": mark}])
    assert clusters.end_left_behind(f"{s3}/run", cluster.id) == [cluster.id]
    assert [step.state for step in emr.steps()] == ["CANCELLED"] * 2
    assert clusters.end_left_behind(f"{s3}/run", cluster.id) == []
    assert clusters.end_left_behind(f"{s3}/run", "j-UNKNOWN") == []


# Bad input: told at once, and nothing was started


def refused(emr, kind, match, script, *arguments):
    with pytest.raises(kind, match=match) as caught:
        run(script, *arguments)
    assert not emr.requests
    return caught.value


@cases(
    "kind, match, arguments",
    (MissingInputError, "the input s3://bucket/in/on does not exist", ["in/on"]),
    (MissingInputError, r"s3://bucket/in/x\* does not exist", ["in/x*"]),
    (MissingInputError, "s3://nobody-has-this/in does not exist", ["s3://nobody-has-this/in"]),
    (MissingInputError, "does not exist on this machine", ["/no/such/file"]),
    (IncompleteOutputError, "s3://bucket/half holds _temporary", ["half"]),
    (IncompleteOutputError, "s3://bucket/half holds _temporary", ["ha*"]),
    (OutputError, "the output folder s3://bucket/out/ exists", ["in", "-o", "s3://bucket/out"]),
    (
        StorageError,
        "s3://nobody-has-this/out/: .*There is no such bucket",
        ["in", "-o", "s3://nobody-has-this/out"],
    ),
    (UsageError, "-o out: the runner emr writes to S3", ["in", "-o", "out"]),
    (
        ClusterError,
        "EMR in us-east-1: .*release label is invalid",
        ["in", "--release-label", "emr-7.99.0"],
    ),
    (UsageError, "have no Python 3.11", ["in", "--release-label", "emr-6.15.0"]),
    (ClusterError, "EMR in us-east-1: .*luster id", ["in", "--cluster-id", "j-X"]),
    (UsageError, "--map-memory: expected a number", ["in", "--map-memory", "0"]),
    (UsageError, "--cloud-tmp-dir tmp: expected s3://", ["in", "--cloud-tmp-dir", "tmp"]),
)
def test_bad_input(emr, s3, script, kind, match, arguments):
    put(emr, f"{s3}/in/one", b"a\n")
    put(emr, f"{s3}/half/_temporary/0/part-00000", b"a\n")
    put(emr, f"{s3}/out/part-00000", b"a\n")
    first, *rest = arguments
    path = first if first[:1] == "/" or "://" in first else f"{s3}/{first}"
    refused(emr, kind, match, script(COUNT), *EMR, path, *rest)


def test_no_credentials(emr, script, text, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    error = refused(emr, ClusterError, "There are no AWS credentials", script(COUNT), *EMR, text)
    assert "aws configure" in str(error)


@pytest.mark.parametrize("bucket", [(), ("--cloud-tmp-dir", "s3://mrjob-tests/tmp/")])
def test_expired_credentials(emr, script, text, monkeypatch, bucket):
    """The service knows the credentials, but no longer takes them."""
    from botocore.exceptions import ClientError

    def refuse(client, operation, _):
        is_s3 = client.meta.service_model.service_name == "s3"
        code = "ExpiredToken" if is_s3 else "ExpiredTokenException"
        if operation.startswith("Head"):
            # There is no text that would tell more.
            code = "400"
        raise ClientError({"Error": {"Code": code, "Message": "The token is expired"}}, operation)

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)
    arguments = [*EMR, *bucket, text]
    refused(emr, ClusterError, "The credentials have expired.", script(COUNT), *arguments)


def test_nobody_answers(emr, script, text, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    refused(emr, ClusterError, "The service is out of reach", script(COUNT), *EMR, text)


def test_options_of_a_configuration(emr, s3, script, text, tmp_path):
    conf = tmp_path / "mrjob.conf"
    options = {
        "check_cluster_every": 0.5,
        "num_core_instances": 0,
        "subnet": "subnet-1",
        "tags": {"team": "x"},
        "yes": True,
        "instance_fleets": [],
        "core_instance_bid_price": 0.05,
    }
    conf.write_text(json.dumps({"runners": {"emr": options}}))
    refused(
        emr, MissingInputError, "does not exist", script(COUNT), "-r", "emr", "-c", conf, "/none"
    )
    conf.write_text(json.dumps({"runners": {"emr": {"instance_typ": "m5.xlarge"}}}))
    match = "instance_typ: the runner has no such option. Did you mean 'instance_type'"
    refused(emr, UsageError, match, script(COUNT), "-r", "emr", "-c", conf, text)


# What costs money


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.slow
def test_nothing_starts_unasked(emr, script, text, monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    job = script(COUNT)
    match = r"This starts .*: 1 m5.xlarge. It costs money.*\n.*Add --yes"
    refused(emr, UsageError, match, job, *EMR[:-1], text)
    monkeypatch.setattr(sys, "stdin", _Terminal("n\n"))
    refused(emr, UsageError, "nothing was started", job, *EMR[:-1], text)
    assert "Start it? [y/N]" in capfd.readouterr().err
    # Nor was anything copied.
    assert not emr.exists("s3://mrjob-tests/tmp")
    monkeypatch.setattr(sys, "stdin", _Terminal("y\n"))
    run(script(COPYING), *EMR[:-1], text)
    assert len(emr.requests) == 1


def test_a_dry_run_starts_nothing(emr, script, text, capfd):
    job = script(COUNT)
    dry = ("-r", "emr", "--dry-run")
    run(job, *dry, "--price-per-hour", "m5.xlarge=0.25", "--num-core-instances", "3", text)
    out = capfd.readouterr().out
    assert "would start a cluster of Amazon EMR in us-east-1" in out
    assert "It costs $1.00 per hour" in out
    assert str(text) in out
    run(job, *dry, "--cluster-id", "j-1", text)
    assert "would run on j-1\n" in capfd.readouterr().out
    for price in ("0.25", "c5.large=1", "m5.xlarge=-1", "m5.xlarge="):
        named = (*dry, "--price-per-hour", price)
        refused(emr, UsageError, "no price for m5.xlarge", job, *named, text)
    refused(emr, MissingInputError, "does not exist", job, *dry, "/none")
    with clusters.shared():
        refused(emr, UsageError, "before the --", job, *dry, text)
    assert not emr.requests
    assert not emr.exists("s3://mrjob-tests/tmp")


@pytest.mark.slow
def test_a_pool_keeps_its_cluster_for_the_next_job(emr, script, text, capfdbinary):
    run(script(COPYING), *EMR, "--pool-clusters", text)
    (cluster,) = emr.clusters
    wait_until(lambda: cluster.state == "WAITING")
    (request,) = emr.requests
    assert request["AutoTerminationPolicy"] == {"IdleTimeout": 600}
    assert "idle timeout" not in str(request["BootstrapActions"])
    run(script(COPYING), *EMR, "--pool-clusters", text)
    assert emr.clusters == [cluster]
    assert len({step.id for step in emr.steps()}) == 2


# The command line


@pytest.mark.slow
def test_the_command_line_refuses_what_emr_cannot_do(tmp_path):
    datasets.blobs(tmp_path / "data", (300,))
    for arguments, told in (((), "is not on S3"), (("--executor", "gang"), "not run on EMR")):
        options = ("--run", tmp_path / "run", "-r", "emr", *arguments)
        done = gradreduce("train", tmp_path / "data", *options)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    done = gradreduce("run", "jobs/word_count.py", "-r", "emr", "--yess", cwd=ROOT)
    assert (done.returncode, "Did you mean --yes?" in done.stderr) == (2, True), done.stderr
