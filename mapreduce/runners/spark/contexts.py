"""The context of Spark: the one that this process has, or one of ours.

A context of the user's is used as it is, and is left running. Ours has no session, no user
interface, and a Java that starts quickly: a job needs none of the rest. It stays for later jobs.
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
from pathlib import Path
from typing import Any, NamedTuple

from mapreduce.errors import SlotsError, UsageError
from mapreduce.runners.parallel.pool import private_folder
from mapreduce.runners.spark import tasks
from mapreduce.runners.spark.tasks import Place
from mapreduce.support import numeric, signals
from mapreduce.support.cores import available_cores

#: How often Spark starts a task at most.
ATTEMPTS = 4
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
#: Options of a Java that starts quickly, and leaves no file of its own.
JAVA = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"
#: Seconds in which Java ends, and in which the next executor comes.
_PATIENCE, _NEXT_SECONDS = 10.0, 60.0
_ADVICE = "Leave out --spark-master, or name local[N] or the spark:// of a master on this machine"


class Context(NamedTuple):
    """A context of Spark. ``slots``: How many tasks run at once. ``is_ours``: Who has made it."""

    spark: Any
    slots: int
    is_ours: bool


_known: list[Context] = []


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
        spark = active or _start(master, _local_slots(master, workers))
        context = Context(spark, _slots(spark, workers), is_ours)
        if known is None:
            _check(context)
            _known.append(context)
        if workers is not None and workers > context.slots:
            raise SlotsError(
                f"--workers: expected at most {context.slots}, since so many tasks run at once on "
                f"{spark.master}, found {workers}"
            )
        return context


def _suits(known: Context, master: str | None, workers: int | None) -> bool:
    """Whether a context stays: one of ours does not, if another one has the slots or the master."""
    if not known.is_ours:
        return True
    if master and _name(master, known.slots) != known.spark.master:
        return False
    return workers is None or workers <= known.slots or not _LOCAL.match(known.spark.master)


def _slots(spark: Any, wanted: int | None) -> int:
    """How many tasks run at once, after the executors of a new context have come.

    Raises UsageError (no executor comes).
    """
    java, is_local = spark._jsc.sc(), _LOCAL.match(spark.master)
    profile = java.resourceProfileManager().defaultResourceProfile()
    slots, end = 0, time.monotonic() + _NEXT_SECONDS
    is_dynamic = spark.getConf().get("spark.dynamicAllocation.enabled") == "true"
    while True:
        now = int(java.maxNumConcurrentTasks(profile))
        if is_dynamic and not is_local:
            # More executors come when tasks wait for them.
            return max(now, wanted or 1)
        if is_local or now >= (wanted or 1):
            return now
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


def _local_slots(master: str | None, workers: int | None) -> int:
    """Slots of a master that runs in this process's Java; 0 for another."""
    match = _LOCAL.fullmatch(master or "local[*]")
    if match is None:
        if not (master or "").startswith("spark://"):
            raise UsageError(f"--spark-master: found {master!r:.80}. {_ADVICE}")
        return 0
    if match[1] == "*":
        return workers or available_cores()
    slots = int(match[1] or 1)
    if not slots:
        raise UsageError(f"--spark-master: expected at least one slot, found {master}")
    return slots


def _name(master: str, slots: int) -> str:
    """A master by which Spark starts again a task that is lost."""
    return f"local[{slots},{ATTEMPTS}]" if _LOCAL.fullmatch(master) else master


def _start(master: str | None, slots: int) -> Any:
    """A context of ours. What Java writes goes to a file."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    folder = private_folder(Path(tempfile.gettempdir()))
    java = shlex.join([*JAVA, f"-Djava.io.tmpdir={folder}"])
    settings = {
        "spark.master": _name(master or "local", slots),
        "spark.app.name": "gradreduce",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.locality.wait": "0s",
        "spark.task.maxFailures": str(ATTEMPTS),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.executor.memory": "512m",
        "spark.local.dir": str(folder),
        "spark.executorEnv.TMPDIR": str(folder),
        # Else a task that is cancelled goes on for a while.
        "spark.python.task.killTimeout": "100ms",
    }
    # Read when BLAS and Numba are loaded, in processes that are no forks of this one.
    pins = numeric.inherited().items()
    settings |= {f"spark.executorEnv.{name}": value for name, value in pins}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else None
    written = folder / "java.log"
    try:
        conf = SparkConf().setAll([*settings.items()])
        with written.open("wb") as file:
            # The Java of a context that was stopped stays, and takes the next one.
            gateway = SparkContext._gateway or launch_gateway(
                conf, {"stdout": file, "stderr": file}
            )
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
    """Refuse executors that are elsewhere, by a small task for each slot."""
    wanted, slots = Place.here(), 2 * context.slots
    try:
        found = context.spark.parallelize(range(slots), slots).map(tasks.place).collect()
    except Exception as error:  # of Java, which has many
        raise UsageError(
            f"-r spark: a first task failed: {cause(error)}. Executors need this process's "
            f"packages. Name its interpreter by the variable PYSPARK_PYTHON: {sys.executable}"
        ) from error
    for one in found:
        if one.machine != wanted.machine:
            raise UsageError(
                f"-r spark: an executor runs on {one.host}, and tasks open files of this machine, "
                f"{wanted.host}. {_ADVICE}"
            )
        if one.pins != wanted.pins:
            raise UsageError(
                f"-r spark: an executor has the variables {one.pins}, expected {wanted.pins}, on "
                f"which the bits of a result depend. Start the context with them: "
                f"spark.executorEnv.NAME=VALUE"
            )
        if one[:2] != wanted[:2]:
            raise UsageError(
                f"-r spark: an executor has {one.python} and {one.package}, expected "
                f"{wanted.python} and {wanted.package}, which this process has. Name the "
                f"interpreter by the variable PYSPARK_PYTHON"
            )


def cause(error: Exception) -> str:
    """What an error says of Python's, without the lines of Java."""
    said = re.findall(r"^\s*(\w+(?:Error|Exception): .*)$", str(error), re.M)
    lines = [line for line in said if "org.apache" not in line]
    return (lines or str(error).splitlines())[-1][:400]
