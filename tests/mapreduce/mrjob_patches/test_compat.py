"""What mrjob needs of the standard library, where later versions of Python no longer have it."""

import multiprocessing
import os
import sys

import mrjob.runner
import pytest

import programs
from mapreduce.compat import LooseVersion
from mapreduce.mrjob_patches import registry
from quick import cases

# Puts an importer in front that knows none of the modules, as in later versions of Python.
WITHOUT = """
import sys

HIDDEN = ("distutils", "pipes")
for name in [name for name in sys.modules if name.partition(".")[0] in HIDDEN]:
    del sys.modules[name]

def hiding(finder):
    class Hiding:
        @staticmethod
        def find_spec(fullname, path=None, target=None):
            if fullname.partition(".")[0] in HIDDEN:
                return None
            return finder.find_spec(fullname, path, target)
    return Hiding

sys.meta_path[:] = [hiding(finder) for finder in sys.meta_path]
"""


def python(code, *arguments):
    done = programs.ran(sys.executable, "-c", code, *arguments, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestLooseVersion:
    # The table of distutils' own tests (Lib/distutils/tests/test_version.py, Python 3.11).
    @cases(
        "one, other, order",
        ("1.5.1", "1.5.2b2", -1),
        ("161", "3.10a", 1),
        ("8.02", "8.02", 0),
        ("3.4j", "1996.07.12", -1),
        ("3.2.pl0", "3.1.1.6", 1),
        ("2g6", "11g", -1),
        ("0.960923", "2.2beta29", -1),
        ("1.13++", "5.5.kw", -1),
        # As mrjob compares those of Hadoop.
        ("0.20", "0.20.2", -1),
        ("2.10.1", "2.7.4", 1),
    )
    def test_order(self, one, other, order):
        left, right = LooseVersion(one), LooseVersion(other)
        assert (left < right, left == right, left > right) == (order < 0, order == 0, order > 0)
        assert (left <= right, left != right, left >= right) == (order <= 0, order != 0, order >= 0)


class TestFinder:
    def test_existing_modules_are_not_shadowed(self):
        python(
            "import importlib.util, sys\n"
            "names = ('pipes', 'distutils', 'distutils.version', 'distutils.spawn')\n"
            "def origins():\n"
            "    found = {}\n"
            "    for name in names:\n"
            "        try:\n"
            "            spec = importlib.util.find_spec(name)\n"
            "        except ModuleNotFoundError:\n"
            "            spec = None\n"
            "        if spec is not None:\n"
            "            found[name] = (spec.origin, type(spec.loader).__name__)\n"
            "    return found\n"
            "before = origins()\n"
            "for name in list(sys.modules):\n"
            "    if name.partition('.')[0] == 'distutils':\n"
            "        del sys.modules[name]\n"
            "from mapreduce import compat\n"
            "compat.install()\n"
            "after = origins()\n"
            "assert {name: after[name] for name in before} == before, (before, after)\n"
            "assert set(after) == set(names)\n"
        )

    def test_mrjob_works_with_what_is_supplied(self):
        found = python(
            f"{WITHOUT}\n"
            "import importlib, shlex, shutil\n"
            "def is_missing(name):\n"
            "    try:\n"
            "        importlib.import_module(name)\n"
            "    except ModuleNotFoundError:\n"
            "        return True\n"
            "assert is_missing('pipes')\n"
            "from mapreduce import compat\n"
            "compat.install()\n"
            "from mrjob.job import MRJob\n"
            "from mrjob.compat import uses_yarn, version_gte\n"
            "from mrjob.util import cmd_line\n"
            "assert sys.modules['mrjob.compat'].LooseVersion is compat.LooseVersion\n"
            "assert not any(name.startswith('distutils') for name in sys.modules)\n"
            "import pipes\n"
            "from distutils.spawn import find_executable\n"
            "from distutils.version import LooseVersion\n"
            "assert pipes.quote is shlex.quote\n"
            "assert find_executable is shutil.which\n"
            "assert LooseVersion is compat.LooseVersion\n"
            "assert is_missing('distutils.core')\n"
            "print(version_gte('2.10.1', '2.7.4'), uses_yarn('3.3.6'), cmd_line(['a b', 'c']))\n"
        )
        assert found == "True True 'a b' c\n"


class TestRunScript:
    SCRIPT = (
        "import sys\n"
        "from pathlib import Path\n"
        "import pipes\n"
        "import beside\n"
        "assert __name__ == '__main__'\n"
        "assert Path(sys.path[0]) == Path(__file__).resolve().parent\n"
        "print(pipes.quote('a b'), sys.argv[1:], beside.VALUE)\n"
    )

    @pytest.fixture
    def script(self, tmp_path, write):
        (tmp_path / "beside.py").write_text("VALUE = 7\n")
        return write(self.SCRIPT, "script.py")

    def test_runs_without_the_modules(self, script):
        code = f"{WITHOUT}\nfrom mapreduce.compat import run_script\nrun_script(sys.argv[1:])\n"
        assert python(code, str(script), "1") == "'a b' ['1'] 7\n"

    def test_without_a_script(self):
        done = programs.ran(sys.executable, "-m", "mapreduce.compat", check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("usage: python -m mapreduce.compat SCRIPT")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is forked")
def test_local_forks_its_tasks_whatever_is_the_default():
    default = multiprocessing.get_start_method()
    multiprocessing.set_start_method("forkserver", force=True)
    try:
        registry.install()
        mrjob.runner._runner_class("local")
        pool = mrjob.local.Pool(1)
        assert pool.apply_async(os.getppid).get() == os.getpid()
        pool.close()
        pool.join()
    finally:
        multiprocessing.set_start_method(default, force=True)


class TestWhatMrjobNeedsRarely:
    def test_it_is_there_when_it_is_asked_for(self, tmp_path):
        (tmp_path / "file").write_text("word")
        code = """
import sys, urllib
import mapreduce.job
import mrjob.conf, mrjob.parse, mrjob.py2
from mrjob.fs.local import LocalFilesystem

assert not {"yaml", "hashlib", "urllib.request"} & {*sys.modules}
assert mrjob.conf.yaml.safe_load("a: [1]") == {"a": [1]}
assert mrjob.parse.to_uri("/a b") == "file:///a%20b"
assert mrjob.py2.urlopen("data:,word").read() == b"word"
print(LocalFilesystem().md5sum(sys.argv[1]))
import yaml, hashlib, urllib.request
assert yaml.__file__ and hashlib.__file__ and urllib.request.__file__
"""
        assert python(code, str(tmp_path / "file")).strip() == "c47d187067c6cf953245f128b5fde62a"

    def test_a_part_of_urllib_that_a_script_does_not_import(self):
        code = "import mapreduce.job, urllib; print(urllib.request.quote('a b'), urllib.error)"
        assert python(code).split()[0] == "a%20b"
        code = "import mapreduce.job, urllib; print(hasattr(urllib, 'robots'), urllib.response)"
        assert python(code).startswith("False <module 'urllib.response'")

    def test_what_is_not_installed_is_not_there(self):
        code = "import sys; sys.modules['yaml'] = None; import mapreduce.job, mrjob.conf"
        assert python(f"{code}; print(mrjob.conf.yaml)").strip() == "None"
