"""``Job``: mrjob's ``MRJob`` with this toolkit's runner.

``from mapreduce.job import Job as MRJob`` is all that a job changes. Importing this module also
teaches stock ``MRJob`` classes the runner ``-r parallel``. What else of mrjob jobs use can be
imported from here as well, on any Python.
"""

import os
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mapreduce import compat

compat.install()

import mrjob.step  # noqa: E402  (mrjob needs what compat supplies)
from mrjob.compat import jobconf_from_env  # noqa: E402
from mrjob.job import MRJob  # noqa: E402
from mrjob.protocol import (  # noqa: E402
    JSONProtocol,
    JSONValueProtocol,
    TextProtocol,
    TextValueProtocol,
)

from kernels import QUIET  # noqa: E402
from mapreduce import batches  # noqa: E402
from mapreduce.batches import key_starts  # noqa: E402
from mapreduce.batches.pairs import (  # noqa: E402
    arrow_layout,
    decode_lines,
    encode_columns,
    is_columns,
)
from mapreduce.batches.parts import input_files, references  # noqa: E402
from mapreduce.errors import UsageError  # noqa: E402
from mapreduce.job import advice, calls  # noqa: E402
from mapreduce.mrjob_patches import registry  # noqa: E402
from mapreduce.support.suggest import unknown_name  # noqa: E402

if TYPE_CHECKING:
    from mapreduce.job.text import WordCounter as WordCounter

registry.install()
calls.install()

__all__ = [
    "JSONProtocol",
    "JSONValueProtocol",
    "Job",
    "MRStep",
    "TextProtocol",
    "TextValueProtocol",
    "WordCounter",
    "jobconf_from_env",
    "key_starts",
]


def __getattr__(name: str) -> Any:
    if name != "WordCounter":
        raise unknown_name(__name__, name, __all__)
    # Arrow and the kernels are for those jobs that count words by them.
    from mapreduce.job.text import WordCounter

    return WordCounter


class MRStep(mrjob.step.MRStep):
    """A step of mrjob whose mapper or reducer may take batches.

    Parameters
    ----------
    mapper_batch : callable, optional
        ``mapper_batch(key, batch)`` in the place of ``mapper``. See :meth:`Job.mapper_batch`.
    reducer_batch : callable, optional
        ``reducer_batch(batch)`` in the place of ``reducer``. See :meth:`Job.reducer_batch`.
    **kwargs
        Keywords of mrjob's ``MRStep``.

    Raises
    ------
    ValueError
        A step has two mappers or two reducers.
    """

    def __init__(
        self,
        mapper_batch: Callable[..., Any] | None = None,
        reducer_batch: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        for kind, function in (("mapper", mapper_batch), ("reducer", reducer_batch)):
            if function is None:
                continue
            for other in (kind, f"{kind}_raw", f"{kind}_cmd", f"{kind}_pre_filter"):
                if kwargs.get(other):
                    raise ValueError(f"Can't specify both {kind}_batch and {other}")
            kwargs[kind] = function
        super().__init__(**kwargs)
        self.mapper_batch = mapper_batch
        self.reducer_batch = reducer_batch

    def description(self, step_num: int = 0) -> dict[str, Any]:
        """The description of the step for runners."""
        description: dict[str, Any] = super().description(step_num)
        for kind in ("mapper", "reducer"):
            if getattr(self, f"{kind}_batch") is not None:
                description[kind]["batch"] = True
        return description


class Job(MRJob):
    """Base class of jobs.

    Attributes
    ----------
    BATCH_INPUT : {"text", "records"}
        Input of :meth:`mapper_batch` in the first step: the lines of the input, or the records of
        the input files. Later steps always take lines: the output of the step before.
    BATCH_BYTES : int
        Size of a block of text, about.
    BATCH_CSV : dict
        How CSV files of records are written, by options of ``gradreduce data import``: ``header``,
        which is True, ``delimiter``, ``quote``, ``encoding``, ``decimal``, and ``na``, a tuple.
    WARM : bool
        Whether tasks may share a process and an instance. With ``WARM = True`` a job promises that
        a task leaves nothing behind that another task would see, except caches. In return, a step
        costs milliseconds. All other jobs get a fresh process for each task, as on Hadoop.
    """

    WARM = False
    BATCH_INPUT = "text"
    BATCH_BYTES = 4 << 20
    BATCH_CSV: ClassVar[dict[str, Any]] = {}

    def __init__(self, args: Any = None) -> None:
        advice.unused.clear()
        super().__init__(args)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__ == "__main__":
            advice.note_unused(cls)

    @classmethod
    def set_up_logging(cls, quiet: bool = False, **settings: Any) -> None:
        """Set up mrjob's log; with ``quiet``, do not mention the compilation of kernels either."""
        if quiet:
            os.environ[QUIET] = "1"
        super().set_up_logging(quiet=quiet, **settings)

    @classmethod
    def prepare(cls) -> None:
        """Load modules and data that all tasks need; to be overridden.

        ``-r parallel`` calls it once, in the process from which tasks are forked, so that they find
        them loaded. On other runners each task has to do without.
        """

    def mapper_batch(self, key: Any, batch: Any) -> Any:
        """Take many records at once; to be overridden instead of ``mapper``.

        Parameters
        ----------
        key : None or Reference
            The part of the file that a batch of records is from.
        batch : bytes or pyarrow.RecordBatch
            A block of whole lines, the last of which may lack its line feed. Or, with
            ``BATCH_INPUT = "records"`` and in the first step, rows of a Parquet, ORC, Arrow or CSV
            file: such a job takes files of these formats as input, and its map tasks read them by
            reference.

        Yields
        ------
        tuple or pyarrow.RecordBatch
            A pair of key and value, or a batch of two columns, keys and values: one pair a row.
        """
        raise NotImplementedError

    def reducer_batch(self, batch: Any) -> Any:
        """Take many keys at once; to be overridden instead of ``reducer``.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            The columns ``key`` and ``value``, sorted by the bytes of the encoded key. All values of
            a key are in one batch.

        Yields
        ------
        tuple or pyarrow.RecordBatch
            The same as for :meth:`mapper_batch`.
        """
        raise NotImplementedError

    def steps(self) -> list[Any]:
        """One step of the overridden methods."""
        steps: list[Any] = super().steps()
        batched = {
            name: getattr(self, name)
            for name in ("mapper_batch", "reducer_batch")
            if getattr(type(self), name) is not getattr(Job, name)
        }
        if not batched:
            return steps
        given = {name: value for name, value in steps[0]._steps.items() if value} if steps else {}
        return [MRStep(**batched, **given)]

    def run_mapper(self, step_num: int = 0) -> None:
        """Run a map task on standard input."""
        step = self._get_step(step_num, mrjob.step.MRStep)
        if getattr(step, "mapper_batch", None) is None:
            super().run_mapper(step_num)
            return
        _, write = self.pick_protocols(step_num, "mapper")
        blocks = batches.blocks_of(self._stream(), self.BATCH_BYTES)
        self._write(self.map_pairs(batches.read_batches(self, blocks, step_num), step_num), write)

    def run_reducer(self, step_num: int = 0) -> None:
        """Run a reduce task on standard input."""
        step = self._get_step(step_num, mrjob.step.MRStep)
        if getattr(step, "reducer_batch", None) is None:
            super().run_reducer(step_num)
            return
        read, write = self.pick_protocols(step_num, "reducer")
        blocks = batches.key_blocks(batches.blocks_of(self._stream(), self.BATCH_BYTES))
        found = (decode_lines(read, block) for block in blocks)
        self._write(batches.reduce_batches(self, found, step_num), write)

    def _stream(self) -> Any:
        """Standard input, or lines of the files named on the command line of a task."""
        return self._read_input() if self.options.args else self.stdin

    def _write(self, pairs: Iterable[Any], write: Any) -> None:
        for key, value in pairs:
            if is_columns(key):
                lines = encode_columns(write, key, value)
                self.stdout.write(arrow_layout(lines)[1].tobytes())
            else:
                self.stdout.write(write(key, value) + b"\n")

    def _runner_class(self) -> Any:
        found = super()._runner_class()
        return (self.WARM and registry.runner_class(found.alias, is_warm=True)) or found

    def make_runner(self) -> Any:
        """The runner that the options name; mrjob's method.

        A job on records gets, as its input, a file of references to the parts of the files.
        """
        steps = self._cached_steps
        if self.BATCH_INPUT != "records" or not steps:
            return super().make_runner()
        if getattr(steps[0], "mapper_batch", None) is None:
            raise UsageError(
                f"{type(self).__name__} takes records, but its first step has no mapper_batch"
            )
        files = input_files(self.options.args)
        content = references(files)
        runner = super().make_runner()
        if hasattr(runner, "read_by_reference"):
            runner.read_by_reference(files)
        # The file stays there as long as the runner needs it.
        try:
            path = Path(runner._get_local_tmp_dir()) / "references"
            path.write_bytes(content)
            runner._input_paths = [str(path)]
            return runner
        except BaseException:
            # The caller does not have the runner yet, and so cannot clean up.
            runner.cleanup(["ALL"])
            raise

    @cached_property
    def _cached_steps(self) -> list[Any]:
        batches.check(self)
        steps: list[Any] = self.steps()
        return steps

    @cached_property
    def _cached_descriptions(self) -> list[dict[str, Any]]:
        # mrjob asks for the descriptions in every task, and builds all of them each time: with
        # many steps that would cost more than the task.
        return [step.description(number) for number, step in enumerate(self._cached_steps)]

    @cached_property
    def _cached_step_mapping(self) -> dict[str, int]:
        mapping: dict[str, int] = super()._script_step_mapping(self._cached_descriptions)
        return mapping

    def _script_step_mapping(self, steps_desc: list[dict[str, Any]]) -> dict[str, int]:
        return self._cached_step_mapping

    def _steps_desc(self) -> list[dict[str, Any]]:
        return self._cached_descriptions

    def _get_step(self, step_num: int, expected_type: type) -> Any:
        steps = self._cached_steps
        if not 0 <= step_num < len(steps):
            raise ValueError(f"step {step_num} is out of range: the job has {len(steps)} steps")
        step = steps[step_num]
        if not isinstance(step, expected_type):
            raise TypeError(f"step {step_num} is no {expected_type.__name__}")
        return step
