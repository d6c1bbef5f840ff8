"""What jobs on YARN have in common, whoever starts them: options, environment, shipped code."""

from collections.abc import Sequence
from typing import Any

from mrjob.parse import is_uri

from mapreduce import compat
from mapreduce.errors import MissingInputError, UsageError
from mapreduce.runners import applications
from mapreduce.runners.yarn import shipping
from mapreduce.support import numeric, trust, unfinished
from mapreduce.support.suggest import missing, names_in

#: Options of a job, if neither the user nor the job says otherwise.
JOBCONF = {
    # The second version, which is Hadoop's own default, can publish half an output.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.map.output.compress": "true",
    "mapreduce.map.speculative": "false",
    "mapreduce.reduce.speculative": "false",
    # How often the client looks whether the job has ended; by default up to five seconds.
    "mapreduce.client.completion.pollinterval": "200",
    "mapreduce.client.progressmonitor.pollinterval": "200",
}

#: A step that has this property divides its input so.
_LINES_PER_MAP = "mapreduce.input.lineinputformat.linespermap"

OPTIONS = {"gpus_per_task", "map_memory", "reduce_memory"}


class OnYarn:
    """In front of one of mrjob's runners: makes it one of ours.

    The runner has to say which Python the nodes have, by ``_python_bin``, and to bring files to
    where they can read them, by ``_ship``.
    """

    _opts: dict[str, Any]
    _mrjob_cls: type | None = None
    #: Whether map tasks read files by themselves, from references.
    _references = False
    #: Of the whole cluster.
    _cores = 1

    def _check_numbers(self) -> None:
        for name in sorted(OPTIONS):
            found = self._opts[name]
            if found is not None and (type(found) is not int or found < 1):
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag}: expected a number of at least 1, found {found!r}")

    def _get_input_paths(self) -> list[str]:
        """Paths of the input; of local folders and globs, all their files."""
        found: list[str] = []
        for path in super()._get_input_paths():  # type: ignore[misc]
            found += [path] if is_uri(path) else sorted(self.fs.ls(path))  # type: ignore[attr-defined]
        return found

    def _check_local_input(self, path: str) -> None:
        fs = self.fs  # type: ignore[attr-defined]
        if path != "-" and not is_uri(path) and not fs.exists(path):
            said = missing(path, names_in, " on this machine")
            raise MissingInputError(f"the input {path} {said}")

    def _task_python_bin(self) -> list[str]:
        if self._opts["task_python_bin"] or self._mrjob_cls is None:
            return list(super()._task_python_bin())  # type: ignore[misc]
        python = self._python_bin()  # type: ignore[attr-defined]
        return [*python, shipping.NAME, compat.task_name(self._mrjob_cls)]

    def _add_job_files_for_upload(self) -> None:
        super()._add_job_files_for_upload()  # type: ignore[misc]
        files = self._working_dir_mgr  # type: ignore[attr-defined]
        if self._mrjob_cls is not None and not self._opts["task_python_bin"]:
            files.add("file", self._ship(*shipping.archive()), name=shipping.NAME)

    def read_by_reference(self, files: Sequence[str]) -> None:
        """Have map tasks read files by themselves, from lines of equal length that name parts."""
        for path in files:
            if reason := self._unreadable(path):
                raise UsageError(f"{path} {reason}")
        self._references = True

    def _unreadable(self, path: str) -> str:
        """Why the nodes cannot read a file, in words; empty if they can."""
        raise NotImplementedError

    def _ship(self, name: str, content: bytes) -> str:
        """Bring code to the nodes' storage, unless its name is there; returns its URI."""
        raise NotImplementedError

    def _cmdenv(self) -> dict[str, str]:
        return {**numeric.inherited(), **trust.environment(), **super()._cmdenv()}  # type: ignore[misc]

    def _check_input_paths(self) -> None:
        #: Folders that look unfinished, and what makes them look so: runners add theirs.
        self._unfinished: dict[str, str] = {}
        super()._check_input_paths()  # type: ignore[misc]
        unfinished.warn(self._unfinished)

    def _jobconf_for_step(self, step_num: int) -> dict[str, Any]:
        given: dict[str, Any] = super()._jobconf_for_step(step_num)  # type: ignore[misc]
        steps = self._num_steps()  # type: ignore[attr-defined]
        of = f" {step_num + 1}/{steps}" if steps > 1 else ""
        label = self._label()  # type: ignore[attr-defined]
        names = {"mapreduce.job.name": f"{label}{of}"}
        tags = ",".join(
            filter(None, [self._tag, *applications.marks(), given.get("mapreduce.job.tags")])
        )
        if self._references and step_num == 0:
            # As many map tasks as can run at once; there are no more than lines.
            names["mapreduce.job.maps"] = str(self._cores)
        lines = self._lines_of_output(step_num)
        asked = self._asked_for()
        # Whoever says how tasks are to run wants tasks.
        size = {} if asked else self._for_its_size(step_num, given)
        return {**JOBCONF, **lines, **names, **asked, **size, **given, "mapreduce.job.tags": tags}

    def _hadoop_args_for_step(self, step_num: int) -> list[str]:
        found: list[str] = super()._hadoop_args_for_step(step_num)  # type: ignore[misc]
        if _LINES_PER_MAP in self._jobconf_for_step(step_num) and "-inputformat" not in found:
            found += ["-inputformat", "org.apache.hadoop.mapred.lib.NLineInputFormat"]
        return found

    def _for_its_size(self, step_num: int, given: dict[str, Any]) -> dict[str, Any]:
        """Properties of a step because it has little to read, beside those that are given."""
        return {}

    def _lines_of_output(self, step_num: int) -> dict[str, str]:
        """Make the step write its tasks' lines unchanged.

        Else Hadoop takes a line without a TAB for a key without a value, and appends a TAB. So it
        does after a combiner, which writes by the reducer's settings, and has to write values.
        """
        is_last = step_num == self._num_steps() - 1  # type: ignore[attr-defined]
        if is_last and self._hadoop_output_format:  # type: ignore[attr-defined]
            return {}
        step = self._get_step(step_num)  # type: ignore[attr-defined]
        if "combiner" in step:
            return {}
        return {f"stream.{'reduce' if 'reducer' in step else 'map'}.output": "keyonlytext"}

    @property
    def _tag(self) -> str:
        """The tag by which the job's applications are found."""
        return str(self._job_key).lower()  # type: ignore[attr-defined]

    def _asked_for(self) -> dict[str, Any]:
        """Properties of Hadoop for our options."""
        found: dict[str, Any] = {}
        for kind in ("map", "reduce"):
            if memory := self._opts[f"{kind}_memory"]:
                found[f"mapreduce.{kind}.memory.mb"] = memory
                # The other half is for Python.
                found[f"mapreduce.{kind}.java.opts"] = f"-Xmx{memory // 2}m"
        if self._opts["gpus_per_task"]:
            found["mapreduce.map.resource.yarn.io/gpu"] = self._opts["gpus_per_task"]
        return found
