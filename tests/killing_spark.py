"""Counts words; its first map tasks kill themselves, or the Python worker of Spark above them."""

import os
import signal
from pathlib import Path

from mapreduce.job import Job


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Killing(Job):
    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--marks")
        self.add_passthru_arg("--above", type=int, default=0)
        self.add_passthru_arg("--times", type=int, default=1)

    def mapper(self, _, line):
        for number in range(self.options.times):
            try:
                os.close(os.open(f"{self.options.marks}/{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            victim = os.getpid()
            for _ in range(self.options.above):
                victim = parent_of(victim)
            os.kill(victim, signal.SIGKILL)
            signal.pause()
        for word in line.split():
            yield word, 1

    def reducer(self, word, counts):
        yield word, sum(counts)


class Raising(Job):
    def mapper(self, _, line):
        yield int(line), 1

    def reducer(self, number, counts):
        yield number, sum(counts)


class Variables(Job):
    """The values of variables of the environment, whose names are the lines."""

    def mapper(self, _, line):
        yield line, os.environ.get(line)


if __name__ == "__main__":
    Killing.run()
