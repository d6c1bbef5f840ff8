"""A warning of input that Hadoop reads, though its job may not have finished it."""

from collections.abc import Iterable, Mapping

from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import SUCCESS, check_parts
from mapreduce.support.printable import echo


def warn(found: Mapping[str, str]) -> None:
    """Say in one line, on stderr even if all else is quiet, which folders look unfinished.

    ``found``: What :func:`hdfs_utils.publish.check_parts` says of each.
    """
    for folder, what in list(found.items())[:1]:
        more = f"; others too ({len(found) - 1})" if len(found) > 1 else ""
        echo(
            f"warning: {folder} holds {what}{more}: what wrote it may have failed or not ended. "
            f"All that lies there now is read. If it is whole, an empty file {SUCCESS} in it ends "
            f"this warning",
            err=True,
        )


def warn_of_files(paths: Iterable[AnyPath]) -> None:
    """The same for files named one by one, of whose folders parts are read."""
    folders = {path.parent for path in paths if path.name.startswith("part-")}
    found = {str(folder): check_parts(folder) for folder in sorted(folders, key=str)}
    warn({folder: what for folder, what in found.items() if what is not None})
