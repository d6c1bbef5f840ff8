"""Errors of storage. ``exit_code`` is that of a command that ends with the error."""


class StorageError(Exception):
    """A file could not be read or written."""

    exit_code = 74


class CreateError(StorageError):
    """An output could not be created at the requested place."""

    exit_code = 73


class ConflictError(StorageError):
    """Another file is already published under the name."""

    exit_code = 73


class IncompleteOutputError(StorageError):
    """A folder of output was not finished by the job that wrote it."""

    exit_code = 65


class UnmarkedOutputError(StorageError):
    """An output is whole, but the file that says so could not be written."""


class ClusterError(Exception):
    """A Hadoop cluster cannot be started, used or found."""

    exit_code = 69


class RequirementError(ClusterError):
    """A program that the cluster needs is missing or has the wrong version."""


class DownloadError(ClusterError):
    """Hadoop could not be downloaded, or is not what was expected."""


class PortError(ClusterError):
    """A port of the cluster is used by another program."""


class DaemonError(ClusterError):
    """A process of the cluster ended or did not become ready in time."""


class NotRunningError(ClusterError):
    """No cluster runs, or the process that was asked for does not."""


class AddressError(StorageError):
    """A URI is malformed, or names an unknown filesystem."""

    exit_code = 2


class KerberosError(StorageError):
    """There is no ticket, it has expired, or a server is not of its realm."""

    exit_code = 77


class TicketError(KerberosError):
    """No server would accept the ticket, which is missing, or not of its time."""
