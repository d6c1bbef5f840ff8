"""The command lines that the guard runs under each tree, and what it keeps of them.

``guard.py`` starts it in the folder of a side, with its tree, the mark's tree, and what is to be
run. Commands run as forks of this process, which has everything imported, or *cold*, as a user
starts them. Nothing but the command line and what it leaves in files is used of a tree.
"""

import hashlib
import json
import os
import re
import runpy
import shutil
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

TREE, MARK = map(Path, sys.argv[1:3])
HERE = Path.cwd()
DATA, SIDE = HERE.parent / "data", HERE.name
RESULTS: dict[str, dict[str, object]] = {}

#: What differs between two runs of a command: folders, times, and whether kernels were compiled.
VARYING = re.compile(
    "|".join(map(re.escape, map(str, (HERE, MARK, TREE, HERE.parent))))
    + r'|(?<="seconds": )[0-9.]+|\b\d+\.\d+(?= s\b)|\d{8}\.\d{6}\.\d+|compiling kernels.*\n'
)
#: Files of a run that may differ.
LOGS = ("events.jsonl", "execution.json", "gang", "lease.json", "result.json", "rounds")
MIXED = "--model softmax --optimizer adamw --precision mixed --batch-size 32 --slice-rows 4"
#: Several blocks, pages, slices and merges.
WIDE = (
    "--model mlp:190,50 --optimizer momentum --learning-rate 0.05 --schedule warmup:5+cosine "
    "--weight-decay 1e-4 --batch-size 48 --slice-rows 6 --checkpoint-every 3"
)
PARALLEL = "-r parallel --workers 2 --threads 2 --blocks 4 --fan-in 2 --rounds-per-job 2"
GANG = "-r parallel --executor gang --workers 3 --blocks 2"

#: Data and options; inline, where nothing is said.
TRAININGS = f"""
classes --model softmax --optimizer sgd --weight-decay 0.01 --seed 3 --epochs 1
classes --model softmax --optimizer momentum --dtype float64 --l1 0.01 --class-weight balanced
classes --model mlp:8 --optimizer adagrad --clip-norm 0.5 --limit-rows 101
classes --model mlp:16,8 --optimizer adam --dtype float64 --schedule warmup:2+step:2,0.5
classes --model mlp:8 --learning-rate 9 --patience 1 --eval-every 1 --non-finite skip
numbers --model linear --optimizer sgd --l1 0.02 --dtype float64
numbers --model linear --optimizer adam --l2 0.02 --schedule cosine
sparse-numbers --model linear --optimizer adagrad --batch-size 0 --schedule step:2
sparse-numbers --model linear --optimizer lbfgs --history-size 2 --tol 0.01 --dtype float64
two --model logistic --optimizer momentum --momentum 0.5 --class-weight 0=2,1=1
sparse-two --model logistic --optimizer adamw --weight-decay 0.1 --batch-size 48 --slice-rows 12
two --model svm --keep 0 --checkpoint-every 1 -r parallel --executor gang --workers 1
sparse-two --model svm --optimizer lbfgs --dtype float64 --limit-rows 90 --tol 1
sparse-two --model hinge-svm --optimizer adam --clip-norm 0.5
wide {WIDE} {PARALLEL}
sparse-two --model logistic --optimizer lbfgs --l2 0.01 --slice-rows 16 {PARALLEL}
classes {MIXED} {PARALLEL}
wide {WIDE} {GANG}
classes {MIXED} {GANG}
wide {WIDE} -r parallel --numeric-profile portable
wide {WIDE} {GANG} --start-method forkserver
wide {WIDE} -r local --workers 2
"""

#: Those that start cold, and not by ``--quick``.
SLOW = re.compile("portable|forkserver|-r local")

#: Of ``gradreduce``; {d} the data, {h} the side's folder, {t} its tree, {m} the mark's tree. Not
#: among them: ``--dry-run``, which shows less, and gangs of -r inline, which are refused.
COMMANDS = """
trian
train {d}/none --run {h}/r
train {d}/classes-train --run {h}/r --modle softmax
train {d}/wide-train --run {h}/r --optimizer adam --momentum 0.5
train {d}/numbers-train --run {h}/infinite --model linear --learning-rate 1e300 -r inline -q
resume {h}/later
evaluate {h}/ended {d}/wide-test -r inline
runs show {h}/ended --json
data import --format csv {h}/a-file {h}/imported
run {t}/jobs/word_count.py -r inline {h}/none.txt
run {t}/jobs/mean_variance.py -r parallel --workers 1 {h}/a-file
check {t}/jobs/wrong/mean_of_means.py {m}/jobs/data/packages.tsv --law combiner
"""

#: Commands that make the datasets, without their folders; {p} is "train" or "test".
DATASETS = {
    "numbers": "data import --format csv --weights weight --task regression {d}/{p}.csv",
    "sparse-numbers": "data import --format libsvm --features 6 --task regression {d}/{p}.svm",
    "sparse-two": "data import --format libsvm --features 6 {d}/{p}.svm",
    "standard": "data standardise -r inline {d}/two-{p}",
}
#: Runs of the mark, some killed after a checkpoint: data, options, and options to resume them.
RUNS = {
    "ended": ("classes", "--model mlp:8 --optimizer adam --checkpoint-every 2 --rounds 4", ""),
    "chain-3": ("wide", f"{WIDE} --rounds 8 --blocks 4", "-r parallel --workers 2"),
    "gang-40": ("classes", f"{MIXED} --rounds 600 --checkpoint-every 20 --keep 0 {GANG}", ""),
}


def main() -> None:
    for name in ("mapreduce", "kernels", "jobs", "hdfs_utils"):
        if not Path(place := import_module(name).__file__).is_relative_to(TREE):
            sys.exit(f"{SIDE}: {name} is {place}, which is not in {TREE}")
    if SIDE == "data":
        return make_data()
    # What commands import and compile, so that their forks need not.
    words = f"train {DATA}/two-train --eval {DATA}/two-test --run warm -r inline -q --rounds 1"
    if import_module("mapreduce.cli.main").main(words.split()):
        sys.exit(f"{SIDE}: no training comes to its end")
    for kind in (hashes, ladder, codes, resume):
        if kind.__name__ in sys.argv:
            kind()
    failed = [case for case, found in RESULTS.items() if found["code"] and case[:5] != "codes"]
    if failed and SIDE == "old":
        sys.exit(f"in the mark already, these fail, and so compare nothing: {failed}")
    (HERE / "results.json").write_text(json.dumps(RESULTS))


def call(*words: object, cold: bool = False, until: Path | None = None) -> tuple[int, str, str]:
    """Run a command, and kill it once a file exists: exit code, output, errors."""
    child = os.fork()
    if not child:
        become(list(map(str, words)), cold)
    if until:
        ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while not until.exists() and not os.waitid(os.P_PID, child, ended):
            time.sleep(0.002)
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = ((HERE / name).read_text(errors="backslashreplace") for name in ("out", "err"))
    return code, *(VARYING.sub("", text) for text in texts)


def become(arguments: list[str], cold: bool) -> None:
    """Be a command, whose output goes to files, and which is killed if it hangs."""
    code = 70
    try:
        os.setsid()
        signal.alarm(240)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(HERE / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.orig_argv = [sys.executable, "-m", "mapreduce.cli.main", *arguments]
        sys.argv = ["gradreduce", *arguments]
        if cold:
            os.execv(sys.executable, sys.orig_argv)
        code = import_module("mapreduce.cli.main").main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def compare(case: str, *words: object, folder: Path | None = None, cold: bool = False) -> None:
    """Run a command, and keep what it says and makes; some texts may be reworded."""
    code, out, error = call(*words, cold=cold)
    fixed = not case.startswith("codes") or "--json" in case
    RESULTS[case] = {"code": code, "output" if fixed else "~output": out, "~errors": error}
    if folder:
        RESULTS[case]["files"] = "\n".join(
            f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.relative_to(folder).parts[0] not in LOGS
        )


def make_data() -> None:
    """Make datasets, a run that has ended, and runs that are half done."""
    import numpy as np

    blobs = runpy.run_path(str(MARK / "tests" / "datasets.py"))["blobs"]
    for part, rows, seed in (("train", (70, 61, 37), 0), ("test", (40, 23), 1)):
        blobs(DATA / f"classes-{part}", rows, seed=seed, dtype="uint8")
        blobs(DATA / f"two-{part}", rows, classes=2, seed=seed)
        blobs(DATA / f"wide-{part}", rows, features=300, seed=seed)
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(sum(rows), 6))
        y = x @ np.arange(6) + generator.normal(size=len(x))
        table = np.column_stack([y, generator.integers(1, 4, len(x)), x])
        names = "label,weight,a,b,c,d,e,f"
        np.savetxt(DATA / f"{part}.csv", table, "%.3f", ",", header=names, comments="")
        large = [" ".join(f"{i}:{v:.3f}" for i, v in enumerate(row, 1) if v > 0.2) for row in x]
        signs = [f"{np.sign(label):g} {row}\n" for label, row in zip(y, large, strict=True)]
        (DATA / f"{part}.svm").write_text("".join(signs))
        for kind, command in DATASETS.items():
            words = [*command.format(d=DATA, p=part).split(), DATA / f"{kind}-{part}", "-q"]
            assert call(*words)[0] == 0, f"there is no {kind}"
    for name, (kind, options, _) in RUNS.items():
        paths = [DATA / f"{kind}-train", "--eval", DATA / f"{kind}-test", "--run", DATA / name]
        last = name.partition("-")[2]
        until = DATA / name / "checkpoints" / last.zfill(8) if last else None
        code, _, error = call("train", *paths, "-r", "inline", *options.split(), until=until)
        assert code == (-signal.SIGKILL if last else 0), f"{name} ended with {code}: {error}"


def hashes() -> None:
    """Trainings, whose own options come last and so count, and datasets."""
    for line in TRAININGS.strip().splitlines():
        if (cold := bool(SLOW.search(line))) and "--quick" in sys.argv:
            continue
        run, (data, *options) = HERE / f"{len(RESULTS)}", line.split()
        paths = [DATA / f"{data}-train", "--eval", DATA / f"{data}-test", "--run", run]
        length = [] if "--epochs" in options else ["--rounds", 3]
        words = [*paths, *length, "-r", "inline", "-q", "--json", *options]
        compare(f"hashes {line}", "train", *words, folder=run, cold=cold)
    for kind, command in DATASETS.items():
        words = [*command.format(d=DATA, p="train").split(), HERE / kind, "-q"]
        compare(f"hashes {kind}", *words, folder=HERE / kind)


def ladder() -> None:
    """The output of every job of the ladder."""
    for name, case in runpy.run_path(str(MARK / "tests" / "jobs" / "ladder.py"))["CASES"].items():
        job = TREE / "jobs" / f"{name}.py"
        compare(f"ladder {name}", "run", job, "-r", "inline", "-q", *case.command_line())


def codes() -> None:
    """Exit codes and messages of command lines, right and wrong; what ``--json`` prints."""
    for name in ("ended", "later", "flipped"):
        shutil.copytree(DATA / "ended", HERE / name)
    later = HERE / "later" / "run.json"
    later.write_text(later.read_text().replace('"format_version": 2', '"format_version": 99'))
    flipped = HERE / "flipped" / "checkpoints" / "00000004" / "model.safetensors"
    flipped.write_bytes(bytes(byte ^ 1 for byte in flipped.read_bytes()))
    (HERE / "a-file").write_text("a,label\n1,2\n1,2,3\n")
    for line in COMMANDS.strip().splitlines():
        compare(f"codes {line}", *line.format(d=DATA, h=HERE, t=TREE, m=MARK).split())


def resume() -> None:
    """Runs that the mark left half done, and what their models say."""
    for name, (data, _, options) in RUNS.items():
        run, test, out = HERE / f"of-{name}", DATA / f"{data}-test", HERE / f"predicted-{name}"
        shutil.copytree(DATA / name, run)
        compare(f"resume {name}", "resume", run, "-q", "--json", *options.split(), folder=run)
        words = [run, test, "-r", "inline"]
        compare(f"resume {name}, evaluated", "evaluate", *words, "--json")
        compare(f"resume {name}, predicted", "predict", *words, out, "-q", folder=out)


if __name__ == "__main__":
    main()
