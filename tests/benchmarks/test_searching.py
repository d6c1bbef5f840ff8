"""Searches that are compared have the same trials."""

import pytest

from benchmarks.searching import losses, rows


@pytest.mark.slow
def test_a_search_with_rungs_has_the_trials_of_one_without():
    data = rows("tumours")
    cut, cost = losses(data, 1, 6, rungs=(1, 2))
    whole, full_cost = losses(data, 1, 6, epochs=2)
    assert sum(cut == whole) == 2
    # Six trials of one epoch, two of which go on.
    assert cost / full_cost == 8 / 12
    assert not set(whole) & set(losses(data, 2, 6, epochs=2)[0])
