"""The benchmark of stock jobs: what they compute, and that both runners must agree."""

import json
from collections import Counter

import pytest

import mapreduce
from benchmarks import jobs
from benchmarks.stock.most_used_word import WORD, MostUsedWord
from benchmarks.stock.orders_join import OrdersJoin
from benchmarks.stock.word_places import WordPlaces

TEXT = "The cat, the hat\nand THE rat\n\nthe end\n" * 5


def output_of(job, path):
    return list(mapreduce.run(job, path, arguments=["--workers", 2]).pairs)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_most_used_word(text):
    (word, count), *rest = Counter(WORD.findall(TEXT.lower())).most_common(2)
    assert word == "the"
    assert count > rest[0][1]
    assert output_of(MostUsedWord, text) == [(count, "the")]


def test_word_places(text):
    found = dict(output_of(WordPlaces, text))
    assert {word: places["count"] for word, places in found.items()} == Counter(
        WORD.findall(TEXT.lower())
    )
    assert found["the"] == {"count": 20, "first": 0.0, "last": 0.5}
    assert found["rat"]["first"] == found["rat"]["last"] == 2 / 3


def test_orders_join(tmp_path):
    path = jobs.write_orders(tmp_path / "orders.csv", 400)
    expected = {}
    for line in path.read_text().splitlines():
        kind, number, *rest = line.split(",")
        if kind == "u":
            expected[int(number)] = [rest[0], 0, [0.0, ""]]
        else:
            row = expected[int(number)]
            row[1] += 1
            row[2] = max(row[2], [float(rest[1]), rest[0]])
    assert json.loads(json.dumps(dict(output_of(OrdersJoin, path)))) == {
        str(number): row for number, row in expected.items()
    }


@pytest.mark.slow
def test_both_runners_are_compared_and_timed(text):
    result = jobs.compare("Words", "word_places", text, 1, "Few.")
    assert len(result.ours) == len(result.peers[jobs.LOCAL]) == 1
    assert result.limit is None
