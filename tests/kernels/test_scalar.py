"""Accuracy and special values of the scalar functions, in plain Python and compiled."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from kernels import cpu, scalar

pytestmark = pytest.mark.every_case

FUNCTIONS = {name: getattr(scalar, name) for name in ("exp", "log", "relu")}
COMPILED = {name: cpu.inline(function) for name, function in FUNCTIONS.items()}
BOTH = {"interpreted": FUNCTIONS, "compiled": COMPILED}

# The most found in 60 million random arguments is 1.19 and 1.99.
EXP_ULPS = 1.25
LOG_ULPS = 2.05

# The arguments for which results are promised.
DOMAINS = {
    "exp": st.floats(),
    "log": st.floats(2.0**-1022, allow_infinity=False) | st.just(math.nan),
    "relu": st.floats(),
}


def same_bits(a, b):
    return np.float64(a).tobytes() == np.float64(b).tobytes()


def ulps(found, function, x):
    """Distance of ``found`` from the exact value, in units of the last place of the latter."""
    with localcontext() as context:
        context.prec = 40
        exact = getattr(Decimal(x), function)()
        return float(abs(Decimal(float(found)) - exact) / Decimal(math.ulp(float(exact))))


@pytest.fixture(params=BOTH)
def functions(request):
    return BOTH[request.param]


class TestExp:
    @given(st.floats(scalar.EXP_UNDERFLOW, scalar.EXP_OVERFLOW) | st.floats(-40, 0))
    def test_accuracy(self, x):
        assert ulps(scalar.exp(x), "exp", x) <= EXP_ULPS

    def test_accuracy_over_the_range(self):
        for x in np.random.default_rng(1).uniform(-708, 709, 5000):
            assert ulps(scalar.exp(float(x)), "exp", float(x)) <= EXP_ULPS, x

    @pytest.mark.parametrize("k", range(-1021, 1023, 31))
    def test_where_the_reduction_changes_its_exponent(self, k):
        x = (k + 0.5) * math.log(2)
        for near in (x, math.nextafter(x, -math.inf), math.nextafter(x, math.inf)):
            assert ulps(scalar.exp(near), "exp", near) <= EXP_ULPS

    def test_special_values(self, functions):
        exp = functions["exp"]
        assert same_bits(exp(0.0), 1.0)
        assert same_bits(exp(-0.0), 1.0)
        assert exp(math.inf) == math.inf
        assert same_bits(exp(-math.inf), 0.0)
        assert math.isnan(exp(math.nan))
        assert math.isnan(exp(-math.nan))

    def test_ends_of_the_range(self, functions):
        exp = functions["exp"]
        assert ulps(exp(-708.0), "exp", -708.0) <= EXP_ULPS
        assert same_bits(exp(math.nextafter(-708.0, -math.inf)), 0.0)
        assert ulps(exp(709.0), "exp", 709.0) <= EXP_ULPS
        assert exp(math.nextafter(709.0, math.inf)) == math.inf


class TestLog:
    @given(st.floats(2.0**-1022, allow_infinity=False) | st.floats(1, 1000))
    def test_accuracy(self, x):
        assert ulps(scalar.log(x), "ln", x) <= LOG_ULPS

    def test_accuracy_over_the_range(self):
        generator = np.random.default_rng(2)
        uniform = generator.uniform(1, 10, 2500)
        anything = np.ldexp(generator.uniform(1, 2, 2500), generator.integers(-1022, 1024, 2500))
        for x in (*uniform, *anything):
            assert ulps(scalar.log(float(x)), "ln", float(x)) <= LOG_ULPS, x

    @pytest.mark.parametrize("center", [0.5, 2**-0.5, 1.0, 2**0.5, 2.0, 1000.0])
    def test_around_the_edges_of_the_reduction(self, center):
        for step in range(-20, 21):
            x = center + step * math.ulp(center)
            if x != 1:
                assert ulps(scalar.log(x), "ln", x) <= LOG_ULPS

    def test_special_values(self, functions):
        log = functions["log"]
        assert same_bits(log(1.0), 0.0)
        assert math.isnan(log(math.nan))
        assert math.isnan(log(-math.nan))

    @pytest.mark.parametrize("x", [2.0**-1022, math.nextafter(math.inf, 0)])
    def test_ends_of_the_range(self, functions, x):
        assert ulps(functions["log"](x), "ln", x) <= LOG_ULPS


def test_relu(functions):
    relu = functions["relu"]
    assert relu(2.5) == 2.5
    assert relu(5e-324) == 5e-324
    assert relu(math.inf) == math.inf
    assert math.isnan(relu(math.nan))
    for x in (-0.0, 0.0, -5e-324, -math.inf):
        assert same_bits(relu(x), 0.0)


class TestTanh:
    """Of plain numbers: what is compiled is tested with the kernels."""

    @staticmethod
    def assert_accurate(x):
        with localcontext() as context:
            context.prec = 60
            # Its digits before the point go where exp(x) and exp(-x) cancel.
            power = (2 * Decimal(x)).exp()
            exact = (power - 1) / (power + 1)
            found = Decimal(scalar.tanh(x, scalar.exp(2.0 * abs(x))))
            assert abs(found - exact) <= 3 * Decimal(math.ulp(float(exact)))

    @given(st.floats(-25, 25) | st.floats(-1, 1))
    def test_accuracy(self, x):
        if abs(x) > 1e-20:
            self.assert_accurate(x)

    @pytest.mark.parametrize("exponent", range(-40, 5))
    def test_accuracy_over_the_range(self, exponent):
        for x in np.random.default_rng(exponent + 40).uniform(1, 2, 100):
            self.assert_accurate(math.ldexp(float(x), exponent))

    @pytest.mark.parametrize("x", [0.0, -0.0, 5e-324, -1e-300, 1e-9, math.nan])
    def test_what_stays(self, x):
        assert same_bits(scalar.tanh(x, scalar.exp(2.0 * abs(x))), x)

    @pytest.mark.parametrize("x", [20.0, 1e3, math.inf])
    def test_what_is_large(self, x):
        power = scalar.exp(2.0 * x)
        assert (scalar.tanh(x, power), scalar.tanh(-x, power)) == (1.0, -1.0)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, words):
    """Of the file kat_vectors of Random123, its authors' library."""
    assert scalar.philox(*counter, *key) == words
    assert tuple(naive.philox(counter, key)) == words


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
def test_compiled_gives_the_same_bits(name, data):
    x = data.draw(DOMAINS[name])
    interpreted = FUNCTIONS[name](x)
    compiled = COMPILED[name](x)
    assert same_bits(interpreted, compiled) or (math.isnan(interpreted) and math.isnan(compiled))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_compiled_loop_gives_the_same_bits(name):
    """The compiler may treat several elements of a loop at once."""
    function = COMPILED[name]

    @cpu.inline
    def loop(values):
        for i in range(values.size):
            values[i] = function(values[i])

    generator = np.random.default_rng(3)
    arguments = np.concatenate([generator.uniform(-750, 750, 1003), generator.uniform(-1, 1, 1004)])
    if name == "log":
        arguments = np.abs(arguments) + 2.0**-1022
    values = arguments.copy()
    loop(values)
    expected = np.array([FUNCTIONS[name](float(x)) for x in arguments])
    np.testing.assert_array_equal(values.view(np.int64), expected.view(np.int64))
