"""boto3's clients, with waits that end.

mrjob wraps its clients so that they try again for hours; boto3 does by itself what is needed.
"""

import os

import mrjob.emr
import mrjob.fs.s3

from mapreduce.runners.emr.errors import Config, aws_errors, boto3

#: mrjob's.
DEFAULT_REGION = "us-west-2"


def set_up() -> None:
    """Let mrjob's clients, and all others of this process, try again for some seconds."""
    mrjob.emr._wrap_aws_client = mrjob.fs.s3._wrap_aws_client = lambda client, **_: client
    if boto3.DEFAULT_SESSION is None:
        boto3.setup_default_session()
    retries = {"mode": "standard", "total_max_attempts": 5}
    config = Config(connect_timeout=10, read_timeout=60, retries=retries)
    boto3.DEFAULT_SESSION._session.set_default_client_config(config)


def default_region() -> str:
    """The region of the environment or of the profile."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if named:
        return named
    with aws_errors("AWS"):
        return boto3.Session().region_name or DEFAULT_REGION
