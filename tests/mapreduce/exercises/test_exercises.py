"""Exercises tell right answers from wrong and lawless ones, and what is wrong with themselves."""

import json
import subprocess

import pytest

from mapreduce.checking.outcomes import Outcome
from mapreduce.errors import DataError, GradreduceError, MissingInputError, UsageError
from mapreduce.exercises import answers
from mapreduce.exercises.exercise import exercise_folders, load
from mapreduce.exercises.telling import beside, describe_difference
from mapreduce.exercises.verdicts import section, verdict
from mapreduce.explaining.showing import printf
from mapreduce.report.blocks import Note
from programs import PATIENCE, fails, gradreduce, succeed
from quick import cases, each, first_of

OPTIONS = {"time_limit": PATIENCE, "lines": 1000, "shrink": 0, "total_limit": 300.0, "laws": ()}

#: Solves exercise 4, if what is between the braces is right.
JOB = """\
from mapreduce.job import Job


class Ranges(Job):
    def mapper(self, _, line):
        _, section, size, _ = line.split("\\t")
        {mapper}

    def reducer(self, section, sizes):
        {reducer}
{more}
"""
MAPPER = "yield section, int(size)"
REDUCER = "sizes = list(sizes); yield section, max(sizes) - min(sizes)"
COMBINER = "    def combiner(self, section, sizes):\n        {}\n"

EXERCISE = """\
'''How large are the sizes of each word, together?'''
from mapreduce.job import Job

SHOWN = ["words.txt"]
LAWS = ["combiner", "splits"]


def inputs(random):
    yield "nothing", []
    yield "a large one", ["a 1", "b 2", "a 4"]


class Sizes(Job):
    def mapper(self, _, line):
        word, size = line.split()
        yield word, int(size)

    def reducer(self, word, sizes):
        yield word, sum(sizes)
"""
AT_MOST_3 = COMBINER.format("yield section, sum(min(size, 3) for size in sizes)")


@pytest.fixture
def own(tmp_path):
    """Writes an exercise of one's own, after replacing texts, and returns its file."""

    def own(*changes):
        text = EXERCISE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "exercise.py").write_text(text)
        (tmp_path / "words.txt").write_text("a 1\na 2\nb 3\n")
        return tmp_path / "exercise.py"

    return own


def test_what_a_folder_holds(own):
    drawn = 'yield "drawn", [random.choice("ab") for _ in range(9)]'
    given = 'ARGUMENTS = ["--most", "9", "words.txt"]\nLAWS'
    file = own(("LAWS", given), ('yield "nothing", []', drawn))
    exercise = load(str(file))
    assert load(str(file.parent)).folder == exercise.folder == file.parent
    assert (exercise.cost, exercise.tolerance, exercise.job.__name__) == (2.0, 1e-9, "Sizes")
    assert exercise.shown == [file.with_name("words.txt")]
    assert exercise.arguments == ["--most", "9", str(file.with_name("words.txt"))]
    first, large = exercise.inputs(1)
    assert (large.name, large.files) == ("a large one", [["a 1", "b 2", "a 4"]])
    assert exercise.inputs(1)[0] == first != exercise.inputs(2)[0]


def test_the_lessons_exercises():
    assert "4" in exercise_folders()
    assert load("04").folder == load("4").folder == exercise_folders()["4"]
    assert load("04").id == load("04_ranges").id == "4"
    # Lines of a paragraph are one, so that a terminal breaks them once.
    assert "; only the mapper changes.\n\nA word is made of" in load("1").text
    assert "and apostrophes, as in word_count.py. It counts each time that" in load("1").text


@cases(
    "old, new, error, said",
    ('"words.txt"]', '"word.txt"]', MissingInputError, "Did you mean words.txt?"),
    ('["words.txt"]', "[]", DataError, "SHOWN must name a file"),
    ('["words.txt"]', '"words.txt"', DataError, "expected a list of texts"),
    ('"combiner"', '"combine"', DataError, "no law 'combine'. Did you mean combiner?"),
    ("LAWS", "LAW", DataError, "LAW means nothing here. Did you mean LAWS?"),
    ("LAWS", "COST = -1\nLAWS", DataError, "COST is -1; expected a number of at least 0"),
    ("LAWS", "ORDERED = 1\nLAWS", DataError, "ORDERED is 1; expected True or False"),
    ("'''How", "_ = '''How", DataError, "no task: its first lines must be a docstring"),
    ("inputs(", "input(", DataError, "it must define inputs(random)"),
    ("class Sizes(Job)", "class Sizes", UsageError, "does not define a job"),
    ("SHOWN", "1 / 0\nSHOWN", GradreduceError, "ZeroDivisionError"),
)
def test_a_wrong_file(old, new, error, said, own):
    with pytest.raises(error, match=r"exercise\.py") as caught:
        load(str(own((old, new))))
    assert said in str(caught.value)


@cases(
    "body, said",
    ("if False: yield", "inputs yields nothing"),
    ("yield 'a', [str(id(object())) for _ in range(99)]", "repeatable: 'a' is another one"),
    ("import random as r; yield 'a', [str(r.random())]", "Draw from its argument"),
    ("yield 'a', ['x'], ['y']", "for each of the 1 files of SHOWN: words.txt"),
    ("yield 'a'", "yields 'a'; expected a name, and a list of lines"),
    ("yield 'a', 'x'", "yields ('a', 'x'); expected"),
    ("yield 'a', [3]", "yields 3; expected"),
    ("yield 'a', ['x\\n']", "yields 'x\\n'; expected"),
    ("while True: yield 'a', []", "more than 1,000 inputs"),
    ("yield 'a', [1 / 0]", "inputs fails with the seed 0: ZeroDivisionError"),
)
def test_a_wrong_generator(body, said, own):
    exercise = load(str(own(("def inputs", f"def inputs(random):\n    {body}\n\n\ndef others"))))
    with pytest.raises(DataError, match=r"exercise\.py: ") as caught:
        exercise.inputs()
    assert said in str(caught.value)


@cases(
    "name, error, said",
    ("ranges", UsageError, "there is no exercise ranges. There are "),
    ("{}", MissingInputError, "holds no exercise.py"),
    ("{}/words.txt", MissingInputError, "is not a folder"),
    ("{}/word.txt", MissingInputError, "does not exist. Did you mean"),
)
def test_a_wrong_name(name, error, said, tmp_path):
    (tmp_path / "words.txt").touch()
    with pytest.raises(error) as caught:
        load(name.format(tmp_path))
    assert said in str(caught.value)


def solved(folder, mapper=MAPPER, reducer=REDUCER, more="", **options):
    """What is found about a solution of exercise 4."""
    job = folder / "ranges.py"
    job.write_text(JOB.format(mapper=mapper, reducer=reducer, more=more))
    return [*answers.check(str(job), load("4"), 0, OPTIONS | options)]


def check_own(exercise, text=None, **options):
    """What is found about a job, or else about the reference itself."""
    job = exercise.with_name("sizes.py") if text else exercise
    job.write_text(text or exercise.read_text())
    return [*answers.check(str(job), load(str(exercise)), 0, OPTIONS | options)]


def states(findings):
    return {finding.law.name: finding.state for finding in findings}


def test_a_right_answer(tmp_path):
    found = solved(tmp_path)
    laws = ["iteration", "values", "combiner", "splits", "reducers"]
    assert [*states(found)] == ["answer", "names", *laws, "printing", "cost"]
    pairs, size = "92 pairs where 15 would do", "1,096 bytes where 312 would do"
    assert found[-1].text == f"It sends {pairs}, and {size}."
    assert verdict(found) == "The answer is right. Look at: cost."


TEXTS = "s = sorted(map(str, sizes)); yield section, int(s[-1]) - int(s[0])"
LISTED = "yield section, [max(sizes) - 1]"
WRONG = [
    (MAPPER, TEXTS, 'On 2 lines of the example: the key "admin" has -3546, and 3546 is expected.'),
    (MAPPER, REDUCER.replace("max(", "max(0, *"), "On 1 line of the input 'negative sizes alone'"),
    (MAPPER.replace("int", "float"), REDUCER, "'large sizes that differ by one': the key \"libs\""),
    (f"assert '-' not in size; {MAPPER}", REDUCER, "map task 0 of step 1 fails: AssertionError"),
    ("raise SystemExit(3)", REDUCER, "fails: SystemExit: 3."),
    (
        MAPPER,
        LISTED,
        'str and number, as "admin"    0; found str and list[number], as "admin"    [',
    ),
]


@pytest.mark.parametrize(("mapper", "reducer", "said"), each(2, WRONG))
def test_a_wrong_answer(mapper, reducer, said, tmp_path):
    found = solved(tmp_path, mapper, reducer, laws=("names",), shrink=60)
    assert (found[0].state, said in found[0].text) == ("broken", True), found[0].text
    assert verdict(found) == f"The answer is wrong: o{found[0].text[1:]}"
    # TABs are shown as spaces: a command writes them.
    (note,) = (block for block in section(found[0]).blocks if isinstance(block, Note))
    subprocess.run(["sh", "-c", note.code], cwd=tmp_path, check=True)
    assert (tmp_path / "few.txt").read_bytes().decode("latin-1").splitlines() == found[0].lines
    assert "cost" not in states(found)


@pytest.mark.parametrize(
    ("reducer", "law", "said"),
    first_of(
        ("max(sizes)", "output", '"admin"    0 is expected, and nothing comes out'),
        ("yield section, max(sizes) - min(sizes)", "iteration", "fails: ValueError: min()"),
    ),
)
def test_a_wrong_answer_by_a_broken_law(reducer, law, said, tmp_path):
    found = solved(tmp_path, reducer=reducer, shrink=60)
    assert states(found) == {"answer": "broken", law: "broken"}
    assert said in found[0].text
    assert verdict(found).endswith(f"And the job breaks 1 law: {law}.")


NEEDED = COMBINER.format("sizes = [*sizes]; yield section, [min(sizes), max(sizes)]")
LAWLESS = [
    (MAPPER, REDUCER, COMBINER.format("yield section, max(sizes)"), "combiner"),
    (MAPPER, "((least, most),) = sizes; yield section, most - least", NEEDED, "combiner"),
    (f"print(size); {MAPPER}", REDUCER, "", "printing"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mapper", "reducer", "more", "law"), each(2, LAWLESS))
def test_a_lawless_answer(mapper, reducer, more, law, tmp_path):
    found = solved(tmp_path, mapper, reducer, more, laws=("combiner",))
    so = " only where no combiner runs:" if law == "combiner" else ", but"
    assert verdict(found) == f"The answer is right{so} the job breaks 1 law: {law}."


@pytest.mark.slow
def test_a_law_that_the_example_does_not_break(own):
    found = check_own(own(), f"{EXERCISE}\n{AT_MOST_3}", shrink=60)
    words = "The answer is right only where no combiner runs: the job breaks 1 law: combiner."
    assert verdict(found) == words
    (broken,) = (finding for finding in found if finding.state == "broken")
    assert broken.lines == ["a 4"]


@pytest.mark.slow
def test_a_reference_that_breaks_its_own_law(own):
    exercise = own(("sum(sizes)\n", f"sum(sizes)\n\n{AT_MOST_3}"))
    with pytest.raises(DataError, match=r"exercise\.py: the reference itself breaks the law comb"):
        check_own(exercise, exercise.read_text())
    # Its author is shown by which input.
    assert states(check_own(exercise))["combiner"] == "broken"


@cases(
    "old, new, said",
    ('"a 4"', '"a"', "the reference fails on the input 'a large one': ValueError"),
    ("yield word, int", "if False: yield word, int", "the reference yields nothing on the ex"),
)
def test_a_reference_without_an_answer(old, new, said, own):
    with pytest.raises(DataError, match=said):
        check_own(own((old, new)))


BACKWARDS = """
    def reducer_init(self):
        self.found = []

    def reducer(self, word, sizes):
        self.found.append((word, 1.001 * sum(sizes)))

    def reducer_final(self):
        yield from reversed(self.found)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("tolerance", "ordered"), [(0.01, True), (0.01, False), (1e-4, False)])
def test_lines_in_another_order_and_floats_that_differ(tolerance, ordered, own):
    exercise = own(("LAWS", f"TOLERANCE, ORDERED = {tolerance}, {ordered}\nLAWS"))
    answer, *_ = check_own(exercise, EXERCISE + BACKWARDS)
    assert (answer.state == "obeyed") == (tolerance == 0.01 and not ordered)
    assert ("their order is not" in answer.text) == ordered


@cases(
    "expected, found, said",
    ([], ['"a"\t1'], 'no line is expected, and "a"    1 comes out'),
    (['"a"\t[1, 2]'], ['"a"\t[2, 1]'], "right, but for the order within their lists"),
    (['"a"\t1', '"b"\t2'], ['"a"\t1'], '"b"    2 is missing'),
    (['"a"\t1', '"b"\t2'], ['"a"\t1', '"B"\t2'], 'missing; "B"    2 is not expected'),
    (['"a"\t1'], ['"a"\t1', '"b"\t2'], '"b"    2 is not expected'),
    (['"a"\t1'], ['"a"\t1', '"a"\t2'], 'the key "a" has 1 and 2, and 1 is expected'),
    (['"a"\t1'], ["a: 1"], 'str and number, as "a"    1; found bare text, as a: 1'),
)
def test_a_difference_in_a_sentence(expected, found, said):
    assert said in describe_difference(Outcome(expected), Outcome(found), 1e-9)


def test_any_line_as_a_command():
    lines = ["Ü: it's 5 %\t\\n".encode().decode("latin-1"), "\x1b\xff\x00"]
    printed = subprocess.check_output(["sh", "-c", "\n".join(map(printf, lines))])
    assert printed.decode("latin-1") == "\n".join([*lines, ""])


def test_a_key_stands_beside_itself():
    rows = beside(["a    1", "c    2"], ["b    1", "c    3"]).rows
    shown = [[one.text for one in row] for row in rows]
    assert shown == [["a    1", ""], ["c    2", "c    3"], ["", "b    1"]]


def test_the_command(own, tmp_path):
    right, words = own(), tmp_path / "words.txt"
    wrong = tmp_path / "wrong.py"
    wrong.write_text(EXERCISE.replace("sum(sizes)", "max(sizes)"))
    (tmp_path / "out.txt").write_text(succeed("run", "-q", right, words))
    law = ("--law", "printing", "--law", "answer")
    for given in (("--expect", tmp_path / "out.txt"), ("--reference", right)):
        told = succeed("check", right, words, *given, *law)
        assert told.splitlines()[-1] == "The answer is right."
        done = gradreduce("check", wrong, words, *given, *law)
        assert (done.returncode, '"a"    3   "a"    2' in done.stdout) == (1, True)
    done = gradreduce("check", wrong, words, words, "--reference", right, *law, "--json")
    first, *_ = json.loads(done.stdout)["laws"]
    assert (first["law"], first["state"]) == ("answer", "broken")
    assert first["input"] == ["words.txt: a 1", "words.txt: a 2"]
    told = succeed("check", right, "--exercise", tmp_path, "--seed", 3, *law)
    assert told.endswith("\nThe answer is right.\n")


def test_a_description_without_its_answer(own):
    told = succeed("check", "--exercise", "4b")
    assert told.startswith("Exercise 4b: Which is the second largest size in each section? Write")
    assert "A section of one package has no line of" in told
    assert "/packages.tsv" in told
    assert "class" not in told
    assert "Missing argument 'JOB'" in fails(2, "check", cwd=own().parent)
    assert "Missing argument 'JOB'" in fails(2, "check", "--exercise", "4b", "--", "--lines", 3)


@cases(
    "given, code, said",
    ("--exercise 4 words.txt", 2, "has its own input and options: leave out words.txt"),
    ("--exercise 4 --sed 3", 2, "leave out --sed. Did you mean --seed?"),
    ("--exercise 4 --expect o", 2, "--exercise and --expect: give one of them"),
    ("--expect o --reference r.py", 2, "--expect and --reference: give one"),
    ("words.txt --seed 3", 2, "--seed is for the inputs of --exercise"),
    ("words.txt --expect word.txt", 66, "word.txt does not exist. Did you mean words.txt?"),
    ("words.txt --expect .", 66, "--expect: . is not a file"),
    ("words.txt --expect words.txt --lines 1", 2, "--expect needs all of the input"),
    ("- --reference exercise.py", 2, "two jobs cannot read standard input"),
    ("words.txt --reference exercises.py", 66, "Did you mean exercise.py"),
    ("--exercise 44", 2, "there is no exercise 44. Did you mean 4"),
    ("words.txt --law answer", 2, "the law 'answer' needs an answer that is known to be right"),
)
def test_bad_input(given, code, said, own):
    assert said in fails(code, "check", "exercise.py", *given.split(), cwd=own().parent)
