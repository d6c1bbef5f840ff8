"""Runs a command that gets a signal at a moment: ``stepping.py MOMENT NUMBER FILE ARGUMENT...``.

Moments are the instructions of what drives jobs, in the order in which they are executed for the
first time once signals are handled. Where the signal came, or how many moments there were if it did
not come, is written to the file.
"""

import contextlib
import os
import sys
from pathlib import Path

from mapreduce import signals
from mapreduce.cli.main import main

#: Ends of the files whose instructions count, beside all of the toolkit.
OTHERS = ("mrjob/runner.py", "mrjob/sim.py", "mrjob/local.py", "mrjob/inline.py", "/tempfile.py")
OWN = str(Path(signals.__file__).parent)


class Stepping:
    """Counts moments, and sends the signal at one."""

    def __init__(self, moment, number, file):
        self.moment, self.number, self.file = moment, number, file
        self.process = os.getpid()
        self.seen = set()
        self.on = False

    def call(self, frame, _event, _argument):
        """Python enters a function, or goes on in a generator."""
        code = frame.f_code
        if not self.on or code.co_name in ("handle", "interrupt", "interrupted", "look"):
            return None
        if not code.co_filename.startswith(OWN) and not code.co_filename.endswith(OTHERS):
            return None
        frame.f_trace_opcodes = True
        return self.step

    def step(self, frame, event, _argument):
        if event == "opcode" and self.on and os.getpid() == self.process:
            place = frame.f_code, frame.f_lasti
            if place not in self.seen:
                self.seen.add(place)
                if len(self.seen) == self.moment:
                    self.on = False
                    code = frame.f_code
                    self.tell(f"{code.co_filename}:{frame.f_lineno}, {code.co_qualname}")
                    os.kill(self.process, self.number)
        return self.step

    def tell(self, text):
        self.file.write_text(text)

    @contextlib.contextmanager
    def instead_of(self, handled_by, handler):
        """Step while signals are handled."""
        with handled_by(handler):
            self.on = len(self.seen) < self.moment or not self.moment
            try:
                yield
            finally:
                self.on = False


def run(moment, number, file, *arguments):
    stepping = Stepping(int(moment), int(number), Path(file))
    handled_by = signals.handled_by
    signals.handled_by = lambda handler: stepping.instead_of(handled_by, handler)
    sys.argv = ["gradreduce", *arguments]
    sys.settrace(stepping.call)
    try:
        return main()
    finally:
        sys.settrace(None)
        if len(stepping.seen) < stepping.moment or not stepping.moment:
            stepping.tell(str(len(stepping.seen)))


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
