"""What lies in the user's folder of the cluster and nobody needs any more."""

import time

from hdfs_utils.filesystem import user_name
from hdfs_utils.paths import RemotePath
from mapreduce.runners.hadoop import installation, rest
from mapreduce.runners.yarn.shipping import FOLDER, archive

#: Where jobs have their temporary files there, and names of those of trainings.
_TEMPORARY, _TRAININGS = "tmp/mrjob", ("chain-*", "gang-*")

#: Nanoseconds after which a training whose files have not changed has no driver, unless an
#: application runs.
_FORGOTTEN = 24 * 3600 * 10**9


def remove_old() -> list[str] | None:
    """Remove archives of other versions from the user's folder, and what killed trainings left.

    Returns their URIs; None if an application of the user's runs, which may need one.
    """
    if rest.Yarn(installation.find()).live_of(user_name()):
        return None
    home = RemotePath(f"hdfs:///user/{user_name()}").absolute()
    codes = (home / FOLDER).glob("gradreduce-*.zip")
    found = [path for path in codes if path.name != archive()[0]]
    for path in found:
        path.unlink(missing_ok=True)
    for folder in (path for name in _TRAININGS for path in (home / _TEMPORARY).glob(name)):
        changes = [changed or 0 for _, changed in folder.stamps().values()]
        if changes and max(changes) < time.time_ns() - _FORGOTTEN:
            folder.rmtree()
            found.append(folder)
    return [path.uri for path in found]
