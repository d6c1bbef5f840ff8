"""The benchmarks of word count, on texts that are too small to time."""

import re
from collections import Counter

import pytest

from benchmarks import __main__ as command, programs, texts, word_count
from benchmarks.common import case
from benchmarks.paired import Result
from quick import each

PEERS = [programs.INLINE, programs.DUCKDB, programs.POLARS, programs.PYARROW, programs.COREUTILS]


def test_texts_have_their_size_and_are_a_function_of_the_seed():
    text = b"".join(texts.blocks(3_000_001))
    assert len(text) == 3_000_001
    assert text.endswith(b"\n")
    assert text == b"".join(texts.blocks(3_000_001))
    assert text[:1000] != b"".join(texts.blocks(1000, seed=1))
    # A longer text begins with a shorter one, but for the line feed at its end.
    assert text[:99_999] == b"".join(texts.blocks(100_000))[:-1]
    assert b"".join(texts.blocks(0)) == b""


def test_texts_are_like_english_ones():
    text = b"".join(texts.blocks(3_000_000)).decode("ascii")
    lengths = [len(line) for line in text.splitlines()]
    assert min(lengths) == 0
    assert 90 < max(lengths) <= 124
    counts = Counter(re.findall(r"[\w']+", text.lower()))
    (word, first), (_, second), *_ = counts.most_common(3)
    assert word == "the"
    assert 0.02 < first / counts.total() < 0.06
    assert 1.1 < first / second < 2
    # New words keep coming.
    half = set(re.findall(r"[\w']+", text[: len(text) // 2].lower()))
    assert 1.3 * len(half) < len(counts)
    for pattern in (
        *(r"\b[A-Z][a-z]", r"\b[A-Z]{3}", r"\w'\w", r"\d", r"\w_\w", r"^(    |\t)\w", '"'),
    ):
        assert re.search(pattern, text, re.M), pattern


def compared(text, peers):
    """The result of the textbook's job beside some peers."""
    measure = case("title")(
        lambda bench: word_count.compare(bench, text, programs.TEXTBOOK, peers, "note")
    )
    return measure(quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("peers", [PEERS, [programs.PYSPARK]], ids=["fast", "slow"])
def test_peers_count_as_the_textbook_does(tmp_path, peers):
    """mrjob's runner ``local`` is compared in the quick runs below."""
    present = [peer for peer in peers if not peer.missing()]
    if not present:
        pytest.skip(peers[0].missing())
    text = texts.write(tmp_path / "text.txt", 200_000)
    with text.open("a") as out:
        out.write("\n\n''quoted'' \"don't\" a,b\tc\\d_e' 007")
    result = compared(text, peers)
    assert list(result.peers) == [peer.name for peer in present]
    assert set(result.skipped) == {peer.name for peer in peers} - set(result.peers)
    assert len(result.ours) == 1
    assert all(len(times) == 1 for times in result.peers.values())
    expected = Counter(re.findall(r"[\w']+", text.read_text().lower()))
    assert result.note == f"{expected.total():,} words, {len(expected):,} of them different. note"


def test_a_peer_that_counts_otherwise_is_not_compared(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a b a\n")
    wrong = programs.Program("wrong", lambda _, out: ["sh", "-c", f"printf 'a\\t1\\n' > {out}"])
    with pytest.raises(AssertionError, match="wrong counts otherwise"):
        compared(text, [wrong])


def test_a_peer_that_is_missing_is_named(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a b a\n")
    absent = programs.peer("no_such_module", "absent")
    result = compared(text, [absent])
    reason = "no_such_module is not installed (pip install -e '.[bench]')"
    assert result.skipped == {"absent": reason}
    assert f"| absent | skipped: {reason} | | |" in result.lines()


@pytest.mark.slow
@pytest.mark.parametrize("measure", each(2, [word_count.ten_lines, word_count.memory]))
def test_quick_runs(measure):
    result = measure(quick=True)
    assert result.verdict() == "no limit"
    assert min(result.ours) > 0


def test_the_slowest_of_several_ratios_decides():
    result = Result(
        "", "s", "", [2.0, 2.0], {"a": [4.0, 4.0], "b": [5.0, 5.0]}, limits=[(("a", "b"), 0.4)]
    )
    assert result.verdict() == "MISSED: 0.5 of a, at most 0.4 wanted"
    result.limits.append((("b",), 0.4))
    assert result.verdict().endswith("; holds: 0.4 of b, at most 0.4 wanted")


def test_names_select_benchmarks():
    usual = command.selected([], full=False)
    assert "word_count.textbook" in usual
    assert not set(usual) & set(command.LARGE)
    assert command.selected([], full=True) == list(command.NAMES)
    assert command.selected(["word_count.memory"], full=False) == ["word_count.memory"]
    assert set(command.selected(["word_count"], full=False)) < set(usual)
    assert command.selected(["tuning", "memory"], full=False) == ["tuning", "memory"]
    assert command.selected(["jobs"], False) == ["jobs.two_steps", "jobs.dictionaries", "jobs.join"]
    with pytest.raises(ValueError, match="unknown: wordcount"):
        command.selected(["wordcount"], full=False)


def test_a_section_of_the_page_is_replaced_alone(monkeypatch):
    monkeypatch.setattr(command, "machine", lambda: "this one")
    first = Result("A start", "s", "Note.", [1.0])
    page = command.page("", {"startup": first, "rounds": Result("Rounds", "ms", "", [2.0])})
    assert page.index("## Rounds") < page.index("## A start")
    again = command.page(page, {"startup": Result("A start", "s", "Other.", [3.0])})
    assert again.count("## ") == 2
    assert "Note." not in again
    assert again.startswith(command.HEAD)
    assert command.page(again, {}) == again
