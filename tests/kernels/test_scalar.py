"""Accuracy and special values of the scalar functions; compiled they give the same bits."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

import naive
from kernels import cpu, scalar
from quick import cases

pytestmark = pytest.mark.every_case

# The most found in 60 million random arguments is 1.19 and 1.99 units in the last place.
ULPS = {"exp": 1.25, "log": 2.05}


def around(*values, steps=1):
    """Numbers and their neighbours."""
    return [x + n * math.ulp(x) for x in values for n in range(-steps, steps + 1)]


def randomly(seed, *ranges, count=2500):
    generator = np.random.default_rng(seed)
    return [x for ends in ranges for x in generator.uniform(*ends, count).tolist()]


#: Over the range and at its ends, where the reduction changes its exponent, and near 0 or 1.
ARGUMENTS = {
    "exp": [
        *(-708.0, 709.0, *randomly(1, (-708, 709), (-40, 0), (-1, 1))),
        *around(*((k + 0.5) * math.log(2) for k in range(-1021, 1023, 31))),
    ],
    "log": [
        *(2.0**-1022, math.nextafter(math.inf, 0), *randomly(2, (0, 1), (1, 10), (1, 1000))),
        *map(math.ldexp, randomly(3, (1, 2), count=2046), range(-1022, 1024)),
        *(x for x in around(0.5, 2**-0.5, 1.0, 2**0.5, 2.0, 1000.0, steps=20) if x != 1),
    ],
    "relu": randomly(4, (-10, 10)),
}
#: What exactly comes out of some.
SPECIAL = {
    "exp": [
        *((0.0, 1.0), (-0.0, 1.0), (math.inf, math.inf), (-math.inf, 0.0)),
        *((math.nan, math.nan), (-math.nan, math.nan)),
        (math.nextafter(-708.0, -math.inf), 0.0),
        (math.nextafter(709.0, math.inf), math.inf),
    ],
    "log": [(1.0, 0.0), (math.nan, math.nan), (-math.nan, math.nan)],
    "relu": [
        *((2.5, 2.5), (5e-324, 5e-324), (math.inf, math.inf), (math.nan, math.nan)),
        *((-0.0, 0.0), (0.0, 0.0), (-5e-324, 0.0), (-math.inf, 0.0)),
    ],
}


def bits(numbers):
    """All NaN are one."""
    return [np.float64(math.nan if math.isnan(x) else x).tobytes() for x in numbers]


@pytest.mark.parametrize(("name", "exactly"), [("exp", "exp"), ("log", "ln")])
def test_accuracy(name, exactly):
    with localcontext() as context:
        context.prec = 40
        for x in ARGUMENTS[name]:
            exact = getattr(Decimal(x), exactly)()
            error = abs(Decimal(getattr(scalar, name)(x)) - exact)
            assert error / Decimal(math.ulp(float(exact))) <= ULPS[name], x


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name):
    arguments, expected = zip(*SPECIAL[name], strict=True)
    assert bits(map(getattr(scalar, name), arguments)) == bits(expected)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_compiled_loop_gives_the_same_bits(name):
    """The compiler may treat several elements of a loop at once."""
    function = cpu.inline(getattr(scalar, name))

    @cpu.inline
    def loop(values):
        for i in range(values.size):
            values[i] = function(values[i])

    arguments = [*ARGUMENTS[name], *(x for x, _ in SPECIAL[name])]
    values = np.array(arguments)
    loop(values)
    assert bits(values) == bits(map(getattr(scalar, name), arguments))


class TestTanh:
    """Of plain numbers: what is compiled is tested with the kernels."""

    def test_accuracy(self):
        for exponent in range(-40, 5):
            for x in randomly(exponent + 40, (1, 2), (-2, -1), count=50):
                self.assert_accurate(math.ldexp(x, exponent))

    @staticmethod
    def assert_accurate(x):
        with localcontext() as context:
            context.prec = 60
            # Its digits before the point go where exp(x) and exp(-x) cancel.
            power = (2 * Decimal(x)).exp()
            exact = (power - 1) / (power + 1)
            found = Decimal(scalar.tanh(x, scalar.exp(2.0 * abs(x))))
            assert abs(found - exact) <= 3 * Decimal(math.ulp(float(exact)))

    def test_what_stays(self):
        numbers = [0.0, -0.0, 5e-324, -1e-300, 1e-9, math.nan]
        assert bits(scalar.tanh(x, scalar.exp(2.0 * abs(x))) for x in numbers) == bits(numbers)

    @pytest.mark.parametrize("x", [20.0, 1e3, math.inf])
    def test_what_is_large(self, x):
        power = scalar.exp(2.0 * x)
        assert (scalar.tanh(x, power), scalar.tanh(-x, power)) == (1.0, -1.0)


@cases(
    "counter, key, words",
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
def test_philox_gives_the_published_answers(counter, key, words):
    """Of the file kat_vectors of Random123, its authors' library."""
    assert scalar.philox(*counter, *key) == words
    assert tuple(naive.philox(counter, key)) == words
