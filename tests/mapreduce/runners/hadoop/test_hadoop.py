"""What the runner ``hadoop`` knows without a cluster: a Hadoop's place, errors, what it asks."""

import dataclasses
import json
import os
import re
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from hdfs_utils.cluster import Cluster, compiled
from hdfs_utils.errors import AddressError, ClusterError, NotRunningError
from hdfs_utils.filesystem import remote_errors
from hdfs_utils.paths import RemotePath
from jobs.word_count import WordCount
from mapreduce.cli.main import main
from mapreduce.errors import OutputError, UsageError
from mapreduce.runners import applications
from mapreduce.runners.hadoop import (
    causes,
    client,
    installation,
    rest,
    runner,
    submissions,
    uber,
    waiting,
)
from mapreduce.runners.hadoop.client import Client
from mapreduce.runners.hadoop.programs import Program, Submitter
from mapreduce.runners.hadoop.rest import RestError, Yarn
from mapreduce.runners.yarn import bootstrap
from mapreduce.support import traits
from mapreduce.support.traits import Step
from programs import PATIENCE
from quick import cases

SITE = "<configuration>{}</configuration>"
PROPERTY = "<property><name>{}</name><value>{}</value></property>"


@pytest.fixture
def no_hadoop(monkeypatch, tmp_path):
    for name in ("HADOOP_HOME", "HADOOP_CONF_DIR", "HADOOP_PREFIX", "HADOOP_MAPRED_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GRADREDUCE_CLUSTER", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    yield
    # What finding a Hadoop has set.
    os.environ.pop("HADOOP_CONF_DIR", None)


def home(folder: Path, **sites: dict[str, str]) -> Path:
    for name in ("bin", "etc/hadoop", "share/hadoop/tools/lib"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "hadoop").write_text("#!/bin/sh\n")
    (folder / "bin" / "hadoop").chmod(0o755)
    jars = folder / "share/hadoop/tools/lib"
    (jars / "hadoop-streaming-3.3.6.jar").touch()
    for name in ("core", "hdfs", "yarn", "mapred"):
        values = sites.get(name, {}).items()
        text = SITE.format("".join(PROPERTY.format(*entry) for entry in values))
        (folder / "etc/hadoop" / f"{name}-site.xml").write_text(text)
    return folder


@pytest.fixture
def installed(no_hadoop, monkeypatch, tmp_path):
    """Makes a Hadoop whose sites have some properties, and finds it by its home."""

    def make(**sites):
        place = home(tmp_path / secrets.token_hex(4), **sites)
        monkeypatch.setenv("HADOOP_HOME", str(place))
        os.environ.pop("HADOOP_CONF_DIR", None)
        return installation.find()

    return make


class TestInstallation:
    def test_none(self, no_hadoop):
        with pytest.raises(NotRunningError, match="gradreduce cluster up"):
            installation.find()

    def test_a_home_without_hadoop(self, no_hadoop, monkeypatch, tmp_path):
        monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
        with pytest.raises(ClusterError, match=r"no bin/hadoop"):
            installation.find()

    def test_by_home(self, installed):
        yarn = {"yarn.resourcemanager.hostname": "rm.example"}
        mapred = {"mapreduce.jobhistory.webapp.address": "history.example:19888"}
        found = installed(yarn=yarn, mapred=mapred)
        assert found.program == f"{os.environ['HADOOP_HOME']}/bin/hadoop"
        assert found.resource_managers == ["http://rm.example:8088"]
        assert found.history_server == "http://history.example:19888"
        assert not found.is_local
        assert os.environ["HADOOP_CONF_DIR"] == f"{os.environ['HADOOP_HOME']}/etc/hadoop"

    def test_by_path(self, no_hadoop, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(home(tmp_path / "h") / "bin"))
        assert installation.find().conf_dir == tmp_path / "h/etc/hadoop"

    def test_several_resource_managers_and_references(self, installed):
        yarn = {
            "yarn.resourcemanager.ha.rm-ids": "a, b",
            "yarn.resourcemanager.hostname.a": "one",
            "yarn.resourcemanager.hostname.b": "two",
            "yarn.resourcemanager.webapp.address.a": "${yarn.resourcemanager.hostname.a}:18088",
        }
        assert installed(yarn=yarn).resource_managers == ["http://one:18088", "http://two:8088"]

    def test_a_damaged_configuration(self, installed):
        found = installed()
        (found.conf_dir / "yarn-site.xml").write_text("<configuration>")
        with pytest.raises(AddressError, match=r"yarn-site\.xml is not a configuration"):
            found.resource_managers  # noqa: B018


class Manager(BaseHTTPRequestHandler):
    """A resource manager with one application."""

    answers: ClassVar[dict[str, object]] = {}
    killed: ClassVar[list[str]] = []

    def do_GET(self):
        found = self.answers.get(self.path)
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def do_PUT(self):
        self.killed.append(self.path)
        self.send_response(202)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def yarn(installed, monkeypatch):
    # The server is a thread of this process, and may stand still with it.
    monkeypatch.setattr(rest, "SECONDS", PATIENCE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Manager)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    place = f"127.0.0.1:{server.server_port}"
    found = {
        "yarn.resourcemanager.webapp.address": place,
        "mapreduce.jobhistory.webapp.address": place,
    }
    Manager.answers, Manager.killed = {}, []
    yield Yarn(installed(yarn=found))
    server.shutdown()
    server.server_close()


APPLICATION = "application_1_0002"


class TestRest:
    def test_nobody_answers(self, installed):
        found = installed(yarn={"yarn.resourcemanager.webapp.address": "127.0.0.1:1"})
        with pytest.raises(RestError, match="does not answer") as error:
            Yarn(found).metrics()
        assert error.value.status is None
        with pytest.raises(ClusterError, match="does not answer"):
            traits.of("hadoop").tasks_at_once()

    def test_an_error_of_the_server(self, yarn):
        with pytest.raises(RestError, match="HTTP 404"):
            yarn.metrics()

    def test_logs_of_a_job_that_left_no_history(self, yarn, answer, monkeypatch):
        app = {"name": "words", "state": "KILLED", "finalStatus": "KILLED"}
        Manager.answers[f"/ws/v1/cluster/apps/{APPLICATION}"] = {"app": app}
        said = answer(69, "logs", APPLICATION).err
        assert f"{APPLICATION}, words: killed\n" in said
        assert "HTTP 404" in said
        assert "not of a job that was killed" in said
        Manager.answers[f"/ws/v1/cluster/apps/{APPLICATION}"] = {"app": app | {"name": "more"}}
        monkeypatch.setattr(installation.Installation, "history_server", "http://127.0.0.1:1")
        assert (
            "the job history server knows them. Start it: mapred"
            in answer(69, "logs", APPLICATION).err
        )
        assert "no attempt failed" not in said

    def test_what_a_killed_driver_left_is_ended(self, yarn, monkeypatch):
        tag = applications.mark("hdfs://h/run")
        query = f"/ws/v1/cluster/apps?applicationTags={tag}&states=NEW,NEW_SAVING,SUBMITTED,"
        Manager.answers[query + "ACCEPTED,RUNNING"] = {"apps": {"app": [{"id": APPLICATION}]}}
        monkeypatch.setattr(submissions, "_END_SECONDS", 0)
        assert submissions.end_left_behind("hdfs://h/run") == [APPLICATION]
        assert Manager.killed[0].startswith(f"/ws/v1/cluster/apps/{APPLICATION}/state?")


#: What Hadoop's own program answers, as that of 3.4.2 does.
PROGRAM = """\
#!/bin/sh
echo "$@" >> "$0.asked"
case "$*" in
    *ApplicationCLI\\ application\\ -list\\ -appTags\\ tag*)
        echo 'Total number of applications (application-types: []):1'
        echo '                Application-Id	    Application-Name'
        echo 'application_1_0002	   words	   MAPREDUCE	      root' ;;
    *-status\\ application_1_0002)
        echo 'Application Report : '
        echo '	Application-Id : application_1_0002'
        echo '	Application-Name : words'
        echo '	State : FINISHED'
        echo '	Final-State : FAILED'
        echo '	Diagnostics : Task failed task_1_0002_m_000000'
        echo 'Job failed as tasks failed.'
        echo
        echo '	Unmanaged Application : false' ;;
    *-kill\\ application_1_0002) ;;
    *LogsCLI*application_1_0002*) echo 'Container: container_1_0002_01_000002' ;;
    *)
        echo 'INFO client.RMProxy: Connecting' >&2
        echo 'Exception in thread "main" AccessControlException: no' >&2
        exit 1 ;;
esac
"""


class TestRefused:
    """The web servers want to know who asks, and there is no ticket: Hadoop's programs serve."""

    @pytest.fixture(params=["status", "page", "silence"])
    def refused(self, yarn, request, monkeypatch):
        program = Path(yarn.installation.program)
        program.write_text(PROGRAM)
        settings = yarn.installation.settings
        if request.param == "silence":
            # Only the port of calls is open.
            place = settings["yarn.resourcemanager.webapp.address"]
            settings["yarn.resourcemanager.address"] = place
            settings["yarn.resourcemanager.webapp.address"] = "127.0.0.1:1"

        def refuse(manager):
            manager.send_response(200 if request.param == "page" else 403)
            manager.end_headers()
            manager.wfile.write(b"<html>Who are you?</html>")

        monkeypatch.setattr(Manager, "do_GET", refuse)
        monkeypatch.setattr(Manager, "do_PUT", refuse)
        return yarn

    def test_applications(self, refused):
        assert refused.live("TAG") == [APPLICATION]
        assert refused.application(APPLICATION) == {
            "name": "words",
            "state": "FINISHED",
            "finalStatus": "FAILED",
            "diagnostics": "Task failed task_1_0002_m_000000\nJob failed as tasks failed.\n",
        }
        refused.kill(APPLICATION)
        asked = Path(f"{refused.installation.program}.asked").read_text()
        assert asked.splitlines()[-1].endswith(f" application -kill {APPLICATION}")

    def test_what_the_program_refuses_too(self, refused):
        with pytest.raises(RestError, match="AccessControlException: no") as error:
            refused.kill("application_1_0003")
        assert error.value.status is not None

    def test_logs(self, refused, monkeypatch, answer):
        monkeypatch.setattr(installation, "find", lambda: refused.installation)
        told = answer(0, "logs", APPLICATION)
        assert told.out == "Container: container_1_0002_01_000002\n"
        assert told.err.startswith(f"{APPLICATION}, words: failed\n")

    def test_a_failure_without_log_or_report(self, refused):
        attempt = "attempt_1_0002_m_000000_0"
        told = causes.of_attempt(refused, APPLICATION, attempt, "failed with code 1")
        assert told.what == "the task failed: failed with code 1"
        said = rf"map task 0, {attempt}; its log could not be read: http://\S+/{attempt}"
        assert re.match(said, told.where), told.where

    @pytest.mark.parametrize("name", ["application_x", "job_1"])
    def test_what_is_no_application(self, name, capsys):
        assert main(["logs", name]) == 2
        assert f"expected application_NUMBER_NUMBER or a run, found '{name}'" in (
            capsys.readouterr().err
        )

    def test_how_much_has_room_is_not_known(self, refused, monkeypatch):
        monkeypatch.setattr(installation, "find", lambda: refused.installation)
        assert traits.of("hadoop").tasks_at_once() == submissions.cores() == 1


def cluster_of(nodes, queue=None, used=0):
    """Answers of a resource manager whose nodes have free so many MiB and cores."""
    entries = [{"availMemoryMB": memory, "availableVirtualCores": cores} for memory, cores in nodes]
    memory, cores = (sum(sizes) for sizes in zip(*nodes, strict=True))
    total = {"totalMB": memory + used, "totalVirtualCores": cores + used // 1024}
    below = {"queue": [{"queueName": "other"}, queue]} if queue else {}
    return {
        "/ws/v1/cluster/nodes?states=RUNNING": {"nodes": {"node": entries}},
        "/ws/v1/cluster/metrics": {"clusterMetrics": total},
        "/ws/v1/cluster/scheduler": {"scheduler": {"schedulerInfo": {"queues": below}}},
    }


DEFAULT = {"queueName": "default", "absoluteMaxCapacity": 100.0, "absoluteUsedCapacity": 0.0}


class TestTasksAtOnce:
    """A map task takes 1,024 MiB and a core by Hadoop's defaults, the master 1,536, so 2,048."""

    @cases(
        "nodes, queue, expected",
        ([(8192, 8)], None, 6),
        # As many cores are free as is memory: the master needs a core too.
        ([(65536, 4)], None, 3),
        # Containers do not span nodes, and the master goes where it costs most.
        ([(1536, 4), (1536, 4), (4096, 4)], None, 4),
        ([(1024, 4), (1024, 4)], None, 0),
        ([(8192, 8)], {**DEFAULT, "absoluteCapacity": 100.0}, 6),
        ([(8192, 8)], {**DEFAULT, "absoluteCapacity": 50.0}, 2),
        ([(8192, 8)], {**DEFAULT, "absoluteCapacity": 25.0, "userLimitFactor": 2.0}, 2),
        ([(8192, 8)], {**DEFAULT, "absoluteCapacity": 25.0, "userLimitFactor": -1}, 6),
        ([(8192, 8)], {**DEFAULT, "absoluteUsedCapacity": 50.0}, 2),
        ([(8192, 8)], {**DEFAULT, "absoluteUsedCapacity": 120.0}, 0),
    )
    def test_what_is_free(self, yarn, nodes, queue, expected):
        Manager.answers = cluster_of(nodes, queue)
        assert traits.of("hadoop").tasks_at_once() == expected

    def test_what_one_task_takes_by_the_configuration(self, yarn, installed):
        Manager.answers = cluster_of([(16384, 16)])
        sizes = {
            "mapreduce.map.memory.mb": "1500",
            "mapreduce.map.cpu.vcores": "3",
            "yarn.app.mapreduce.am.resource.mb": "512",
        }
        place = {"yarn.resourcemanager.webapp.address": yarn.installation.resource_managers[0][7:]}
        installed(yarn=place, mapred=sizes)
        # 15 cores and 15,360 MiB are left, by 3 cores and 2,048 MiB.
        assert traits.of("hadoop").tasks_at_once() == 5

    def test_nodes_of_this_machine_share_its_cores(self, yarn, tmp_path, monkeypatch):
        own = Cluster(tmp_path, 1, 1000, tmp_path / "java", (), tmp_path / "hadoop")
        here = dataclasses.replace(yarn.installation, own=own)
        monkeypatch.setattr(installation, "find", lambda: here)
        monkeypatch.setattr(submissions, "available_cores", lambda: 2)
        Manager.answers = cluster_of([(8192, 8)])
        assert traits.of("hadoop").tasks_at_once() == 2

    def test_one_if_the_interface_is_guarded(self, yarn):
        assert traits.of("hadoop").tasks_at_once() == 1


def amounts(**named):
    found = [{"name": name.replace("_", "-"), "value": value} for name, value in named.items()]
    return {"resourceInformations": {"resourceInformation": found}}


class _Place(str):
    """A path that is there or not."""

    def __new__(cls, name, is_there):
        found = str.__new__(cls, name)
        found.exists, found.is_dir = (lambda: is_there), (lambda: False)
        found.resolve = Path(name).resolve
        return found


class TestGoingOn:
    """What of a killed driver's steps is not begun again."""

    FIRST, SECOND = (Step(f"application_1_{number}", f"step{number}") for number in (1, 2))

    @pytest.fixture
    def went_on(self, yarn, monkeypatch):
        def make(
            ends, steps=(self.FIRST, self.SECOND), tagged=(), there=("step2",), published=False
        ):
            states = {name: {"app": {"finalStatus": end}} for name, end in ends.items()}
            query = f"/ws/v1/cluster/apps?applicationTags={applications.mark('job')}"
            Manager.answers = {f"/ws/v1/cluster/apps/{name}": app for name, app in states.items()}
            Manager.answers[query] = {"apps": {"app": [{"id": name} for name in tagged]}}
            place = SimpleNamespace
            exists = runner.RemotePath
            monkeypatch.setattr(runner, "RemotePath", lambda name: _Place(name, name in there))
            left = place(steps=steps, marks=("job",), output="out", is_published=published)
            made = object.__new__(runner.HadoopMRJobRunner)
            made._yarn, made._steps = yarn, [{}, {}]
            made._input_paths, made._opts = ["in"], {"upload_files": [], "upload_archives": []}
            try:
                found = made.going_on(left)
            finally:
                monkeypatch.setattr(runner, "RemotePath", exists)
            return [*found["steps"]], found["is_published"]

        return make

    ONE, TWO = FIRST.application, SECOND.application
    ALL: ClassVar = {ONE: "SUCCEEDED", TWO: "SUCCEEDED"}

    def test_all(self, went_on):
        assert went_on(self.ALL) == ([self.FIRST, self.SECOND], False)
        assert went_on(self.ALL, published=True) == ([self.FIRST, self.SECOND], True)

    def test_the_output_has_its_name_or_is_gone(self, went_on):
        published = went_on(self.ALL, there=["out"], published=True)
        assert published == ([self.FIRST, self.SECOND], True)
        assert went_on(self.ALL, there=["step1"], published=True) == ([self.FIRST], False)
        assert went_on(self.ALL, there=[]) == ([], False)

    @pytest.mark.parametrize("there", [["out", "step1"], ["out", "step2"]])
    @pytest.mark.parametrize("published", [False, True])
    def test_another_output_is_in_the_way(self, went_on, there, published):
        if published and "step1" in there:
            assert went_on(self.ALL, there=there, published=True)[1]
        else:
            with pytest.raises(OutputError, match="out exists"):
                went_on(self.ALL, there=there, published=published)

    @pytest.mark.parametrize("end", ["FAILED", "KILLED", None])
    def test_one_that_failed_or_that_nobody_knows(self, went_on, end):
        ends = {self.ONE: "SUCCEEDED", **({self.TWO: end} if end else {})}
        assert went_on(ends, there=["step1"]) == ([self.FIRST], False)

    def test_one_that_runs(self, went_on):
        ends = {self.ONE: "SUCCEEDED", self.TWO: "UNDEFINED"}
        assert went_on(ends, there=[]) == ([self.FIRST, self.SECOND], False)

    def test_one_that_is_not_on_record(self, went_on):
        begun = (self.FIRST, Step("", "step2"))
        ids = [self.ONE, self.TWO]
        assert went_on(self.ALL, begun, ids) == ([self.FIRST, self.SECOND], False)
        assert went_on(self.ALL, begun, ids[:1], ["step1"]) == ([self.FIRST], False)

    def test_one_that_is_followed_while_nobody_answers(self, yarn, monkeypatch):
        monkeypatch.setattr(waiting, "SECONDS", 0)
        answers = iter([RestError("x"), "", RestError("x"), "FAILED"])

        def final_status(self, application):
            answer = next(answers)
            if isinstance(answer, RestError):
                raise answer
            return answer

        monkeypatch.setattr(Yarn, "final_status", final_status)
        monkeypatch.setattr(causes, "_HISTORY_SECONDS", 0)
        outcome = Client(yarn, "tag", "step 1 of 1").follow(self.ONE)
        assert (outcome.return_code, outcome.application) == (1, self.ONE)
        assert outcome.failure.what
        answers = iter([RestError("silent")])
        monkeypatch.setattr(client, "_SILENT_SECONDS", -1)
        with pytest.raises(RestError, match="silent"):
            Client(yarn, "tag", "step 1 of 1").follow(self.ONE)
        assert Manager.killed == []

    def test_one_that_nobody_knows_any_more(self, yarn):
        """The resource manager was started anew, and the history has what has ended only."""
        outcome = Client(yarn, "tag", "step 1 of 1").follow(self.ONE)
        assert (outcome.return_code, outcome.failure.exit_code) == (1, 75)
        assert f"does not know {self.ONE} any more" in outcome.failure.what
        assert "Run the command again" in outcome.failure.what
        assert Manager.killed == []

    def test_one_that_is_forgotten_after_an_attempt_has_failed(self, yarn):
        said = [
            f"INFO impl.YarnClientImpl: Submitted application {self.ONE}",
            "INFO mapreduce.Job: Task Id : attempt_1_0001_m_000000_0, Status : FAILED",
            "ERROR streaming.StreamJob: Error Launching job : java.io.IOException: Unknown Job "
            "job_1_0001",
        ]
        lines = iter([f"26/01/01 00:00:00 {line}\n".encode() for line in said])
        program = SimpleNamespace(lines=lambda: lines, wait=lambda: 1, close=lambda: None)
        outcome = Client(yarn, "tag", "step 1 of 1").run(program)
        assert f"does not know {self.ONE} any more" in outcome.failure.what

    def test_one_that_is_in_the_history_only(self, went_on, yarn):
        path = f"/ws/v1/history/mapreduce/jobs/{self.ONE.replace('application', 'job')}"
        Manager.answers = {path: {"job": {"state": "SUCCEEDED"}}}
        assert yarn.final_status(self.ONE) == "SUCCEEDED"
        with pytest.raises(RestError):
            yarn.final_status(self.TWO)


class TestWaiting:
    """What an application waits for, by the resource manager's answers."""

    ASKED: ClassVar = {"memory_mb": 2048, "vcores": 1, "gpu": 1}
    FULL = "Application is added to the scheduler and is not yet activated.  Queue's AM resource "

    @pytest.fixture
    def look(self, yarn, monkeypatch):
        """Looks at an application after seconds."""
        now = [100.0]
        monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
        Manager.answers = cluster_of([(3072, 3), (4096, 3)], {**DEFAULT, "queuePath": "root.d"})
        nodes = Manager.answers["/ws/v1/cluster/nodes?states=RUNNING"]["nodes"]["node"]
        for node in nodes:
            node["availableResource"] = amounts(memory_mb=node["availMemoryMB"], vcores=3, gpu=0)
        queue = waiting.Queue(yarn, "step 1 of 1", 60)

        def at(seconds, *, state="RUNNING", containers=1, asked=self.ASKED, said=""):
            now[0] = 100.0 + seconds
            requests = [
                {"resourceName": place, "numContainers": 3, "capability": amounts(**asked)}
                for place in ("*", "/rack", "node1")
            ]
            app = {"state": state, "runningContainers": containers, "queue": "default"}
            app |= {"resourceRequests": requests, "diagnostics": said}
            Manager.answers[f"/ws/v1/cluster/apps/{APPLICATION}"] = {"app": app}
            return queue.look(APPLICATION)

        return at

    def test_it_is_said_less_and_less_often_and_ends_at_the_limit(self, look, caplog):
        caplog.set_level("INFO", "mrjob.hadoop")
        for seconds in range(60):
            assert look(seconds) is None
        waited = [record.getMessage() for record in caplog.records]
        assert waited == [
            f"step 1 of 1: waiting in queue root.d for {seconds} s (needs 3 x 2,048 MB and 1 gpu, "
            f"0 free)"
            for seconds in (10, 30)
        ]
        failure = look(60)
        assert (failure.exit_code, failure.final) == (75, True)
        assert "no room in queue root.d within 60 s: it needs 3 x 2,048 MB and 1 gpu" in str(
            failure
        )

    def test_the_clock_begins_again_once_something_runs(self, look):
        assert [look(0), look(50, containers=2), look(55), look(114)] == [None] * 4
        assert look(115) is not None

    @cases(
        "asked, said, expected",
        (
            {"memory_mb": 1500, "vcores": 1},
            "",
            "needs 3 x 1,500 MB for its application master, 4 free",
        ),
        (
            {"memory_mb": 1500},
            FULL + "limit exceeded.  Details : x",
            "4 free; Queue's AM resource limit exceeded",
        ),
    )
    def test_for_its_master(self, look, asked, said, expected):
        waits = {"state": "ACCEPTED", "containers": 0, "asked": asked, "said": said}
        look(0, **waits)
        assert expected in str(look(60, **waits))

    @pytest.mark.parametrize("state", ["ACCEPTED", "RUNNING"])
    def test_one_whose_master_begins_does_not_wait(self, look, state):
        assert [look(at, state=state, containers=2) for at in (0, 600)] == [None, None]

    def test_for_a_resource_manager_that_is_away(self, look, yarn, monkeypatch, caplog):
        """Before and after the step is submitted; the clock of the queue stands still."""
        caplog.set_level("INFO", "mrjob.hadoop")
        told, now, is_away = [], [0.0], [True]
        ask = Yarn._manager

        def away(self, path, **options):
            if is_away[0]:
                raise RestError("http://rm does not answer: refused")
            return ask(self, path, **options)

        monkeypatch.setattr(Yarn, "_manager", away)
        monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
        queue = waiting.Queue(yarn, "step 1 of 1", 60)
        with applications.report_to("run", told.append, told.append):
            for application in (None, APPLICATION):
                for _ in range(35):
                    assert queue.look(application) is None
                    now[0] += 1
        said = [
            f"step 1 of 1: YARN's resource manager has not answered for {seconds} s, and the step "
            f"waits for it: http://rm does not answer: refused"
            for seconds in (10, 30, 60)
        ]
        assert [record.getMessage() for record in caplog.records] == said
        assert told == said
        is_away[0] = False
        assert queue.look(None) is None
        is_away[0] = True
        now[0] += 600
        # The clock begins again.
        assert queue.look(None) is None
        assert told == said

    @pytest.mark.parametrize("status", [0, 200, 401, 403])
    def test_where_the_web_server_refuses_nobody_else_is_asked(
        self, yarn, monkeypatch, caplog, status
    ):
        """Hadoop's own programs do not tell what an application waits for, and take a second."""
        asked = []

        def refused(self, path, **_):
            asked.append(path)
            raise RestError("refused", status)

        monkeypatch.setattr(Yarn, "_manager", refused)
        monkeypatch.setattr(rest.programs, "application", None)
        queue = waiting.Queue(yarn, "step 1 of 1", 60)
        assert [queue.look(APPLICATION) for _ in range(3)] == [None] * 3
        assert len(asked) == 1
        assert "--queue-wait cannot be kept" in caplog.text

    def test_another_interface_is_asked_once(self, look, caplog):
        look(0)
        del Manager.answers["/ws/v1/cluster/metrics"]["clusterMetrics"]
        assert [look(at) for at in (60, 120)] == [None, None]
        assert caplog.text.count("--queue-wait cannot be kept") == 1

    @pytest.mark.parametrize("given", ["-1", "nan"])
    def test_a_limit_that_is_no_time(self, installed, tmp_path, answer, given):
        installed()
        (tmp_path / "in").touch()
        command = ["run", "jobs/word_count.py", "-r", "hadoop", "--no-conf", "--queue-wait", given]
        assert (
            f"--queue-wait: expected seconds, found {float(given)!r}"
            in answer(2, *command, tmp_path / "in").err
        )


@cases(
    "place, output, sign",
    ("a\nb", "out", r"\n"),
    ("in", "o\rut", r"\r"),
    ("in", "o${user.name}", "${"),
)
def test_names_that_a_jobs_configuration_does_not_keep(installed, place, output, sign):
    installed(core={"fs.defaultFS": "hdfs://there:8020"})
    check_names(sign, "-o", output, place)


def test_an_output_where_the_user_may_not_write(installed, monkeypatch):
    """Known before the job, which would end with it after a minute."""
    installed(core={"fs.defaultFS": "hdfs://there:8020"})

    def mkdir(path, parents):
        with remote_errors(path):
            raise OSError(
                'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: '
                'user=me, access=WRITE, inode=\\"/in\\":root:supergroup:drwxr-xr-x\\n\\tat org.x")'
            )

    monkeypatch.setattr(RemotePath, "mkdir", mkdir)
    monkeypatch.setattr(RemotePath, "can_rename", True)
    made = WordCount(["-r", "hadoop", "--no-conf", "-o", "/in/out", "in"]).make_runner()
    with pytest.raises(OutputError, match="out cannot be made: me lacks a permission on HDFS"):
        made._check_may_write()


@pytest.mark.parametrize("option", ["--files", "--archives", "--dirs"])
def test_names_of_files_that_come_along(installed, tmp_path, option):
    installed(core={"fs.defaultFS": "hdfs://there:8020"})
    (tmp_path / "a b").mkdir()
    check_names(" ", option, str(tmp_path / "a b"), "in")


def check_names(sign, *arguments):
    made = WordCount(["-r", "hadoop", "--no-conf", *arguments]).make_runner()
    with pytest.raises(UsageError, match=re.escape(f"holds '{sign}', which the configuration")):
        made._check_input_paths()


CLIENT = """\
import sys
print("26/11/21 21:00:00 INFO impl.YarnClientImpl: Submitted application application_1_0002",
      file=sys.stderr, flush=True)
{}
"""
ATTEMPT = "attempt_1_0002_m_000000_0"


class TestClient:
    def run(self, yarn, rest):
        client = Client(yarn, "tag", "step 1 of 1")
        return client.run(Program([sys.executable, "-c", CLIENT.format(rest)], os.environ))

    def failing(self, monkeypatch, **told):
        """The rest of a client whose step has an attempt that tells of an exception."""
        log = bootstrap.MARK + json.dumps({"kind": "exception", **told})
        monkeypatch.setattr(Yarn, "log", lambda *arguments: log)
        path = f"/proxy/{APPLICATION}/ws/v1/mapreduce/jobs/job_1_0002/tasks/task_1_0002_m_000000"
        entry = {"nodeHttpAddress": "n:1", "assignedContainerId": "c", "diagnostics": ""}
        Manager.answers[f"{path}/attempts/{ATTEMPT}"] = {"taskAttempt": entry}
        line = f"26/11/21 21:00:01 INFO mapreduce.Job: Task Id : {ATTEMPT}, Status : FAILED"
        return f"print({line!r}, file=sys.stderr, flush=True); sys.exit(1)"

    @pytest.mark.parametrize("code", [1, 0])
    @cases(
        "told",
        {"type": "ValueError", "message": "x", "traceback": "T"},
        {"type": "DataError", "message": "x", "exit_code": 65},
    )
    def test_how_often_a_task_is_tried_is_hadoops_to_say(self, yarn, monkeypatch, told, code):
        """However often it raises one exception, its next attempt may be right."""
        rest = self.failing(monkeypatch, **told).partition(";")[0]
        (path,) = Manager.answers
        program = Path(yarn.installation.program)
        program.write_text('#!/bin/sh\n: > "$0.asked"\n')
        lines = []
        for number in "0123":
            Manager.answers[path[:-1] + number] = Manager.answers[path]
            lines.append(rest.replace(ATTEMPT, ATTEMPT[:-1] + number))
        outcome = self.run(yarn, ";".join([*lines[: 2 + code * 2], f"sys.exit({code})"]))
        assert not Manager.killed
        assert not program.with_name("hadoop.asked").exists()
        assert outcome.return_code == code
        found = outcome.failure and (outcome.failure.what, outcome.failure.exit_code)
        assert found == ((f"{told['type']}: x", told.get("exit_code")) if code else None)

    def test_what_many_attempts_lack_is_one_warning(self, yarn, monkeypatch, caplog):
        told = {"type": "MissingInputError", "message": "x is not there", "exit_code": 66}
        rest = self.failing(monkeypatch, **told)
        report = rest.partition(";")[0]
        path = next(iter(Manager.answers)).replace("task_1_0002_m_000000", "task_1_0002_m_000001")
        other = ATTEMPT.replace("m_000000", "m_000001")
        Manager.answers[path.replace(ATTEMPT, other)] = next(iter(Manager.answers.values()))
        self.run(yarn, f"{report.replace(ATTEMPT, other)};{rest}")
        assert [record.levelname for record in caplog.records].count("WARNING") == 1
        assert "x is not there" in caplog.text

    def test_a_resource_manager_that_goes_away(self, yarn, monkeypatch):
        """All that Hadoop's client says then is "Error Launching job"."""
        away = ["http://127.0.0.1:1"]
        monkeypatch.setattr(installation.Installation, "resource_managers", away)
        program = "print('ERROR Error Launching job', file=sys.stderr); sys.exit(5)"
        outcome = self.run(yarn, program)
        said = outcome.failure.what
        assert said.startswith("YARN's resource manager does not answer: http://127.0.0.1:1/")
        assert said.endswith(f"yarn application -status {APPLICATION}")

    def test_a_job_that_cannot_be_submitted(self, yarn):
        program = "import sys; sys.exit('ERROR streaming.StreamJob: Error: no such queue')"
        client = Client(yarn, "tag", "step 1 of 1")
        outcome = client.run(Program([sys.executable, "-c", program], os.environ))
        assert "could not be submitted: " in outcome.failure.what
        assert "no such queue" in outcome.failure.what

    def test_options_that_streaming_refuses(self, yarn):
        """It tells the exception to those who debug it; the property is found by its value."""
        program = """
import os, sys
if "DEBUG" in os.environ.get("HADOOP_ROOT_LOGGER", ""):
    print("26/11/26 01:00:00 DEBUG streaming.StreamJob: Error in streaming job", file=sys.stderr)
    print('java.lang.NumberFormatException: For input string: "four"', file=sys.stderr)
sys.exit("Streaming Command Failed!")
"""
        arguments = [
            *(sys.executable, "-c", program, "-D", "a.b=1", "-D", "mapreduce.job.reduces=four")
        ]
        client = Client(yarn, "tag", "step 1 of 1", arguments, os.environ)
        outcome = client.run(Program(arguments, os.environ))
        assert outcome.failure.what == (
            "the job could not be submitted: java.lang.NumberFormatException: For input string: "
            '"four"\nThis is the value of -D mapreduce.job.reduces=four'
        )

    def test_nothing_is_submitted_to_ask_why(self, yarn):
        """Streaming is asked again, and would submit the step then."""
        program = """
import os, sys
if "DEBUG" in os.environ.get("HADOOP_ROOT_LOGGER", ""):
    print("26/11/26 01:00:00 INFO mapreduce.JobResourceUploader: x", file=sys.stderr, flush=True)
    __import__("time").sleep(600)
sys.exit("Streaming Command Failed!")
"""
        arguments = [sys.executable, "-c", program]
        client = Client(yarn, "tag", "step 1 of 1", arguments, os.environ)
        outcome = client.run(Program(arguments, os.environ))
        assert outcome.failure.what.endswith("could not be submitted: Streaming Command Failed!")


#: Stands in for Java: says what it was given, and ends a step with the code that it is told.
SUBMITTER = """\
#!{python}
import os, sys
from urllib.parse import unquote
print(sys.argv[1], os.environ["HADOOP_CLASSPATH"], file=sys.stderr, flush=True)
for line in sys.stdin:
    words = [unquote(word) for word in line.rstrip("\\n").split("\\t")]
    if words == ["die"]:
        sys.exit(3)
    print(repr(words), file=sys.stderr)
    print("gradreduce: ended with", words[0], file=sys.stderr, flush=True)
"""


class TestSubmitter:
    @pytest.fixture
    def own(self, tmp_path):
        cluster = Cluster(tmp_path, 1, 1000, tmp_path / "java", (), tmp_path / "hadoop")
        program = cluster.home / "bin" / "hadoop"
        program.parent.mkdir(parents=True)
        program.write_text(SUBMITTER.format(python=sys.executable))
        program.chmod(0o755)
        return cluster

    @pytest.fixture
    def one(self, own):
        one = Submitter(own, {"HADOOP_CLASSPATH": "mine", "A": "1"})
        yield one
        one.end()

    def test_one_program_for_several_steps(self, own, one):
        said = []
        for words in (["0", "a\tb", "ü\n", "%41+"], ["5"]):
            one.submit(words)
            said += one.lines()
            assert one.wait() == int(words[0])
            one.close()
            assert said.pop().decode().strip() == repr(words)
        (path,) = said
        assert path.decode().split() == [compiled.SUBMITTER, f"mine:{compiled.folder(own.hadoop)}"]

    def test_one_that_dies_in_a_step(self, one):
        one.submit(["die"])
        list(one.lines())
        assert one.wait() == 3
        assert not one.serves({"HADOOP_CLASSPATH": "mine", "A": "1"})
        # Nobody reads any more, and nothing breaks but the step.
        one.submit(["0"])
        assert list(one.lines()) == []
        assert one.wait() == 3

    def test_one_that_is_killed_has_not_succeeded(self, one):
        one.submit(["0"])
        one.kill()
        assert one.wait() != 0

    def test_another_environment_needs_another(self, one):
        assert one.serves({"HADOOP_CLASSPATH": "mine", "A": "1"})
        assert not one.serves({"HADOOP_CLASSPATH": "mine", "A": "2"})


class TestUber:
    @cases(
        "jobconf, expected",
        ({}, True),
        ({"mapreduce.job.reduces": 0, "mapreduce.partition.keypartitioner.options": "x"}, True),
        ({"mapreduce.job.reduces": "1"}, True),
        ({"mapreduce.job.reduces": 2}, False),
        ({"mapred.reduce.tasks": "2"}, False),
        ({"mapreduce.job.maps": 1}, True),
        ({"mapreduce.job.maps": 2}, False),
        ({"mapred.map.tasks": 1}, False),
        ({"mapreduce.job.ubertask.enable": "false"}, False),
        ({"mapreduce.map.memory.mb": 100}, False),
        ({"mapreduce.reduce.java.opts": "-Xmx1g"}, False),
    )
    def test_who_says_how_tasks_run(self, jobconf, expected):
        assert uber.leaves_tasks_to_us(jobconf) is expected

    def test_the_master_gets_the_memory_of_a_task(self, installed):
        def found(**settings):
            names = {name.replace("__", "."): value for name, value in settings.items()}
            return uber.properties(installed(mapred=names))

        base = {
            "mapreduce.am.max-attempts": "1",
            "mapreduce.job.maps": "1",
            "mapreduce.job.ubertask.enable": "true",
        }
        # By Hadoop's own defaults the master has 1,536 MB, and a task 1,024.
        assert found() == base
        assert found(mapreduce__reduce__memory__mb="4096") == {
            **base,
            "yarn.app.mapreduce.am.resource.mb": "4096",
        }
        assert found(mapreduce__map__memory__mb="4096", mapreduce__map__java__opts="-Xmx3g") == {
            **base,
            "yarn.app.mapreduce.am.resource.mb": "4096",
            "yarn.app.mapreduce.am.command-opts": "-Xmx3g",
        }

    def test_the_committer_is_only_where_it_was_compiled(self, tmp_path, installed):
        own = Cluster(tmp_path, 1, 1000, tmp_path / "java", (), tmp_path / "hadoop")
        theirs = dataclasses.replace(installed(), own=own)
        name = "mapred.output.committer.class"
        assert name not in uber.properties(theirs)
        compiled.folder(own.hadoop).mkdir(parents=True)
        assert uber.properties(theirs)[name] == compiled.COMMITTER
