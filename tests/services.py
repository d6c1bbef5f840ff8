"""A service as a user starts it, its clients, and models for it."""

import contextlib
import http.client
import json
import re
import signal
import threading
import time
from dataclasses import asdict
from datetime import date, timedelta

import numpy as np
import pyarrow as pa

import mapreduce
import programs
from mapreduce.models.fitted import FittedModel, TrainedOn
from mapreduce.models.specification import Specification
from wide_tables import TRAINED, table_of

#: Models of arrays, shapes of their rows, and how many classes they know.
ARRAYS = {
    "dense": ("dense:64,relu,dense:33,gelu,layernorm", (784,), 4),
    "mlp": ("mlp:70,9", (130,), 4),
    "softmax": ("softmax", (1100,), 3),
    "logistic": ("logistic", (50,), 2),
    "linear": ("linear", (77,), 0),
    "conv": ("conv:6x5:padding=2,batchnorm,relu,pool:2,dense:20", (1, 12, 12), 5),
    "lstm": ("lstm:13,last,dense:8,sigmoid", (6, 5), 3),
    "embedding": ("embedding:6:words=4,rnn:9", (5,), 3),
}
TABLES = {f"table-{number}": spec for number, spec in enumerate(TRAINED)}
#: What predicts numbers.
NUMERIC = ("linear",)


def kinds_of(rows, seed):
    """A table with a column of each kind."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=rows)
    days = [date(2024, 1, 1) + timedelta(int(day)) for day in chance.integers(0, 300, rows)]
    return pa.table(
        {
            "x": x,
            "town": chance.choice(["Ulm", "NA", "Graz"], rows),
            "ok": chance.random(rows) < 0.5,
            "day": pa.array(days),
            "key": [f"k{row}" for row in range(rows)],
            "label": np.where(x > 0, "yes", "no"),
        }
    )


class Service:
    """``gradreduce serve`` with some arguments, on a port that is free."""

    def __init__(self, *arguments, workers=2, env=None):
        more = {} if env is None else {"env": env}
        self.process = programs.start(
            "serve", *arguments, "--port", 0, "--workers", workers, **more
        )
        self.said, self.lines, self._news = [], [], threading.Condition()
        streams = (self.process.stderr, self.said), (self.process.stdout, self.lines)
        self._threads = [threading.Thread(target=self._follow, args=pair) for pair in streams]
        for thread in self._threads:
            thread.start()
        line = self.wait(r"serving .* at http://(\S+):(\d+), workers ([\d ]+)|error: .*")
        assert line[2], line[0]
        self.host, self.port = line[1].strip("[]"), int(line[2])
        self.workers = [*map(int, line[3].split())]

    def _follow(self, stream, lines):
        for line in stream:
            with self._news:
                lines.append(line)
                self._news.notify_all()
        with self._news:
            lines.append("error: the service has ended")
            self._news.notify_all()

    def wait(self, pattern, first=0, lines=None):
        """The first of its messages, from one on, that a pattern fits."""
        lines = self.said if lines is None else lines
        found = None

        def fits():
            nonlocal found
            found = next(filter(None, (re.search(pattern, text) for text in lines[first:])), None)
            return found or (lines and lines[-1].startswith("error: the service"))

        with self._news:
            self._news.wait_for(fits, programs.PATIENCE)
        assert found, lines
        return found

    def line(self, pattern, first=0):
        """The first line of its log, from one on, that a pattern fits."""
        return self.wait(pattern, first, self.lines)

    def reload(self):
        """Load anew; returns the numbers of the workers."""
        first = len(self.said)
        self.process.send_signal(signal.SIGHUP)
        line = self.wait(r"loaded anew: .* workers ([\d ]+)|warning: (.*)", first)
        assert line[1], line[0]
        self.workers = [*map(int, line[1].split())]

    def client(self):
        """A connection that stays."""
        return Client(self.host, self.port)

    def ask(self, *arguments, **options):
        """Ask by a connection of its own."""
        with contextlib.closing(self.client()) as client:
            return client.ask(*arguments, **options)

    def stop(self):
        """Ask it to end, and wait."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(programs.PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            for thread in self._threads:
                thread.join()
            self.process.stderr.close()
            self.process.stdout.close()


class Client:
    """A connection that stays."""

    def __init__(self, host, port):
        self._connection = http.client.HTTPConnection(host, port, timeout=programs.PATIENCE)
        #: When the last answer was there, and for how long nothing was asked then.
        self._heard, self.silence = 0.0, 0.0

    def ask(self, path, body=None, *, method=None, **headers):
        """Status, headers and body of an answer; a body that is no bytes is sent as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        headers = {name.replace("_", "-"): str(value) for name, value in headers.items()}
        method = method or ("GET" if body is None else "POST")
        before = self._heard if self._connection.sock else time.monotonic()
        try:
            self._connection.request(method, path, body, headers)
        finally:
            self.silence = time.monotonic() - before
        answer = self._connection.getresponse()
        found = answer.status, answer.headers, answer.read()
        self._heard = time.monotonic()
        return found

    def ask_in_time(self, seconds, *arguments, **options):
        """Ask, and once more if this process was so slow that a service may hang up on it.

        ``seconds``: Those for which a service waits.
        """
        while True:
            try:
                return self.ask(*arguments, **options)
            except (http.client.HTTPException, OSError):
                self.close()
                if self.silence < seconds:
                    raise

    def close(self):
        """Close it."""
        self._connection.close()


def drawn(path, spec, shape, classes, seed, dtype="float32", invariant=True, scale=None):
    """A model of parameters that a seed draws, in a file."""
    chance = np.random.default_rng(seed)
    known = Specification(spec, shape, len(classes), dtype, batch_invariant=invariant)
    model = known.create()
    params = chance.normal(0, 0.3, model.size).astype(dtype)
    for parameter, view in zip(model.parameters, model.views(params), strict=True):
        if parameter.role == "buffer":
            # Variances are among them.
            np.abs(view, out=view)
    data = TrainedOn("drawn", None, model.features, shape, classes)
    options = json.loads(json.dumps(asdict(known)))
    fitted = FittedModel("gradient", options, model.named(params), data, dtype, scale=scale)
    fitted.save(path)
    return path


def with_holes(table, seed):
    """A table some of whose fields are missing."""
    chance = np.random.default_rng(seed)
    for name in ("x03", "x40", "town"):
        values = table[name].to_pylist()
        holes = chance.random(len(values)) < 0.15
        values = [None if hole else value for value, hole in zip(values, holes, strict=True)]
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values, table[name].type))
    return table


def all_models(folder):
    """Paths of :data:`ARRAYS` and :data:`TABLES`, and two that multiply by BLAS."""
    for name, (spec, shape, classes) in ARRAYS.items():
        scale = 0.0625 if name == "conv" else None
        path = folder / f"{name}.safetensors"
        yield drawn(path, spec, shape, tuple(range(classes)), len(name), scale=scale)
    for name in ("mlp", "conv"):
        spec, shape, classes = ARRAYS[name]
        path = folder / f"{name}-by-blas.safetensors"
        yield drawn(path, spec, shape, tuple(range(classes)), len(name), invariant=False)
    for number, (name, spec) in enumerate(TABLES.items()):
        table = with_holes(table_of(300, number, spec in NUMERIC), number)
        yield trained(table, folder / name, spec)


def trained(table, path, spec="softmax", **options):
    """The folder of a run that learned from a table."""
    options = {"rounds": 4, "progress": False, "executor": "here", **options}
    return mapreduce.train(table, spec, label="label", run=path, **options).path
