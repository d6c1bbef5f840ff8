"""boto3's clients, with waits that end.

mrjob wraps its clients so that they try again for hours; boto3 does by itself what is needed.
"""

import os
from typing import Any

from mrjob.fs.s3 import S3Filesystem

from mapreduce.errors import UsageError
from mapreduce.runners.emr.errors import Config, aws_errors, boto3
from mapreduce.support.suggest import did_you_mean

#: mrjob's.
DEFAULT_REGION = "us-west-2"

#: Attempts at a request: of the first ones, which show whether anybody is there, and of later ones,
#: which must outlast a short failure of the network. Pauses between them double up to 20 seconds.
FEW, MANY = 2, 8


def config(attempts: int = MANY) -> Config:
    return Config(
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": attempts},
    )


def client(service: str, attempts: int = MANY, **options: Any) -> Any:
    return boto3.client(service, config=config(attempts), **options)


def default_region() -> str:
    """That of the environment or of the profile."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if named:
        return named
    with aws_errors("AWS"):
        return boto3.Session().region_name or DEFAULT_REGION


def check_region(region: str) -> None:
    """Raise an error if boto3 knows of no such region.

    Raises
    ------
    UsageError
    """
    session = boto3.Session()
    known = [
        name
        for partition in session.get_available_partitions()
        for name in session.get_available_regions("emr", partition_name=partition)
    ]
    if region not in known:
        raise UsageError(
            f"--region {region}: boto3 {boto3.__version__} knows of no such region with EMR."
            f"{did_you_mean(region, known)} A newer boto3 knows newer ones"
        )


class S3(S3Filesystem):
    """mrjob's filesystem, by such clients, which are made once: that takes a while."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._made: dict[tuple[str, str | None], Any] = {}

    def make_s3_resource(self, region_name: str | None = None) -> Any:
        return self._once("resource", boto3.resource, region_name)

    def make_s3_client(self, region_name: str | None = None) -> Any:
        return self._once("client", boto3.client, region_name)

    def _once(self, kind: str, make: Any, region: str | None) -> Any:
        key = kind, region
        if key not in self._made:
            self._made[key] = make("s3", config=config(), **self._client_kwargs(region))
        return self._made[key]
