"""Where compiled kernels are kept."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import programs
from kernels import cpu
from kernels.cpu import cache_folder
from mapreduce.runners.yarn import bootstrap

PROGRAM = """
from kernels import dispatch
import numpy as np
print(dispatch.get("hash_partitions")(np.zeros(1, np.int32), np.empty(0, np.uint8), 2))
"""


def python(**environment):
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-c", PROGRAM]
    return programs.ran(*command, env=env | environment).stderr


def test_compiling_is_told_once(tmp_path):
    told = python(XDG_CACHE_HOME=str(tmp_path))
    folder = tmp_path / "gradreduce" / "kernels"
    assert told == f"compiling kernels, once for this machine, into {folder}\n"
    assert list(folder.rglob("*.nbi"))
    assert folder.stat().st_mode & 0o077 == 0
    # Nor by a process that compiles another kernel, or the same one again.
    for path in folder.rglob("*.nbi"):
        path.unlink()
    assert python(XDG_CACHE_HOME=str(tmp_path)) == ""
    assert list(folder.rglob("*.nbi"))


def test_processes_that_start_at_once_compile_a_kernel_once(tmp_path):
    program = (
        "import numpy as np\n"
        "from kernels import cpu\n"
        f"cpu._PATIENCE = {programs.PATIENCE}\n"
        "from kernels.cpu.reduce import _first_non_finite as kernel\n"
        "kernel(np.zeros(9))\n"
        "print(sum(kernel.stats.cache_misses.values()))"
    )
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    each = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE) for _ in range(3)]
    assert sorted(int(process.communicate()[0]) for process in each) == [0, 0, 1]


LOADS = """
from kernels import cpu

def refuse(function):
    raise AssertionError(f"{function.__name__} is saved: nobody has to wait for another process")

cpu._alone = refuse
"""


def test_processes_load_saved_code_all_at_once(tmp_path):
    kernel = "import numpy as np\nfrom kernels.cpu.reduce import _first_non_finite as kernel\n"
    use = "kernel(np.zeros(9))\nprint(*kernel.stats.cache_hits.values())"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    refused = programs.ran(sys.executable, "-c", LOADS + kernel + use, env=env, check=False)
    assert "AssertionError: _first_non_finite is saved" in refused.stderr
    programs.ran(sys.executable, "-c", kernel + use, env=env)
    assert programs.ran(sys.executable, "-c", LOADS + kernel + use, env=env).stdout == "1\n"


@pytest.mark.long
def test_a_job_that_runs_inline_tells_it_too(tmp_path):
    """There, mrjob puts a file of bytes in the place of standard error."""
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "jobs/word_count_vectorized.py", "-r", "inline", "--no-conf"]

    def stderr(name, *options):
        done = programs.ran(
            *command,
            *options,
            "README.md",
            cwd=Path(__file__).parents[2],
            env=env | {"XDG_CACHE_HOME": str(tmp_path / name)},
        )
        assert done.stdout.count("\n") > 100
        assert list((tmp_path / name).rglob("*.nbi"))
        return done.stderr

    assert "compiling kernels" in stderr("loud")
    assert stderr("quiet", "-q") == ""


LOOKS_AT_THE_LOCK = """
import fcntl, os
from numba.core import caching

def looking(name):
    function = getattr(caching.IndexDataCacheFile, name)

    def call(self, *arguments):
        with open(os.environ["NUMBA_CACHE_DIR"] + "/.lock", "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                print(name, "free")
            except BlockingIOError:
                print(name, "held")
        return function(self, *arguments)

    setattr(caching.IndexDataCacheFile, name, call)

looking("save")
looking("load")
"""


def test_one_process_at_a_time_keeps_or_takes_compiled_code(tmp_path):
    command = [sys.executable, "-c", LOOKS_AT_THE_LOCK + PROGRAM]
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "new")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert {"save held", "load held"} <= set(done.stdout.splitlines())
    assert "free" not in done.stdout
    assert list((tmp_path / "new").rglob("*.nbi"))


def test_a_disk_without_locks_is_used_without_them(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cpu.fcntl, "flock", refuse)
    with cpu._locked(), cpu._alone(refuse):
        assert len(list(tmp_path.glob(".*lock"))) == 2


def test_who_compiles_for_ever_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cpu, "_PATIENCE", 0.1)
    with cpu._alone(python):
        (path,) = tmp_path.glob(".*.python.lock")
        with path.open("ab") as file, pytest.raises(BlockingIOError):
            cpu.fcntl.flock(file, cpu.fcntl.LOCK_EX | cpu.fcntl.LOCK_NB)
        entered = []
        with cpu._alone(python):
            entered.append(True)
        assert entered


def test_without_a_home_there_is_a_temporary_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert cache_folder() == tmp_path / f"gradreduce-{os.getuid()}" / "gradreduce" / "kernels"
    assert Path(cache_folder()).is_dir()


OTHER = 65534


def squatted(base, what, name="gradreduce-1"):
    """Have another user prepare something in, or on the way to, a folder that all may write to."""
    way = base / name
    if what == "link":
        (base / "mine").mkdir(0o700)
        way.symlink_to(base / "mine")
    elif what == "owner of the way":
        os.chown(base.parent, OTHER, OTHER)
    elif what == "way":
        base.parent.chmod(0o777)
    elif what == "base":
        base.chmod(0o777)
    else:
        made = way / "tasks" if what.startswith("leaf") else way
        made.mkdir(parents=True)
        if what.endswith("owner"):
            os.chown(made, OTHER, OTHER)
        else:
            made.chmod(0o1777 if what.endswith("sticky") else 0o777)


@pytest.fixture
def base(tmp_path):
    """A folder such as /tmp."""
    folder = tmp_path / "way" / "tmp"
    folder.mkdir(parents=True)
    folder.chmod(0o1777)
    return folder


WHATS = "link, owner of the way, way, base, owner, mode, sticky, leaf owner, leaf mode, leaf sticky"


@pytest.mark.parametrize("what", WHATS.split(", "))
def test_what_others_may_change_is_not_used(base, what):
    """Not even if they only could."""
    if "owner" in what and os.geteuid():
        pytest.skip("only root can give a folder to somebody else")
    squatted(base, what)
    with pytest.raises(OSError, match=r"others can change|File exists"):
        cpu._private(base, "gradreduce-1", "tasks")


def test_what_is_private_is_used(base):
    old = os.umask(0)
    try:
        assert cpu._private(base, "a", "b") == base / "a" / "b"
    finally:
        os.umask(old)
    assert {path.stat().st_mode & 0o777 for path in base.rglob("*")} == {0o700}


@pytest.mark.parametrize("what", ["nothing", "mode", "link", "owner"])
def test_a_node_unpacks_code_into_no_folder_that_somebody_else_made(base, what, monkeypatch):
    if what == "owner" and os.geteuid():
        pytest.skip("only root can give a folder to somebody else")
    monkeypatch.setattr(bootstrap.pwd, "getpwuid", {}.__getitem__)
    monkeypatch.setattr(bootstrap.tempfile, "tempdir", str(base))
    monkeypatch.chdir(base)
    folder = base / f"gradreduce-tasks-{os.getuid()}"
    if what != "nothing":
        squatted(base, what, folder.name)
    found = Path(bootstrap.private_folder())
    assert (found == folder) == (what == "nothing")
    assert found.lstat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_without_a_private_folder_there_is_a_new_one_or_none(base):
    """Where neither home nor the temporary folder can be trusted, a job runs nonetheless."""
    (base / f"gradreduce-{os.getuid()}").mkdir()
    (base / f"gradreduce-{os.getuid()}").chmod(0o777)
    places = {"XDG_CACHE_HOME": "/dev/null", "TMPDIR": str(base)}
    assert f"into {base}/gradreduce-kernels-" in python(**places)
    base.chmod(0o777)
    known = sorted(base.rglob("*"))
    assert python(**places) == "compiling kernels, for this process only\n"
    assert not {path.name for path in {*base.rglob("*")} - {*known} if path.is_file()}


def test_a_user_without_a_home_is_no_error(base):
    unknown = "import pwd\ndef unknown(user): raise KeyError(user)\npwd.getpwuid = unknown\n"
    env = {k: v for k, v in os.environ.items() if k not in ("HOME", "NUMBA_CACHE_DIR")}
    env |= {"TMPDIR": str(base), "XDG_CACHE_HOME": ""}
    subprocess.run([sys.executable, "-c", unknown + PROGRAM], env=env, check=True)
    assert list(base.rglob("*.nbi"))


@pytest.mark.slow
def test_scipys_blas_is_there_for_those_who_use_it():
    """Numba's own look at SciPy is put off, and loses nothing."""
    pytest.importorskip("scipy")
    program = """
import sys
import numpy as np
import kernels.cpu
assert "scipy.linalg" not in sys.modules
import numba
product = numba.njit(lambda a, b: np.dot(a, b))
assert (product(np.eye(2), np.eye(2)) == np.eye(2)).all()
import scipy.linalg
assert scipy.linalg.norm([3, 4]) == 5
"""
    subprocess.run([sys.executable, "-c", program], check=True)
