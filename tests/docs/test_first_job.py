"""docs/first_job.md leads from an empty folder to a job that is checked, and runs anywhere."""

import re

import pytest
from following import follow
from test_readme import ROOT, blocks, shell

from programs import gradreduce

PAGE = ROOT / "docs" / "first_job.md"
TEXT = PAGE.read_text()


@pytest.mark.slow
def test_the_page_in_order(tmp_path):
    written = follow(PAGE, tmp_path)
    assert written == ["mean_length.py", "mean_length.py", "test_mean_length.py"]
    # Its last commands run the same job.
    (block,) = [block for block in blocks("sh", TEXT) if "-r local" in block]
    outputs = [sorted(shell(line, tmp_path).splitlines()) for line in block.splitlines()]
    assert outputs[0] == outputs[1] == outputs[2] != []


def test_the_message_of_the_mistake(tmp_path):
    job = blocks("python", TEXT)[0]
    (wrong,) = re.findall(r"`(yield word\[0\])`", TEXT)
    lines = job.splitlines(keepends=True)
    assert lines[14].startswith(f"            {wrong},")
    lines[14] = f"            {wrong}\n"
    (tmp_path / "mean_length.py").write_text("".join(lines))
    (tmp_path / "mean_length.txt").write_text("to be\n")
    done = gradreduce("run", "mean_length.py", "mean_length.txt", cwd=tmp_path)
    (message,) = blocks("none", TEXT)
    assert message.strip() in done.stderr


@pytest.mark.slow
@pytest.mark.cluster
def test_on_hadoop(tmp_path, cluster):
    (tmp_path / "mean_length.py").write_text(blocks("python", TEXT)[1])
    (tmp_path / "mean_length.txt").write_text("to be or not to be\n")
    (command,) = re.findall(r"`(gradreduce run [^`]* -r\s+hadoop [^`]*)`", TEXT)
    assert '"b"\t2.0' in shell(command.replace("\n", " "), tmp_path)
