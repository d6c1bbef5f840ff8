"""Mistakes of a first week, planted: each is led to, by check or by explain; the table is printed.

``LINE`` stands for the line that is marked by a comment.
"""

import pytest
from test_check import findings
from test_engine import trace_of
from test_explain import drawn

from mapreduce.explaining.sections import report
from mapreduce.launch.run import load_job

HEAD = "import time\nfrom mrjob.job import MRJob\n\nREAD = []\n\n\nclass Bikes(MRJob):\n"
READS = "    def mapper(self, _, line):\n        name, minutes = line.split()\n        {}\n"
SUMS = "    def reducer(self, name, minutes):\n        {}\n"
YIELDS, ADDS = "yield name, int(minutes)", "yield name, sum(minutes)"

#: A mistake: the mapper's and the reducer's last lines, who tells of it, by which law, and how.
PLANTED = {
    "a longest ride that is never forgotten": (
        YIELDS,
        "self.most = max(vars(self).get('most', 0), *minutes)  # here\n"
        "        yield name, self.most",
        ("check", "state", "self.most keeps what the last key left: LINE"),
    ),
    "a list in the class that grows": (
        YIELDS,
        "READ.extend(minutes)  # here\n        yield name, len(READ)",
        ("check", "state", "READ keeps what the last key left: LINE"),
    ),
    "a share of what one pass has used up": (
        YIELDS,
        "top = max(minutes)\n        yield name, [top, sum(minutes)]  # here",
        ("check", "iteration", "LINE reads them for the second time"),
    ),
    "an answer that nobody gets": (
        YIELDS,
        "longest = max(minutes)",
        ("check", "repeat", "the reducer yielded nothing: bikes.py:12 has no yield"),
    ),
    "a pair without its key": (
        "yield int(minutes)  # here",
        ADDS,
        ("check", "repeat", "LINE: mapper yielded 31, an int; expected a pair"),
    ),
    "the time of day as a key": (
        "yield time.time_ns(), int(minutes)  # here",
        ADDS,
        ("check", "repeat", "With a second run the output is different. It begins at LINE"),
    ),
    "a list that other tasks do not see": (
        "READ.append(line)\n        yield name, len(READ)  # here",
        "yield name, max(minutes)",
        ("check", "processes", "in one process the output is different. It begins at LINE"),
    ),
    "the first value for the smallest": (
        YIELDS,
        "yield name, next(minutes)  # here",
        ("check", "values", "opposite order the output is different. It begins at LINE"),
    ),
    "nine that is more than thirty": (
        "yield name, minutes",
        "yield name, max(minutes)",
        ("check", "sorting", "With texts of digits compared as numbers"),
    ),
    "numbers of a dict that come back as text": (
        "yield name, {int(minutes): 1}",
        "yield name, sum(key for each in minutes for key in each if key != str(key))",
        ("check", "types", "With the very objects that the mapper yielded"),
    ),
    "an amount with an error of rounding": (
        "yield int(minutes) * 0.1, 1",
        ADDS,
        ("check", "types", "A key is written 0.7000000000000001"),
    ),
    "one for all, and all for one": (
        "yield 'total', 1",
        ADDS,
        ("check", "skew", "The key 'total' has all 24 records. Is it the key that was meant?"),
    ),
    "a key for a value": (
        "yield 1, name",
        "yield name, len(set(minutes))",
        ("explain", "", "There is one key, so one reducer does all the work"),
    ),
    "right: a dict as a key": ("yield {'name': name}, 1", "yield name['name'], sum(minutes)", None),
    "right: a list": ("return [(name, int(minutes))]", ADDS, None),
}
LINES = "Zoo 31\nPort 7\nZoo 9\nPort 12\nZoo 54\nPort 40\n" * 4


def told(path, source, expected):
    """Who tells of a mistake, and whether it is told as it should be."""
    path.write_text(source)
    number = next((n for n, line in enumerate(source.splitlines(), 1) if "# here" in line), 0)
    job, lines = load_job(str(path)), path.with_suffix(".txt")
    lines.write_text(LINES)
    if expected is None:
        states = {one.state for one in findings(job, lines, ["types", "state", "values", "splits"])}
        return "nobody", states == {"obeyed"}
    command, law, text = expected
    if command == "explain":
        said, is_praised = " ".join(drawn(report(trace_of(job, lines))).split()), False
    else:
        found = findings(job, lines, [law])
        said = " ".join(f"{one.text} {one.law.mend}" for one in found)
        is_praised = not {"broken", "warning"} & {one.state for one in found}
    return command, text.replace("LINE", f"bikes.py:{number}") in said and not is_praised


@pytest.mark.slow
def test_each_mistake_is_led_to_its_line(tmp_path, capsys):
    rows = []
    for number, (name, (mapper, reducer, expected)) in enumerate(PLANTED.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        source = HEAD + READS.format(mapper) + "\n" + SUMS.format(reducer)
        rows.append((name, *told(folder / "bikes.py", source, expected)))
    with capsys.disabled():
        print(*(f"{name:<42}{who:<9}{ok}" for name, who, ok in rows), sep="\n")
    assert [name for name, _, ok in rows if not ok] == []
