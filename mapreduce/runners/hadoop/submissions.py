"""Reports submitted applications to listeners, and marks them so that they are found again."""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator

_listeners: list[tuple[str, Callable[[str], None]]] = []

#: Seconds that an application may take to end when it is killed.
_END_SECONDS = 20.0


def mark(run: str) -> str:
    """The tag of all applications of a run, by its folder's full name."""
    return f"gradreduce-{hashlib.sha256(os.fsencode(run)).hexdigest()[:16]}"


@contextlib.contextmanager
def told_to(run: str, listener: Callable[[str], None]) -> Iterator[None]:
    """Give applications submitted meanwhile a run's mark, and report their names to a function."""
    entry = mark(run), listener
    _listeners.append(entry)
    try:
        yield
    finally:
        _listeners.remove(entry)


def marks() -> list[str]:
    """The tags that an application submitted now gets."""
    return [tag for tag, _ in _listeners]


def tell(application: str) -> None:
    """Report a submitted application to the listeners."""
    for _, listener in list(_listeners):
        listener(application)


def end_left_behind(run: str) -> list[str]:
    """End applications of a run, given by its folder, that a killed driver left on the cluster.

    Returns
    -------
    list of str
        Their identifiers.

    Raises
    ------
    ClusterError
        No cluster is found, or it does not answer.
    """
    from mapreduce.runners.hadoop import installation, rest

    yarn = rest.Yarn(installation.find())
    found = yarn.live(mark(run))
    for application in found:
        yarn.kill(application)
    end = time.monotonic() + _END_SECONDS
    while yarn.live(mark(run)) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def cores() -> int:
    """Cores of the cluster, as far as YARN gives them to tasks.

    Raises
    ------
    ClusterError
        No cluster is found, or it does not answer.
    """
    from mapreduce.runners.hadoop import installation, rest

    try:
        found = rest.Yarn(installation.find()).metrics()
    except rest.RestError as error:
        if error.status is None:
            raise
        # The interface is guarded: the number of cores is unknown.
        return 1
    return max(1, int(found.get("totalVirtualCores", 1)))
