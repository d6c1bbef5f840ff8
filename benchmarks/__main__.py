"""``make bench``: run benchmarks and write docs/benchmarks.md.

``python -m benchmarks [--quick] [--full] [--bytes N] [NAME...]`` runs those named, or all but those
that take an hour, which ``--full`` adds. A name without its part, such as ``word_count``, means all
its parts. Each replaces its own section of the page, which says what machine it was taken on; with
``--quick`` the results are printed alone.
"""

# Set before NumPy is loaded: one BLAS thread, as in every process of a run.
from mapreduce.support import numeric

if __name__ == "__main__":
    # It may start the program anew, which is not for those who import this.
    numeric.pin("native")

import argparse
import logging
import platform
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from mapreduce.support.cores import available_cores

#: The table of cases: functions of each module. ``benchmark`` has the name of its module alone;
#: those with a star take up to gigabytes of text, or up to an hour: only by --full or by name.
CASES = {
    "rounds": "benchmark",
    "gang": "small large million minibatch epoch",
    "strategies": "mnist* uneven asynchronous staleness averaging stages horovod",
    "full_batch": "benchmark",
    "memory": "benchmark",
    "tracing": "benchmark",
    "tuning": "benchmark",
    "learning": "steps mnist cifar characters",
    "sequences": "step",
    "forward": "benchmark",
    "in_process": "array table training rounds",
    "algorithms": "boosting k_means components",
    "searching": "rungs_digits rungs_tumours tpe_digits tpe_tumours beside generation",
    "mllib": "boosting k_means",
    "serving": "array table beside",
    "timing": "planted",
    "torch_module": "benchmark",
    "startup": "benchmark",
    "levels": "benchmark",
    "tables": "benchmark*",
    "sparse": "lbfgs online",
    "word_count": "textbook vectorized ten_lines vectorized_large* memory*",
    "shapes": "jobs",
    "jobs": "two_steps dictionaries join",
    "networks": "cnn cifar_cnn resnet8 epoch",
    "cuda": "products",
    "cuda_networks": "kernels step",
    "spark": "textbook textbook_large dataframe gang chain",
    "hadoop": "up job step training_small word_count put",
}
_FUNCTIONS = [f"{module}.{name}" for module, names in CASES.items() for name in names.split()]
NAMES = tuple(name.rstrip("*").removesuffix(".benchmark") for name in _FUNCTIONS)
LARGE = tuple(
    name for name, function in zip(NAMES, _FUNCTIONS, strict=True) if function.endswith("*")
)
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


HEAD = """# Benchmarks

Written by `make bench`. Ours and each peer run in turn; a ratio is the median of the ratios of
neighbouring runs, with their range. Below 1 we are faster.

"""


def page(before: str, results: dict[str, Any]) -> str:
    """A page with new sections for some benchmarks, and those it had for others."""
    parts = re.split(r"^<!-- ([\w.]+) -->\n", before, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name, result in results.items():
        sections[name] = "\n".join([*result.lines(), f"Machine: {machine()}.", "", ""])
    ordered = [name for name in NAMES if name in sections]
    return HEAD + "".join(f"<!-- {name} -->\n{sections[name]}" for name in ordered)


def selected(wanted: list[str], full: bool) -> list[str]:
    """The benchmarks that some names mean; none mean all."""
    usual = [name for name in NAMES if full or name not in LARGE]
    found = []
    for name in wanted:
        parts = [name] if name in NAMES else [n for n in usual if n.partition(".")[0] == name]
        if not parts:
            raise ValueError(f"unknown: {name}; there are {', '.join(NAMES)}")
        found += parts
    return found or usual


def run(name: str, quick: bool, size: int | None = None) -> Any:
    """The result of one benchmark: a ``Result``, or what has its ``lines`` and ``verdict``."""
    module, _, function = name.partition(".")
    measure = getattr(import_module(f"benchmarks.{module}"), function or "benchmark")
    return measure(quick, size) if size and name == "tables" else measure(quick)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the programs out")
    parser.add_argument("--full", action="store_true", help=f"also {', '.join(LARGE)}")
    parser.add_argument("--bytes", type=float, help="of the file of tables, such as 5e8")
    arguments = parser.parse_args()
    try:
        names = selected(arguments.names, arguments.full)
    except ValueError as error:
        parser.error(str(error))
    logging.getLogger("mrjob").setLevel(logging.ERROR)
    missed = False
    for name in names:
        result = run(name, arguments.quick, arguments.bytes and int(arguments.bytes))
        print("\n".join(result.lines()), flush=True)
        missed |= "MISSED" in result.verdict()
        # What could not be measured leaves the page as it is.
        if not arguments.quick and result.measured:
            PAGE.write_text(page(PAGE.read_text() if PAGE.exists() else "", {name: result}))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
