"""Conditional writes to S3, of which only one writer's succeeds; pyarrow's client knows none."""

import os
from typing import Any

from hdfs_utils.paths import RemotePath

#: What S3 answers if an object is gone, is just being written, or is not what it should be.
_LOST = {404, 409, 412}


def swap(path: RemotePath, old: bytes | None, new: bytes) -> bool:
    """Write an object, if it is unchanged or, with None, if it still does not exist.

    Returns False if another writer was faster. Raises NotImplementedError (boto3 is missing, or it
    or the service does not know such writes, or fails).
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise NotImplementedError from error
    bucket, _, key = path.path.partition("/")
    place = {"Bucket": bucket, "Key": key}
    condition: dict[str, Any] = {"IfNoneMatch": "*"}
    try:
        client = boto3.client("s3", region_name=os.environ.get("AWS_REGION"))
        if old is not None:
            found = client.get_object(**place)
            if found["Body"].read() != old:
                return False
            condition = {"IfMatch": found["ETag"]}
        client.put_object(**place, Body=new, **condition)
    except (BotoCoreError, ClientError) as error:
        answer = getattr(error, "response", {}).get("ResponseMetadata", {})
        if answer.get("HTTPStatusCode") in _LOST:
            return False
        raise NotImplementedError from error
    return True
