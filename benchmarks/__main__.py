"""``make bench``: run benchmarks and write docs/benchmarks.md.

``python -m benchmarks [--quick] [NAME...]`` runs those named, or all. Only a whole, unhurried run
writes the page; anything less prints its results alone.
"""

# Set before NumPy is loaded: one BLAS thread, as in every process of a run.
from mapreduce import numeric

numeric.pin("native")

import argparse  # noqa: E402
import logging  # noqa: E402
import platform  # noqa: E402
import sys  # noqa: E402
from importlib import import_module  # noqa: E402
from pathlib import Path  # noqa: E402

from benchmarks.paired import Result  # noqa: E402
from mapreduce.runners.parallel import available_cores  # noqa: E402

NAMES = ("rounds", "full_batch", "memory", "mnist", "startup")
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def machine() -> str:
    """What the numbers were taken on."""
    found = numeric.describe()
    blas = found["blas"][0]
    return (
        f"{platform.system()} {found['machine']} ({found['cpu']}), {available_cores()} cores, "
        f"Python {found['python']}, NumPy {found['numpy']} with {blas['internal_api']} "
        f"{blas['version']} ({blas['architecture']}), Numba {found['numba']}"
    )


def page(results: list[Result]) -> str:
    """The results as a page."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Ours and each peer run in turn; a ratio is the median of the "
        "ratios of neighbouring runs, with their range. Below 1 we are faster.",
        "",
        f"Machine: {machine()}.",
        "",
    ]
    return "\n".join([*lines, *(line for result in results for line in result.lines())])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the programs out")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    logging.getLogger("mrjob").setLevel(logging.ERROR)
    results = []
    for name in arguments.names or NAMES:
        result = import_module(f"benchmarks.{name}").benchmark(arguments.quick)
        print("\n".join(result.lines()), flush=True)
        results.append(result)
    if not arguments.names and not arguments.quick:
        PAGE.write_text(page(results))
    return 1 if any("MISSED" in result.verdict() for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
