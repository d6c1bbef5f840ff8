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

# Modules, or MODULE.FUNCTION.
NAMES = (
    "rounds",
    "gang.small",
    "gang.large",
    "gang.million",
    "gang.minibatch",
    "gang.epoch",
    "strategies.mnist",
    "strategies.uneven",
    "strategies.asynchronous",
    "strategies.staleness",
    "strategies.averaging",
    "strategies.stages",
    "strategies.horovod",
    "full_batch",
    "memory",
    "tracing.processor",
    "tracing.wall",
    "tuning",
    "mnist",
    "learning.steps",
    "learning.mnist",
    "learning.cifar",
    "sequences.characters",
    "sequences.step",
    "forward",
    "in_process.array",
    "in_process.table",
    "in_process.training",
    "algorithms.boosting",
    "algorithms.k_means",
    "algorithms.components",
    "searching.rungs_digits",
    "searching.rungs_tumours",
    "searching.tpe_digits",
    "searching.tpe_tumours",
    "searching.beside",
    "searching.generation",
    "mllib.boosting",
    "mllib.k_means",
    "serving.array",
    "serving.table",
    "serving.beside",
    "timing.planted",
    "torch_module",
    "startup",
    "levels",
    "tables",
    "sparse.lbfgs",
    "sparse.online",
    "word_count.textbook",
    "word_count.vectorized",
    "word_count.ten_lines",
    "word_count.vectorized_large",
    "word_count.memory",
    "shapes.jobs",
    "shapes.growth",
    "jobs.two_steps",
    "jobs.dictionaries",
    "jobs.join",
    "networks.cnn",
    "networks.cifar_cnn",
    "networks.resnet8",
    "networks.epoch",
    "cuda.products",
    "cuda_networks.kernels",
    "cuda_networks.step",
    "spark.textbook",
    "spark.textbook_large",
    "spark.dataframe",
    "spark.gang",
    "hadoop.up",
    "hadoop.job",
    "hadoop.step",
    "hadoop.chain",
    "hadoop.chain_small",
    "hadoop.training",
    "hadoop.training_small",
    "hadoop.word_count",
    "hadoop.put",
)
#: Up to gigabytes of text, and up to an hour: only by --full or by name.
LARGE = (
    "word_count.vectorized_large",
    "word_count.memory",
    "shapes.growth",
    "tables",
    "strategies.mnist",
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
