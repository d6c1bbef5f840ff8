"""Compare what a tree gives with what an earlier commit, the mark, gave.

``python tests/guard/guard.py [--quick] [--only KIND] [--tree FOLDER]`` runs the command lines of
``scenarios.py`` under both, with the same interpreter and the same data, prints every case that
differs and a table, and exits with 1 if one does. What only reads differently is "reworded", and
may be. The mark's files are kept in ``.cache/guard``, so that its kernels are compiled once.
"""

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = "405588c"
KINDS = ("hashes", "ladder", "codes", "resume")
#: One BLAS thread: a command that finds NumPy loaded without these would start itself anew.
PINNED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="without the slowest cases")
    parser.add_argument("--only", choices=KINDS, action="append", help="this kind; may be repeated")
    parser.add_argument("--tree", type=Path, default=ROOT, help="tree to compare")
    options = parser.parse_args()
    mark, tree = extracted(), options.tree.resolve()
    if mark is None:
        print(f"skipped: the commit {MARK} is not in the history of this clone")
        return 0
    rest = [mark, *(options.only or KINDS), *(["--quick"] if options.quick else [])]
    # In memory, where there is such a place: runs wait for the disk at every round.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="guard-", dir=memory) as name:
        data, old, new = (Path(name, side) for side in ("data", "old", "new"))
        failed = start(data, mark, *rest).wait()
        sides = [] if failed else [start(old, mark, *rest), start(new, tree, *rest)]
        if failed or sum(side.wait() for side in sides):
            sys.exit("the scenarios could not be run")
        results = [json.loads((side / "results.json").read_text()) for side in (old, new)]
    differs = report(*results)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = f"{usage.ru_utime + usage.ru_stime:.0f} s of CPU"
    print(f"{'DIFFERENT' if differs else 'equal'}: {MARK} and {tree}, in {seconds}")
    return int(differs)


def extracted() -> Path | None:
    """The mark's tree, or None if the clone does not have it."""
    place = ROOT / ".cache" / "guard" / MARK
    if not place.is_dir():
        found = subprocess.run(["git", "archive", MARK], cwd=ROOT, capture_output=True, check=False)
        if found.returncode:
            return None
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as name:
            with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
                archive.extractall(Path(name, "tree"), filter="data")
            # Only a tree that is complete takes its name.
            Path(name, "tree").rename(place)
    return place


def start(folder: Path, tree: Path, *rest: object) -> "subprocess.Popen[bytes]":
    """Start the scenarios of a side, in a folder that is not a tree."""
    folder.mkdir()
    caches = {"NUMBA_CACHE_DIR": str(ROOT / ".cache" / "numba")}
    paths = {"PYTHONPATH": str(tree), "TMPDIR": str(folder.parent), "PYTHONHASHSEED": "0"}
    environment = {**caches, **os.environ, **dict.fromkeys(PINNED, "1"), **paths}
    script = Path(__file__).resolve().parent / "scenarios.py"
    command = [sys.executable, *map(str, (script, tree, *rest))]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def report(old: dict, new: dict) -> bool:
    """Print what differs, and the table; whether anything differs that must not."""
    counts = {case.partition(" ")[0]: [0, 0, 0] for case in old}
    for case in {**old, **new}:
        before, after = old.get(case, {}), new.get(case, {})
        differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        failed = any(not key.startswith("~") for key in differing)
        row = counts[case.partition(" ")[0]]
        row[:] = row[0] + 1, row[1] + failed, row[2] + (not failed and bool(differing))
        for key in differing:
            print(f"{'reworded' if key.startswith('~') else 'DIFFERENT'}: {case}: {key}")
            texts = (str(side.get(key, "missing")).splitlines() for side in (before, after))
            pairs = [pair for pair in zip_longest(*texts) if pair[0] != pair[1]]
            for line, other in pairs[:1]:
                print(f"    was: {str(line)[:300]}\n    is:  {str(other)[:300]}")
    print(f"\n{'':10}{'cases':>8}{'different':>11}{'reworded':>10}")
    for kind, (cases, different, reworded) in counts.items():
        print(f"{kind:10}{cases:8}{different:11}{reworded:10}")
    return any(different for _, different, _ in counts.values())


if __name__ == "__main__":
    sys.exit(main())
