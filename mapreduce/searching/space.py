"""A space of options: the texts that ``gradreduce train`` takes, with ranges and alternatives.

``0.001..0.1`` is a range, and ``mlp:16..64|softmax`` has two alternatives, the first with a range.
Braces keep alternatives together: ``adam:beta1={0.8|0.9}``. So any text of any option can be
searched, a member's own options too, and what an alternative holds is chosen with it alone.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mapreduce.errors import UsageError

#: Ratio of the ends of a range from which on a sample by magnitude is advised.
_WIDE = 100
_LOW = r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(log:)?(?<![\d.])({_LOW})\.\.([-+]?\d+\.?\d*(?:[eE][-+]?\d+)?)")
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


class Space:
    """The texts of options by name; those of ``literal`` options hold no ranges.

    Raises UsageError (a range or an alternative is malformed).
    """

    def __init__(self, options: Mapping[str, str], literal: frozenset[str] = frozenset()) -> None:
        self.texts: dict[str, Text] = {
            name: (text,) if name in literal else _parsed(name, text)
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

    def first(self) -> dict[str, str]:
        """The texts of the first alternatives and the lower ends."""
        return self.fill(lambda each: 0 if isinstance(each, Choice) else each.low)

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

    def alternatives(self) -> Iterator[dict[str, str]]:
        """The texts of all options, in which each alternative is once at least."""
        yield self.first()
        for each in self.dimensions():
            if isinstance(each, Choice):
                yield from (self.holding(each, at) for at in range(len(each.alternatives)))

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

    def points(self) -> Iterator[dict[str, str]]:
        """The texts of all options at each point of the grid."""
        for texts in itertools.product(*map(_expanded, self.texts.values())):
            yield dict(zip(self.texts, texts, strict=True))


def _parsed(name: str, text: str) -> Text:
    """The text of an option: ``A|B`` with ranges, and braces around alternatives within."""
    labels = (name if not at else f"{name}.{at}" for at in itertools.count())
    pieces = [piece for piece in re.split("([{}|])", text) if piece]

    def wrong(what: str) -> UsageError:
        return UsageError(f"{_flag(name)} {text!r:.80}: {what}")

    def alternatives(*, within: bool) -> Text:
        texts: list[Text] = [()]
        while pieces and pieces[0] != "}":
            piece = pieces.pop(0)
            if piece == "|":
                texts.append(())
            elif piece == "{":
                texts[-1] += alternatives(within=True)
            else:
                texts[-1] += tuple(filter(None, ranges(piece)))
        if pieces and not within:
            raise wrong("a brace } closes nothing")
        if within and not pieces:
            raise wrong("a brace { is not closed")
        del pieces[:1]
        if len(texts) > 1 and () in texts:
            raise wrong("an alternative is empty")
        return texts[0] if len(texts) == 1 else (Choice(next(labels), tuple(texts)),)

    def ranges(part: str) -> Iterator[str | Range]:
        end = 0
        for match in _RANGE.finditer(part):
            low, high, is_log = float(match[2]), float(match[3]), match[1] is not None
            if not low < high:
                raise wrong(f"expected LOW below HIGH in a range, found {match[0]}")
            if is_log and low <= 0:
                raise wrong(f"log: needs ends above 0, found {match[0]}")
            yield part[end : match.start()]
            is_whole = all(_WHOLE.fullmatch(match[number]) for number in (2, 3))
            yield Range(next(labels), low, high, is_log, is_whole)
            end = match.end()
        yield part[end:]

    return alternatives(within=False)


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


def _expanded(text: Text) -> list[str]:
    """All texts that alternatives make of one."""
    parts: list[list[str]] = []
    for part in text:
        texts = part.alternatives if isinstance(part, Choice) else ()
        parts.append([each for text in texts for each in _expanded(text)] or [str(part)])
    return ["".join(each).strip() for each in itertools.product(*parts)]
