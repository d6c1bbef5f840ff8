"""Vowpal Wabbit: passes of L-BFGS from its cache, or one online pass over text."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import vowpalwabbit

from benchmarks.sparse import L2, PASSES, log_loss


def run(arguments: str) -> float:
    """Seconds of a run of its command line."""
    started = time.perf_counter()
    vowpalwabbit.Workspace(arguments, enable_logging=True).finish()
    return time.perf_counter() - started


def main() -> None:
    path, task = Path(sys.argv[1]), sys.argv[2]
    with np.load(path / "rows.npz") as rows:
        labels, columns = rows["labels"], int(rows["columns"])
    text, cache, model, out = (path / f"rows.{end}" for end in ("vw", "cache", "model", "out"))
    usual = f"--quiet --predict_only_model -b {columns.bit_length() - 1} --loss_function logistic"
    if task == "online":
        seconds = run(f"{usual} -d {text} -f {model}")
    else:
        if not cache.exists():
            # Written by a pass that does not count.
            run(f"{usual} -d {text} --cache_file {cache} -k")
        seconds = run(
            f"{usual} -d {text} --cache_file {cache} --bfgs --passes {PASSES} "
            f"--l2 {L2 * len(labels)} --holdout_off -f {model}"
        )
    run(f"{usual} -d {text} -t -i {model} -p {out}")
    scores = np.array([float(line.split()[0]) for line in out.read_text().splitlines()])
    print(json.dumps({"seconds": seconds, "loss": log_loss(scores, labels)}))


if __name__ == "__main__":
    main()
