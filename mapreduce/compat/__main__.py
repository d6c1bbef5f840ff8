"""``python -m mapreduce.compat``, or by its path: see :mod:`mapreduce.compat`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from mapreduce.compat import run_script  # ours, of several of this name

del sys.path[0]

if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_script(sys.argv[1:])
    else:
        sys.exit("usage: python -m mapreduce.compat SCRIPT [ARGUMENT...]")
