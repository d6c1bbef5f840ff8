"""YARN's web servers refuse, as those behind a guard or a firewall do: Hadoop's programs serve."""

import contextlib
import http.server
import os
import re
import shutil
import signal
import sys
import threading

import pytest

import programs
from hdfs_utils.cluster import health
from programs import FAILING
from quick import each

from test_kerberos import SLOW  # isort: skip

pytestmark = [pytest.mark.slow, pytest.mark.fault]


class Refusal(http.server.BaseHTTPRequestHandler):
    status, content = 401, b""

    def do_GET(self):
        self.send_response(self.status)
        self.send_header("WWW-Authenticate", "Negotiate")
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)

    do_PUT = do_GET

    def log_message(self, *_):
        pass


class Page(Refusal):
    status, content = 200, b"<html>Who are you?</html>"


class Forbidden(Refusal):
    status = 403


@contextlib.contextmanager
def refusing(cluster, folder, handler):
    """The environment of a client whose YARN has other web servers; without a handler, none."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler or Refusal)
    place = f"127.0.0.1:{server.server_port}"
    conf = folder / "conf"
    shutil.copytree(cluster.conf_dir, conf)
    for name, number in (("yarn-site.xml", 6), ("mapred-site.xml", 8)):
        text = (conf / name).read_text().replace(f"127.0.0.1:{cluster.port + number}<", f"{place}<")
        (conf / name).write_text(text)
    if handler:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    else:
        server.server_close()
    try:
        yield os.environ | cluster.environment() | {"HADOOP_CONF_DIR": str(conf)}
    finally:
        if handler:
            server.shutdown()
            server.server_close()


@pytest.mark.parametrize("handler", each(2, [Refusal, Page]))
def test_a_job_that_fails_says_why(cluster, tmp_path, handler):
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "numbers").write_text("1\nthree\n")
    with refusing(cluster, tmp_path, handler) as env:
        arguments = ["-r", "hadoop", "--no-conf", "--python-bin", sys.executable]
        command = ["run", tmp_path / "failing.py", *arguments, tmp_path / "numbers"]
        done = programs.gradreduce(*command, env=env)
        assert done.returncode == 1, done.stderr
        error = done.stderr.partition("\nerror: ")[2]
        assert error.startswith("step 1 of 1 failed: ValueError: invalid literal for int()")
        assert "'three'" in error
        (application,) = re.findall("gradreduce logs (application_.*)", error)
        told = programs.gradreduce("logs", application, env=env)
    assert told.stderr.startswith(f"{application}, failing: failed\n")
    # This cluster does not collect logs.
    assert told.returncode == 69
    assert "Nor has YARN collected its logs" in told.stderr


@pytest.mark.parametrize("handler", each(2, [Forbidden, None]))
def test_an_interrupt_ends_the_job(cluster, tmp_path, handler):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "lines").write_text(f"{tmp_path}/never\n")
    with refusing(cluster, tmp_path, handler) as env:
        arguments = ["-r", "hadoop", "--no-conf", "--python-bin", sys.executable]
        command = ["run", tmp_path / "slow.py", *arguments, tmp_path / "lines"]
        process = programs.start(*command, env=env)
        programs.wait_until(lambda: health.applications(cluster) or process.poll() is not None)
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=programs.PATIENCE)
    assert (process.returncode, stderr.splitlines()[-1]) == (130, "interrupted")
    assert health.applications(cluster, "NEW,SUBMITTED,ACCEPTED,RUNNING") == []
