"""Trainings whose tasks take long enough to be hit by a fault: as long as a file is there."""

import os
import time
from pathlib import Path

from mapreduce.executors.chain import ChainJob

#: Seconds that a task takes at least.
SECONDS = 2.0

#: The same, of the first attempt of one map task of a straggling training.
STRAGGLING = 90.0


def wait(kind):
    """Take a while, and go on once the file is gone that a variable names for tasks of a kind."""
    time.sleep(SECONDS)
    held = os.environ.get(f"HELD_{kind}")
    while held and Path(held).exists():
        time.sleep(0.05)


class SlowChain(ChainJob):
    def map_range(self, units, message):
        wait("mapper")
        yield from super().map_range(units, message)

    def end_round(self, completed, phase, key, messages):
        wait("reducer")
        yield from super().end_round(completed, phase, key, messages)


class StragglingChain(ChainJob):
    def map_range(self, units, message):
        if os.environ.get("mapreduce_task_attempt_id", "").endswith("_m_000000_0"):  # noqa: SIM112
            for _ in range(int(STRAGGLING)):
                time.sleep(1)
                # Of a task that tells nothing, Hadoop cannot see how slow it is.
                self.set_status("still at work")
        yield from super().map_range(units, message)


if __name__ == "__main__":
    SlowChain.run()
