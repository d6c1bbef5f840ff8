"""A number agrees with its noun."""

from mapreduce.support.words import count
from quick import cases


@cases("value, shown", (0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1_000, "1,000 rows"))
def test_a_number_with_its_noun(value, shown):
    assert count(value, "row") == shown
