"""What works on an open Hadoop works on one with Kerberos: by commands, as its users run them."""

import getpass
import json
import os
import re
import secrets
import shutil
import signal
import ssl
import struct
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from test_readme import PATH, ROOT, blocks

import datasets
import programs
from programs import FAILING, gradreduce, succeed
from quick import each

pytestmark = pytest.mark.slow

WORD_COUNT = ROOT / "jobs" / "word_count.py"

SERVICES = ("HDFS", "YARN", "nodes", "history")

#: Waits for a file, whose name is on its line.
SLOW = """\
import os
import time

from mrjob.job import MRJob


class Slow(MRJob):
    def mapper(self, _, line):
        while not os.path.exists(line):
            time.sleep(0.1)
        yield line, 1
"""


def states(env, *names):
    """The applications in some states, as Java's own client says it."""
    command = [f"{env['HADOOP_HOME']}/bin/yarn", "application", "-list", "-appStates", *names]
    return re.findall(r"application_\d+_\d+", programs.ran(*command, env=env).stdout)


def running(env):
    """The applications that run, without a virtual machine for each look."""
    status = json.loads(succeed("cluster", "status", "--json", env=env))
    return [one["id"] for one in status["applications"] if one["state"] == "RUNNING"]


def kept(env):
    """What jobs have left on HDFS."""
    script = "from hdfs_utils.paths import path_of\nprint([*path_of('hdfs:///user').glob('*/tmp/mrjob/*')])"
    return programs.ran(sys.executable, "-c", script, env=env).stdout


def ticket(env, principal, cache):
    """The environment of one who has another ticket of this cluster."""
    script = "import sys; from pathlib import Path; from hdfs_utils import kerberos\n"
    script += "kerberos.obtain(sys.argv[1], *map(Path, sys.argv[2:]))"
    keytab = Path(env["KRB5_CONFIG"]).with_name("keytab")
    programs.ran(sys.executable, "-c", script, principal, keytab, cache, env=env)
    return env | {"KRB5CCNAME": f"FILE:{cache}"}


def test_everything_asks_who_one_is(secure):
    content = json.loads(succeed("cluster", "status", "--json", env=secure))
    assert content["state"] == "up"
    webs = {entry["role"]: entry["web"] for entry in content["processes"]}
    assert webs.pop("kdc") == ""
    folder = Path(secure["KRB5_CONFIG"]).parent
    assert folder.stat().st_mode & 0o77 == 0
    trusted = ssl.create_default_context(cafile=folder / "certificate.pem")
    for web in webs.values():
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{web}/jmx", context=trusted, timeout=programs.PATIENCE)


def test_a_second_up_brings_a_new_ticket(secure):
    cache = Path(secure["KRB5CCNAME"].removeprefix("FILE:"))
    before = cache.read_bytes()
    assert "is running" in gradreduce("cluster", "up", env=secure).stderr
    assert cache.read_bytes() != before
    cache.unlink()
    assert json.loads(succeed("cluster", "status", "--json", env=secure))["state"] == "up"
    assert cache.exists()
    done = gradreduce("cluster", "up", "--no-kerberos", env=secure)
    assert (done.returncode, "is up with Kerberos" in done.stderr) == (69, True)


@pytest.mark.parametrize("named", each(2, [False, True]))
def test_a_job(secure, tmp_path, named):
    """By the environment that ``cluster env`` prints, and without it."""
    (tmp_path / "text").write_text("a b\nb\n")
    env = dict(secure)
    if not named:
        for name in ("HADOOP_HOME", "HADOOP_CONF_DIR", "KRB5_CONFIG", "KRB5CCNAME"):
            del env[name]
    done = gradreduce("run", WORD_COUNT, "-r", "hadoop", "--no-conf", tmp_path / "text", env=env)
    assert done.stdout == '"a"\t1\n"b"\t2\n', done.stderr
    assert "Map input records=2" in done.stderr
    assert kept(secure) == "[]\n"


def test_a_job_that_fails_says_why(secure, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "numbers").write_text("1\nthree\n")
    twice = ["--no-uber", "-D", "mapreduce.map.maxattempts=2"]
    arguments = ["-r", "hadoop", "--no-conf", *twice, tmp_path / "numbers"]
    done = gradreduce("run", tmp_path / "failing.py", *arguments, env=secure)
    assert done.returncode == 1
    error = done.stderr.partition("\nerror: ")[2]
    assert error.startswith("step 1 of 1 failed: ValueError: invalid literal for int()")
    assert "'three'" in error
    (application,) = re.findall("gradreduce logs (application_.*)", error)
    told = gradreduce("logs", application, env=secure)
    assert told.stderr.splitlines()[0] == f"{application}, failing: failed"
    assert told.stdout.count(": failed <==\n") == 2


def test_another_user_does_not_end_the_job_and_an_interrupt_does(secure, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "lines").write_text(f"{tmp_path}/never\n")
    arguments = ["-r", "hadoop", "--no-conf", tmp_path / "lines"]
    process = programs.start("run", tmp_path / "slow.py", *arguments, env=secure)
    try:
        programs.wait_until(lambda: running(secure) or process.poll() is not None)
        (application,) = running(secure)
        guest = ticket(secure, "guest", tmp_path / "ticket")
        command = [f"{secure['HADOOP_HOME']}/bin/yarn", "application", "-kill", application]
        programs.ran(*command, env=guest, check=False)
        assert states(secure, "RUNNING") == [application]
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=programs.PATIENCE)
    finally:
        (tmp_path / "never").touch()
        process.kill()
    assert (process.returncode, stderr.splitlines()[-1]) == (130, "interrupted")
    assert states(secure, "SUBMITTED,ACCEPTED,RUNNING") == []
    assert kept(secure) == "[]\n"


def test_the_page(secure, tmp_path):
    """The commands of docs/clusters.md, for which the cluster is up already."""
    text = (ROOT / "docs" / "clusters.md").read_text()
    (block,) = blocks("sh", text.split("\n## A Hadoop with Kerberos\n")[1].split("\n## ")[0])
    (tmp_path / "README.md").write_text("a b\nb\n")
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    told = programs.ran("bash", "-ec", block, cwd=tmp_path, env=secure | {"PATH": PATH}).stdout
    assert told.startswith('"a"\t1\n"b"\t2\n')
    assert told.splitlines()[-1] == "ok    history       accepts the ticket"


@pytest.fixture(scope="module")
def training(secure, tmp_path_factory):
    """Options of a training on HDFS, and the digest that it has on this machine."""
    folder = tmp_path_factory.mktemp("training")
    datasets.blobs(folder / "train")
    # Another worker of pytest-xdist may have copied them, too.
    place = f"hdfs:///data-{secrets.token_hex(4)}"
    succeed("data", "copy", folder / "train", place, env=secure)
    options = ["--model", "mlp:9", "--batch-size", 96, "--rounds", 2, "--json", "-q"]
    told = succeed("train", folder / "train", "--run", folder / "run", *options, "-r", "inline")
    return [place, *options, "-r", "hadoop"], digest(told)


def digest(told):
    return json.loads(told)["model_sha256"]


#: ``gradreduce`` whose ticket is gone after the first round.
LOSING = """\
import sys
from pathlib import Path
from mapreduce.cli.main import main
from mapreduce.runs.events import RoundCompleted
from mapreduce.training.console import Display

cache = Path(sys.argv.pop(1))


def told(display, event, tell=Display.__call__):
    tell(display, event)
    if isinstance(event, RoundCompleted) and event.completed == 1:
        cache.unlink()


Display.__call__ = told
sys.exit(main())
"""


def test_a_training_as_a_chain_goes_on_after_its_ticket_was_lost(secure, training, tmp_path):
    """Tasks have no ticket: they read the run's folder by the tokens of their job."""
    options, expected = training
    cache = tmp_path / "ticket"
    shutil.copy(secure["KRB5CCNAME"].removeprefix("FILE:"), cache)
    how = ["--run", "hdfs:///runs/chain", "--executor", "chain", "--checkpoint-every", 1]
    env = {**secure, "KRB5CCNAME": f"FILE:{cache}"}
    losing = [sys.executable, "-c", LOSING, cache, "train", *options, *how]
    done = programs.ran(*losing, check=False, env=env)
    assert done.returncode == 77, done.stderr
    assert not cache.exists()
    again = r"the last round is saved. Continue with: gradreduce resume hdfs://.*/runs/chain\n"
    assert re.search(again, done.stderr)
    said = done.stderr.splitlines()[-1]
    assert f"there is no Kerberos ticket in {cache}. Get one: kinit" in said
    assert states(secure, "SUBMITTED,ACCEPTED,RUNNING") == []
    told = succeed("resume", "hdfs:///runs/chain", "-r", "hadoop", "--json", "-q", env=secure)
    assert digest(told) == expected


@pytest.mark.fault
def test_a_training_as_a_gang_goes_on_after_its_driver_was_killed(secure, training):
    options, expected = training
    how = ["--run", "hdfs:///runs/gang", "--executor", "gang", "--workers", 2]
    how += ["--gang-wait", programs.PATIENCE]
    before = {*states(secure, "RUNNING,FINISHED")}
    process = programs.start("train", *options, *how, env=secure)
    programs.wait_until(lambda: {*running(secure)} - before or process.poll() is not None)
    programs.kill(process)
    # It may have ended since.
    (left,) = {*states(secure, "RUNNING,FINISHED")} - before
    again = ["resume", "hdfs:///runs/gang", "-r", "hadoop", "--json", "-q"]
    assert digest(succeed(*again, env=secure)) == expected
    assert left in states(secure, "KILLED,FINISHED")
    assert states(secure, "SUBMITTED,ACCEPTED,RUNNING") == []


def of_another_realm(cache):
    """Have a ticket be somebody's of a realm that this machine does not know."""
    cache.write_bytes(cache.read_bytes().replace(b"EXAMPLE.COM", b"EXAMPLE.ORG"))


def of_another_clock(cache, seconds=-600):
    """Have a ticket say that the KDC's clock is ten minutes before this machine's, or another time.

    The file's header has the difference, which Kerberos adds to the time of each message. It is the
    only one there.
    """
    content = cache.read_bytes()
    assert content[:8] == b"\5\4\0\x0c\0\1\0\x08"
    cache.write_bytes(content[:8] + struct.pack(">ii", seconds, 0) + content[16:])


@pytest.mark.parametrize("kind", ["none", "expired", "realm", "clocks"])
def test_without_a_valid_ticket(secure, tmp_path, kind):
    cache = tmp_path / "ticket"
    env = {**secure, "KRB5CCNAME": f"FILE:{cache}"}
    expected, again = f"there is no Kerberos ticket in {cache}", "Get one: kinit"
    if kind == "expired":
        ticket(secure, getpass.getuser(), cache)
        of_another_clock(cache, 25 * 3600)
        expected = f"the Kerberos ticket in {cache} has expired"
    elif kind == "realm":
        ticket(secure, "guest", cache)
        of_another_realm(cache)
        expected = f'KDC for realm "EXAMPLE.ORG". The ticket in {cache} is of guest@EXAMPLE.ORG, '
        expected += "and the cluster of the realm EXAMPLE.COM"
        again = "kinit NAME@EXAMPLE.COM"
    elif kind == "clocks":
        ticket(secure, getpass.getuser(), cache)
        of_another_clock(cache)
        expected, again = "Clock skew too great: the clocks of this machine, ", "by NTP"
    (tmp_path / "text").write_text("a b\n")
    datasets.blobs(tmp_path / "data")
    before = states(secure, "ALL")
    for command in (
        ["run", WORD_COUNT, "-r", "hadoop", "--no-conf", tmp_path / "text"],
        ["train", "hdfs:///data", "--run", "hdfs:///runs/none", "-r", "hadoop"],
        ["train", tmp_path / "data", "--run", tmp_path / "run", "-r", "hadoop"],
        ["data", "verify", "hdfs:///data"],
        ["data", "copy", tmp_path / "data", "hdfs:///copied"],
        ["logs", "application_1700000000000_0001"],
        ["jobs", "clean"],
    ):
        done = gradreduce(*command, env=env)
        assert done.returncode == 77, done.stderr
        assert expected in done.stderr.splitlines()[-1]
        assert again in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    told = gradreduce("doctor", env=env)
    wrong = [line for line in told.stdout.splitlines() if line.startswith("WRONG")]
    names = ["ticket"] if kind in ("none", "expired") else [*SERVICES]
    assert (told.returncode, [line.split()[1] for line in wrong]) == (1, names)
    assert all(expected in line and again in line for line in wrong)
    assert states(secure, "ALL") == before
    assert kept(secure) == "[]\n"


def test_another_user(secure, tmp_path):
    env = ticket(secure, "guest", tmp_path / "ticket")
    told = succeed("doctor", env=env).splitlines()[-5:]
    assert told[0].startswith("ok    ticket        guest@EXAMPLE.COM, valid for 2")
    assert told[1:] == [f"ok    {name:14}accepts the ticket" for name in SERVICES]
    (tmp_path / "text").write_text("a b\n")
    arguments = ["-r", "hadoop", "--no-conf", tmp_path / "text"]
    done = gradreduce("run", WORD_COUNT, *arguments, env=env)
    assert done.returncode == 74
    assert "Permission denied: user=guest" in done.stderr
    assert "The user guest has no folder hdfs://" in done.stderr.splitlines()[-1]
    assert kept(secure) == "[]\n"
    # With one, guest runs jobs, too.
    hadoop = f"{secure['HADOOP_HOME']}/bin/hadoop"
    programs.ran(hadoop, "fs", "-mkdir", "-p", "/user/guest", env=secure)
    programs.ran(hadoop, "fs", "-chown", "guest", "/user/guest", env=secure)
    assert succeed("run", WORD_COUNT, *arguments, env=env) == '"a"\t1\n"b"\t1\n'
    datasets.blobs(tmp_path / "train")
    done = gradreduce("data", "copy", tmp_path / "train", "hdfs:///theirs", env=env)
    assert done.returncode == 74
    assert "Permission denied: user=guest" in done.stderr
