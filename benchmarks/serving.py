"""``gradreduce serve`` by one worker, beside bare handlers on the same server: processor time.

Requests come from wrk, a package of Debian (``apt-get install wrk``). The handlers run in an
environment of their own, whose interpreter a variable names::

    python -m venv serving-env && serving-env/bin/pip install \\
        uvicorn httptools orjson numpy pandas onnx onnxruntime scikit-learn
    export GRADREDUCE_SERVING=serving-env/bin/python
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import environment, folder, interpreter
from benchmarks.paired import Result, in_turn
from benchmarks.programs import ROOT

ONNX, SKLEARN = "handler that calls onnxruntime", "handler that calls scikit-learn"
PIPELINE = "handler that calls scikit-learn's pipeline on a data frame"
#: The most of a peer's processor time that a request may take, by connections.
LIMITS = {
    ONNX: {1: 1.6, 8: 1.1, 32: 1.1},
    SKLEARN: {1: 0.9, 8: 0.6, 32: 0.6},
    PIPELINE: {1: 0.3, 8: 0.1, 32: 0.1},
}
#: Milliseconds within which half of the answers come to one connection.
MOST_P50 = 5.0
#: How much longer one row may take beside many: the ratio of both p99.
MOST_BESIDE = 3.0
PENGUINS = ROOT / "tests" / "tables" / "penguins.csv"
MANY_ROWS = 10_000
_MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
_PATIENCE = 60
_WRK = "wrk is not installed (apt-get install wrk)"
_PYTHON = "GRADREDUCE_SERVING names no interpreter that has onnxruntime"


@dataclass(frozen=True)
class Load:
    """What wrk has seen of some seconds: answers, and within what milliseconds they came."""

    answers: int
    p50: float
    p99: float


@dataclass(frozen=True)
class Server:
    """A process that answers requests for predictions."""

    pid: int
    url: str

    def load(self, script: Path, connections: int, seconds: float) -> Load:
        """Ask again and again.

        Raises RuntimeError (there was no answer, or one was an error).
        """
        command = ["wrk", "-t1", "--latency", "--timeout=60s", f"-c{connections}"]
        command += [f"-d{seconds}s", "-s", str(script), self.url]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        if "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
            raise RuntimeError(f"{self.url}: {done.stdout}")
        times = dict(re.findall(r"^ +(50|99)% +(\S+)", done.stdout, re.M))
        answers = re.search(r"(\d+) requests in", done.stdout)
        if answers is None or not int(answers[1]):
            raise RuntimeError(f"{self.url}: no answer in {seconds} s: {done.stdout}")
        return Load(int(answers[1]), *(_milliseconds(times[part]) for part in ("50", "99")))

    def processor_seconds(self) -> float:
        """Seconds of processors that it has taken, its own and the kernel's."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(\w+)", text).groups()  # type: ignore[union-attr]
    return float(number) * _MILLISECONDS[unit]


@contextlib.contextmanager
def ours(run: Path) -> Iterator[Server]:
    """The service of a run by one worker."""
    command = [sys.executable, "-m", "mapreduce.cli.main", "serve", str(run)]
    with _process([*command, "--port", "0", "--workers", "1"], subprocess.PIPE) as process:
        assert process.stderr is not None, "it is a pipe"
        line = process.stderr.readline()
        found = re.search(r"at (http://\S+), workers (\d+)", line)
        if found is None:
            raise RuntimeError(line + process.stderr.read())
        yield Server(int(found[2]), f"{found[1]}/v2/models/{run.name}/infer")


@contextlib.contextmanager
def handler(python: str, kind: str, file: Path) -> Iterator[Server]:
    """A bare handler."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = Path(__file__).parent / "peers" / "serve_bare.py"
    command = [python, str(script), kind, str(file), str(port)]
    with _process(command, subprocess.DEVNULL) as process:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command} does not answer") from None
                time.sleep(0.05)
        yield Server(process.pid, f"http://127.0.0.1:{port}/")


@contextlib.contextmanager
def _process(command: list[str], stderr: int) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(command, cwd=ROOT, env=environment(1), stderr=stderr, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_PATIENCE)


def script_of(path: Path, body: bytes, **headers: str) -> Path:
    """A script by which wrk posts a body."""
    content = path.with_suffix(".body")
    content.write_bytes(body)
    lines = [
        'wrk.method = "POST"',
        f"wrk.body = io.open({json.dumps(str(content))}, 'rb'):read('*a')",
        *(
            f"wrk.headers[{json.dumps(name)}] = {json.dumps(text)}"
            for name, text in headers.items()
        ),
    ]
    path.write_text("\n".join(lines))
    return path


@dataclass
class Requests:
    """Microseconds of processors a request, and milliseconds to its answer, by connections."""

    title: str
    note: str
    limits: dict[str, dict[int, float]]
    times: dict[int, tuple[list[float], dict[str, list[float]]]] = field(default_factory=dict)
    loads: dict[tuple[int, str], list[Load]] = field(default_factory=dict)
    skipped: str = ""

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.times)

    def verdict(self) -> str:
        """Which limits do not hold."""
        if self.skipped:
            return f"not measured: {self.skipped}"
        missed = [
            f"{peer} at {count} connections: {middle:.3g}, at most {limit[count]:g} wanted"
            for count, (mine, theirs) in self.times.items()
            for peer, limit in self.limits.items()
            if (middle := statistics.median(_ratios(mine, theirs[peer]))) > limit[count]
        ]
        if 1 in self.times and (slow := self._median(1, "", "p50")) > MOST_P50:
            missed.append(f"half of the answers in {slow:.3g} ms, at most {MOST_P50:g} wanted")
        return f"MISSED: {'; '.join(missed)}" if missed else "holds"

    def _median(self, connections: int, who: str, what: str) -> float:
        return statistics.median(getattr(load, what) for load in self.loads[connections, who])

    def lines(self) -> list[str]:
        """The result as a Markdown section."""
        lines = [f"## {self.title}", "", self.note, ""]
        lines.append(
            "| connections | who | µs a request: median (range) | p50, ms | p99, ms "
            "| ours / theirs: median (range) | wanted |"
        )
        lines.append("|---|---|---|---|---|---|---|")
        for connections, (mine, theirs) in self.times.items():
            for who, times in {"": mine, **theirs}.items():
                ratio = _spread(_ratios(mine, times), ".2f") if who else ""
                wanted = f"{self.limits[who][connections]:g}" if who else ""
                ends = (f"{self._median(connections, who, part):.2f}" for part in ("p50", "p99"))
                lines.append(
                    f"| {connections} | {who or 'this toolkit'} | {_spread(times, '.0f')} "
                    f"| {' | '.join(ends)} | {ratio} | {wanted} |"
                )
        return [*lines, "", f"Limits: {self.verdict()}.", ""]


def _ratios(mine: list[float], theirs: list[float]) -> list[float]:
    return [one / other for one, other in zip(mine, theirs, strict=True)]


def _spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def _measure(
    result: Requests, servers: dict[str, Server], scripts: dict[str, Path], quick: bool
) -> None:
    """Fill a result; the server without a name is ours."""
    repeats, seconds = (1, 1) if quick else (7, 3)

    def microseconds(who: str, connections: int) -> float:
        server = servers[who]
        before = server.processor_seconds()
        load = server.load(scripts[who], connections, seconds)
        result.loads.setdefault((connections, who), []).append(load)
        return (server.processor_seconds() - before) / load.answers * 1e6

    for who, server in servers.items():
        server.load(scripts[who], 8, 1)
    for connections in (1, 8, 32):
        timed = {who: partial(microseconds, who, connections) for who in servers}
        result.times[connections] = in_turn(timed.pop(""), timed, repeats)


def _train(place: Path, data: Path, *options: str) -> Path:
    run = place / "run"
    _gradreduce("train", data, "--run", run, *options)
    return run


def _gradreduce(*arguments: object) -> None:
    command = [sys.executable, "-m", "mapreduce.cli.main", *map(str, arguments), "-q"]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def _network(place: Path) -> Path:
    """A run of a network that knows the digits."""
    _gradreduce("data", "digits", place / "digits")
    return _train(place, place / "digits/train", "--model", "mlp:128", "--epochs", "5")


def _tensor(rows: Any) -> dict[str, Any]:
    return {"name": "input", "datatype": "FP32", "shape": [*rows.shape]}


def _digits(count: int) -> Any:
    from sklearn.datasets import load_digits

    images = (load_digits().data / 16).astype(np.float32)
    return np.resize(images, (count, images.shape[1]))


def _row_script(place: Path) -> Path:
    row = _digits(1)
    body = json.dumps({"inputs": [_tensor(row) | {"data": row.ravel().tolist()}]})
    return script_of(place / "row.lua", body.encode())


def _why_not() -> str:
    """What is missing for a measurement; empty if nothing is."""
    if shutil.which("wrk") is None:
        return _WRK
    return "" if interpreter("GRADREDUCE_SERVING", "onnxruntime") else _PYTHON


def array(quick: bool) -> Requests:
    """The benchmark of a request of one row to a network."""
    note = (
        "One row of digits to `mlp:128`, in JSON, by one worker: processor time of the worker, "
        "user and system. The handlers are on uvicorn with httptools, one process with one "
        "thread, parse and write by orjson, and look at no path, limit or error."
    )
    limits = {name: LIMITS[name] for name in (ONNX, SKLEARN)}
    result = Requests("A request of one row to a network", note, limits, skipped=_why_not())
    if result.skipped:
        return result
    python = os.environ["GRADREDUCE_SERVING"]
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder())
        run, weights = _network(place), place / "network.npz"
        subprocess.run(
            [sys.executable, "-m", "mapreduce.cli.main", "export", run, "--to", weights],
            check=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        script = _row_script(place)
        servers = {
            "": stack.enter_context(ours(run)),
            ONNX: stack.enter_context(handler(python, "onnxruntime", weights)),
            SKLEARN: stack.enter_context(handler(python, "scikit-learn", weights)),
        }
        _measure(result, servers, dict.fromkeys(servers, script), quick)
    return result


def table(quick: bool) -> Requests:
    """The benchmark of a request of one row of a table."""
    note = (
        "One row of the penguins, an object of 7 columns, to a regression on the recipe's "
        "features, by one worker; beside it, scikit-learn's imputers, encoder and scaler, and its "
        "regression. Processor time, measured in the same way."
    )
    limits = {PIPELINE: LIMITS[PIPELINE]}
    result = Requests("A request of one row of a table", note, limits, skipped=_why_not())
    if result.skipped:
        return result
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder())
        _gradreduce("data", "import", PENGUINS, place / "data", "--label", "species")
        run = _train(place, place / "data", "--epochs", "5")
        names, values = (line.split(",")[1:] for line in PENGUINS.read_text().splitlines()[:2])
        numbers = {name: _number(text) for name, text in zip(names, values, strict=True)}
        script = script_of(place / "row.lua", json.dumps({"rows": [numbers]}).encode())
        peer = handler(os.environ["GRADREDUCE_SERVING"], "pipeline", PENGUINS)
        servers = {"": stack.enter_context(ours(run)), PIPELINE: stack.enter_context(peer)}
        _measure(result, servers, dict.fromkeys(servers, script), quick)
    return result


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def beside(quick: bool) -> Result:
    """The benchmark of one row beside requests of many rows."""
    alone = "the same rows alone"
    title = f"A request of one row beside others of {MANY_ROWS:,}"
    note = (
        f"One row of digits to `mlp:128` in JSON on 8 connections, one worker: the time within "
        f"which 99 of 100 answers come, while another client asks of {MANY_ROWS:,} rows in binary "
        f"again and again."
    )
    if shutil.which("wrk") is None:
        return Result(title, "ms", note, [], limit=(alone, MOST_BESIDE), skipped={alone: _WRK})
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder())
        server = stack.enter_context(ours(_network(place)))
        one = _row_script(place)
        rows = _digits(MANY_ROWS)
        parameters = {"parameters": {"binary_data_size": rows.nbytes}}
        inputs = [_tensor(rows) | parameters]
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        length = {"Inference-Header-Content-Length": str(len(head))}
        many = script_of(place / "rows.lua", head + rows.tobytes(), **length)
        seconds = 1 if quick else 5

        def p99(is_alone: bool) -> float:
            others = [] if is_alone else [pool.submit(server.load, many, 1, seconds + 1)]
            found = server.load(one, 8, seconds).p99
            for other in others:
                other.result()
            return found

        pool = stack.enter_context(ThreadPoolExecutor(1))
        p99(is_alone=False)
        both, peers = in_turn(
            partial(p99, is_alone=False), {alone: partial(p99, is_alone=True)}, 1 if quick else 7
        )
    return Result(title, "ms", note, both, peers, (alone, MOST_BESIDE))
