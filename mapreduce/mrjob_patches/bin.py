"""Importing this module imports ``mrjob.bin``, which all runners need, without PySpark.

mrjob imports PySpark wherever it is installed, which takes longer than a small job.
"""

import sys
from importlib import import_module

if "pyspark" not in sys.modules:
    sys.modules["pyspark"] = None  # type: ignore[assignment]
    try:
        import_module("mrjob.bin")
    finally:
        del sys.modules["pyspark"]
