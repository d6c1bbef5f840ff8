"""Every job among mrjob's examples that needs no cluster: ``-r parallel`` against ``-r inline``."""

import os
import random
import re
from collections import Counter
from pathlib import Path

import mrjob
import pytest

from programs import gradreduce
from quick import each

EXAMPLES = Path(mrjob.__file__).parent / "examples"

#: Left out, since they need a cluster's software: a step in Java, and Spark.
NEED_A_CLUSTER = {
    *("mr_jar_step_example", "mr_spark_most_used_word", "mr_spark_wordcount"),
    *("mr_spark_wordcount_script", "mr_sparkaboom"),
}

#: Jobs, and what they need beside an input.
JOBS: dict[str, list[str]] = {
    "mr_count_lines_by_file": [],
    "mr_count_lines_right": [],
    # Wrong in that there is one line for each map task.
    "mr_count_lines_wrong": ["--jobconf", "mapreduce.job.maps=1"],
    "mr_grep": ["-e", "uni"],
    # Which lines are sampled is random; all of them are the same on every runner.
    "mr_log_sampler": ["--sample-size", "100000"],
    "mr_most_used_word": [],
    "mr_next_word_stats": [],
    "mr_nick_nack": [],
    "mr_nick_nack_input_format": [],
    "mr_phone_to_url": [],
    "mr_text_classifier": ["--min-df", "1"],
    "mr_wc": [],
    "mr_word_freq_count": [],
    "mr_words_containing_u_freq_count": [],
}

#: mrjob's inline runner runs no commands.
WITH_COMMANDS = {"mr_grep", "mr_words_containing_u_freq_count"}

#: What mr_phone_to_url uses of the package warcio: records of a file, one for each line.
WARCIO = """
from io import BytesIO
from types import SimpleNamespace


def ArchiveIterator(file):
    for line in file:
        url, _, text = line.partition(b" ")
        known = {"Content-Type": "text/plain", "WARC-Target-URI": url.decode()}
        yield SimpleNamespace(
            rec_type="conversion",
            rec_headers=SimpleNamespace(get_header=known.get),
            content_stream=lambda text=text: BytesIO(text),
        )
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A text of several words, some with u, and pages with telephone numbers."""
    folder = tmp_path_factory.mktemp("examples")
    words = "unicorn the fluent runs uniform you mapper reducer a Don't größe sum union"
    chosen = random.Random(1)
    lines = [" ".join(chosen.choices(words.split(), k=chosen.randrange(9))) for _ in range(500)]
    (folder / "text.txt").write_text("\n".join([*lines, "ends without a line feed"]))
    pages = [
        f"http://host{chosen.randrange(9)}.org/{n} call (415) 555-{chosen.randrange(1000, 1060)}"
        for n in range(100)
    ]
    (folder / "pages.wet").write_text("\n".join(pages) + "\n")
    (folder / "path" / "warcio").mkdir(parents=True)
    (folder / "path" / "warcio" / "__init__.py").touch()
    (folder / "path" / "warcio" / "archiveiterator.py").write_text(WARCIO)
    return folder


def run(places, name, runner, *arguments):
    """What a job prints, run by ``gradreduce run``."""
    inputs = {"mr_phone_to_url": [places / "pages.wet"], "mr_text_classifier": documents()}
    path = os.pathsep.join(filter(None, [str(places / "path"), os.environ.get("PYTHONPATH")]))
    job = ["run", f"mrjob.examples.{name}", "-r", runner, "--no-conf", "-q", *arguments]
    return gradreduce(
        *job,
        *inputs.get(name, [places / "text.txt"]),
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
    )


def documents():
    return sorted((EXAMPLES / "docs-to-classify").glob("*.txt"))


def lines(out):
    """Lines and how often they occur; sums of floats depend in their last bits on the order."""
    shown = re.sub(r"-?\d+\.\d+(e[-+]?\d+)?", lambda number: f"{float(number[0]):.9g}", out)
    return Counter(shown.splitlines())


def test_no_example_is_forgotten():
    there = {path.stem for path in EXAMPLES.glob("mr_*.py")}
    assert there == JOBS.keys() | NEED_A_CLUSTER | {"mr_boom"}


@pytest.mark.slow
@pytest.mark.parametrize("name", each(4, JOBS))
def test_the_same_lines_as_mrjobs_own_runner_gives(places, name):
    theirs = "local" if name in WITH_COMMANDS else "inline"
    arguments = JOBS[name]
    ours = run(places, name, "parallel", "--workers", "3", *arguments)
    assert ours.returncode == 0, ours.stderr
    if name == "mr_count_lines_wrong":
        # inline divides its input as it likes; the kept mistake shows in the number of lines.
        assert ours.stdout == "null\t501\n"
        return
    expected = run(places, name, theirs, *arguments)
    assert expected.returncode == 0, expected.stderr
    assert lines(ours.stdout) == lines(expected.stdout)
    assert ours.stdout


@pytest.mark.parametrize("runner", ["inline", "parallel", "local"])
def test_the_job_that_always_fails(places, runner):
    done = run(places, "mr_boom", runner)
    assert done.returncode == 1
    assert done.stdout == ""
    if runner != "local":
        # The runner local has a program between, whose end is all that it tells quietly.
        assert "Exception: BOOM" in done.stderr
