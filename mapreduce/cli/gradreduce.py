"""Where the command begins: a module of a name that no package of the user's has.

Installed, it lies beside the toolkit's packages; in a clone, in ``mapreduce/cli``.
"""

import gc
import sys
from pathlib import Path


def main() -> int:
    """Find the toolkit, whatever else is called ``mapreduce``, and run a command."""
    folder = Path(__file__).resolve().parent
    home = folder if (folder / "mapreduce").is_dir() else folder.parents[1]
    sys.path.insert(0, str(home))
    # As mapreduce.support.collector, which is not found yet.
    gc.disable()
    from mapreduce.cli.main import main
    from mapreduce.support import process

    gc.enable()
    sys.path.remove(str(home))
    # A job's script may use estimators with scikit-learn.
    process.is_fitting_command = sys.argv[1:2] in (["train"], ["resume"], ["compare"])
    return main()


if __name__ == "__main__":
    sys.exit(main())
