"""What happens by the clock: in no test, or a slow machine would see it where a quick one does not.

A test that is about such a time sets it.
"""

from importlib import import_module

#: Seconds until a round is published that is not due, until a stretch of asynchronous rounds ends,
#: and until a line tells how far it is.
TIMES = (
    ("mapreduce.executors.here", "PUBLISH_SECONDS"),
    ("mapreduce.executors.gang.rounds", "PUBLISH_SECONDS"),
    ("mapreduce.strategies.arrivals", "_STRETCH_SECONDS"),
    ("mapreduce.training.console", "_LINE_SECONDS"),
    ("mapreduce.inference.unit_files", "_TELL_SECONDS"),
    ("mapreduce.inference.swarm.driver", "_TELL_SECONDS"),
)


def stop() -> None:
    """Let none of these times pass in this process, nor in its forks."""
    for name, time in TIMES:
        module = import_module(name)
        assert hasattr(module, time), f"{name} has no {time}"
        setattr(module, time, 1e9)
