"""Jobs on Spark: the lines and counters of ``inline``, whatever is killed."""

import pytest
from ladder import CASES, JOBS

from mapreduce.launch.run import load_job

# mrjob unpacks a folder for tasks as Python 3.14 will not by default.
pytestmark = pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")


def run(name, runner, tmp_path):
    """Output of a rung, in an order of its own if its own says nothing; and counters."""
    case = CASES[name]
    out = tmp_path / runner
    arguments = ["-r", runner, "--no-conf", "-o", str(out), *case.command_line()]
    job = load_job(str(JOBS / f"{name}.py"))(arguments)
    job.sandbox()
    with job.make_runner() as made:
        made.run()
        counters = made.counters()
    lines = b"".join(path.read_bytes() for path in sorted(out.glob("part-*"))).splitlines()
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []
    return lines if case.ordered else sorted(lines), counters


@pytest.mark.parametrize("name", CASES)
def test_a_rung(name, tmp_path):
    assert run(name, "spark", tmp_path) == run(name, "inline", tmp_path)
