"""From the text of a network to its layers: ``conv:16x5,batchnorm,relu,residual(...)``."""

from collections.abc import Iterator
from typing import Any

from mapreduce.errors import UsageError
from mapreduce.models import LAYERS
from mapreduce.models.layers.base import Layer, arguments
from mapreduce.support.suggest import did_you_mean

#: Residual blocks within each other, as many as the keys of layers have room for.
_DEEPEST = 3
#: Layers of a list. The networks of the literature have fewer.
_MOST = 10_000
#: The least number that an argument cannot be, so that sizes stay numbers of 64 bits.
_LIMIT = 2**31


def parse(spec: str) -> list[Layer]:
    """The layers of a specification.

    >>> [str(layer) for layer in parse("conv:16x5, relu, residual(dense:3,relu)")]
    ['conv:16x5', 'relu', 'residual(dense:3,relu)']
    """
    parts = [*_split(spec)]
    if len(parts) > _MOST:
        raise UsageError(f"layers {spec!r:.60}: expected at most {_MOST:,}, found {len(parts):,}")
    return [_layer(part) for part in parts]


def _split(spec: str) -> Iterator[str]:
    """The parts between commas that are not within parentheses."""
    depth, start = 0, 0
    for at, letter in enumerate(spec):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            raise UsageError(f"layers {spec!r:.60}: the parenthesis at {at} closes nothing")
        if depth > _DEEPEST:
            raise UsageError(
                f"layers {spec!r:.60}: expected at most {_DEEPEST} residual blocks within each "
                f"other, found more at {at}"
            )
        if letter == "," and not depth:
            yield spec[start:at].strip()
            start = at + 1
    if depth:
        raise UsageError(f"layers {spec!r:.60}: {depth} open parentheses are not closed")
    yield spec[start:].strip()


def _layer(text: str) -> Layer:
    name, parenthesis, inner = text.partition("(")
    if parenthesis:
        if name != "residual" or not inner.endswith(")"):
            raise UsageError(
                f"layer {text!r:.60}: only residual(...) has layers within it. Separate layers by "
                f"commas"
            )
        kind: Any = LAYERS.find("residual")
        within: Layer = kind(parse(inner[:-1]))
        return within
    name, _, rest = text.partition(":")
    if not text:
        raise UsageError("layers: there is no layer before or after one of the commas")
    if name == "residual":
        raise UsageError(f"layer {text!r:.60}: expected {LAYERS.find(name).form}")
    if name not in LAYERS.builtin:
        raise UsageError(
            f"layer {text!r:.60}: unknown layer: expected one of {', '.join(LAYERS)}."
            f"{did_you_mean(name, LAYERS)}"
        )
    kind = LAYERS.find(name)
    required, named = arguments(kind)
    places = rest.split(":") if rest else []
    given: dict[str, Any] = {}
    if required:
        numbers = places.pop(0).split("x") if places else []
        if len(numbers) != len(required):
            raise _malformed(text, kind)
        given = {
            one.name: _value(text, kind, one.type, number)
            for one, number in zip(required, numbers, strict=True)
        }
    for place in places:
        option, equals, value = place.partition("=")
        if not equals or option not in named or option in given:
            raise _malformed(text, kind)
        given[option] = _value(text, kind, named[option].type, value)
    layer: Layer = kind(**given)
    return layer


def _value(text: str, kind: type[Layer], wanted: Any, value: str) -> int | float:
    try:
        number: int | float = wanted(value)
    except ValueError:
        raise _malformed(text, kind) from None
    if not abs(number) < _LIMIT:
        raise UsageError(f"layer {text!r:.60}: expected numbers below {_LIMIT:,}")
    return number


def _malformed(text: str, kind: type[Layer]) -> UsageError:
    numbers = ", with numbers" if any(arguments(kind)) else ", which has no arguments"
    return UsageError(f"layer {text!r:.60}: expected {kind.form}{numbers}")
