"""What ``gradreduce explain`` shows: on a terminal, of a key, as a play, and as a page."""

import html
import io
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import stock_jobs
import taught
from browser import browser, opened, require_accessible
from mrjob.step import MRStep
from rich.console import Console
from test_engine import trace_of

from mapreduce.cli.main import main
from mapreduce.errors import UsageError
from mapreduce.explaining.following import follow
from mapreduce.explaining.sections import report, view
from mapreduce.explaining.stages import partition_words
from mapreduce.explaining.tasks import Variation
from mapreduce.report import terminal
from mapreduce.report.blocks import (
    Cell,
    Code,
    Gallery,
    Note,
    Picture,
    Question,
    Section,
    Table,
    code,
)
from mapreduce.report.page import page
from mapreduce.report.terms import TERMS
from quick import cases, first_of

TEXT = "to be or not to be\nthat is the question\n<b>to</b> be & so on\nto be\n"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def counted(text):
    return trace_of(taught.Combined, text)


@pytest.fixture(scope="module")
def two_steps(text):
    return trace_of(stock_jobs.TwoSteps, text)


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("good\nbad\n")
    return trace_of(taught.RaisesInReducer, path, Variation(maps=1, reducers=1))


def drawn(sections):
    console = Console(file=io.StringIO(), width=100)
    terminal.show(console, sections)
    return console.file.getvalue()


def test_a_long_text_leaves_room_for_its_name():
    network = ",".join(["conv:16x3:padding=1"] * 9)
    table = Table("", [], [("rounds run again", 10), ("model", network)])
    shown = drawn([Section("id", "title", "", [table])])
    assert "rounds run again" in shown
    assert network in "".join(shown.replace("model", "").split())


class TestReport:
    def test_every_stage_is_shown(self, counted):
        found = view(counted)
        shown = drawn([found.short, *found.sections])
        for title in ("in short", "The plan", "Map", "Combine", "Shuffle", "Reduce", "The output"):
            assert f"\n{title}" in shown or title in shown
        assert "REDUCE_SHUFFLE_BYTES" in shown
        assert "'be'" in shown

    def test_a_failure_comes_first_and_what_was_before_is_there(self, failed):
        first, *rest = report(failed)
        assert first.name == "failure"
        assert "the key 'bad'" in first.text
        shown = drawn([first, *rest])
        assert "cannot count it" in shown
        assert "'good': 1" in shown

    def test_remarks(self, write):
        path = write("9\n10\n", "numbers.txt")
        shown = drawn(report(trace_of(taught.Count, path)))
        assert "10 comes before 9" in shown
        path.write_text("")
        shown = drawn(report(trace_of(taught.Count, path)))
        assert "The input is empty" in shown
        (path.parent / "folder").mkdir()
        shown = drawn(report(trace_of(taught.Count, path.parent / "folder")))
        assert "0 lines of 0 files" in shown
        path.write_text("a\n" * 50)
        assert "one would send 3 records instead of 50" in " ".join(
            drawn(report(trace_of(taught.Count, path))).split()
        )
        shown = drawn(report(trace_of(taught.Count, path, lines=10)))
        assert "There is more than is shown here" in shown

    def test_what_a_reducer_that_fails_did_before(self, tmp_path):
        (tmp_path / "words").write_text("be\n")
        shown = drawn(report(trace_of(taught.ReadsTwice, tmp_path / "words")))
        assert "wants to read them again" in " ".join(shown.split())


class Seen(taught.Count):
    """Types change between mapper and combiner, and between combiner and reducer."""

    def mapper(self, _, line):
        yield line, {7: 1}
        if "be" in line:
            yield line, (1, 2)

    def combiner(self, line, values):
        yield line, Counter(repr(value) for value in values)

    def reducer(self, line, values):
        yield line, [*values]


class TestTruth:
    """What is shown is what the methods got."""

    def test_what_a_combiner_gets(self, text):
        trace = trace_of(Seen, text)
        shown = " ".join(drawn([*report(trace), *follow(trace, "to be")]).split())
        assert "{'7': 1}, [1, 2] Counter(" in shown
        assert "{7: 1}, (1, 2) Counter(" not in shown
        assert "The mappers yield tuples; the combiners get lists" in shown
        assert "The combiners yield Counter; the reducers get dict[str, int]" in shown
        trace = trace_of(DictOfNumbers, text)
        assert "JSON writes the keys of a dict as text" in drawn(report(trace))

    def test_a_step_without_a_mapper(self, text):
        trace = trace_of(OnlyReduces, text)
        shown = drawn(report(trace)[-6:])
        assert "This step has no mapper: each pair goes on as it is" in " ".join(shown.split())
        assert "bytes:" not in shown
        assert "'to': 3" in shown

    def test_the_lines_that_yield_say_what(self, counted, two_steps):
        lines = Path(taught.__file__).read_text().splitlines()
        number = 1 + lines.index("            yield word, 1")
        assert {one.at for task in counted.steps[0].maps for one in task.outputs} == {number}
        assert f"{number:>4}         yield word, 1  ← 17 pairs" in drawn(report(counted))
        content = page(view(counted))
        assert '<mark>yield word, 1</mark> <span class="note">← 17 pairs</span>' in content
        assert f'<tr data-lines="{number}">' in content
        drawings = view(two_steps).pictures
        assert [">to step 2<" in one for one in drawings] == [True, False]

    def test_sort_and_group(self, write):
        trace = trace_of(taught.Count, write("9\n10\n9\n", "numbers.txt"), Variation(reducers=1))
        (scene,) = [one for one in view(trace).scenes if one.at == "sort"]
        assert (scene.question.choices, scene.question.answer) == (("'10'", "'9'"), "'10'")
        arrived, grouped = scene.blocks
        assert [row[1].text for row in arrived.cells] == ["'9'", "'10'", "'9'"]
        assert [row[0].text for row in grouped.cells] == ["'10'", "'9'"]
        (why,) = [
            one
            for scene in view(trace).scenes
            for one in scene.blocks
            if isinstance(one, Table) and one.caption == "Why a key goes to its reducer"
        ]
        assert "divided by 1 it leaves 0" in why.cells[0][1].text

    def test_where_keys_go_with_sorted_values(self, write):
        trace = trace_of(stock_jobs.Sorted, write("DE\n", "words.txt"), Variation(reducers=2))
        # The bytes of "DE" in quotation marks, from 0: ((34 * 31 + 68) * 31 + 69) * 31 + 34.
        assert partition_words('"DE"', trace.steps[0]) == (
            'The hash of "DE" is 1,080,415; divided by 2 it leaves 1.'
        )
        assert [record.part for record in trace.steps[0].maps[0].sent] == [1]

    def test_few_records_are_no_skew(self, write):
        trace = trace_of(taught.Count, write("a a a a b c\n" * 3, "words.txt"))
        shown = drawn(report(trace))
        assert not any(word in shown for word in ("salted", "no combiner", "average"))

    def test_terms_are_the_glossary_s(self):
        text = (Path(__file__).parents[3] / "docs" / "glossary.md").read_text()
        names = {"JSONProtocol", "HashPartitioner", "KeyFieldBasedPartitioner", "salted"}
        assert TERMS.keys() - {*re.findall("^## (.*)$", text, re.M)} == names


class DictOfNumbers(taught.DictKeys):
    combiner = None


class OnlyReduces(taught.Count):
    def steps(self):
        first = MRStep(mapper=self.mapper, reducer=self.reducer)
        return [first, MRStep(reducer=self.reducer)]


class TestFollow:
    def test_from_the_lines_to_the_output(self, counted):
        (section,) = follow(counted, "be")
        shown = drawn([section])
        assert "4 pairs with this key" in shown
        assert "to be or not to be" in shown
        assert "'be': 4" in shown
        assert "that is the question" not in shown

    def test_on_into_the_next_step(self, two_steps):
        found = follow(two_steps, "question")
        assert [section.title for section in found] == [
            'Step 1: the key "question"',
            "Step 2: the key 8",
        ]

    def test_no_such_key(self, counted):
        with pytest.raises(UsageError, match=r"no pair has the key 'questoin'. Did you mean quest"):
            follow(counted, "questoin")


class TestPlay:
    def play(self, monkeypatch, trace, answers, quiz=False, is_terminal=True):
        console = Console(file=io.StringIO(), width=100)
        left = iter(answers)
        monkeypatch.setattr("builtins.input", lambda prompt="": next(left))
        for stream in ("stdin", "stdout"):
            monkeypatch.setattr(f"sys.{stream}.isatty", lambda: is_terminal, raising=False)
        terminal.play(console, view(trace).scenes, quiz)
        assert next(left, None) is None
        return console.file.getvalue()

    def test_forth_and_back(self, monkeypatch, counted):
        shown = self.play(monkeypatch, counted, ["", "b", "", "q"])
        assert re.findall(r"Scene (\d+) of", shown) == ["1", "2", "1", "2"]

    def test_all_at_once_without_a_terminal(self, monkeypatch, counted):
        shown = self.play(monkeypatch, counted, [], is_terminal=False)
        numbers = re.findall(r"Scene (\d+) of", shown)
        assert numbers == [str(n + 1) for n in range(len(view(counted).scenes))]

    def test_a_quiz_counts_right_answers(self, monkeypatch, counted):
        answers = []
        for number, scene in enumerate(view(counted).scenes):
            if scene.question:
                answers.append("none" if number == 1 else scene.question.answer.upper())
            answers.append("")
        asked = sum(1 for scene in view(counted).scenes if scene.question)
        shown = self.play(monkeypatch, counted, answers, quiz=True)
        assert f"{asked - 1} of {asked} right." in shown
        assert "it is 6." in shown


class Tags(HTMLParser):
    """Notes what a page fetches, and whether its tags are closed in their order."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.fetched = [], [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.fetched += [found[name] for name in ("src", "href") if name in found]
        if tag not in ("meta", "input", "br", "rect", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def require_whole(content):
    """A page is well-formed, is not too large, and fetches nothing."""
    tags = Tags()
    tags.feed(content)
    tags.close()
    assert tags.open == []
    assert len(tags.ids) == len(set(tags.ids))
    assert all(target[1:] in tags.ids for target in tags.fetched)
    assert all(target.startswith("#") for target in tags.fetched)
    assert len(content.encode()) < 500_000


class TestPage:
    @pytest.mark.parametrize("name", ["counted", "two_steps", "failed"])
    def test_is_whole(self, name, request):
        require_whole(page(view(request.getfixturevalue(name))))

    def test_data_is_no_markup(self, counted):
        content = page(view(counted))
        assert "<b>to</b>" not in content
        assert "&lt;b&gt;to&lt;/b&gt;" in content

    def test_no_text_is_markup(self, counted):
        text = "<b title='key'>{{ 1 }} {% if %} \"pairs\" & {# a #}"
        table = Table(text, [text, ""], [[Cell(text, note=text), code(f"{text}  1")]], text)
        blocks = [table, Note(text, "error", text), Gallery(text, [Picture(text, [[(0, 0, 0)]])])]
        blocks.append(Code(text, 1, [text, f"  {text}"], {2: text}))
        section = Section("one", text, text, blocks, Question(text, text, text, (text,)), "map")
        names = dict.fromkeys(("command", "title", "text", "foot"), text)
        changes = {"flows": {text: [text] * 2}, "sections": [section], "keys": {text: [section]}}
        content = page(replace(view(counted), **names, **changes))
        require_whole(content)
        assert "<b " not in content
        shown = re.sub(r'<a class="term"[^>]*>(.*?)</a>', r"\1", content)
        # A section with its blocks has it 18 times, and is played, followed and told.
        assert html.unescape(shown).count(text) == 3 * 18 + 17

    def test_a_failure_is_on_it(self, failed):
        content = page(view(failed))
        assert 'role="alert"' in content
        assert "cannot count it" in content


def place(tab):
    return tab.locator("#place").inner_text().split(":")[0]


def answer(tab):
    """Give the right answer to the question of the scene, which is hidden until then."""
    scene = tab.locator(".scene:visible")
    assert scene.count() == 1
    assert not scene.locator(".body").is_visible()
    scene.locator("input").fill(scene.locator("form").get_attribute("data-answer"))
    tab.keyboard.press("Enter")
    assert scene.locator(".verdict").inner_text().startswith("Right")
    assert scene.locator(".body").is_visible()


def test_in_a_browser(counted, tmp_path):
    total = len(view(counted).scenes)
    with browser() as chromium, opened(chromium, page(view(counted)), tmp_path) as tab:
        seen = [place(tab)]
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "Home"):
            tab.keyboard.press(key)
            seen.append(place(tab))
        assert seen == [f"Scene {n} of {total}" for n in (1, 2, 3, 2, total, 1)]
        tab.locator("#quiz").check()
        tab.keyboard.press("ArrowRight")
        answer(tab)
        tab.locator("#quiz").uncheck()
        (key,) = tab.locator("#key").select_option(index=1)
        followed = tab.locator("[data-key]:not([hidden])")
        assert [one.get_attribute("data-key") for one in followed.all()] == [key]
        assert tab.locator("[data-picture]:not([hidden]) .on").count() > 0


def test_the_quiz_does_not_tell_its_answers(two_steps, tmp_path):
    """Read as a person does: of what is still to come, there is no figure to be seen."""
    with browser() as chromium, opened(chromium, page(view(two_steps)), tmp_path) as tab:
        tab.locator("#quiz").check()
        asked = 0
        for scene in view(two_steps).scenes:
            if scene.question:
                asked += 1
                said = " ".join(tab.locator(".scene:visible").inner_text().split())
                said = said.replace(" ".join(scene.question.text.split()), "")
                figures = re.findall(r"\d+", said.replace(scene.title, ""))
                assert {*figures} <= {*scene.question.choices}
                places = tab.locator("[data-picture]:not([hidden]) [data-figure]:visible").all()
                assert scene.at not in {one.get_attribute("data-figure") for one in places}
                label = tab.locator("#pictures svg:visible").get_attribute("aria-label")
                assert "pair" not in label
                for name in (".flow", "#follow", "#output", "#map-0"):
                    assert not tab.locator(name).first.is_visible()
            tab.locator("#next").click(force=True)
        assert asked > 2
        tab.locator("#quiz").uncheck()
        assert tab.locator("#map-0").is_visible()


@pytest.mark.parametrize("name", first_of("counted", "failed"))
def test_is_accessible(name, request, tmp_path):
    require_accessible(page(view(request.getfixturevalue(name))), tmp_path)


class TestCommand:
    def test_page_and_exit_code(self, text, tmp_path, write, answer):
        path = tmp_path / "page.html"
        job = taught.__file__
        assert "bytes" in answer(0, "explain", f"{job}:Combined", text, "--html", path).out
        assert path.read_text().startswith("<!doctype html>")
        bad = write("bad\n", "bad.txt")
        assert main(["explain", f"{job}:Raises", str(bad), "--html", str(path)]) == 1
        assert "cannot read" in path.read_text()

    def test_json(self, text, answer):
        assert (
            json.loads(answer(0, "explain", f"{taught.__file__}:Count", text, "--json").out)["job"]
            == "Count"
        )

    @cases(
        "arguments, code, message",
        (["Count", "--quiz"], 2, "needs a terminal"),
        (["Nothing"], 2, "has no Nothing"),
        (["Count", "--kye", "be"], 2, "unrecognized arguments: --kye"),
        (["Count", "--kye", "be"], 2, "Did you mean --key or --yes?"),
        (["Count", "--key", "teh"], 2, "no pair has the key"),
        (["Count", "--html", "/proc/no/page.html"], 73, "cannot write"),
        (["Count", "-r", "local"], 2, "leave out -r"),
        (["Count", "missing.txt"], 66, "missing.txt"),
        (["jobs.train"], 2, "starts jobs itself"),
    )
    def test_what_makes_no_sense(self, text, answer, arguments, code, message):
        name, *rest = arguments
        job = name if "." in name else f"{taught.__file__}:{name}"
        assert message in answer(code, "explain", job, text, *rest).err

    def test_one_round_of_a_job_that_starts_one_for_each(self, capsys):
        sample = Path(__file__).parents[3] / "jobs" / "data" / "imports.tsv"
        assert main(["explain", "jobs.page_rank", str(sample), "--lines", "20"]) == 0
        assert "One job of those that its run_job starts" in " ".join(
            capsys.readouterr().out.split()
        )
