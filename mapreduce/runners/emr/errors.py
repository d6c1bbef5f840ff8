"""Errors of AWS in words: what was asked of which service, what it said, and what to do."""

import contextlib
from collections.abc import Iterator

from hdfs_utils.errors import ClusterError, RequirementError, StorageError

try:
    import boto3 as boto3
    from boto3.exceptions import Boto3Error
    from botocore.config import Config as Config
    from botocore.exceptions import BotoCoreError
    from botocore.exceptions import ClientError as ClientError
except ImportError as error:
    raise RequirementError(
        "the runner emr needs a package that is missing here: pip install 'gradreduce[emr]'"
    ) from error

#: What the user can do, by a part of an error's code or of the name of its exception.
_ADVICE = {
    "CredentialsError": (
        "There are no AWS credentials, or half of them. Expected AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE), or a role of this machine. Set them up: "
        "aws configure"
    ),
    "Expired": "The credentials have expired. Get new ones, as by 'aws sso login'",
    "Token": "The credentials are not accepted. See 'aws configure list'",
    "AccessKey": "The access key is not known. See 'aws configure list'",
    "Signature": "The secret key is not the access key's. See 'aws configure list'",
    "AccessDenied": (
        "These credentials may not do this; 'aws sts get-caller-identity' shows whose they are"
    ),
    "404": "There is no such bucket: aws s3 mb",
    "NoSuchBucket": "There is no such bucket: aws s3 mb",
    "Redirect": "The bucket is in another region than --region says",
    "Connect": "The service is out of reach. Check the network, the region and AWS_ENDPOINT_URL",
    "Timeout": "The service is out of reach. Check the network, the region and AWS_ENDPOINT_URL",
}


def code_of(error: Exception) -> str:
    """The code of a service's error, or the name of one that boto has raised by itself."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", ""))
    return type(error).__name__


@contextlib.contextmanager
def aws_errors(what: str, kind: type[Exception] = ClusterError) -> Iterator[None]:
    """Say, by another exception, what AWS, or its client, has refused, as ``EMR in eu-west-1``."""
    try:
        yield
    except (ClientError, BotoCoreError, Boto3Error) as error:
        code, text = code_of(error), " ".join(str(error).split()).rstrip(".")
        advice = next((f". {words}" for part, words in _ADVICE.items() if part in code), "")
        raise kind(f"{what}: {text}{advice}") from error


@contextlib.contextmanager
def s3_errors(uri: str) -> Iterator[None]:
    """The same for a place on S3."""
    with aws_errors(uri, StorageError):
        yield
