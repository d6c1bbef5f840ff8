"""``gradreduce run``: unmodified jobs, found by file or module, on real processes."""

import bz2
import gzip
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

import programs
from programs import GRADREDUCE, gradreduce, processes_of, start, succeed, wait_until
from quick import cases, first_of

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]

COUNT = f"""\
{programs.COUNT}

if __name__ == "__main__":
    Count.run()
"""

#: The class alone.
BARE = COUNT.partition("if __name__")[0]
BESIDE = "import beside\n" + COUNT.replace("word, 1", "word, beside.VALUE")

SEVERAL = """\
from mrjob.job import MRJob


class Base(MRJob):
    def mapper(self, _, line):
        yield type(self).__name__, 1

    def reducer(self, key, values):
        yield key, sum(values)


class First(Base):
    pass


class Second(Base):
    pass


if __name__ == "__main__":
    First.run()
"""


#: A driver of its own: again and again on what was made, until a word is left once.
DRIVER = """\
import sys
from contextlib import ExitStack

from mrjob.job import MRJob


class Halve(MRJob):
    def mapper(self, _, line):
        word, *count = line.split("\\t")
        yield word.strip('"'), int(count[0]) if count else 1

    def reducer(self, word, counts):
        total = sum(counts)
        if total > 1:
            self.increment_counter("halve", "left")
        yield word, max(total // 2, 1)

    def run_job(self):
        with ExitStack() as stack:
            while True:
                runner = stack.enter_context(self.make_runner())
                runner.run()
                if not runner.counters()[0].get("halve"):
                    break
                self.options.args = [runner.get_output_dir()]
            print(type(runner).__name__, file=sys.stderr)
            for chunk in runner.cat_output():
                self.stdout.write(chunk)
"""


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{' '.join(WORDS[i % 10 : i % 10 + i % 4])}\n" for i in range(200)))
    return path


@pytest.fixture
def write(tmp_path):
    """Writes a script with a job; returns its path."""

    def make(content=COUNT, name="job.py"):
        path = tmp_path / name
        path.write_text(content)
        return path

    return make


def expected(*paths):
    return Counter(word for path in paths for word in path.read_text().split())


def pairs(out):
    return {json.loads(key): json.loads(n) for key, n in (x.split("\t") for x in out.splitlines())}


def fails(code, *arguments, **options):
    """A command that must fail with a code; returns what it says, without a program's traceback."""
    done = gradreduce("run", *arguments, **options)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "mapreduce/launch/run.py" not in done.stderr
    assert "mapreduce/launch/load.py" not in done.stderr
    assert "This should not happen" not in done.stderr
    return done.stderr


class TestRunning:
    def test_spark_without_pyspark(self, write, text):
        hidden = write("raise ModuleNotFoundError('gone', name='pyspark')", "pyspark.py").parent
        environment = {**os.environ, "PYTHONPATH": str(hidden)}
        said = fails(2, write(), "-r", "spark", text, env=environment)
        assert "pip install 'gradreduce[spark]'" in said

    @pytest.mark.parametrize("runner", first_of("", "inline", "parallel", "local"))
    def test_a_driver_of_the_jobs_own_is_called(self, write, tmp_path, runner):
        (tmp_path / "words").write_text("two\nmany\n" + "many\n" * 8 + "two\n")
        chosen = ["-r", runner] if runner else []
        done = gradreduce("run", write(DRIVER), *chosen, "--no-conf", "-q", tmp_path / "words")
        assert done.returncode == 0, done.stderr
        assert pairs(done.stdout) == {"two": 1, "many": 1}
        assert done.stderr == f"{(runner or 'parallel').title()}MRJobRunner\n".replace("Mrj", "MRJ")

    def test_what_goes_wrong_in_a_driver(self, write, tmp_path):
        (tmp_path / "words").write_text("one\n")
        assert "missing does not exist" in fails(66, write(DRIVER), tmp_path / "missing")
        broken = write(DRIVER.replace("while True:", "while lost:"))
        told = fails(1, broken, tmp_path / "words")
        assert "the job failed" in told
        assert "NameError" in told
        (tmp_path / "out").mkdir()
        (tmp_path / "out/there").touch()
        script = write(DRIVER)
        assert "not empty" in fails(73, script, "-o", tmp_path / "out", tmp_path / "words")
        script = write(DRIVER.replace("total = sum(counts)", "total = lost"))
        for runner in ("inline", "parallel"):
            told = fails(1, script, "-r", runner, tmp_path / "words")
            assert "NameError: name 'lost' is not defined" in told

    @pytest.mark.parametrize("runner", first_of("parallel", "local"))
    def test_the_class_that_is_named_and_not_the_one_that_the_script_runs(
        self, write, text, runner
    ):
        script = write(SEVERAL)
        out = succeed("run", f"{script}:Second", "-q", "--no-conf", "-r", runner, text)
        assert pairs(out) == {"Second": 200}

    def test_a_module(self, write, text):
        write(name="counting.py")
        out = succeed("run", "mrjob.examples.mr_wc", text)
        assert pairs(out)["lines"] == 200
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        out = succeed("run", "counting:Count", text, cwd=text.parent, env=environment)
        assert pairs(out) == expected(text)
        write(f"{BARE}Count.run()\n", name="unguarded.py")
        said = fails(2, "unguarded", text, cwd=text.parent, env=environment)
        assert "unguarded runs Count as it is imported. Guard the call" in said

    @cases(
        "content, name, runner, times",
        (BARE, "job.py", "parallel", 1),
        (BARE, "job.py", "local", 1),
        # It does not hide a module of this name, nor need a name of Python's.
        (f"import json as _\n{COUNT}", "json.py", "parallel", 1),
        (COUNT, "job", "parallel", 1),
        # What lies beside the script is found.
        (BESIDE, "job.py", "parallel", 7),
    )
    def test_scripts_of_any_kind(self, write, text, content, name, runner, times):
        write("VALUE = 7\n", name="beside.py")
        out = succeed("run", write(content, name), "-r", runner, text, cwd=text.parent.parent)
        assert pairs(out) == {word: times * n for word, n in expected(text).items()}

    @cases(
        "arguments",
        ["-r", "parallel"],
        ["-r", "local"],
        ["-r", "inline"],
        ["--start-method", "forkserver"],
    )
    def test_modules_that_are_called_as_ours(self, write, text, arguments):
        """A file, which the job uploads as mrjob wants it, and a package with parts."""
        write("import hdfs_utils.parts\nfrom hdfs_utils import VALUE\n", name="kernels.py")
        (text.parent / "hdfs_utils").mkdir()
        write("from . import parts\nVALUE = parts.VALUE\n", name="hdfs_utils/__init__.py")
        write("VALUE = 7\n", name="hdfs_utils/parts.py")
        write("from mapreduce import nothing\n", name="mapreduce.py")
        # -r local has what is uploaded alone.
        local = "local" in arguments
        if local:
            write("VALUE = 7\n", name="kernels.py")
        files = "class Count(MRJob):\n    FILES = ['kernels.py']\n"
        body = COUNT.replace("class Count(MRJob):\n", files) if local else COUNT
        script = write(
            "import kernels\nfrom mapreduce.job import MRStep\n"
            + body.replace("word, 1", "word, kernels.VALUE")
        )
        out = succeed("run", script, *arguments, text)
        assert pairs(out) == {word: 7 * n for word, n in expected(text).items()}

    def test_a_single_task_reads_standard_input(self, write):
        assert succeed("run", write(), "--mapper", input="a b\n") == '"a"\t1\n"b"\t1\n'

    def test_what_a_command_needs_is_there_for_steps_with_commands(self, text):
        """A pre-filter has the runner start the script in processes of its own."""
        job = "mrjob.examples.mr_words_containing_u_freq_count"
        assert pairs(succeed("run", job, "-q", text)) == {"four": expected(text)["four"]}

    @pytest.mark.slow
    def test_an_interpreter_that_the_user_names_is_kept(self, write, text, tmp_path):
        script, seen = write(), tmp_path / "seen"
        mine = tmp_path / "mypython"
        mine.write_text(
            f'#!/bin/sh\necho "$@" >> {seen}\nexec {sys.executable} -m mapreduce.compat "$@"\n'
        )
        mine.chmod(0o755)
        conf = tmp_path / "mrjob.conf"
        conf.write_text(json.dumps({"runners": {"local": {"task_python_bin": str(mine)}}}))
        for option in (["--task-python-bin", mine, "--no-conf"], ["-c", conf]):
            assert pairs(succeed("run", script, "-r", "local", *option, text)) == expected(text)
            assert "job.py --step-num=0 --mapper" in seen.read_text()
            seen.unlink()


class TestHelp:
    def test_ours_the_jobs_own_and_the_runners(self, write):
        out = " ".join(succeed("run", "--help").split())
        assert "Without -r, the job runs on all cores of this machine (-r parallel)" in out
        out = succeed("run", "mrjob.examples.mr_log_sampler", "--help")
        assert "--sample-size" in out
        assert "--conf-path" in out
        assert "--workers" in succeed("run", write(), "--help", "-r", "parallel")


BARE_SEVERAL = SEVERAL.partition("if __name__")[0]
IMPORTED = "from mrjob.examples.mr_wc import MRWordCountUtility\n"


class TestFinding:
    @cases(
        "content, named, code, messages",
        (BARE_SEVERAL, "{}", 2, ["defines 2 jobs. Name one: {}:First, {}:Second"]),
        (IMPORTED, "{}", 2, ["Name one: {}:MRWordCountUtility"]),
        ("import json\n", "{}", 2, ["does not define a job", "path/job.py:Class"]),
        (COUNT, "{}:Cuont", 2, ["has no Cuont. Did you mean {}:Count?"]),
        (COUNT, "{}:MRJob.run", 2, ["has no job class MRJob.run"]),
        (COUNT, "{}.no", 66, ["job.py.no does not exist"]),
        (COUNT, "{folder}/jb.py", 66, ["Did you mean {}?"]),
        (COUNT, "no_such.module", 66, ["there is no module 'no_such'"]),
        (COUNT, "{folder}", 66, ["is not a file"]),
        ("class :\n", "{}", 1, ["SyntaxError"]),
        ("import no_one\n", "{}", 1, ["ModuleNotFoundError: No module named 'no_one'"]),
        ("raise SystemExit('no')\n", "{}", 1, ["no\n"]),
        (COUNT, "mrjob.examples.mr_grep", 2, ["arguments are required: -e/--expression"]),
        (COUNT, "mrjob.examples.mr_log_sampler", 2, ["--sample-size"]),
    )
    def test_what_is_no_job(self, write, text, content, named, code, messages):
        script = write(content)
        told = fails(code, named.format(script, folder=script.parent), text)
        for message in messages:
            assert message.format(*[script] * 2) in told

    def test_options_before_the_job(self, write, text):
        message = fails(2, "-r", "local", write(), text)
        assert "options of mrjob and of the job come after JOB" in message
        assert "Missing argument 'JOB'" in fails(2)
        assert pairs(succeed("run", "-q", write(), text)) == expected(text)

    @cases("wrapped", "codecs.getwriter('utf-8')(sys.{0})", "io.TextIOWrapper(sys.{0}.buffer)")
    def test_scripts_that_wrap_streams(self, write, text, wrapped):
        lines = [f"sys.{name} = {wrapped.format(name)}" for name in ("stdout", "stderr")]
        script = write("\n".join(["import codecs, io, sys", *lines, COUNT]))
        assert pairs(succeed("run", script, text)) == expected(text)
        script = write(script.read_text().replace("yield word, 1", "word, 1"))
        done = gradreduce("run", script, text)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.startswith("warning: 200 lines went in, the mapper yielded nothing: ")

    @pytest.mark.slow
    def test_imported_jobs_can_be_named(self, write, text):
        script = write(IMPORTED)
        out = succeed("run", f"{script}:MRWordCountUtility", "-r", "local", text)
        assert pairs(out)["lines"] == 200

    def test_a_file_that_cannot_be_imported(self, write, text):
        script = write("import json\n\n\ndef fail():\n    return 1 / 0\n\n\nfail()\n")
        message = fails(1, script, text)
        assert f"{script} cannot be imported: ZeroDivisionError: division by zero" in message
        frames = [line for line in message.splitlines() if line.startswith("  File ")]
        assert len(frames) == 2
        assert all(str(script) in frame for frame in frames)
        assert "mapreduce/launch/load.py" in gradreduce("run", script, text, "--debug").stderr


class TestOptions:
    def test_a_runner_that_does_not_run_such_jobs(self, text):
        said = fails(2, "mrjob.examples.mr_grep", "-e", "x", "-r", "inline", text)
        assert "inline runner does not support subprocesses" in said

    @cases(
        "arguments, message",
        (["--wrokers", "2"], "Did you mean --workers?"),
        (["-r", "paralell"], "Did you mean parallel?"),
        (["--workers", "two"], "invalid int value: 'two'"),
        (["--workers", "0"], "--workers: expected a"),
        (["--start-method", "frok"], "invalid choice: 'frok' (choose from"),
        (["--cleanup", "SOME"], "SOME"),
        (["-o"], "expected one argument"),
    )
    def test_wrong_ones_are_told_in_one_line(self, write, text, arguments, message):
        said = fails(2, write(), "--no-conf", "-q", text, *arguments)
        assert message in said
        assert len(said.splitlines()) == 1

    def test_debug_after_two_dashes_is_the_jobs(self, write, text):
        script = write(
            COUNT.replace(
                "    def mapper(",
                "    def configure_args(self):\n"
                "        super().configure_args()\n"
                "        self.add_passthru_arg('--debug', action='store_true')\n\n"
                "    def mapper(",
            ).replace("yield word, 1", "yield word, int(self.options.debug)")
        )
        assert set(pairs(succeed("run", script, text)).values()) == {0}
        assert pairs(succeed("run", script, text, "--", "--debug")) == expected(text)


class TestConfiguration:
    @pytest.fixture
    def conf(self, tmp_path):
        def make(content):
            path = tmp_path / "mrjob.conf"
            path.write_text(content if isinstance(content, str) else json.dumps(content))
            return path

        return make

    def test_the_section_of_parallel_is_honoured(self, write, text, conf):
        script = write(
            "import os\n" + COUNT.replace("yield word, 1", "yield os.environ['FROM_CONF'], 1")
        )
        path = conf({"runners": {"parallel": {"workers": 3, "cmdenv": {"FROM_CONF": "x"}}}})
        total = sum(expected(text).values())
        out = text.parent / "out"
        succeed("run", script, "-c", path, "-o", out, text)
        assert len(list(out.glob("part-*"))) == 3
        assert pairs("".join(part.read_text() for part in out.iterdir())) == {"x": total}
        environment = {**os.environ, "MRJOB_CONF": str(path)}
        assert pairs(succeed("run", script, text, env=environment)) == {"x": total}
        message = fails(1, script, "--no-conf", text, env=environment)
        assert "FROM_CONF" in message
        # The command line wins.
        out = text.parent / "two"
        succeed("run", script, "-c", path, "--workers", "2", "-o", out, text)
        assert len(list(out.glob("part-*"))) == 2

    @cases(
        "options, message",
        ({"workers": 0}, "--workers: expected a number of at least 1, found 0"),
        ({"wrokers": 3}, "wrokers: the runner has no such option. Did you mean 'workers'?"),
        ({"hadoop_bin": "x"}, "hadoop_bin: the runner has no such option"),
        ({"cmdenv": "A=1"}, "cmdenv: expected a mapping, found 'A=1'"),
        ({"cmdenv": {"N": 5}}, "cmdenv: N: expected a text, found 5. Put it in quotes"),
        ({"workers": "2"}, "workers: expected a number, without quotes, found '2'"),
        ({"workers": True}, "workers: expected a number, without quotes, found True"),
        ({"read_logs": "no"}, "read_logs: expected true or false, found 'no'"),
        ({"start_method": 2}, "start_method: expected fork or forkserver, found 2"),
        (["workers"], "expected options and their values, found ['workers']"),
    )
    def test_wrong_options_are_told_with_file_and_name(self, write, text, conf, options, message):
        # Those that mrjob's own runners have, too, are looked at there, too.
        for runner in ("parallel", "inline", "local") if "cmdenv" in options else ("parallel",):
            path = conf({"runners": {runner: options}})
            said = fails(2, write(), "-q", "-r", runner, "-c", path, text)
            assert message in said
            assert message[:2] == "--" or f"{path}: runners: {runner}: " in said

    @cases(
        "content, code, message",
        (None, 66, "cannot read the configuration"),
        ("{ [", 2, "is not a configuration of mrjob"),
        ("[1, 2]", 2, "is not a configuration of mrjob"),
    )
    def test_files_that_are_none(self, write, text, conf, content, code, message):
        path = text.parent / "no.conf" if content is None else conf(content)
        assert message in fails(code, write(), "-c", path, text)

    def test_every_option_of_mrjob_is_still_taken(self, write, text, conf):
        options = {
            "bootstrap_mrjob": False,
            "check_input_paths": True,
            "cleanup": ["ALL"],
            "cleanup_on_failure": "NONE",
            "cmdenv": {"A": "1"},
            "jobconf": {"mapreduce.job.maps": 2},
            "label": "mine",
            "local_tmp_dir": str(text.parent),
            "num_cores": 2,
            "owner": "me",
            "python_bin": sys.executable,
            "read_logs": True,
            "setup": None,
            "sort_bin": "sort",
            "start_method": "fork",
            "upload_files": [str(text)],
            "workers": 1,
        }
        path = conf({"runners": {"parallel": options}})
        assert pairs(succeed("run", write(), "-c", path, text)) == expected(text)


class TestInputs:
    def test_files_globs_folders_compressed_and_standard_input(self, write, text):
        folder = text.parent / "logs"
        (folder / "deep").mkdir(parents=True)
        content = text.read_bytes()
        (folder / "a.txt").write_bytes(content)
        (folder / "deep/b.gz").write_bytes(gzip.compress(content))
        (folder / "deep/c.bz2").write_bytes(bz2.compress(content))
        script, once = write(), expected(text)
        times = {word: 4 * n for word, n in once.items()}
        assert pairs(succeed("run", script, text, folder)) == times
        assert pairs(succeed("run", script, f"{folder}/deep/*", text, folder / "a.txt")) == times
        given = {"input": text.read_text()}
        assert pairs(succeed("run", script, **given)) == once
        assert pairs(succeed("run", script, "-", **given)) == once
        assert pairs(succeed("run", script, "-", folder, **given)) == times

    def test_relative_paths(self, write, text):
        write()
        arguments = ["job.py", "words.txt", "-o", "out"]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        succeed("run", *arguments, cwd=text.parent, env=environment)
        out = "".join(part.read_text() for part in (text.parent / "out").glob("part-*"))
        assert pairs(out) == expected(text)

    @pytest.mark.parametrize("runner", ["parallel", "inline", "local"])
    def test_missing_ones_are_named(self, write, text, runner):
        script = write()
        missing = text.parent / "no.txt"
        said = fails(66, script, "-r", runner, text, missing)
        assert f"the input {missing} does not exist. Did you mean {text}?" in said
        assert "No configs" not in said
        assert "matches no file" in fails(66, script, "-r", runner, f"{text.parent}/*.no")

    def test_links_to_nothing_pipes_and_places_elsewhere(self, write, text):
        script, folder = write(), text.parent / "folder"
        folder.mkdir()
        (folder / "link").symlink_to(folder / "nothing")
        assert "link is a link whose target does not exist" in fails(66, script, folder)
        os.mkfifo(text.parent / "pipe")
        assert "Pass it on standard input, as -" in fails(2, script, text.parent / "pipe")
        assert "reads files of this machine" in fails(
            2, script, "-r", "inline", "hdfs:///some/file"
        )

    def test_hidden_ones_are_read_with_a_warning(self, write, text):
        script, folder = write(), text.parent / "folder"
        folder.mkdir()
        (folder / "part-0").write_bytes(text.read_bytes())
        (folder / "_SUCCESS").touch()
        assert "hidden" not in gradreduce("run", script, folder).stderr, "an empty one has no lines"
        hidden = folder / ".part-0.crc"
        hidden.write_text("one more\n")
        done = gradreduce("run", script, folder)
        assert f"{folder} holds hidden files, such as .part-0.crc. The runner" in done.stderr
        assert pairs(done.stdout) != expected(text)
        assert "hidden" not in gradreduce("run", script, hidden).stderr, "somebody has named it"

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_unreadable_ones(self, write, text):
        text.chmod(0)
        assert f"cannot read the input {text}" in fails(66, write(), text)

    def test_standard_input_may_be_closed(self, write, text):
        command = [*map(str, [*GRADREDUCE, "run", write(), text])]
        assert pairs(programs.ran("sh", "-c", '"$@" <&-', "sh", *command).stdout) == expected(text)


class TestOutput:
    @pytest.mark.parametrize("runner", first_of("parallel", "inline", "local"))
    def test_a_folder_with_something_in_it_is_refused_and_kept(self, write, text, runner):
        script, out = write(), text.parent / "my out"
        arguments = ["-q", "-r", runner, "-o", out, text]
        assert succeed("run", script, *arguments) == ""
        before = {path: path.read_bytes() for path in out.iterdir()}
        assert pairs(b"".join(before.values()).decode()) == expected(text)
        said = fails(73, script, *arguments)
        assert f"the output folder {out} exists and is not empty" in said
        # mrjob's own runners set no mark.
        advice = f", or remove it first: rm -r '{out}'" * (runner == "parallel")
        assert said.endswith(f" Name another with -o{advice}\n")
        for given in (out, f"{out}/part-*", out.parent):
            said = fails(73, script, *arguments, given)
            assert said.endswith(
                f"the output folder {out} is also the input. Name another with -o\n"
            )
        (out / "x").touch()
        assert fails(73, script, *arguments).endswith(" Name another with -o\n")
        (out / "x").unlink()
        assert {path: path.read_bytes() for path in out.iterdir()} == before

    def test_a_folder_named_by_a_uri(self, write, text):
        """mrjob takes URIs for paths, and would make a folder ``file:`` in the working folder."""
        out, steps = text.parent / "out", text.parent / "steps"
        given = ["-o", f"file://{out}", "--step-output-dir", f"file://{steps}"]
        succeed("run", write(), "-r", "parallel", *given, f"file://{text}")
        found = b"".join(path.read_bytes() for path in out.iterdir())
        assert pairs(found.decode()) == expected(text)
        assert steps.is_dir()
        for option, runner in (("-o", "inline"), ("--step-output-dir", "local")):
            said = fails(2, write(), "-r", runner, option, "hdfs://host/out", text)
            assert "hdfs://host/out: expected a folder of this machine" in said

    def test_an_empty_folder_is_taken_and_a_file_is_not(self, write, text):
        (text.parent / "out").mkdir()
        succeed("run", write(), "-o", text.parent / "out", text)
        said = fails(73, write(), "-o", text, text)
        assert f"the output {text} exists and is not a folder" in said
        assert "cannot create the output folder" in fails(73, write(), "-o", text / "x", text)

    def test_cat_output(self, write, text):
        out = text.parent / "out"
        assert pairs(succeed("run", write(), "-o", out, "--cat-output", text)) == expected(text)
        assert succeed("run", write(), "--no-cat-output", text) == ""

    @pytest.mark.parametrize("runner", first_of("parallel", "inline", "local"))
    def test_a_failed_job_leaves_no_folder(self, text, runner):
        out = text.parent / "deep" / "out"
        fails(1, "mrjob.examples.mr_boom", "-q", "-r", runner, "-o", out, text)
        assert not out.exists()

    def test_nobody_reads_it(self, write, text):
        many = text.parent / "many.txt"
        many.write_text("".join(f"word{i}\n" for i in range(50_000)))
        command = " ".join(map(str, [*GRADREDUCE, "run", write(), "-q", many]))
        done = programs.ran(
            "bash", "-c", f"{command} | head -1; exit ${{PIPESTATUS[0]}}", check=False
        )
        assert done.returncode == 141
        assert done.stderr == ""
        assert len(done.stdout.splitlines()) == 1

    def test_no_room_for_it(self, write, text):
        command = " ".join(map(str, [*GRADREDUCE, "run", write(), "-q", text]))
        done = programs.ran("sh", "-c", f"{command} > /dev/full", check=False)
        assert done.returncode == 74
        assert done.stderr == "error: cannot write the output: No space left on device\n"

    @pytest.mark.slow
    def test_temporary_files(self, write, text, tmp_path):
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        environment = {**os.environ, "TMPDIR": str(temporary)}
        for runner in ("parallel", "inline", "local"):
            succeed("run", write(), "-r", runner, text, env=environment)
            assert list(temporary.iterdir()) == []
        succeed("run", write(), "--cleanup", "NONE", text, env=environment)
        assert [path.name.partition(".")[0] for path in temporary.iterdir()] == ["job"]


class TestFailures:
    @pytest.mark.parametrize("runner", ["parallel", "inline", "local"])
    @cases(
        "old, new, error",
        ("word, 1", "word, 1 / (word != 'nine')", "ZeroDivisionError: division by zero"),
        ("    def mapper(", "    def steps(self): [][0]\n    def mapper(", "IndexError"),
    )
    def test_what_raises(self, write, text, runner, old, new, error):
        said = fails(1, write(COUNT.replace(old, new)), "-r", runner, "--no-conf", text)
        assert error in said
        assert new.partition("\n")[0].strip() in said

    def test_inline_shows_the_users_frames_only(self, text):
        said = fails(1, "mrjob.examples.mr_boom", "-q", "-r", "inline", text)
        frames = [line for line in said.splitlines() if line.startswith("  File ")]
        assert len(frames) == 1
        assert "mr_boom.py" in frames[0]


SLOW = COUNT.replace("yield word, 1", "__import__('time').sleep(600)")


@pytest.mark.fault
@pytest.mark.parametrize("runner", ["parallel", "inline", "local"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_job_leaves_nothing(write, text, tmp_path, runner, number):
    temporary, mark = tmp_path / "temporary", f"mark-{runner}-{number}-{os.getpid()}"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "MARK": mark}
    touch = f"open({str(tmp_path / 'started')!r}, 'a').close()"
    script = write(SLOW.replace("__import__('time')", f"{touch}; __import__('time')"))
    out = tmp_path / "out"
    process = start("run", script, "-q", "-r", runner, "-o", out, text, env=environment)
    wait_until((tmp_path / "started").exists)
    process.send_signal(number)
    _, said = process.communicate(timeout=programs.PATIENCE)
    assert process.returncode == 128 + number
    assert said == "interrupted\n"
    assert list(temporary.iterdir()) == []
    assert not out.exists()
    shared = Path("/dev/shm")
    assert not list(shared.glob(f"gradreduce-*-{process.pid}-*"))
    wait_until(lambda: processes_of(mark) == [])
