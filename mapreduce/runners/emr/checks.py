"""Looks at EMR and S3 before a job starts there: a job that cannot run is refused at once."""

import posixpath
import re
from collections.abc import Sequence
from typing import Any

from mrjob.parse import is_s3_uri, parse_s3_uri

from hdfs_utils.publish import require_finished
from mapreduce.errors import UsageError
from mapreduce.runners.emr.errors import ClientError, code_of

#: The release that is started by default: Hadoop 3.4 on Amazon Linux 2023.
RELEASE = "7.12.0"


def check_release(client: Any, label: str, own_python: bool) -> None:
    """Raise an error if EMR does not answer, or has no such release.

    Parameters
    ----------
    client : boto3 client of EMR
    label : str
    own_python : bool
        Whether the user brings a Python.

    Raises
    ------
    UsageError
        The nodes of the release have no Python that the toolkit runs on.
    """
    match = re.match(r"emr-(\d+)\.", label)
    if match and int(match[1]) < 7 and not own_python:
        raise UsageError(
            f"--release-label {label}: its nodes have no Python 3.11. Expected emr-7.0.0 or "
            f"later, or a Python of your own by --python-bin and --bootstrap"
        )
    try:
        client.describe_release_label(ReleaseLabel=label)
    except ClientError as error:
        # Those who may start a cluster need not be allowed to ask.
        if "AccessDenied" not in code_of(error):
            raise


def require_bucket(s3: Any, what: str, uri: str, kind: type[Exception]) -> None:
    """Raise an error of a kind if the bucket of a URI does not exist."""
    bucket, _ = parse_s3_uri(uri)
    try:
        s3.head_bucket(Bucket=bucket)
    except ClientError as error:
        if code_of(error) not in ("404", "NoSuchBucket"):
            raise
        raise kind(f"{what} {uri}: there is no bucket {bucket}. Yours: aws s3 ls") from None


def names_in(s3: Any, uri: str) -> list[str]:
    """The names in a folder of S3."""
    if not is_s3_uri(uri):
        return []
    bucket, prefix = parse_s3_uri(posixpath.join(uri, ""))
    answer = s3.list_objects_v2(Bucket=bucket, Prefix=prefix, Delimiter="/")
    keys = [entry["Key"] for entry in answer.get("Contents") or ()]
    keys += [entry["Prefix"] for entry in answer.get("CommonPrefixes") or ()]
    return [posixpath.basename(key.rstrip("/")) for key in keys]


def require_success(path: str, found: Sequence[str]) -> None:
    """Refuse a folder of a job that did not finish it, of whose files some or all were found."""
    top = f"{path.rstrip('/')}/"
    inner = {uri.removeprefix(top).partition("/")[0] for uri in found if uri.startswith(top)}
    require_finished(path, inner)
