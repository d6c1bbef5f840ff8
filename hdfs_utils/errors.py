"""Errors of storage. ``exit_code`` is that of a command that ends with the error."""


class StorageError(Exception):
    """A file could not be read or written."""

    exit_code = 74


class CreateError(StorageError):
    """An output could not be created where it was asked for."""

    exit_code = 73


class ConflictError(StorageError):
    """Something else is published under the name already."""

    exit_code = 73


class IncompleteOutputError(StorageError):
    """A folder of output was not finished by the job that wrote it."""

    exit_code = 65
