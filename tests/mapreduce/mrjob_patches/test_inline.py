"""Jobs that are WARM do on ``-r inline`` what mrjob's own inline runner makes of them."""

import contextlib
import gzip
import logging
import os
import re
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from mrjob.fs.local import LocalFilesystem
from mrjob.inline import InlineMRJobRunner
from mrjob.protocol import BytesProtocol, BytesValueProtocol

from mapreduce.job import Job, MRStep
from mapreduce.mrjob_patches import inline
from mapreduce.mrjob_patches.inline import WarmInlineMRJobRunner

SEEN = (
    *("mapreduce_task_partition", "mapreduce_task_ismap", "mapreduce_map_input_start"),
    *("mapreduce_map_input_length", "mapred_task_partition", "wanted"),
)


def seen(name):
    """Variables of a task's environment, without the name of the job and its folder."""
    return " ".join([name, *(f"{key}={os.environ.get(key)}" for key in SEEN)]).encode()


class Warm(Job):
    """Steps of some kinds; values say which task they come from, and in what order."""

    WARM = True
    INPUT_PROTOCOL = BytesValueProtocol
    INTERNAL_PROTOCOL = OUTPUT_PROTOCOL = BytesProtocol
    kinds: tuple[str, ...] = ()
    tail = b""
    fails = ""
    made = 0

    def __init__(self, args=None):
        type(self).made += 1
        super().__init__(args)

    def configure_args(self):
        super().configure_args()
        self.add_file_arg("--extra")

    def steps(self):
        return [self._step(kind, number) for number, kind in enumerate(self.kinds)]

    def _step(self, kind, number):
        mapper = self.split if number == 0 else self.tell
        found = {"jobconf": {"wanted": number}, "mapper_final": self.end}
        if "m" in kind or number == 0:
            found["mapper"] = mapper
        if "c" in kind:
            found["combiner"] = self.join
        if "r" in kind:
            found["reducer"] = self.gather
        return MRStep(**found)

    def split(self, _, line):
        self.increment_counter("read, by", "mappers", len(line))
        if self.fails == "mapper":
            raise ValueError(f"line {line!r}")
        yield line[:1], line

    def tell(self, key, value):
        yield value[:1] if value else b"", key + b" " + (value or b"") + seen("mapper")

    def end(self):
        self.stdout.write(self.tail)
        print("warning: é", file=sys.stderr)
        if self.options.extra:
            yield b"extra", Path(self.options.extra).read_bytes().strip()

    def join(self, key, values):
        self.set_status("joining")
        if self.fails == "combiner":
            raise ValueError("is not joined")
        for value in values:
            self.increment_counter("joined", "values")
            yield key, (value or b"") + seen("combiner")

    def gather(self, key, values):
        if self.fails == "reducer":
            raise KeyError(key)
        for number, value in enumerate(values):
            self.increment_counter("gathered", "values")
            yield key, b"%d " % number + (value or b"") + seen("reducer")


def ran(folder, arguments=(), stdin=b"", **attributes):
    """What a job leaves: its files, counters and log, or also the error that it ends with."""
    records, error, left = [], None, {}
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    log = logging.getLogger("mrjob")
    before = Path.cwd(), dict(os.environ), list(sys.path), sys.stdin, sys.stdout, sys.stderr
    theirs = LocalFilesystem.ls
    with contextlib.ExitStack() as stack:
        for name, value in attributes.items():
            stack.enter_context(mock.patch.object(Warm, name, value))
        stack.enter_context(
            mock.patch.object(LocalFilesystem, "ls", lambda *given: sorted(theirs(*given)))
        )
        stack.enter_context(mock.patch.object(log, "handlers", [handler]))
        stack.enter_context(mock.patch.object(log, "level", logging.INFO))
        own = ["-r", "inline", "--no-conf", "--local-tmp-dir", str(folder), *arguments]
        own += ["--output-dir", str(folder / "out"), "--step-output-dir", str(folder / "steps")]
        job = Warm(own)
        job.sandbox(stdin=BytesIO(stdin))
        with job.make_runner() as runner:
            kind = WarmInlineMRJobRunner if Warm.WARM else InlineMRJobRunner
            assert type(runner) is kind
            try:
                runner.run()
            except Exception as raised:
                error = type(raised), str(raised)
                for path in Path(runner._get_local_tmp_dir()).rglob("*"):
                    if path.name in ("input", "stderr"):
                        left[path.parts[-3:]] = path.read_bytes()
            counters = runner.counters()
            key = runner.get_job_key()
    after = Path.cwd(), dict(os.environ), list(sys.path), sys.stdin, sys.stdout, sys.stderr
    assert after == before
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for name in ("out", "steps")
        for path in (folder / name).rglob("*")
        if path.is_file()
    }
    said = [re.sub(re.escape(key), "KEY", text) for text in records]
    return {
        "files": files,
        "counters": counters,
        "error": error,
        "left": left,
        "said": sorted(said),
    }


def compared(arguments=(), most=1 << 26, **given):
    """The same as :func:`ran`, by mrjob and by the runner for WARM jobs; their results."""
    found = []
    for is_warm in (False, True):
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(inline, "_MOST_BYTES", most),
        ):
            one = ran(Path(folder), arguments, WARM=is_warm, **given)
            one["said"] = [text.replace(folder, "FOLDER") for text in one["said"]]
            found.append(one)
    return found


lines = st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"\t")), max_size=12)
kinds = st.lists(st.sampled_from(["m", "mr", "mcr", "mc", "r", "cr"]), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kinds=kinds,
    lines=lines,
    cores=st.integers(1, 4),
    tail=st.sampled_from([b"", b"", b"a\tunterminated"]),
    sort_values=st.booleans(),
    most=st.sampled_from([1 << 26, 1 << 26, 0]),
)
def test_the_same_bytes_and_counters(kinds, lines, cores, tail, sort_values, most):
    theirs, ours = compared(
        ["--num-cores", str(cores)],
        most,
        stdin=b"\n".join(lines),
        kinds=tuple(kinds),
        tail=tail,
        SORT_VALUES=sort_values,
    )
    assert theirs["error"] is None
    assert ours == theirs


@pytest.mark.parametrize("fails", ["mapper", "combiner", "reducer"])
@pytest.mark.parametrize("most", [1 << 26, 0])
def test_the_same_error(fails, most):
    stdin = b"".join(b"%d\n" % number for number in range(20))
    theirs, ours = compared(stdin=stdin, kinds=("mcr",), fails=fails, most=most)
    assert theirs["error"]
    failed = {place: ours["left"].pop(place) for place in list(ours["left"])}
    for name in ("error", "counters", "said"):
        assert ours[name] == theirs[name]
    # The failed task's input and log stay, at the paths that mrjob gives them.
    told = next(text for text in ours["said"] if "Error while reading from" in text)
    named = tuple(told.strip().rstrip(":").split("/")[-3:])
    assert failed[named] == theirs["left"][named]
    assert failed[(*named[:2], "stderr")] == theirs["left"][(*named[:2], "stderr")]


def test_files_of_input_compressed_ones_and_those_for_tasks(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "in" / "b.txt.gz").write_bytes(gzip.compress(b"three\nfour"))
    (tmp_path / "extra").write_bytes(b"for tasks\n")
    both, plain = tmp_path / "in", tmp_path / "in" / "a.txt"
    for paths in ([both], [plain, plain], [plain, both / "b.txt.gz"]):
        arguments = [*map(str, paths), "--extra", str(tmp_path / "extra"), "--num-cores", "2"]
        theirs, ours = compared(arguments, kinds=("mr", "mc"))
        assert ours == theirs
        assert b"for tasks" in b"".join(ours["files"].values())


def test_one_instance_serves_all_tasks(tmp_path):
    for is_warm, expected in ((True, 2), (False, 13)):
        folder = tmp_path / str(is_warm)
        folder.mkdir()
        with mock.patch.object(Warm, "made", 0):
            arguments = ["--num-cores", "2"]
            ran(folder, arguments, b"a\nb\nc\nd\n", WARM=is_warm, kinds=("mcr",))
            assert Warm.made == expected
        assert [path.name for path in folder.iterdir()] == ["out"]
