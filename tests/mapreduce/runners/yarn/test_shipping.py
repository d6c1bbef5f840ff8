"""What is shipped to the nodes of a cluster, and what tasks there tell, without a cluster."""

import io
import json
import os
import re
import site
import subprocess
import sys
import zipfile
from pathlib import Path

from mapreduce.runners.yarn import bootstrap, failures, shipping
from programs import FAILING
from quick import cases


class TestShipping:
    def test_the_same_code_has_the_same_name(self):
        first = shipping.archive()
        shipping._archive.cache_clear()
        assert shipping.archive() == first
        names = zipfile.ZipFile(io.BytesIO(first[1])).namelist()
        assert {
            "__main__.py",
            "mapreduce/job/__init__.py",
            "kernels/dispatch.py",
            "mrjob/job.py",
        } <= {*names}

    def test_a_task_runs_from_the_archive(self, tmp_path):
        """As on a node: no toolkit is installed, and the code is unpacked once."""
        done = task(tmp_path, "Lengths", LENGTHS, b"abc\n\nabc\n")
        assert (done.returncode, done.stdout) == (0, b"3\t1\n0\t1\n3\t1\n"), done.stderr
        (code,) = unpacked(tmp_path)
        assert (code / "code/mapreduce/job/__init__.py").exists()
        assert not code.stat().st_mode & 0o077
        before = (code / "code").stat().st_mtime_ns
        assert task(tmp_path, "Lengths", LENGTHS, b"a\n").stdout == b"1\t1\n"
        assert (code / "code").stat().st_mtime_ns == before

    def test_a_task_tells_of_its_exception(self, tmp_path):
        script = LENGTHS.replace("yield len(line), 1", "yield 1 / len(line), 1")
        env = {"mapreduce_map_input_file": "hdfs://h/a", "mapreduce_map_input_start": "7"}
        done = task(tmp_path, "Lengths", script, b"abc\n\nabc\n", **env)
        assert done.returncode == 1
        told = failures.describe("attempt_1_0002_m_000003_0", "node2", "", done.stderr.decode())
        assert told.what == "ZeroDivisionError: division by zero"
        assert "map task 3, attempt_1_0002_m_000003_0, on node2" in told.where
        assert "input hdfs://h/a:7+" in told.where
        assert "record 2 of it: ''" in told.where
        assert 'File "lengths.py", line 6, in mapper' in told.traceback
        assert "task.py" not in told.traceback
        assert not told.final

    def test_a_package_that_is_missing(self, tmp_path):
        script = "import numpy_is_not_here\n" + LENGTHS
        done = task(tmp_path, "Lengths", script.replace("numpy_is_not_here", "safetensors"), b"")
        told = failures.describe("attempt_1_0002_m_000003_0", "node2", "", done.stderr.decode())
        assert "has no safetensors" in told.what
        assert f"--dirs packages#{bootstrap.PACKED}" in told.what
        assert told.final

    def test_packed_packages_are_found(self, tmp_path):
        (tmp_path / bootstrap.PACKED).mkdir()
        (tmp_path / bootstrap.PACKED / "safetensors.py").touch()
        done = task(tmp_path, "Lengths", "import safetensors\n" + LENGTHS, b"ab\n")
        assert done.stdout == b"2\t1\n", done.stderr

    def test_modules_that_are_sent_along_are_found(self, tmp_path):
        """After those of the script's own folder and of PYTHONPATH, as mrjob finds them."""
        for folder in ("cache", "more", ".", "shapes"):
            (tmp_path / folder).mkdir(exist_ok=True)
            for name in {".": "abc", "more": "ab", "cache": "a", "shapes": ["__init__"]}[folder]:
                (tmp_path / folder / f"{name}.py").write_text(f"place = {folder!r}\n")
        script = """\
import os, subprocess, sys
import a, b, c, shapes
from mrjob.job import MRJob

class Lengths(MRJob):
    def mapper(self, _, line):
        program = "import b, c, shapes; print(b.place, c.place, shapes.place)"
        child = subprocess.run([sys.executable, "-S", "-P", "-c", program], capture_output=True)
        yield [module.place for module in (a, b, c, shapes)], child.stdout.decode().split()
"""
        done = task(tmp_path, "Lengths", script, b"ab\n", PYTHONPATH="more")
        found = b'["cache", "more", ".", "shapes"]\t["more", ".", "shapes"]\n'
        assert done.stdout == found, done.stderr
        done = task(
            tmp_path, "Lengths", "import b\n" + LENGTHS.replace("len(line)", "b.place"), b"x"
        )
        assert done.stdout == b'"."\t1\n', done.stderr

    def test_old_code_is_removed(self, tmp_path):
        for number in range(6):
            (tmp_path / str(number)).mkdir()
            os.utime(tmp_path / str(number), (number, number))
        bootstrap.forget(str(tmp_path))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4", "5"]


LENGTHS = """\
from mrjob.job import MRJob


class Lengths(MRJob):
    def mapper(self, _, line):
        yield len(line), 1
"""


def task(folder: Path, name: str, script: str, lines: bytes, **env: str):
    """Run a map task in a folder of its own, in an interpreter that has nothing installed."""
    (folder / "home").mkdir(exist_ok=True)
    # As on a node, files lie elsewhere, each alone.
    (folder / "cache").mkdir(exist_ok=True)
    (folder / "cache" / "lengths.py").write_text(script)
    (folder / "lengths.py").unlink(missing_ok=True)
    (folder / "lengths.py").symlink_to(folder / "cache" / "lengths.py")
    (folder / shipping.NAME).unlink(missing_ok=True)
    archive, content = shipping.archive()
    (folder / archive).write_bytes(content)
    (folder / shipping.NAME).symlink_to(folder / archive)
    # -I: neither the working folder nor the user's packages; -S: nor the site's.
    program = (
        "import os, pwd, sys, types; "
        "pwd.getpwuid = lambda uid: types.SimpleNamespace(pw_dir=os.getcwd() + '/home'); "
        "import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-I", "-S", "-c", program, shipping.NAME, name, "lengths.py"]
    return subprocess.run(
        [*command, "--mapper", "--step-num=0"],
        cwd=folder,
        env=env,
        input=lines,
        capture_output=True,
    )


def unpacked(folder: Path) -> list[Path]:
    return list((folder / f"home/.cache/gradreduce-tasks-{os.getuid()}").iterdir())


class TestFailures:
    @cases(
        "said, meaning",
        ('Cannot run program "python4": error=2', "no program python4"),
        (
            "Container [pid=1,containerID=c] is running 1B beyond the 'PHYSICAL' memory limit. "
            "Current usage: 514.0 MB of 512 MB physical memory used; 2.6 GB",
            "used 514.0 MB of 512 MB",
        ),
        ("Error: Java heap space", "Java heap space"),
        ("subprocess failed with code 137", "its process was killed"),
        ("Timed out after 6 secs", "silent for 6 seconds"),
        ("The required MAP capability is more than the supported max", "so large a container"),
        (
            'Permission denied: user=alice, access=READ, inode="/in/p":root:supergroup:-rw---',
            "alice lacks a permission on HDFS: READ of /in/p",
        ),
        ("Input path does not exist: hdfs:/in/_a", "hides hdfs:/in/_a from jobs"),
        ("Input path does not exist: hdfs:/_in/a", "Input path does not exist: hdfs:/_in/a"),
        ("Error Launching job : Not a file: hdfs://h/in/sub", "a folder, hdfs://h/in/sub"),
    )
    def test_what_hadoop_says_is_put_in_words(self, said, meaning):
        assert meaning in failures.describe("attempt_1_0002_r_000000_0", "", said, None).what

    def test_what_each_attempt_says_is_said_once(self):
        what = failures.describe(
            "attempt_1_0002_r_000000_0", "", "Error: no codec\n" * 4, None
        ).what
        assert what == "the task failed: Error: no codec"

    def test_the_log_of_a_program(self):
        log = "log4j:WARN x\nreporter:counter:a,b,1\nsed: unknown command\n"
        said = "PipeMapRed.waitOutputThreads(): subprocess failed with code 1"
        told = failures.describe("attempt_1_0002_m_000000_0", "n", said, log)
        assert told.what.endswith("\nsed: unknown command")

    def test_a_python_that_is_too_old(self):
        line = {"kind": "python", "python": "3.6.8", "executable": "/usr/bin/python3"}
        log = bootstrap.MARK + json.dumps(line)
        told = failures.describe("attempt_1_0002_m_000000_0", "node1", "", log)
        assert "node1 runs tasks with /usr/bin/python3, which is Python 3.6.8" in told.what
        assert "--python-bin" in told.what

    def test_data_errors_are_final_and_storage_errors_are_not(self):
        for code, final in ((65, True), (74, False)):
            line = {"kind": "exception", "type": "X", "message": "m", "exit_code": code}
            log = bootstrap.MARK + json.dumps(line)
            told = failures.describe("attempt_1_0002_m_000000_0", "", "", log)
            assert (told.final, told.exit_code) == (final, code)

    def test_a_line_that_only_looks_so(self):
        log = bootstrap.MARK + "[" * 100_000 + "\n" + bootstrap.MARK + "3\nthe end\n"
        assert failures.describe("attempt_1_0002_m_000000_0", "", "", log).what


def test_a_failing_task_leaves_a_report(tmp_path):
    name = "attempt_1_0002_m_000000_0"
    known = {"mapreduce_task_attempt_id": name, "GRADREDUCE_REPORTS": str(tmp_path / "reports")}
    known["PYTHONPATH"] = os.pathsep.join(site.getsitepackages())
    done = task(tmp_path, "Failing", FAILING, b"1\nthree\n", **known)
    (line,) = re.findall(f"^{bootstrap.MARK}(.*)", done.stderr.decode(), re.MULTILINE)
    told, left = json.loads(line), json.loads((tmp_path / "reports" / name).read_text())
    assert left["message"] == "invalid literal for int() with base 10: 'three'"
    assert left.items() <= told.items()
