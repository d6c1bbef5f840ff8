"""``python -m mapreduce.compat``: see :mod:`mapreduce.compat`."""

import sys

from mapreduce.compat import run_class, run_script

if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[1] == "--class":
        run_class(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) > 1:
        run_script(sys.argv[1:])
    else:
        sys.exit("usage: python -m mapreduce.compat [--class NAME] SCRIPT [ARGUMENT...]")
