"""Starts a task on a node: the ``__main__`` of the archive in which the toolkit is shipped.

The first task on a node unpacks the archive into a private folder, from which all run: compiled
kernels and byte code are found again by the next. Python of any age understands this file, so that
one that is too old can be told of.
"""

import json
import os
import pwd
import shutil
import stat
import sys
import tempfile
import zipfile
from typing import Iterator, Tuple

OLDEST = (3, 11)

#: What is in front of a line of standard error that tells the driver of an error.
MARK = "gradreduce-error: "

#: Where the archive of packages of ``--packed`` lies in a task's folder.
PACKED = "gradreduce-packed"

#: Sets of code that are kept on a node.
KEPT = 4


def tell(**found: object) -> None:
    """Tell the driver of an error, in a line of the task's log."""
    found.setdefault("python", "%d.%d.%d" % sys.version_info[:3])
    found.setdefault("executable", sys.executable)
    sys.stderr.write("\n" + MARK + json.dumps(found) + "\n")
    sys.stderr.flush()


def parents() -> Iterator[Tuple[str, ...]]:
    """Folders in which there may be a private one, the best first, and its name in each."""
    try:
        # YARN sets HOME to something else.
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        home = "/"
    if os.path.isdir(home) and home != "/":
        yield os.path.join(home, ".cache"), "gradreduce", "tasks"
    for folder in os.environ.get("LOCAL_USER_DIRS", "").split(","):
        if folder:
            yield folder, "gradreduce", "tasks"
    yield tempfile.gettempdir(), "gradreduce-%d" % os.getuid(), "tasks"


def private_folder() -> str:
    """A folder that outlives the task and that only this user can write to."""
    for parent in parents():
        try:
            return private(*parent)
        except OSError:
            continue
    return tempfile.mkdtemp(prefix="gradreduce-", dir=os.getcwd())


def private(base: str, *names: str) -> str:
    """A folder in another that is only this user's to change, and so is the way to it.

    As in ``kernels.cpu``, which is not unpacked yet.
    """
    os.makedirs(base, 0o700, exist_ok=True)
    folder = above = os.path.realpath(base)
    owners = {0, os.stat("/").st_uid, os.getuid()}
    way = []
    # YARN's own folders hold the task's code too, so that there is nothing to doubt.
    while base not in os.environ.get("LOCAL_USER_DIRS", "").split(","):
        way.append((above, owners, stat.S_ISVTX))
        if above == "/":
            break
        above = os.path.dirname(above)
    for name in names:
        folder = os.path.join(folder, name)
        os.makedirs(folder, 0o700, exist_ok=True)
        way.append((folder, {os.getuid()}, 0))
    for parent, owners, sticky in way:
        status = os.lstat(parent)
        is_open = status.st_mode & 0o022 and not status.st_mode & sticky
        if is_open or status.st_uid not in owners or not stat.S_ISDIR(status.st_mode):
            raise OSError("others can change %s" % parent)
    if not os.access(folder, os.W_OK):
        raise OSError("%s cannot be written to" % folder)
    return folder


def unpacked(archive: str) -> str:
    """The folder of the code, unpacked by the first task that needs it."""
    root = private_folder()
    folder = os.path.join(root, os.path.basename(archive).replace(".zip", ""))
    if not os.path.isdir(folder):
        forget(root)
        temporary = tempfile.mkdtemp(prefix=".", dir=root)
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(os.path.join(temporary, "code"))
        os.mkdir(os.path.join(temporary, "cache"), 0o700)
        try:
            os.rename(temporary, folder)
        except OSError:
            # Another task was faster.
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def forget(root: str) -> None:
    """Remove the code that was made longest ago."""
    known = [os.path.join(root, name) for name in os.listdir(root) if not name.startswith(".")]
    known.sort(key=os.path.getmtime)
    for folder in known[: -KEPT + 1]:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    archive = os.path.realpath(sys.argv[0])
    if sys.version_info < OLDEST:
        tell(kind="python", message="Python %d.%d" % sys.version_info[:2])
        return 1
    try:
        folder = unpacked(archive)
    except OSError as error:
        tell(kind="disk", message="cannot unpack %s: %s" % (archive, error))
        return 1
    cache = os.path.join(folder, "cache")
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        os.environ.setdefault(name, cache)
    paths = [os.path.join(folder, "code")]
    if os.path.isdir(PACKED):
        paths.append(os.path.realpath(PACKED))
    more = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(paths + ([more] if more else []))
    sys.path[:1] = paths
    try:
        from mapreduce.runners.yarn import task
    except ImportError as error:
        tell(kind="package", message=str(error), package=error.name)
        return 1
    return task.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
