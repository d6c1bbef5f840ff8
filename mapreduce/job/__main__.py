"""``python mapreduce/job/__main__.py NAME SCRIPT [ARGUMENT...]`` runs a task of a script's class.

That class is run, whatever the script itself would start; with ``NAME@2``, where the script calls
``run()`` for the second time, as its driver did (:func:`mapreduce.compat.task_name`).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from mapreduce import compat  # ours, of several of this name
from mapreduce.job import calls

del sys.path[0]

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python mapreduce/job/__main__.py NAME SCRIPT [ARGUMENT...]")
    name, sys.argv[:] = sys.argv[1], sys.argv[2:]
    if not sys.flags.safe_path:
        del sys.path[0]
    calls.install()
    arguments = sys.argv[1:]
    compat.run_task(name, Path(sys.argv[0]), lambda job_class: job_class(arguments).execute())
