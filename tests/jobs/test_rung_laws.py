"""Laws of single rungs, and oracles of other people's making."""

import json
import statistics
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from ladder import CASES, JOBS, ROOT, comparable

from jobs import inputs, inverted_index, mean_variance, median, near_duplicates
from mapreduce import run
from mapreduce.cli.main import main
from mapreduce.launch.run import load_job

DATA = JOBS / "data"


def pairs(name, *paths, arguments=(), runner="inline"):
    return run(load_job(str(JOBS / f"{name}.py")), paths, runner=runner, arguments=arguments).pairs


def printed(name, capture, *arguments):
    """What a rung prints, its own driver included."""
    command = ["run", str(JOBS / f"{name}.py"), "-r", "inline", "--no-conf", "-q", *arguments]
    code = main([str(word) for word in command])
    out, err = capture.readouterr()
    assert code == 0, err
    return out


class TestMonoids:
    @given(st.lists(st.lists(st.integers(0, 10**9), min_size=1), min_size=1))
    def test_moments_in_any_grouping(self, groups):
        every = [value for group in groups for value in group]
        lifted = [[(1, value, value**2) for value in group] for group in groups]
        number, total, squares = mean_variance.add(map(mean_variance.add, lifted))
        assert (number, total) == (len(every), sum(every))
        exact = statistics.pvariance(map(Fraction, every))
        assert Fraction(number * squares - total**2, number**2) == exact

    @given(st.lists(st.lists(st.integers(0, 20), min_size=1), min_size=1))
    def test_histograms_in_any_grouping(self, groups):
        every = [value for group in groups for value in group]
        lifted = [[[(value, 1)] for value in group] for group in groups]
        histogram = median.add(map(median.add, lifted))
        assert dict(histogram) == Counter(every)
        ((_, found),) = median.Median([]).reducer("x", [histogram])
        assert found == statistics.median(every)

    def test_floats_are_summed_exactly(self):
        lines = ["0\t0\t1e16\t0\tx", "0\t0\t1\t0\tx", "0\t0\t-1e16\t0\tx"]
        job = load_job(str(JOBS / "exact_sum.py"))
        assert run(job, lines=lines, runner="inline").pairs == [("x", 1.0)]


@given(st.lists(st.integers(0, 2**40), unique=True).map(sorted))
def test_gaps_are_read_back(positions):
    found, last, gap, shift = [], 0, 0, 0
    for byte in bytes.fromhex(inverted_index.compressed(positions)):
        gap |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            last += gap
            found.append(last)
            gap = shift = 0
    assert found == positions


#: Those whose answer is a set of pairs, and whose run is short.
QUICK = ["word_count_combiner", "mean_variance", "median", "secondary_sort", "reduce_join"]


@pytest.mark.parametrize("name", [*QUICK, "salted_join", "frequent_itemsets", "naive_bayes"])
def test_the_order_of_the_lines_does_not_matter(name):
    case = CASES[name]
    every = [line for path in case.inputs for line in (ROOT / path).read_text().splitlines()][::3]
    job = load_job(str(JOBS / f"{name}.py"))

    def answer(lines):
        return comparable(run(job, lines=lines, runner="inline", arguments=case.arguments).pairs)

    expected = answer(every)

    @settings(max_examples=4)
    @given(st.permutations(every))
    def law(lines):
        assert answer(lines) == expected

    law()


def test_stumps_do_not_depend_on_the_order_of_the_rows(capfdbinary, tmp_path):
    lines = (DATA / "tumours.tsv").read_text().splitlines(keepends=True)
    found = set()
    for name, order in ("as they are", lines), ("reversed", lines[::-1]), ("sorted", sorted(lines)):
        (tmp_path / name).write_text("".join(order))
        found.add(printed("boosting", capfdbinary, "--rounds", 8, tmp_path / name))
    assert len(found) == 1


def test_bad_records_are_counted_and_too_many_end_the_job():
    job = load_job(str(JOBS / "bad_records.py"))
    lines = ["bash\tshells\t7164\tbase-files", "no table", "x\ty\tz\t"]
    found = run(job, lines=lines, runner="parallel", arguments=["--workers", "1"])
    assert found.counters == [{"records": {"bad": 2}}]
    with pytest.raises(Exception, match=r"not enough values to unpack|invalid literal"):
        run(job, lines=lines, runner="inline", arguments=["--tolerate", "1"])


class TestShuffleAndSplit:
    flowers = (DATA / "flowers.tsv").read_text().splitlines()

    def lines(self, tmp_path, *arguments):
        folder = tmp_path / "-".join(arguments)
        arguments = [*arguments, "-o", str(folder)]
        pairs("shuffle_and_split", DATA / "flowers.tsv", arguments=arguments)
        return [x for part in sorted(folder.glob("part*")) for x in part.read_text().splitlines()]

    def test_parts_and_epochs(self, tmp_path):
        train, test = (self.lines(tmp_path, "--part", part) for part in ("train", "test"))
        assert sorted(train + test) == sorted(self.flowers)
        assert not set(train) & set(test)
        assert 15 < len(test) < 45
        again = self.lines(tmp_path, "--part", "train", "--epoch", "1")
        assert sorted(again) == sorted(train)
        assert again != train


def test_the_bloom_filter_drops_most_rows_and_loses_none():
    job = load_job(str(JOBS / "bloom_join.py"))
    case = CASES["bloom_join"]
    paths = [ROOT / path for path in case.inputs]
    found = run(job, paths, runner="inline", arguments=case.command_line()[:4])
    sections = dict(line.split("\t")[:2] for line in paths[0].read_text().splitlines())
    releases = [line.split("\t")[0] for line in paths[1].read_text().splitlines()]
    others = sum(section != "utils" for section in sections.values())
    others += sum(sections[name] != "utils" for name in releases)
    dropped = found.counters[0]["join"]["rows left at home"]
    assert 0.95 * others < dropped <= others
    assert len(found.pairs) == sum(sections[name] == "utils" for name in releases)


def test_similarities_are_estimates_of_jaccards():
    texts = dict(line.split("\t") for line in (DATA / "functions.tsv").read_text().splitlines())

    def shingles(text):
        words = near_duplicates.re.findall(r"\w+", text.lower())
        return {tuple(words[at : at + 3]) for at in range(max(len(words) - 2, 1))}

    found = {tuple(pair): value for pair, value in pairs("near_duplicates", DATA / "functions.tsv")}
    exact = {}
    for one in texts:
        for other in texts:
            if one < other:
                both = shingles(texts[one]), shingles(texts[other])
                exact[one, other] = len(both[0] & both[1]) / len(both[0] | both[1])
    assert {pair for pair, value in exact.items() if value > 0.8} <= found.keys()
    # Four standard deviations of a mean of 32 at worst.
    assert all(abs(value - exact[pair]) < 4 * 0.5 / 32**0.5 for pair, value in found.items())


class TestScikitLearn:
    @pytest.fixture(autouse=True)
    def there(self):
        pytest.importorskip("sklearn")

    def test_naive_bayes(self, capfdbinary, tmp_path):
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.naive_bayes import MultinomialNB

        model = tmp_path / "model.txt"
        model.write_bytes(printed("naive_bayes", capfdbinary, DATA / "functions.tsv"))
        rows = [line.split("\t") for line in (DATA / "functions.tsv").read_text().splitlines()]
        modules = [name.split(".")[0] for name, _ in rows]
        vectorizer = CountVectorizer(token_pattern="[a-z]+")
        counts = vectorizer.fit_transform([text for _, text in rows])
        expected = MultinomialNB().fit(counts, modules).predict(counts)
        arguments = ["--model", str(model)]
        found = dict(pairs("naive_bayes", DATA / "functions.tsv", arguments=arguments))
        assert [found[name] for name, _ in rows] == expected.tolist()

    def test_filter_descends_to_least_squares(self, capfdbinary, tmp_path):
        images = np.loadtxt(DATA / "digits.tsv").reshape(-1, 8, 8) / 16
        places = [place for place in np.ndindex(3, 3) if place != (1, 1)]
        seen = np.stack([images[:, i : i + 6, j : j + 6].ravel() for i, j in places], axis=1)
        pixels = images[:, 1:-1, 1:-1].ravel()
        best = np.linalg.lstsq(seen, pixels)[0]
        weights, errors, arguments = np.zeros(8), [], []
        for _ in range(3):
            out = printed("filter_gradient", capfdbinary, *arguments, DATA / "digits.tsv")
            (tmp_path / "filter").write_bytes(out)
            arguments = ["--filter", tmp_path / "filter"]
            weights -= 0.5 * (seen @ weights - pixels) @ seen / len(pixels)
            found = {
                tuple(k): v for k, v in (map(json.loads, x.split(b"\t")) for x in out.splitlines())
            }
            np.testing.assert_allclose([found[place] for place in places], weights, atol=1e-8)
            errors.append(np.mean((seen @ weights - pixels) ** 2))
        assert errors[0] > errors[1] > errors[2] > np.mean((seen @ best - pixels) ** 2)


def test_a_driver_writes_its_last_result_where_it_is_told(capfdbinary, tmp_path):
    case = CASES["breadth_first"]
    out = tmp_path / "out"
    assert printed("breadth_first", capfdbinary, "-o", out, *case.command_line()) == b""
    lines = [line for part in sorted(out.glob("part-*")) for line in part.read_text().splitlines()]
    expected = printed("breadth_first", capfdbinary, *case.command_line()).decode().splitlines()
    assert sorted(lines) == sorted(expected)
    assert f"{case.arguments[1]}\t0" in lines


def test_every_input_that_a_rung_names_is_there():
    assert {table.__name__ for table in inputs.TABLES} == {path.stem for path in DATA.glob("*.tsv")}
