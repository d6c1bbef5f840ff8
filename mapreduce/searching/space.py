"""A space of options: the texts that ``gradreduce train`` takes, with ranges and alternatives.

``0.001..0.1`` is a range, and ``mlp:16..64|softmax`` has two alternatives, the first with a range.
Braces keep alternatives together: ``adam:beta1={0.8|0.9}``. So any text of any option can be
searched, a member's own options too, and what an alternative holds is chosen with it alone.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mapreduce.errors import UsageError

#: Ratio of the ends of a range from which on a sample by magnitude is advised.
_WIDE = 100
_LOW = r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(log:)?(?<![\d.])({_LOW})\.\.([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_WHOLE = re.compile(r"[-+]?\d+")


@dataclass(frozen=True)
class Range:
    """A number from ``low`` to ``high``, both included, that is chosen by the name ``label``."""

    label: str
    low: float
    high: float
    is_log: bool
    is_whole: bool

    def at(self, share: float) -> float | int:
        """The value at a place in [0, 1): six digits, so that a command is short."""
        low, high = self.low, self.high
        if self.is_whole:
            low, high = low - 0.5, high + 0.5
        if self.is_log:
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            value = low + share * (high - low)
        return self.rounded(value)

    def rounded(self, value: float) -> float | int:
        """A value as a command writes it."""
        if self.is_whole:
            return min(max(math.floor(value + 0.5), int(self.low)), int(self.high))
        return min(max(float(f"{value:.6g}"), self.low), self.high)


@dataclass(frozen=True)
class Choice:
    """One of several texts, whose number is chosen by the name ``label``."""

    label: str
    alternatives: "tuple[Text, ...]"


#: A text with what is to be chosen in it.
Text = tuple[str | Range | Choice, ...]
Dimension = Range | Choice
#: What is chosen: a number of a range, or the number of an alternative, by the labels.
Chosen = Mapping[str, float | int]


class Space:
    """The texts of options by name; those of ``literal`` options hold no ranges.

    Raises UsageError (a range or an alternative is malformed).
    """

    def __init__(self, options: Mapping[str, str], literal: frozenset[str] = frozenset()) -> None:
        self.texts: dict[str, Text] = {
            name: (text,) if name in literal else _Parser(name, text).parse()
            for name, text in options.items()
        }

    @property
    def varying(self) -> list[str]:
        """The options of which there is something to choose."""
        return [name for name, text in self.texts.items() if any(_dimensions(text))]

    def dimensions(self) -> list[Dimension]:
        """All that can be chosen, in order."""
        return [each for text in self.texts.values() for each in _dimensions(text)]

    def ranges(self) -> list[Range]:
        """The dimensions that are ranges."""
        return [each for each in self.dimensions() if isinstance(each, Range)]

    def fill(self, choose: Callable[[Dimension], float | int]) -> dict[str, str]:
        """The texts of all options; ``choose`` is asked for what these hold alone."""
        return {name: _filled(text, choose) for name, text in self.texts.items()}

    def of(self, chosen: Chosen) -> dict[str, str]:
        """The texts of all options, by what is chosen."""
        return self.fill(lambda each: chosen[each.label])

    def holding(self, wanted: Dimension, value: float | int) -> dict[str, str]:
        """Texts in which a dimension has a value; others are in the middle, or the first."""

        def choose(each: Dimension) -> float | int:
            if each is wanted:
                return value
            if isinstance(each, Range):
                return each.at(0.5)
            inner = [[*map(id, _dimensions(text))] for text in each.alternatives]
            return next((at for at, ids in enumerate(inner) if id(wanted) in ids), 0)

        return self.fill(choose)

    def notes(self) -> list[str]:
        """What the user should know of the ranges."""
        return [
            f"{_flag(each.label)}: {_number(each.low)}..{_number(each.high)} draws mostly large "
            f"numbers; log:{_number(each.low)}..{_number(each.high)} each magnitude as often"
            for each in self.ranges()
            if not each.is_log and 0 < each.low * _WIDE <= each.high
        ]

    # Without ranges

    def size(self) -> int:
        """The points of the grid of all alternatives.

        Raises UsageError (there is a range).
        """
        for each in self.ranges():
            raise UsageError(
                f"--sampler grid: expected alternatives, such as 0.01|0.1, found the range "
                f"{_number(each.low)}..{_number(each.high)} in {_flag(each.label)}. Take --sampler "
                f"random, or write alternatives"
            )
        return math.prod(map(_size, self.texts.values()))

    def point(self, number: int) -> dict[str, int]:
        """What is chosen at a point of the grid."""
        chosen: dict[str, int] = {}
        for text in self.texts.values():
            number, here = divmod(number, _size(text))
            _point(text, here, chosen)
        return chosen


class _Parser:
    """Reads the text of an option, ``A|B`` with ranges, and braces around alternatives within."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text, self._at, self._count = name, text, 0, 0

    def parse(self) -> Text:
        text = self._alternatives(within=False)
        if self._at < len(self._text):
            raise self._error("a brace } closes nothing")
        return text

    def _alternatives(self, *, within: bool) -> Text:
        found = [self._parts()]
        while self._text[self._at : self._at + 1] == "|":
            self._at += 1
            found.append(self._parts())
        if within and self._text[self._at : self._at + 1] != "}":
            raise self._error("a brace { is not closed")
        if len(found) == 1:
            return found[0]
        if () in found:
            raise self._error("an alternative is empty")
        return (Choice(self._label(), tuple(found)),)

    def _parts(self) -> Text:
        parts: list[str | Range | Choice] = []
        while self._text[self._at : self._at + 1] not in ("", "|", "}"):
            if self._text[self._at] == "{":
                self._at += 1
                parts += self._alternatives(within=True)
                self._at += 1
                continue
            start = self._at
            while self._text[self._at : self._at + 1] not in ("", "|", "{", "}"):
                self._at += 1
            parts += self._ranges(self._text[start : self._at])
        return tuple(parts)

    def _ranges(self, text: str) -> Iterator[str | Range]:
        end = 0
        for match in _RANGE.finditer(text):
            if before := text[end : match.start()]:
                yield before
            low, high = float(match[2]), float(match[3])
            is_log = match[1] is not None
            if not low < high:
                raise self._error(f"expected LOW below HIGH in a range, found {match[0]}")
            if is_log and low <= 0:
                raise self._error(f"log: needs ends above 0, found {match[0]}")
            is_whole = all(_WHOLE.fullmatch(match[part]) for part in (2, 3))
            yield Range(self._label(), low, high, is_log, is_whole)
            end = match.end()
        if text[end:]:
            yield text[end:]

    def _label(self) -> str:
        self._count += 1
        return self._name if self._count == 1 else f"{self._name}.{self._count - 1}"

    def _error(self, what: str) -> UsageError:
        return UsageError(f"{_flag(self._name)} {self._text!r:.80}: {what}")


def _flag(label: str) -> str:
    return f"--{label.partition('.')[0].replace('_', '-')}"


def _number(value: float | int) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _dimensions(text: Text) -> Iterator[Dimension]:
    for part in text:
        if isinstance(part, Choice):
            yield part
            for each in part.alternatives:
                yield from _dimensions(each)
        elif isinstance(part, Range):
            yield part


def _filled(text: Text, choose: Callable[[Dimension], float | int]) -> str:
    parts = []
    for part in text:
        if isinstance(part, Choice):
            parts.append(_filled(part.alternatives[int(choose(part))], choose))
        else:
            parts.append(part if isinstance(part, str) else _number(choose(part)))
    return "".join(parts).strip()


def _size(text: Text | str | Range | Choice) -> int:
    if isinstance(text, Choice):
        return sum(map(_size, text.alternatives))
    return math.prod(map(_size, text)) if isinstance(text, tuple) else 1


def _point(text: Text, number: int, chosen: dict[str, int]) -> None:
    for part in text:
        if not isinstance(part, Choice):
            continue
        number, here = divmod(number, _size(part))
        for at, each in enumerate(part.alternatives):
            if here < (size := _size(each)):
                chosen[part.label] = at
                _point(each, here, chosen)
                break
            here -= size
