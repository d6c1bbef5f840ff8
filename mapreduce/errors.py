"""Errors that a user can act on, with the exit code of a command that ends with them.

A message says what happened and where, what was expected and found, and what to try next. The
command line prints it without a traceback, unless ``--debug`` is given. The exit codes are those of
``sysexits.h`` where it has one.
"""


class GradreduceError(Exception):
    """Base class: the job or the training failed."""

    exit_code = 1


class UsageError(GradreduceError):
    """An option or a combination of options makes no sense."""

    exit_code = 2


class SlotsError(UsageError):
    """Fewer tasks run at once than were asked for."""


class MemberError(GradreduceError):
    """A model, optimizer or the like from outside the toolkit cannot be used."""

    exit_code = 2


class BadRowError(MemberError):
    """Code from outside the toolkit fails for a row: the one of this number in its batch."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


class UntrustedError(MemberError):
    """A run names code of its own, and the user has not named it again."""


class DataError(GradreduceError):
    """Input exists but is damaged, malformed or does not fit the model."""

    exit_code = 65


class MissingInputError(GradreduceError):
    """A file, a dataset or a run does not exist."""

    exit_code = 66


class OutputError(GradreduceError):
    """An output cannot be created: it exists already, or its folder cannot be written."""

    exit_code = 73


class JobError(GradreduceError):
    """A submitted job failed, was interrupted, or lost its driver: with the job's exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class LeaseError(GradreduceError):
    """Another driver is working on the run."""

    exit_code = 75


class WireError(DataError):
    """A record of the shuffle or a file of a run is damaged."""


class MissingNodesError(GradreduceError):
    """A reducer did not receive all partial sums of its round."""


class ConflictingNodesError(GradreduceError):
    """Two different partial sums arrived for the same slices."""


class NonFiniteError(GradreduceError):
    """A gradient or a loss is NaN or infinite."""


class DeviceError(GradreduceError):
    """The device that a plan computes on is missing, or fails."""


class Interrupted(BaseException):
    """A signal asked the driver to stop. Like KeyboardInterrupt, it is not an ``Exception``."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"signal {signal_number}")
        self.signal_number = signal_number

    @property
    def exit_code(self) -> int:
        """128 plus the signal's number, as a shell reports it."""
        return 128 + self.signal_number


class LeftOutWarning(UserWarning):
    """Something that cannot be read is left out; commands show it as a line."""
