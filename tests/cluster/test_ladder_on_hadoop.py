"""Every rung of jobs/ on a real Hadoop: the same output as ``inline``.

``make test-all`` runs those that need more of it than words and counts do, and ``make test-long``
the others.
"""

import pytest
from ladder import CASES, JOBS, comparable

from hdfs_utils.paths import path_of
from mapreduce.cli.main import main
from mapreduce.launch.run import load_job

#: Tasks run within the application master, one after the other: no JVM starts for each of them.
SHORT = (
    "mapreduce.job.ubertask.enable=true",
    "mapreduce.map.memory.mb=256",
    "mapreduce.reduce.memory.mb=256",
    "yarn.app.mapreduce.am.resource.mb=1024",
)

#: A mapper alone, a partitioner, a file beside the input, batches, a task that reads its split.
TYPICAL = {"total_sort", "word_count_vectorized"}


def printed(capture, name, *arguments):
    case = CASES[name]
    options = ["--no-conf", "-q", *map(str, arguments)]
    code = main(["run", str(JOBS / f"{name}.py"), *options, *case.command_line()])
    out, err = capture.readouterr()
    assert code == 0, err
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name if name in TYPICAL else pytest.param(name, marks=[pytest.mark.long]) for name in CASES],
)
def test_a_rung(name, cluster, capfdbinary, tmp_path):
    case = CASES[name]
    ours, theirs = tmp_path / "out", path_of(f"{cluster.hdfs_uri}/ladder/{name}")
    to = (["-o", ours], ["-o", theirs]) if case.ordered else ([], [])
    short = [word for value in SHORT for word in ("-D", value)]
    expected = printed(capfdbinary, name, "-r", "inline", *to[0])
    found = printed(capfdbinary, name, "-r", "hadoop", *short, *to[1])
    if case.ordered:
        expected = b"".join(path.read_bytes() for path in sorted(ours.glob("part-*")))
        found = b"".join(path.read_bytes() for path in sorted(theirs.glob("part-*")))
    assert pairs(name, found) == pairs(name, expected)


def pairs(name, output):
    case = CASES[name]
    job = load_job(str(JOBS / f"{name}.py"))(case.command_line())
    if name == "distinct":
        # Of a step with a combiner: Hadoop takes a line for a key, and appends a TAB.
        output = output.replace(b"\t\n", b"\n")
    return comparable(job.parse_output([output]), case.ordered)
