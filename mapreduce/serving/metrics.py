"""What workers count together, in memory that they share, as Prometheus reads it.

Each worker writes a row of its own, so that nobody waits. A worker that takes the place of another
goes on with its row.
"""

import mmap
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from mapreduce.serving.model import ServedModel

#: Bounds in seconds, within which answers are counted.
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_CODES = ("2xx", "4xx", "5xx")
_PLACES = {2: 0, 4: 1, 5: 2}
#: The places of what is counted of each model.
_ROWS, _UNKNOWN, _SECONDS = range(3)


class Metrics:
    """Counts of the models of some names, by ``rows`` workers, which is an even number."""

    def __init__(self, names: Sequence[str], rows: int) -> None:
        self.names = {name: place for place, name in enumerate(names)}
        width = 3 + len(_CODES) + len(_BOUNDS) + 1
        shape = rows, len(names), width
        memory = mmap.mmap(-1, 8 * rows * (len(names) * width + 2))
        flat = np.frombuffer(memory, np.float64)
        self._all, self._waiting = flat[2 * rows :].reshape(shape), flat[:rows]
        self._numbers, self._rows, self._width = memoryview(memory).cast("d"), rows, width
        self._row = 0

    def take(self, row: int) -> None:
        """Count in a row of the memory, in which no other process counts."""
        self._row = row
        self.wait(0)
        self.connect(0)

    def count(self, name: str, status: int, seconds: float, rows: int, warnings: int) -> None:
        """Count an answer."""
        place = self._row * len(self.names) + self.names[name]
        own, start = self._numbers, 2 * self._rows + place * self._width
        own[start + _ROWS] += rows
        own[start + _UNKNOWN] += warnings
        own[start + _SECONDS] += seconds
        own[start + 3 + _PLACES.get(status // 100, 2)] += 1
        own[start + 3 + len(_CODES) + bisect_left(_BOUNDS, seconds)] += 1

    def wait(self, rows: int) -> None:
        """Say how many rows wait now."""
        self._numbers[self._row] = rows

    def connect(self, connections: int) -> None:
        """Say how many connections are open now."""
        self._numbers[self._rows + self._row] = connections

    @property
    def is_ahead(self) -> bool:
        """Whether another worker of the same generation, half of the rows, has less connections."""
        half = self._rows // 2
        first = self._rows + self._row // half * half
        return self._numbers[self._rows + self._row] > min(self._numbers[first : first + half])

    def text(self, models: Sequence[ServedModel]) -> str:
        """The counts of all workers, in the text format of Prometheus."""
        total = self._all.sum(axis=0)
        lines = []

        def family(name: str, kind: str, what: str) -> None:
            lines.append(f"# HELP gradreduce_{name} {what}\n# TYPE gradreduce_{name} {kind}")

        def sample(name: str, value: float, **labels: str) -> None:
            shown = ",".join(f"{label}={_quoted(text)}" for label, text in labels.items())
            lines.append(f"gradreduce_{name}{{{shown}}} {value:.17g}".replace("{} ", " "))

        family("model_info", "gauge", "The model that is served.")
        for model in models:
            sample("model_info", 1, model=model.name, version=model.version, sha256=model.sha256)
        family("requests_total", "counter", "Answers, by the first digit of their status.")
        for name, place in self.names.items():
            for code, value in zip(_CODES, total[place, 3:], strict=False):
                sample("requests_total", value, model=name, code=code)
        family("rows_total", "counter", "Rows that were predicted.")
        for name, place in self.names.items():
            sample("rows_total", total[place, _ROWS], model=name)
        family("warned_requests_total", "counter", "Answers with warnings, as of unknown names.")
        for name, place in self.names.items():
            sample("warned_requests_total", total[place, _UNKNOWN], model=name)
        family("request_seconds", "histogram", "From the header of a request to its answer.")
        for name, place in self.names.items():
            below = np.cumsum(total[place, 3 + len(_CODES) :])
            for bound, value in zip((*_BOUNDS, "+Inf"), below, strict=True):
                sample("request_seconds_bucket", value, model=name, le=str(bound))
            sample("request_seconds_sum", total[place, _SECONDS], model=name)
            sample("request_seconds_count", below[-1], model=name)
        family("waiting_rows", "gauge", "Rows that wait to be predicted.")
        sample("waiting_rows", self._waiting.sum())
        return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'
