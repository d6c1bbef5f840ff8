"""What the runner for EMR knows of AWS."""

import importlib.util

from hdfs_utils.errors import RequirementError

if importlib.util.find_spec("boto3") is None:
    raise RequirementError(
        "the runner emr needs a package that is missing here: pip install 'gradreduce[emr]'"
    )
