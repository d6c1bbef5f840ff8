"""What :mod:`benchmarks.guard` has done by each of two versions, which this is started with.

It reads a request a line from its standard input, as JSON, and answers each with a line. It keeps
to what users import, so that any two versions can be compared.
"""

import hashlib
import io
import json
import os
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import mapreduce
from mapreduce.errors import Interrupted, UsageError


@cache
def digits() -> Any:
    """scikit-learn's images (1797, 1, 8, 8), float32, and their classes."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return (found.images[:, None] / 16).astype("float32"), found.target


def rows(images: bool, start: int, stop: int) -> Any:
    features, labels = digits()
    some = features[start:stop]
    return (some if images else some.reshape(len(some), -1)), labels[start:stop]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def described(run: Any, images: bool) -> dict[str, str]:
    """Digests of all that a training gives."""
    features, _ = rows(images, 1500, 1797)
    return {
        "plan": run.plan.sha256,
        "model": run.model_sha256,
        "evaluations": digest(json.dumps(run.evaluations.to_pylist()).encode()),
        "predictions": digest(run.predict(features, probabilities=True, here=True).tobytes()),
    }


def train(
    folder: str, plan: dict[str, Any], how: dict[str, Any], images: bool, stop: int = 0
) -> dict[str, str]:
    """Train a plan; ``stop`` are rounds after which the user presses Ctrl-C."""

    def interrupt(event: Any) -> None:
        if type(event).__name__ == "RoundCompleted" and event.completed == stop:
            os.kill(os.getpid(), signal.SIGINT)

    try:
        run = mapreduce.train(
            rows(images, 0, 1200),
            evaluation=rows(images, 1200, 1500),
            run=folder,
            progress=False,
            callbacks=[interrupt],
            **plan,
            **how,
        )
    except Interrupted:
        return {"stopped": "yes"}
    except UsageError as error:
        return {"refused": str(error)}
    return described(run, images)


def resume(folder: str, how: dict[str, Any], images: bool) -> dict[str, str]:
    run = mapreduce.open_run(folder)
    run.resume(progress=False, **how)
    return described(run, images)


def seconds(folder: str, plan: dict[str, Any], how: dict[str, Any]) -> dict[str, float]:
    """Wall time of a training."""
    data = rows(False, 0, 1200)
    started = time.perf_counter()
    mapreduce.train(data, run=folder, progress=False, **plan, **how)
    return {"seconds": time.perf_counter() - started}


def ladder() -> dict[str, str]:
    """The digest of what each job of ``jobs/`` writes for its samples."""
    import subprocess

    root = Path(mapreduce.__file__).parents[1]
    sys.path.insert(0, str(root / "tests" / "jobs"))
    import ladder as rungs  # type: ignore[import-not-found]

    found = {}
    for name, case in rungs.CASES.items():
        command = [sys.executable, "-m", "mapreduce.cli.main", "run", f"jobs/{name}.py", "-q"]
        done = subprocess.run(
            [*command, "-r", "parallel", "--workers", "2", *case.arguments, *case.inputs],
            cwd=root,
            capture_output=True,
            check=False,
        )
        found[name] = digest(done.stdout) if not done.returncode else done.stderr.decode()[-300:]
    return found


def place() -> dict[str, str]:
    """The checkout that this is."""
    return {"place": str(Path(mapreduce.__file__).parents[1])}


DOES = {"place": place, "train": train, "resume": resume, "seconds": seconds, "ladder": ladder}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        # What a training shows goes elsewhere.
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            try:
                answer = DOES[request.pop("do")](**request)
            except Exception as error:
                answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
