"""Scripts for mrjob 0.4 to 0.6 on a real Hadoop: the output of the same scripts with today's names.

Of each kind one, and the others by ``make test-long``; ``tests/mapreduce/mrjob_patches/
test_old_api.py`` runs all of them elsewhere.
"""

import pytest

from old_scripts import EXPECTED, METHODS, OPTIONS, output, ported, written

KINDS = ("two_values", "file_options", "mr_of_all_methods")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name if name in KINDS else pytest.param(name, marks=pytest.mark.long)
        for name in (*OPTIONS, *METHODS)
    ],
)
def test_a_script(name, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name in METHODS:
        (job, arguments), expected = written(tmp_path, name), EXPECTED
    else:
        job, new, arguments = ported(tmp_path, name)
        expected = output(new, arguments)
    assert output(job, arguments, "hadoop") == expected
