from itertools import combinations, product
from math import prod

import pytest

from quick import pairwise


@pytest.mark.parametrize("sizes", [(34, 6, 2), (2, 6, 34), (2, 3, 4, 2), (3, 3), (1, 5, 1)])
def test_every_pair_of_values_is_in_a_case(sizes):
    axes = [range(size) for size in sizes]
    cases = pairwise(*axes)
    for first, second in combinations(range(len(axes)), 2):
        pairs = {(case[first], case[second]) for case in cases}
        assert pairs == {*product(axes[first], axes[second])}
    # Hardly more than the two longest need.
    assert len(cases) == len({*cases}) <= 1.3 * prod(sorted(sizes)[-2:])
