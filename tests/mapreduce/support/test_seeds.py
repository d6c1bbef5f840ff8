"""Every fork draws its own numbers from generators without a seed, and equal ones from others."""

import copy
import gc
import json
import os
import pickle
import random
import secrets
import subprocess
import sys
import warnings

import numpy as np
import pytest
from numpy.random import MT19937, PCG64, SFC64, Generator, Philox, RandomState, SeedSequence

from mapreduce.support import seeds


def draws(work):
    """What a function returns in two forks of this process."""
    found = []
    seeds.prepare()
    for _ in range(2):
        ours, theirs = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            try:
                seeds.renew()
                os.write(theirs, json.dumps(work()).encode())
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        os.close(theirs)
        found.append(json.loads(os.read(ours, 1 << 16)))
        os.close(ours)
    return found


class Mine(random.Random):
    """A generator as people make their own."""

    def __init__(self, seed=None):
        super().__init__(seed)


class Holder:
    """Where generators may be: in a class, and in lists of its objects."""


def restored(generator):
    generator.setstate(random.Random(3).getstate())
    return generator


def seeded_anew(generator):
    generator.seed(3)
    return generator


def unseeded_anew(generator):
    generator.seed()
    return generator


PYTHON = {
    "a generator": (lambda: random.Random(), False),
    "a class of somebody's": (lambda: Mine(), False),
    "without its seed": (lambda: unseeded_anew(random.Random(3)), False),
    "a number": (lambda: random.Random(3), True),
    "a text": (lambda: random.Random("three"), True),
    "zero": (lambda: Mine(0), True),
    "a seed that comes later": (lambda: seeded_anew(random.Random()), True),
    "a state that comes later": (lambda: restored(random.Random()), True),
    "a copy": (lambda: copy.deepcopy(random.Random(3)), True),
    "a pickle": (lambda: pickle.loads(pickle.dumps(random.Random(3))), True),
}

#: A seed as NumPy's own pages advise it.
LONG = 122807528840384100672342137672332424406

NUMPY = {
    **{
        f"{kind.__name__} of {seed}": (lambda kind=kind, seed=seed: Generator(kind(seed)), seed)
        for kind in (PCG64, MT19937, Philox, SFC64)
        for seed in (None, 3, LONG)
    },
    "default": (lambda: np.random.default_rng(), None),
    "drawn by hand": (lambda: np.random.default_rng(secrets.randbits(128)), None),
    "a child": (lambda: np.random.default_rng(3).spawn(1)[0], 3),
    "an orphan": (lambda: np.random.default_rng().spawn(1)[0], None),
    "a copy": (lambda: copy.deepcopy(np.random.default_rng(LONG)), LONG),
}


def test_generators_of_python():
    """All at once: a fork looks through all objects of this process, whatever it looks for."""
    holder = Holder()
    holder.generators = [{name: make() for name, (make, _) in PYTHON.items()}]
    one, other = draws(lambda: {name: mine.random() for name, mine in holder.generators[0].items()})
    for name, (_, is_seeded) in PYTHON.items():
        assert (one[name] == other[name]) is is_seeded, name


@pytest.mark.parametrize("is_frozen", [False, True])
def test_generators_of_numpy(is_frozen):
    holder = Holder()
    holder.generators = [{name: make() for name, (make, _) in NUMPY.items()}]

    def work():
        mine = holder.generators[0].items()
        return {name: [own.random(), own.spawn(1)[0].random()] for name, own in mine}

    if is_frozen:
        gc.freeze()
    try:
        one, other = draws(work)
    finally:
        gc.unfreeze()
    for name, (_, seed) in NUMPY.items():
        equal = [mine == theirs for mine, theirs in zip(one[name], other[name], strict=True)]
        assert equal == [seed is not None] * 2, name


@pytest.mark.parametrize("seed", [None, 3])
def test_what_a_generator_of_numpy_holds_back(seed):
    state, sequence = RandomState(seed), SeedSequence(seed)
    # Normal numbers come in pairs.
    state.standard_normal()

    def work():
        return [state.standard_normal(), *map(int, sequence.generate_state(1))]

    pairs = zip(*draws(work), strict=True)
    assert [one == other for one, other in pairs] == [seed is not None] * 2


@pytest.mark.parametrize("is_seeded", [False, True])
def test_the_functions_of_the_modules(is_seeded, monkeypatch):
    generator = RandomState()
    monkeypatch.setattr(np.random.mtrand, "_rand", generator)
    monkeypatch.setattr(np.random, "seed", generator.seed)
    try:
        random.seed()
        if is_seeded:
            random.seed(1)
            np.random.seed(1)
        pairs = zip(*draws(lambda: [random.random(), generator.random_sample()]), strict=True)
        assert [one == other for one, other in pairs] == [is_seeded] * 2
    finally:
        random.seed()


def test_entropy_is_a_number_for_everybody_else():
    entropy = SeedSequence().entropy
    assert type(pickle.loads(pickle.dumps(entropy))) is int
    assert json.loads(json.dumps(entropy)) == entropy
    assert repr(entropy) == repr(int(entropy))
    assert secrets.randbits(8) < 256


@pytest.mark.parametrize("first", ["mapreduce", "numpy.random", "secrets"])
def test_whatever_is_imported_first(first):
    """Also NumPy, which has an older name of the function that draws entropy then."""
    script = (
        f"import {first}, mapreduce, numpy, random, os\n"
        "from mapreduce.support import seeds\n"
        "found = random.Random(), numpy.random.default_rng()\n"
        "seeds.prepare()\n"
        "for _ in range(2):\n"
        "    if not os.fork():\n"
        "        seeds.renew()\n"
        "        print(*(one.random() for one in found), flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    numbers = done.stdout.split()
    assert (len(numbers), len({*numbers})) == (4, 4), done.stderr
