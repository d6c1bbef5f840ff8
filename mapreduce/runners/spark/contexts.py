"""The context of Spark: the one that this process has, or one of ours.

A context of the user's is used as it is, and is left running. Ours has no session, no user
interface, and a Java that starts quickly: a job needs none of the rest. It stays for later jobs.

Small first tasks check that all executors see the driver's folder of segments, which tasks write
for other tasks. Segments are in memory if executors can only be on the driver's machine, and else
on a disk that all machines share. There, each task also compares input and code, by size and time,
with the files that the driver has seen (:mod:`mapreduce.runners.spark.tasks`).
"""

import atexit
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hdfs_utils.cluster.layout import LOOPBACK
from mapreduce.errors import SlotsError, UsageError
from mapreduce.runners.parallel import pool as pools
from mapreduce.runners.parallel.pool import private_folder
from mapreduce.runners.spark import masters
from mapreduce.runners.spark.masters import ATTEMPTS, LOCAL, Master
from mapreduce.runners.spark.tasks import Place
from mapreduce.support import numeric, signals

_PYTHON = (
    "Executors need this process's packages. Name its interpreter by the variable PYSPARK_PYTHON"
)
#: Seconds in which Java ends, in which the next executor comes, and an application starts.
_PATIENCE, _NEXT_SECONDS, _START_SECONDS = 10.0, 60.0, 300.0


class Context(NamedTuple):
    """A context of Spark.

    ``slots``: How many tasks run at once. ``is_ours``: Whether this module has made the context.
    ``is_near``: Whether its executors can only be on this machine.
    """

    spark: Any
    slots: int
    is_ours: bool
    is_near: bool

    @property
    def reach(self) -> str:
        """How executors reach each other: see :meth:`mapreduce.support.traits.Traits.reach`."""
        if self.is_near:
            return ""
        conf = self.spark.getConf()
        return f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"


_known: list[Context] = []
#: Those whose executors have been looked at.
_checked: list[Any] = []
#: Folders of this process, by those in which they are: who sees one shares the disk.
_made: dict[Path, str] = {}


def get(master: str | None, workers: int | None) -> Context:
    """A context on which as many tasks run at once as there are workers.

    Raises UsageError (no PySpark or Java, another master, too few slots, an executor on another
    machine).
    """
    with signals.deferred():
        try:
            from pyspark import SparkContext
        except ImportError as error:
            raise UsageError(
                f"-r spark needs PySpark, and {error}. Install it: pip install 'gradreduce[spark]'"
            ) from error
        active = SparkContext._active_spark_context
        if active is None and "SPARK_CONNECT_MODE_ENABLED" in os.environ:
            raise UsageError(
                "-r spark: expected a context of Spark, found a session of Spark Connect, which "
                "runs DataFrames alone. Take -r parallel"
            )
        known = next((one for one in _known if one.spark is active), None)
        if known and not _suits(known, master, workers):
            stop()
            active = known = None
        is_ours = known.is_ours if known else active is None
        spark = active or _start(masters.parse(master, workers))
        host = spark.getConf().get("spark.driver.host")
        is_near = bool(LOCAL.match(spark.master)) or host in ("localhost", LOOPBACK)
        context = Context(spark, _slots(spark, workers), is_ours, is_near)
        if known is None:
            _known.append(context)
        if workers is not None and workers > context.slots:
            raise SlotsError(
                f"--workers: expected at most {context.slots}, since so many tasks run at once on "
                f"{spark.master}, found {workers}"
            )
        if spark not in _checked:
            _check(context)
            _checked.append(spark)
        return context


def _suits(known: Context, master: str | None, workers: int | None) -> bool:
    """Whether a context stays: one of ours does not, if another one has the slots or the master."""
    if not known.is_ours:
        return True
    if master and masters.name_of(master, known.slots) != known.spark.master:
        return False
    # A standalone master has given all that it has.
    is_standalone = known.spark.master.startswith("spark://")
    return workers is None or workers <= known.slots or is_standalone


def _slots(spark: Any, wanted: int | None) -> int:
    """How many tasks run at once, after the executors of a new context have come.

    Raises UsageError (no executor comes).
    """
    java, is_local = spark._jsc.sc(), LOCAL.match(spark.master)
    profile = java.resourceProfileManager().defaultResourceProfile()
    slots, end = 0, time.monotonic() + _NEXT_SECONDS
    is_dynamic = spark.getConf().get("spark.dynamicAllocation.enabled") == "true"
    while True:
        now = int(java.maxNumConcurrentTasks(profile))
        if is_dynamic and not is_local:
            # More executors come when tasks wait for them.
            return max(now, wanted or 1)
        if is_local or now >= (wanted or 1) or signals.is_waiting():
            return now
        if wanted and (most := masters.most_slots(spark)) is not None and most < wanted:
            # Others would not come.
            return max(now, most)
        if now > slots:
            slots, end = now, time.monotonic() + _NEXT_SECONDS
        elif time.monotonic() > end:
            break
        time.sleep(0.1)
    if not slots:
        raise UsageError(
            f"-r spark: {spark.master} has started no executor within {_NEXT_SECONDS:g} s. Has it "
            f"workers with free cores and enough memory?"
        )
    return slots


def _start(master: Master) -> Any:
    """A context of ours. What Java writes goes to a file."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    folder = private_folder(Path(tempfile.gettempdir()))
    java = shlex.join([*master.java, f"-Djava.io.tmpdir={folder}"])
    settings = {
        "spark.master": master.name,
        "spark.app.name": "gradreduce",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What nobody looks at; by default of a thousand jobs, and of 100,000 tasks.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.locality.wait": "0s",
        # Waited for below, and for no more than are needed.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        "spark.task.maxFailures": str(ATTEMPTS),
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java if master.is_here else shlex.join(master.java),
        "spark.yarn.am.extraJavaOptions": shlex.join(master.java),
        "spark.executor.memory": "512m",
        "spark.local.dir": str(folder),
        # Else a task that is cancelled goes on for a while.
        "spark.python.task.killTimeout": "100ms",
    }
    if master.is_here:
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        settings["spark.executorEnv.TMPDIR"] = str(folder)
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    # Read when BLAS and Numba are loaded, in processes that are no forks of this one.
    pins = numeric.inherited().items()
    settings |= {f"spark.executorEnv.{name}": value for name, value in pins}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else None
    written = folder / "java.log"
    try:
        conf = SparkConf().setAll([*{**settings, **master.settings}.items()])
        with written.open("wb") as file:
            # The Java of a context that was stopped stays, and takes the next one.
            gateway = SparkContext._gateway or launch_gateway(
                conf, {"stdout": file, "stderr": file}
            )
        with _bounded(gateway.proc):
            found = SparkContext(conf=conf, gateway=gateway)
    except Exception as error:
        said = [line for line in written.read_text(errors="replace").splitlines() if line.strip()]
        shutil.rmtree(folder, ignore_errors=True)
        reason = next(iter(str(error).splitlines()), "")
        raise UsageError(
            f"-r spark: Spark does not start: {reason:.300} {' '.join(said[:3]):.400}. It needs "
            f"Java 17 or later, by JAVA_HOME or on the PATH, and a master that answers"
        ) from error
    finally:
        if is_main:
            # Spark's own would cancel what other threads run.
            signal.signal(signal.SIGINT, before)
    atexit.register(_end, found, folder, os.getpid())
    return found


@contextlib.contextmanager
def _bounded(java: Any) -> Iterator[None]:
    """End a Java whose application does not start in time, as in a queue that is full."""
    is_over = threading.Event()

    def watch() -> None:
        end = time.monotonic() + _START_SECONDS
        while not is_over.wait(0.2):
            if signals.is_waiting() or time.monotonic() > end:
                java.kill()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except Exception:
        if java.poll() is not None or signals.is_waiting():
            from pyspark import SparkContext

            # It takes no other context.
            SparkContext._gateway = SparkContext._jvm = None
        raise
    finally:
        is_over.set()


def refuse_copies(spark: Any) -> None:
    """Raise a UsageError if Spark may start a second copy of a task that is slow."""
    if spark._jsc.sc().conf().get("spark.speculation", "false") == "true":
        raise UsageError(
            "-r spark: the context has spark.speculation=true, so Spark may start a second copy of "
            "a rank. Start the context with spark.speculation=false, or take --executor chain"
        )


def stop() -> None:
    """Stop the context, if it is ours; a later job starts another one."""
    for context in _known:
        if context.is_ours:
            context.spark.stop()
    _known.clear()
    _checked.clear()


def _end(spark: Any, folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        spark.stop()
        if java := spark._gateway.proc:
            # Else objects of its own, at their end, would be looked for there.
            spark._gateway.shutdown()
            # Java ends at the end of its input, and removes what it has written.
            java.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                java.wait(_PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)


def _check(context: Context) -> None:
    """Refuse executors without the driver's folders or packages, by a small task for each slot."""
    wanted, slots = here(context.is_near), 2 * context.slots
    look = _look(wanted.package, _folders(context.is_near))
    try:
        found = context.spark.parallelize(range(slots), slots).map(look).collect()
    except Exception as error:  # of Java, which has many
        host = re.search(r"\(TID \d+\) \(([^ )]+)", str(error))
        where = f" on {host[1]}" if host else ""
        raise UsageError(
            f"-r spark: a first task failed{where}: {cause(error)}. {_PYTHON}: {sys.executable}"
        ) from error
    for one in found:
        if not isinstance(one, Place):
            raise UsageError(f"-r spark: {one}. {_PYTHON}: {sys.executable}")
        if why := one.differs(wanted):
            raise UsageError(why)


def here(is_near: bool) -> Place:
    """The place of this process, with folders that its tasks must see."""
    return Place.here(_folders(is_near))


def _folders(is_near: bool) -> list[str]:
    """Folders of this process, where tasks write what others read."""
    temporary = Path(tempfile.gettempdir())
    parents = dict.fromkeys([pools.memory_place(), temporary] if is_near else [temporary])
    for parent in parents:
        if parent not in _made or not Path(_made[parent]).is_dir():
            _made[parent] = str(private_folder(parent))
            atexit.register(_remove, _made[parent], os.getpid())
    return [_made[parent] for parent in parents]


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _look(package: str, folders: list[str]) -> Callable[[Any], Any]:
    """A task that returns its :class:`Place`, or says which package its Python has not.

    It is no function of a module's, so Python pickles its code, and it runs without the package.
    """

    def look(_: Any) -> Any:
        import socket
        import sys

        try:
            from mapreduce.runners.spark.tasks import Place
        except ImportError as error:
            host, python = socket.gethostname(), sys.executable
            return f"an executor on {host} runs {python}: expected {package}, found {error}"
        return Place.here(folders)

    return look


def cause(error: Exception) -> str:
    """What an error says of Python's, without the lines of Java."""
    said = re.findall(r"^\s*(\w+(?:Error|Exception): .*)$", str(error), re.M)
    said = said or re.findall(r"Cannot run program .*", str(error))
    lines = [line for line in said if "org.apache" not in line]
    return (lines or str(error).splitlines())[-1][:400]
