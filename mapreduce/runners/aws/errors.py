"""Errors of AWS in words: what was asked of which service, what it said, and what to do."""

import contextlib
from collections.abc import Iterator

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError
from botocore.exceptions import ClientError as ClientError

from hdfs_utils.errors import ClusterError, StorageError

_WHOSE = "'aws sts get-caller-identity' tells whose they are"

#: What a code or the name of an exception means for the user.
_ADVICE = {
    ("NoCredentialsError", "PartialCredentialsError"): (
        "There are no AWS credentials, or half of them. Expected AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE), or a role of this machine. Set them up: "
        "aws configure"
    ),
    (
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "TokenRefreshRequired",
        "UnauthorizedSSOTokenError",
        "SSOTokenLoadError",
        "TokenRetrievalError",
        "CredentialRetrievalError",
    ): "The credentials have expired. Get new ones, as by 'aws sso login', then run it again",
    ("InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException"): (
        "The access key is not known. See 'aws configure list'"
    ),
    ("SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature"): (
        "The secret key is not the access key's. See 'aws configure list'"
    ),
    (
        "AccessDenied",
        "AccessDeniedException",
        "UnauthorizedOperation",
        "AllAccessDisabled",
        "403",
    ): f"These credentials may not do this; {_WHOSE}",
    ("NoSuchBucket",): "There is no such bucket: aws s3 mb",
    (
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "301",
    ): "The bucket is in another region than --region says",
    (
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ConnectionClosedError",
        "ReadTimeoutError",
        "ProxyConnectionError",
        "SSLError",
    ): "The service is out of reach. Check the network, the region and AWS_ENDPOINT_URL",
    ("ProfileNotFound",): "See AWS_PROFILE and ~/.aws/config",
    ("Throttling", "ThrottlingException", "RequestLimitExceeded", "SlowDown"): (
        "AWS is asked too often. Wait a little, or look less often with --check-cluster-every"
    ),
}

#: The same for what a service finds wrong in a request, by words of its message.
_WORDS = {
    "elease label": "Name another with --release-label: aws emr list-release-labels",
    "luster id": "Active clusters: aws emr list-clusters --active",
    "nstance type": "Name others with --instance-type, --master-instance-type or "
    "--core-instance-type: aws emr list-supported-instance-types --release-label LABEL",
    "is invalid": "Roles are made by 'aws emr create-default-roles', or named with "
    "--iam-service-role and --iam-instance-profile",
    "ubnet": "Name a subnet with --subnet",
}


def code_of(error: Exception) -> str:
    """The code of a service's error, or the name of one that boto has raised by itself."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def explained(what: str, error: Exception) -> str:
    """What happened to what was asked, in one line."""
    code, text = code_of(error), " ".join(str(error).split())
    found = next((words for codes, words in _ADVICE.items() if code in codes), "")
    if not found:
        found = next((words for word, words in _WORDS.items() if word in text), "")
    text = text if len(text) <= 400 else text[:399] + "…"
    return f"{what}: {text.rstrip('.')}{f'. {found}' if found else ''}"


@contextlib.contextmanager
def aws_errors(what: str, kind: type[Exception] = ClusterError) -> Iterator[None]:
    """Say what AWS, or its client, has refused.

    Parameters
    ----------
    what : str
        What is asked for, as ``EMR in eu-west-1``.
    kind : type
        Of the error that is raised instead.
    """
    try:
        yield
    except (ClientError, BotoCoreError, Boto3Error) as error:
        raise kind(explained(what, error)) from error


@contextlib.contextmanager
def s3_errors(uri: str) -> Iterator[None]:
    """The same for a place on S3."""
    with aws_errors(uri, StorageError):
        yield
