"""Whether a change keeps all bits and the speed of rounds: an old commit beside this checkout.

``python -m benchmarks.guard COMMIT [--quick]`` puts the commit into a worktree and trains many
plans by both, on every executor. Plan, model, evaluations and predictions must have one digest
each, whoever has trained; runs that the old commit was interrupted in are ended by this one; the
jobs of ``jobs/`` must write the same bytes; and rounds may take 1.03 times as long, in the median
of alternating pairs. Exits with 1 if anything differs.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.common import folder
from benchmarks.paired import in_turn
from benchmarks.programs import ROOT

CNN = "conv:8x3:padding=1,batchnorm,relu,pool:2,dropout:0.25,dense:32,relu"
MODELS = {"softmax": "softmax", "mlp": "mlp:64", "cnn": CNN}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"learning_rate": 0.05},
    "momentum": {"learning_rate": 0.02},
    "adam": {"learning_rate": 0.003},
    "adamw": {"learning_rate": 0.003, "weight_decay": 0.01},
    "lbfgs": {"batch_size": 0},
}
SMALL = {"batch_size": 96, "slice_rows": 12, "rounds": 8, "eval_every": 4}
REPLICAS = {**SMALL, "model": "mlp:64", "strategy": "averaging", "replicas": 4}
KEEP = {**REPLICAS, "replica_state": "keep", "optimizer": "momentum", "learning_rate": 0.02}

#: Every plan, by a name.
PLANS: dict[str, dict[str, Any]] = {
    f"{model} {optimizer}": {**SMALL, "model": spec, "optimizer": optimizer, **options}
    for (model, spec), (optimizer, options) in product(MODELS.items(), OPTIMIZERS.items())
} | {
    "clip": {**SMALL, "model": "mlp:512", "clip_norm": 0.5},
    "patience": {**SMALL, "model": "mlp:64", "patience": 1, "eval_every": 2, "rounds": 40},
    "averaging": {**REPLICAS, "local_steps": 2},
    "averaging keep": KEEP,
    "averaging adasum": {**KEEP, "combine": "adasum"},
    "averaging elastic": {**KEEP, "elastic": 0.2},
    "averaging fp16": {**REPLICAS, "compress": "fp16"},
    "averaging onebit": {**KEEP, "compress": "onebit", "local_steps": 2},
    "tournament": {**REPLICAS, "strategy": "tournament", "local_steps": 2, "spread": 2.0},
    "downpour": {**REPLICAS, "strategy": "downpour", "staleness": 4},
}
#: Who trains them. Blocks are taken where the model has so many.
HOWS: dict[str, dict[str, Any]] = {
    "inline 1": {"executor": "chain", "runner": "inline", "workers": 1},
    "inline 3": {"executor": "chain", "runner": "inline", "workers": 3},
    "parallel 2": {"executor": "chain", "runner": "parallel", "workers": 2},
    "gang 1": {"executor": "gang", "runner": "parallel", "workers": 1},
    "gang 2": {"executor": "gang", "runner": "parallel", "workers": 2, "blocks": 2},
    "auto": {},
    "here": {"executor": "here", "runner": "inline"},
}
#: Who ends what the old commit has begun, and who had begun it.
HALF_DONE = [("inline 1", "gang 2"), ("gang 2", "parallel 2"), ("parallel 2", "inline 3")]
HALF_DONE_PLANS = ("mlp adam", "cnn momentum", "clip", "averaging keep", "tournament")
#: What is timed, and by how many rounds: those of a gang take ten times as long as its start.
TIMED = {"chain": HOWS["parallel 2"], "gang": HOWS["gang 2"], "here": HOWS["here"]}
ROUNDS = {"chain": 300, "gang": 3000, "here": 3000}
#: At most how many times longer a training may take, and in how many pairs.
MOST, PAIRS = 1.03, 30


class Version:
    """A checkout, and a process that trains by it."""

    def __init__(self, root: Path, work: Path) -> None:
        self._work = work
        work.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(root)}
        script = ROOT / "benchmarks" / "guarded.py"
        # Not by -m, which would find the other version's packages first.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(script)],
            env=environment,
            cwd=work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"do": do, **request}), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def place(self, name: str) -> str:
        """A folder for a run, which does not exist."""
        place = self._work / name.replace(" ", "-")
        shutil.rmtree(place, ignore_errors=True)
        return str(place)

    def train(self, name: str, how: str, **more: Any) -> dict[str, Any]:
        plan, images = PLANS[name], name.startswith("cnn")
        place = self.place(f"{name} {how}")
        return self.ask("train", folder=place, plan=plan, how=HOWS[how], images=images, **more)

    def seconds(self, how: str) -> float:
        plan = {**PLANS["mlp adam"], "rounds": ROUNDS[how]}
        # Nothing is evaluated.
        del plan["eval_every"]
        answer = self.ask("seconds", folder=self.place(how), plan=plan, how=TIMED[how])
        return float(answer["seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextlib.contextmanager
def versions(commit: str) -> Iterator[tuple[Version, Version]]:
    """The commit in a worktree, and this checkout."""
    with folder() as path:
        tree = path / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), commit], check=True)
        try:
            with contextlib.ExitStack() as stack:
                both = Version(tree, path / "old"), Version(ROOT, path / "new")
                for version in both:
                    stack.callback(version.close)
                places = [version.ask("place")["place"] for version in both]
                assert places == [str(tree), str(ROOT)], places
                yield both
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def different(old: Version, new: Version, plans: list[str], hows: list[str]) -> Iterator[str]:
    """What differs from the old version's training on one task."""
    for name in plans:
        expected = old.train(name, "inline 1")
        print(f"{name}: {json.dumps(expected)[:150]}", flush=True)
        if "failed" in expected:
            yield f"{name}, old, inline 1: {expected}"
            continue
        for how in hows:
            for version in (old, new):
                answer = version.train(name, how)
                is_old = version is old
                # It does not train here; and nobody else may train what one refuses.
                if is_old and how == "here":
                    continue
                if "refused" in answer and (how == "here" or "refused" in expected):
                    continue
                if answer != expected:
                    yield f"{name}, {'old' if is_old else 'new'}, {how}: {answer}, not {expected}"


def half_done(old: Version, new: Version) -> Iterator[str]:
    """Which runs of the old version this one does not end as the old one does."""
    for name in HALF_DONE_PLANS:
        images = name.startswith("cnn")
        expected = old.train(name, "inline 1")
        for begun, ended in HALF_DONE:
            place = old.place(f"{name} {begun}")
            stopped = old.train(name, begun, stop=3)
            answer = new.ask("resume", folder=place, how=HOWS[ended], images=images)
            if answer != expected or "stopped" not in stopped:
                yield f"{name}, begun by old {begun} ({stopped}), ended by {ended}: {answer}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--quick", action="store_true", help="a few plans, and no times")
    options = parser.parse_args()
    plans = ["mlp adam", "cnn momentum", "averaging keep"] if options.quick else [*PLANS]
    with versions(options.commit) as (old, new):
        found = [*different(old, new, plans, [*HOWS])]
        found += half_done(old, new)
        before, after = old.ask("ladder"), new.ask("ladder")
        found += [
            f"jobs/{name}.py writes other bytes"
            for name in before
            if before[name] != after.get(name)
        ]
        for how in () if options.quick else TIMED:
            ours, theirs = in_turn(
                partial(new.seconds, how), {"old": partial(old.seconds, how)}, PAIRS
            )
            ratios = [a / b for a, b in zip(ours, theirs["old"], strict=True)]
            middle = statistics.median(ratios)
            spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
            print(f"{how}, {ROUNDS[how]} rounds: {middle:.3f} ({spread})")
            if middle > MOST:
                found.append(f"{how}: {middle:.3f} times as long, at most {MOST} wanted")
    print("\n".join(found) or f"nothing differs, of {len(plans)} plans on {len(HOWS)} executors")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
