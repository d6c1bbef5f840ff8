"""Programs that make a file of each unit, whole and once, whoever makes it and when."""

import contextlib
from abc import abstractmethod
from typing import ClassVar

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, path_of
from hdfs_utils.publish import SUCCESS
from mapreduce.engine.executor import Executor, Progress
from mapreduce.engine.program import Program
from mapreduce.errors import DataError, MissingInputError
from mapreduce.inference.request import Tell
from mapreduce.support.periodic import every

#: Seconds between two lines that tell how far it is.
_TELL_SECONDS = 5.0


class UnitFiles(Program):
    """Each unit is a file in a folder. What is there is not made again, and never another's.

    ``out``: The folder. ``made_from``: Digest of what the files are made from.
    """

    out: str
    made_from: str

    #: What it says of the units that are there.
    done: ClassVar[str]

    @abstractmethod
    def path(self, number: int) -> AnyPath:
        """The file of a unit."""

    @abstractmethod
    def make(self, number: int) -> None:
        """Make the file of a unit, if it is not there."""

    @abstractmethod
    def _load(self) -> object:
        """Load what all units need."""

    def load(self) -> None:
        """Load the model; a DataError says what to do if the run has gone on meanwhile."""
        try:
            self._load()
        except (DataError, MissingInputError) as error:
            raise DataError(
                f"{error}. If the run was trained on meanwhile, run the command again"
            ) from error

    @property
    def place(self) -> AnyPath:
        """The folder."""
        return path_of(self.out)

    def missing(self) -> list[int]:
        """The units that are not there yet; none where all is done, and what it took is removed."""
        with storage_errors("read", self.place):
            names = {path.name for path in self.place.iterdir()}
        if SUCCESS in names:
            return []
        return [at for at in range(self.units(0)) if self.path(at).name not in names]

    def progress(self) -> str:
        """How many units are there."""
        count = self.units(0)
        return f"{count - len(self.missing()):,} of {count:,} {self.done} in {self.place}"


def advance(program: UnitFiles, executor: Executor, tell: Tell) -> Progress:
    """Make all units; ``tell`` is called now and then with how far it is, and when it is stopped.

    Raises DataError (of a task, too).
    """
    try:
        with every(_TELL_SECONDS, lambda: tell(program.progress()), "units"):
            return executor.advance(program)
    except BaseException as error:
        # The folder may be gone, or what it is on.
        with contextlib.suppress(Exception):
            if len(program.missing()) < program.units(0):
                tell(f"{program.progress()}: the same command goes on with the others")
        if getattr(error, "exit_code", 0) == DataError.exit_code:
            # A runner's own error says it of a task in another process.
            raise DataError(str(error)) from error
        raise
