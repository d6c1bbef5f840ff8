"""Jobs as people write them with mrjob, for the runner's tests. The class of a test is named."""

import contextlib
import os
import signal
import sys
import warnings
from pathlib import Path

from mrjob.compat import jobconf_from_env
from mrjob.job import MRJob
from mrjob.protocol import RawValueProtocol, TextProtocol
from mrjob.step import MRStep


class WordCount(MRJob):
    def mapper(self, _, line):
        for word in line.split():
            yield word, 1

    def combiner(self, word, counts):
        yield word, sum(counts)

    def reducer(self, word, counts):
        yield word, sum(counts)


class TwoSteps(MRJob):
    """The words of each length, most frequent first."""

    def steps(self):
        return [
            MRStep(mapper=self.words, reducer=self.count),
            MRStep(mapper=self.by_length, reducer=self.sort),
        ]

    def words(self, _, line):
        for word in line.split():
            yield word, 1

    def count(self, word, counts):
        yield word, sum(counts)

    def by_length(self, word, count):
        yield len(word), [count, word]

    def sort(self, length, pairs):
        yield length, sorted(pairs)


class SortedWords(MRJob):
    """The words, with values sorted; keys are written in UTF-8."""

    SORT_VALUES = True
    INTERNAL_PROTOCOL = TextProtocol
    OUTPUT_PROTOCOL = TextProtocol

    def mapper(self, _, line):
        for word in line.split():
            yield word, "1"

    def reducer(self, word, ones):
        yield word, str(len(list(ones)))


class InitAndFinal(MRJob):
    """Instance state from init to final, counters, and lines on standard error."""

    def mapper_init(self):
        self.lines = 0

    def mapper(self, _, line):
        self.lines += 1
        self.increment_counter("lines", "even" if len(line) % 2 == 0 else "odd")
        if False:
            yield

    def mapper_final(self):
        yield "lines", self.lines

    def reducer_init(self):
        self.increment_counter("tasks", "reducers")

    def reducer(self, key, values):
        yield key, sum(values)


class Sorted(MRJob):
    """Values sorted by their encoding, in one step without a mapper of its own."""

    SORT_VALUES = True

    def mapper(self, _, line):
        first, _, rest = line.partition(" ")
        yield first, rest

    def reducer(self, first, rests):
        yield first, list(rests)


class MapOnly(MRJob):
    OUTPUT_PROTOCOL = RawValueProtocol

    def mapper(self, _, line):
        yield None, line.upper()


class EveryLine(MRJob):
    def mapper(self, _, line):
        yield repr(line), 1


class ReducerOnly(MRJob):
    """mrjob passes lines on to the reducer as they are."""

    INPUT_PROTOCOL = RawValueProtocol

    def steps(self):
        return [MRStep(mapper=self.pair), MRStep(reducer=self.count)]

    def pair(self, _, line):
        for word in line.split():
            yield word, None

    def count(self, word, values):
        yield word, sum(1 for _ in values)


class Raises(MRJob):
    def mapper(self, _, line):
        if "nine" in line:
            raise ValueError(f"cannot count {line!r}")
        yield line, 1

    def reducer(self, line, counts):
        yield line, sum(counts)


class Exits(MRJob):
    def mapper(self, _, line):
        raise SystemExit(3)
        yield


class Killed(WordCount):
    """Tasks that read "seven" kill their process, once for each file in a folder."""

    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--kills")

    def mapper(self, _, line):
        if "seven" in line:
            for token in Path(self.options.kills).iterdir():
                with contextlib.suppress(FileNotFoundError):
                    token.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
        yield from super().mapper(_, line)


class LeavesTraces(MRJob):
    """Changes its process as a task on a cluster may: the next task must not see it."""

    seen = 0

    def mapper(self, _, line):
        LeavesTraces.seen += 1
        os.environ["TRACE"] = "set"
        yield "lines", 1

    def mapper_final(self):
        yield "first", int(LeavesTraces.seen == 1 or "TRACE" in os.environ)

    def reducer_init(self):
        if "TRACE" in os.environ or LeavesTraces.seen:
            raise AssertionError("the process was used before")

    def reducer(self, key, values):
        yield key, sum(values)


class Environment(MRJob):
    """What Hadoop tells a task, and files that were sent along."""

    def configure_args(self):
        super().configure_args()
        self.add_file_arg("--extra")

    def mapper(self, _, line):
        if line:
            yield "extra", Path(self.options.extra).read_text()
            yield "ismap", os.environ["mapreduce_task_ismap"]  # noqa: SIM112
            yield "sent", os.environ["SENT"]
            yield "alone", Path(self.options.extra).parent == Path()

    def reducer(self, key, values):
        yield key, sorted(set(values))


class Inherited(MRJob):
    """What a task has from the environment of the program that runs the job."""

    def mapper(self, _, line):
        yield "inherited", [os.environ.get("INHERITED"), os.environ.get("GONE")]


class Warns(MRJob):
    """Says this and that on standard error."""

    def mapper_init(self):
        sys.stderr.write(warnings.formatwarning("of \u00e4\ud800", UserWarning, "a", 1))
        print("printed", file=sys.stderr)

    def mapper(self, _, line):
        self.increment_counter("seen", "lines")
        yield "words", len(line.split())

    def reducer(self, key, values):
        yield key, sum(values)


class OneListTwice(MRJob):
    """Values with one list at two places, which are two lists once they are read as JSON."""

    def mapper(self, _, line):
        words = line.split()
        yield len(words), [words, words]

    def reducer(self, count, values):
        for first, second in values:
            first.append("more")
            yield count, second


class OneListCombined(OneListTwice):
    def combiner(self, count, values):
        for first, second in values:
            first.append("combined")
            yield count, [second, second]


class KeepsValues(MRJob):
    """Keeps the values of keys beyond their groups, where they are gone."""

    def mapper(self, _, line):
        for word in line.split():
            yield word, 1
            yield len(word), [word]

    def reducer_init(self):
        self.kept = []

    def reducer(self, key, values):
        self.kept.append((key, values, next(values)))

    def reducer_final(self):
        for key, values, first in self.kept:
            yield key, [first, len(list(values))]


class KeepsCombined(KeepsValues):
    combiner_init, combiner = KeepsValues.reducer_init, KeepsValues.reducer
    combiner_final = KeepsValues.reducer_final


class ReadsItsInput(MRJob):
    """Reads a line by itself, and the rest of its input in the end."""

    def mapper_init(self):
        yield "first", self.stdin.readline().decode()

    def mapper(self, _, line):
        yield "next", line
        yield "rest", sys.stdin.read()


class CountsWhatItReads(MRJob):
    """Reads a line by itself, and counts it."""

    def mapper_init(self):
        yield "first", self.stdin.readline().decode()

    def mapper(self, _, line):
        self.increment_counter("read", "lines")
        yield "next", line


class FilesOfTasks(InitAndFinal):
    def mapper_final(self):
        yield Path(jobconf_from_env("mapreduce.map.input.file")).name, self.lines


if __name__ == "__main__":
    WordCount.run()
