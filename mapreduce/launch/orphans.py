"""What a job on a cluster leaves if its driver is killed, and who takes or removes it.

While it runs, a job has a folder in the user's state, as a submitted one: ``left.json`` says what
its result follows from, which applications it has begun, and where they write. Who runs the same
command once the driver is dead adopts these applications, by renaming that file into a folder of
their own: one process alone can. Nothing is adopted if an input has changed.
"""

import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hdfs_utils import atomic
from hdfs_utils.errors import ClusterError, StorageError
from hdfs_utils.filesystem import is_remote
from hdfs_utils.paths import RemotePath, local_matching, matching
from mapreduce import compat
from mapreduce.errors import DataError, LeaseError, OutputError
from mapreduce.launch import report
from mapreduce.launch.report import Report
from mapreduce.runs import lease
from mapreduce.support import jsonfiles, signals, traits
from mapreduce.support.traits import Keeper, Step

log = logging.getLogger("mrjob.launch")

#: The record, and what it is called while it is being removed; that of a job on this machine.
_LEFT, _REMOVED, _HERE = "left.json", "removed.json", "here.json"


@dataclass(frozen=True)
class Asked:
    """What was asked for: the arguments of ``gradreduce run`` from the job on, and where."""

    arguments: tuple[str, ...]
    folder: str
    driver: lease.Holder


@dataclass(frozen=True)
class Left:
    """What a job's result follows from, and what it has begun.

    ``name``: The job's class, of which a script may have several.
    ``inputs``: Files, folders and globs, of uploads too; "-" is standard input.
    ``files``: Of each file that they are: bytes, and the last change in nanoseconds since 1970.
    ``settings``: Digest of the steps and of the runner's options, as of ``mrjob.conf``.
    ``output``: URI of the folder that the output becomes.
    ``is_published``: Whether the output had all that it needs to get its name.
    ``folders``: What is removed at the end: temporary ones, and outputs that have no name yet.
    ``marks``: What the applications' tags are made from.
    """

    name: str
    script: str
    code: str
    inputs: tuple[str, ...]
    files: dict[str, Any]
    settings: str
    output: str
    folders: tuple[str, ...]
    marks: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    is_published: bool = False

    def changes(self) -> tuple[str, str]:
        """Which input is another by now, and whether the script is; "" for each that is not."""
        now = _stamps(self.inputs)
        names = sorted(
            name for name in {*self.files, *now} if self.files.get(name) != now.get(name)
        )
        told = ""
        if names:
            name = names[0]
            before, after = _stamp_text(self.files.get(name)), _stamp_text(now.get(name))
            told = f"{name} has changed: {before}, now {after}"
            told += f"; and {len(names) - 1:,} more files" if names[1:] else ""
        elif "-" in self.inputs or any(None in stamp for stamp in now.values()):
            told = "it has read standard input, or files whose time of change is not known"
        return told, "" if _digest(self.script) == self.code else f"{self.script} has changed"


def _stamp_text(stamp: Sequence[int] | None) -> str:
    if stamp is None or stamp[1] is None:
        return "not there" if stamp is None else f"{stamp[0]:,} bytes"
    return f"{stamp[0]:,} bytes of {time.strftime('%F %T', time.localtime(stamp[1] / 1e9))}"


def _digest(path: str) -> str:
    try:
        return _sha256(Path(path).read_bytes())
    except OSError:
        return ""


def _sha256(content: bytes) -> str:
    # Few jobs run on a cluster.
    import hashlib

    return hashlib.sha256(content).hexdigest()


def _stamps(inputs: Sequence[str]) -> dict[str, list[Any]]:
    """Size and last change of all files that inputs are, by their names."""
    found: dict[str, list[Any]] = {}
    for given in inputs:
        if is_remote(given):
            for path in matching(given):
                found |= {name: [*stamp] for name, stamp in path.stamps().items()}
            continue
        for top in local_matching(given):
            walked = os.walk(top, followlinks=True)
            below = [os.path.join(at, name) for at, _, names in walked for name in names]  # noqa: PTH118
            for name in below if Path(top).is_dir() else [top]:
                with contextlib.suppress(OSError):
                    status = os.stat(name)  # noqa: PTH116
                    found[name] = [status.st_size, status.st_mtime_ns]
    return found


def _of(runner: Any, mark: str) -> Left:
    """What a job that is about to run is, and where it will write."""
    passed = {**runner._opts, "local_tmp_dir": "", "cleanup": "", "cleanup_on_failure": ""}
    settings = json.dumps([runner._get_steps(), passed], sort_keys=True, default=str)
    temporary = _temporary(runner)
    files = {*runner._working_dir_mgr.paths(), *runner._dir_to_archive_path, *runner._input_paths}
    files |= {*runner._opts["py_files"], *runner._opts["libjars"]}
    inputs = tuple(
        sorted(
            path if path == "-" or is_remote(path) else os.path.abspath(path)  # noqa: PTH100
            for path in files
            if path != runner._script_path and not path.startswith(temporary)
        )
    )
    script = os.path.abspath(runner._script_path or "")  # noqa: PTH100
    return Left(
        compat.task_name(runner._mrjob_cls),
        script,
        _digest(script),
        inputs,
        _stamps(inputs),
        _sha256(settings.encode()),
        runner._output_dir,
        (temporary, runner._hadoop_tmp_dir, *filter(None, [str(runner._unpublished or "")])),
        (mark,),
    )


def _temporary(runner: Any) -> str:
    """The folder of a job's temporary files on this machine."""
    parent = runner._opts["local_tmp_dir"] or tempfile.gettempdir()
    return os.path.abspath(os.path.join(parent, runner._job_key))  # noqa: PTH100, PTH118


def jobs() -> Path:
    """The folder of the folders of jobs."""
    from hdfs_utils.cluster.layout import default_folder

    return default_folder("jobs")


def read(folder: Path, name: str, kind: type) -> Any:
    """One of the records of a job; a DataError if it is damaged, or not there."""
    path = folder / name
    try:
        return jsonfiles.build(kind, jsonfiles.read(path))
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}") from error


#: The job whose result is to be adopted, whatever else could be.
_wanted: list[str] = []


@contextlib.contextmanager
def wanting(id: str) -> Iterator[None]:
    """Have the job that runs meanwhile adopt what another has left."""
    _wanted.append(id)
    try:
        yield
    finally:
        _wanted.remove(id)


class _Here:
    """The record of a submitted job on this machine: the folder of its temporary files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, runner: Any) -> None:
        """Note a job that is about to run."""
        try:
            atomic.replace(self.path, json.dumps({"folder": _temporary(runner)}).encode())
        except StorageError as error:
            log.warning("%s: if this driver is killed, its temporary files stay", error)


class _Kept(Keeper):
    """The record of the job that runs, which its runner tells what it begins."""

    def __init__(
        self, folder: Path, found: Report, arguments: Sequence[str], *, is_submitted: bool
    ) -> None:
        super().__init__()
        self.folder, self.report, self.is_submitted = folder, found, is_submitted
        self.asked = Asked(tuple(arguments), str(Path.cwd()), lease.myself())
        self.left: Left | None = None
        self.runner: Any = None

    def start(self, runner: Any) -> None:
        """Note a job that is about to run; adopt what a killed driver has left of it.

        Raises LeaseError (another process runs this command, or has just adopted its result).
        """
        if runner._has_spark_steps():
            # Spark's own client starts these.
            return
        mine = _of(runner, self.report.id)
        found = self._claimed(mine, runner)
        if found is not None:
            folders, marks = (*found.folders, *mine.folders), (*found.marks, *mine.marks)
            mine = replace(mine, steps=found.steps, folders=folders, marks=marks)
            self.taken = dict(enumerate(found.steps))
            last = found.steps[-1].output if found.steps else ""
            # Where folders cannot be renamed, the last step writes to the output itself.
            if last == found.output or (found.is_published and not RemotePath(last).exists()):
                self.is_published, runner._output_dir = True, found.output
                mine = replace(mine, output=found.output, is_published=found.is_published)
        self._note(mine)
        self.runner = runner
        self.report.runner, self.report.output = runner.alias, mine.output
        self._write_report()
        runner.keeper = self

    def _write_report(self) -> None:
        if not self.is_submitted:
            with contextlib.suppress(StorageError):
                self.report.write(self.folder / "report.json")

    def _claimed(self, mine: Left, runner: Any) -> Left | None:
        """What another job has left that goes on with this one; None if there is nothing."""
        for folder in reversed(left_behind()):
            if _wanted[-1:] not in ([], [folder.name]) or folder == self.folder:
                continue
            try:
                asked, found = read(folder, "job.json", Asked), read(folder, _LEFT, Left)
            except DataError as error:
                log.warning("%s", error)
                continue
            given = (self.asked.arguments, self.asked.folder, mine.name)
            if (asked.arguments, asked.folder, found.name) != given:
                if found.output == mine.output and not lease.is_alive(asked.driver):
                    log.warning(
                        "job %s, of another command, was to write the same output, and its driver "
                        "was killed: gradreduce jobs adopt %s goes on with it, jobs clean %s "
                        "removes it",
                        *[folder.name] * 3,
                    )
                continue
            if self._is_at_work(folder.name, asked, found, mine):
                continue
            if why := self._why_not(found, mine):
                advice = f"gradreduce jobs clean {folder.name} removes what it has left"
                if _wanted:
                    raise DataError(f"job {folder.name} is not adopted: {why}. {advice}")
                log.warning("job %s is not adopted: %s. %s", folder.name, why, advice)
                continue
            try:
                (folder / _LEFT).rename(self.folder / _LEFT)
            except FileNotFoundError:
                raise LeaseError(
                    f"another process has just adopted or removed job {folder.name}: gradreduce "
                    f"jobs list shows all"
                ) from None
            try:
                # It may have been written once more before its driver ended.
                found = read(self.folder, _LEFT, Left)
                marks = tuple(dict.fromkeys((*found.marks, folder.name)))
                left: Left = replace(found, marks=marks, **runner.going_on(found))
            except BaseException as error:
                (self.folder / _LEFT).rename(folder / _LEFT)
                if isinstance(error, OutputError):
                    log.warning(
                        "job %s, whose driver was killed, stays: gradreduce jobs adopt %s goes on "
                        "with it once its output's name is free",
                        *(folder.name, folder.name),
                    )
                if _wanted or not isinstance(error, ClusterError):
                    raise
                log.warning("job %s is not adopted: %s", folder.name, error)
                continue
            log.info("going on with job %s, whose driver was killed", folder.name)
            return left
        if _wanted:
            raise DataError(f"job {_wanted[-1]} has left nothing, or its record is damaged")
        return None

    def _is_at_work(self, id: str, asked: Asked, found: Left, mine: Left) -> bool:
        is_visible = lease.is_visible(asked.driver)
        if not lease.is_alive(asked.driver) or (_wanted and not is_visible):
            return False
        has_adopted = len(found.marks) > 1
        if is_visible and (_wanted or has_adopted or found.output == mine.output):
            raise LeaseError(
                f"job {id} is the same command, and runs: process {asked.driver.pid}. gradreduce "
                f"jobs wait {id} waits for it"
            )
        if not is_visible:
            log.warning(
                "job %s is the same command, and may run on %s. If it does not, gradreduce jobs "
                "adopt %s takes its result",
                *(id, asked.driver.host, id),
            )
        return True

    @staticmethod
    def _why_not(found: Left, mine: Left) -> str:
        inputs, script = found.changes()
        options = "" if found.settings == mine.settings else "its options have changed"
        return inputs or script or options

    def _note(self, left: Left) -> None:
        self.left = left
        try:
            atomic.replace(self.folder / _LEFT, json.dumps(asdict(left)).encode())
        except StorageError as error:
            log.warning("%s: if this driver is killed, its result is lost", error)

    def begins(self, number: int, output: str) -> None:
        assert self.left is not None
        self._note(replace(self.left, steps=(*self.left.steps[:number], Step("", output))))

    def publishes(self) -> None:
        assert self.left is not None
        self._note(replace(self.left, is_published=True))

    def submitted(self, application: str) -> None:
        """Note the application of the step that was begun last."""
        if self.left is None:
            return
        if application not in self.report.applications:
            self.report.applications.append(application)
        self._write_report()
        *before, last = self.left.steps
        if not last.application:
            self._note(replace(self.left, steps=(*before, last._replace(application=application))))

    def end(self, runner: str, error: BaseException | None) -> None:
        """Remove what the job, and those whose results it has adopted, have left."""
        if self.taken and isinstance(error, ClusterError):
            # It can be adopted later.
            return
        others = [jobs() / id for id in self.left.marks[:-1]] if self.left else []
        if others and self.left is not None:
            # The message of such an error says what becomes of the output.
            kept = self.left.output if isinstance(error, OutputError) else ""
            remove(runner, self.left, kept and kept.rpartition("/")[0] + "/.")
        for folder in others:
            if error is None and (folder / "log").exists():
                found: Report = read(folder, "report.json", Report)
                found.counters = self.runner.counters()
                found.end()
                found.write(folder / "report.json")
        (self.folder / _LEFT).unlink(missing_ok=True)
        for folder in (*others, self.folder):
            # A submitted job has a log, and stays.
            if not (folder / "log").exists():
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def record_job(job: Any, arguments: Sequence[str]) -> Iterator[_Kept | _Here | None]:
    """Keep a record of a job while it runs, if it was submitted or its result could be adopted."""
    found, path = report.current() or (Report(report.new_id(), arguments[0]), None)
    if not traits.of(job.options.runner).can_adopt:
        here = _Here(path.parent / _HERE) if path else None
        try:
            yield here
        finally:
            if here:
                here.path.unlink(missing_ok=True)
        return
    from mapreduce.runners import applications

    folder = path.parent if path else jobs() / found.id
    note, ended = _Kept(folder, found, arguments, is_submitted=path is not None), None
    try:
        if path is None:
            folder.mkdir(parents=True, mode=0o700)
            found.write(folder / "report.json")
            atomic.replace(folder / "job.json", json.dumps(asdict(note.asked)).encode())
    except (OSError, StorageError) as error:
        log.warning("%s: if this driver is killed, its result is lost", error)
        yield None
        return
    try:
        with applications.report_to(found.id, note.submitted):
            yield note
    except BaseException as error:
        ended = error
        raise
    finally:
        with signals.deferred():
            try:
                note.end(job.options.runner, ended)
            except (ClusterError, DataError, StorageError) as error:
                # What is left stays on record.
                log.warning("%s. Later, gradreduce jobs clean %s", error, found.id)


def left_behind() -> list[Path]:
    """Folders of jobs that run on a cluster, or have left something there; the oldest first."""
    return sorted(path.parent for path in jobs().glob(f"*/{_LEFT}"))


def leftover_advice(folder: Path) -> str:
    """What a job whose driver was killed has left, and what can be done; "" if nothing."""
    if not (folder / _LEFT).exists():
        files = f" gradreduce jobs clean {folder.name} removes its temporary files"
        return files * (folder / _HERE).exists()
    try:
        found: Left = read(folder, _LEFT, Left)
        inputs, script = found.changes()
    except (DataError, StorageError, ClusterError) as error:
        return f" What it has left cannot be looked at: {error}"
    begun = ", ".join(step.application or "one that is not known" for step in found.steps)
    said = f" It has left the applications {begun}." if begun else ""
    clean = f"gradreduce jobs clean {folder.name} removes it"
    if inputs or script:
        return f"{said} Its result is not adopted: {inputs or script}. {clean}"
    return f"{said} The same command, or gradreduce jobs adopt {folder.name}, goes on. {clean}"


def remove(runner: str, left: Left, kept: str = "") -> list[str]:
    """End applications, and remove folders, but those that begin with ``kept``; returns them."""
    found = [one for mark in left.marks for one in traits.end_left_behind(runner, mark, None)]
    # A step that is run again writes beside the folder of its first try.
    outputs = [step.output for step in left.steps if step.output.startswith(left.folders)]
    for folder in (*left.folders, *outputs):
        if kept and folder.startswith(kept):
            continue
        path = RemotePath(folder) if is_remote(folder) else Path(folder)
        if path.exists():
            found.append(folder)
            path.rmtree() if isinstance(path, RemotePath) else shutil.rmtree(path)
    return found


def clean(folder: Path) -> list[str]:
    """Remove all that a job whose driver was killed has left; returns what was there.

    Raises LeaseError if another process has just adopted its result. After any other error, what is
    left can be removed later.
    """
    with contextlib.suppress(FileNotFoundError):
        (folder / _LEFT).rename(folder / _REMOVED)
    found = []
    if (folder / _REMOVED).exists():
        known: Report = read(folder, "report.json", Report)
        found = remove(known.runner or "hadoop", read(folder, _REMOVED, Left))
        (folder / _REMOVED).unlink()
    here = Path(str((jsonfiles.read(folder / _HERE) or {}).get("folder", "")))
    if here.is_absolute() and here.exists():
        shutil.rmtree(here)
        found.append(str(here))
    (folder / _HERE).unlink(missing_ok=True)
    return found
