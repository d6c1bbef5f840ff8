"""The options of our runners, in the form of mrjob's own table."""

import sys
from typing import Any

#: MiB for records of ``-r parallel``, by default.
DEFAULT_MEMORY = 400

START_METHODS = ("fork", "forkserver")

DEFAULT_START_METHOD = "fork" if sys.platform == "linux" else "forkserver"


def _option(flag: str, text: str, **settings: Any) -> dict[str, Any]:
    return {"switches": [([flag], {"help": text, **settings})]}


def _number(flag: str, text: str) -> dict[str, Any]:
    return _option(flag, text, type=int)


OPTIONS: dict[str, dict[str, Any]] = {
    "workers": _number("--workers", "Number of worker processes (default: one per core)"),
    "start_method": _option(
        "--start-method",
        "How worker processes start (default: fork on Linux)",
        choices=START_METHODS,
    ),
    "memory": _number(
        "--memory",
        "MiB of memory for the records of all workers together; more records go to the disk "
        f"(default: {DEFAULT_MEMORY})",
    ),
    "map_memory": _number(
        "--map-memory", "MiB of memory for a map task's container, half for Java"
    ),
    "reduce_memory": _number("--reduce-memory", "MiB of memory for a reduce task's container"),
    "gpus_per_task": _number("--gpus-per-task", "Number of GPUs of a map task's container"),
    "uber": _option(
        "--uber",
        "Run steps with little input inside the application master (default: on a cluster of "
        "gradreduce cluster up)",
        action="store_true",
    ),
    "yes": _option("--yes", "Start a cluster without asking; it costs money", action="store_true"),
    "dry_run": _option(
        "--dry-run",
        "Show which cluster would start, without starting it; needs no AWS credentials",
        action="store_true",
    ),
    "price_per_hour": _option(
        "--price-per-hour",
        "US dollars that an instance of each type costs per hour, such as m5.xlarge=0.24, by "
        "https://aws.amazon.com/emr/pricing; the cluster's price is shown before it starts",
        metavar="TYPE=DOLLARS",
    ),
}


OPTIONS["uber"]["switches"] += _option(
    "--no-uber", "Give every step tasks in containers", action="store_false"
)["switches"]

#: Options whose names jobs may have for options of their own.
GIVING_WAY = {"dry_run", "price_per_hour"}
