"""Python's collector of garbage leaves alone what modules make as they are imported: it stays."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def resting() -> Iterator[None]:
    """Import modules meanwhile: to look for garbage among what they make is a tenth of the time."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


def keep() -> None:
    """Have the collector never look at what there is, of which nothing may be a user's.

    Nor does it when Python ends, where all that is left is looked at three times.
    """
    gc.freeze()
