"""Starts a task on a node: the ``__main__`` of the archive in which the toolkit is shipped.

The first task on a node unpacks the archive into a private folder, from which all run: compiled
kernels and byte code are found again by the next. Python of any age understands this file, so that
one that is too old can be reported.
"""

import gc
import json
import os
import pwd
import shutil
import stat
import sys
import tempfile
import zipfile

OLDEST = (3, 11)

#: The prefix of a line of standard error that reports an error to the driver.
MARK = "gradreduce-error: "

#: A folder beside a task whose packages it can import: ``--dirs packages#gradreduce-packages``.
PACKED = "gradreduce-packages"

#: Sets of code that are kept on a node.
KEPT = 4


def tell(**found: object) -> None:
    """Report an error to the driver, in a line of the task's log."""
    found.setdefault("python", "%d.%d.%d" % sys.version_info[:3])
    found.setdefault("executable", sys.executable)
    sys.stderr.write("\n" + MARK + json.dumps(found) + "\n")
    sys.stderr.flush()


def private_folder() -> str:
    """A folder that outlives the task and that only this user can write to."""
    places = []
    try:
        # YARN sets HOME to something else.
        home = pwd.getpwuid(os.getuid()).pw_dir
        if os.path.isdir(home) and home != "/":
            places.append(os.path.join(home, ".cache"))
    except KeyError:
        pass
    places += [place for place in os.environ.get("LOCAL_USER_DIRS", "").split(",") if place]
    for place in [*places, tempfile.gettempdir()]:
        folder = os.path.join(place, "gradreduce-tasks-%d" % os.getuid())
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            status = os.lstat(folder)
        except OSError:
            continue
        # Somebody else may have made it first.
        is_mine = status.st_uid == os.getuid() and not status.st_mode & 0o022
        if is_mine and stat.S_ISDIR(status.st_mode) and os.access(folder, os.W_OK):
            return folder
    return tempfile.mkdtemp(prefix="gradreduce-", dir=os.getcwd())


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
    # Nothing of what an import makes is garbage; looking through it takes a tenth of a task's time.
    gc.disable()
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
    # What was sent along lies in the working folder, which mrjob has at the end of PYTHONPATH.
    more = [name for name in os.environ.get("PYTHONPATH", "").split(os.pathsep) if name]
    paths += [*map(os.path.abspath, more), os.getcwd()]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    sys.path[:] = paths + [name for name in sys.path[1:] if name not in paths]
    try:
        from mapreduce.runners.yarn import task
    except ImportError as error:
        tell(kind="package", message=str(error), package=error.name)
        return 1
    code = task.main(sys.argv[1:], tell)
    # Nor is there anything to look for at the end, when the interpreter would look again.
    gc.freeze()
    return code


if __name__ == "__main__":
    sys.exit(main())
