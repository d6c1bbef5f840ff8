"""Looks at EMR and S3 before a job starts there: what would fail later is told now."""

import posixpath
import re
from collections.abc import Sequence
from typing import Any

from mrjob.fs.s3 import _get_bucket_region
from mrjob.parse import is_s3_uri, parse_s3_uri

from hdfs_utils.errors import ClusterError
from hdfs_utils.publish import require_finished
from mapreduce.errors import UsageError
from mapreduce.runners.aws import clusters
from mapreduce.runners.aws.errors import ClientError, code_of, s3_errors

#: The release that is started by default: Hadoop 3.4 on Amazon Linux 2023.
RELEASE = "7.12.0"


def check_cluster(client: Any, cluster_id: str) -> None:
    """Raise an error if EMR does not answer, or a cluster takes no more jobs.

    Parameters
    ----------
    client : boto3 client of EMR
    cluster_id : str

    Raises
    ------
    ClusterError
        It has ended.
    """
    found = client.describe_cluster(ClusterId=cluster_id)["Cluster"]["Status"]
    if found["State"] in clusters.ENDED:
        raise ClusterError(
            f"the cluster {cluster_id} has ended: {found['State']}. Name another with "
            f"--cluster-id, or none to start one: aws emr list-clusters --active"
        )


def check_release(client: Any, label: str, where: str, own_python: bool) -> None:
    """Raise an error if EMR does not answer, or has no such release.

    Parameters
    ----------
    client : boto3 client of EMR
    label : str
    where : str
        The service, for messages.
    own_python : bool
        Whether the user brings a Python.

    Raises
    ------
    UsageError
    """
    match = re.fullmatch(r"emr-(\d+)\.\d+\.\d+", label)
    if match is None:
        raise UsageError(f"--release-label {label}: expected one as emr-{RELEASE}")
    if int(match[1]) < 7 and not own_python:
        raise UsageError(
            f"--release-label {label}: its nodes have no Python 3.11. Expected emr-7.0.0 or "
            f"later, or a Python of your own by --python-bin and --bootstrap"
        )
    known = _releases(client)
    if known and label not in known:
        raise UsageError(
            f"--release-label {label}: {where} has no such release. The newest are "
            f"{', '.join(known[:5])}"
        )


def _releases(client: Any) -> list[str]:
    """Labels of the releases that EMR has, the newest first; none if it does not tell."""
    known: list[str] = []
    request: dict[str, Any] = {}
    try:
        while True:
            answer = client.list_release_labels(**request)
            known += answer.get("ReleaseLabels") or ()
            if not answer.get("NextToken"):
                break
            request = {"NextToken": answer["NextToken"]}
    except ClientError as error:
        if "AccessDenied" not in code_of(error):
            raise
    numbered = [name for name in known if re.fullmatch(r"emr-\d+\.\d+\.\d+", name)]
    return sorted(
        numbered, key=lambda name: [int(part) for part in name[4:].split(".")], reverse=True
    )


def region_of(s3: Any, bucket: str, uri: str) -> str | None:
    """The region of a bucket; None if it does not exist, or does not tell."""
    with s3_errors(uri):
        try:
            return str(_get_bucket_region(s3, bucket))
        except ClientError as error:
            if code_of(error) not in ("NoSuchBucket", "AccessDenied", "404", "403"):
                raise
            if code_of(error) == "NoSuchBucket" and not bucket.startswith("mrjob-"):
                raise
    return None


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
