"""The models of a comparison: a list as ``--models`` takes it, and those that suit a task."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mapreduce.errors import UsageError
from mapreduce.models import FITS, LAYERS, MODELS, NETWORKS
from mapreduce.plan import flags as plan_flags

#: By the task, what is compared if nobody says it.
DEFAULTS = {
    "classification": ("softmax", "mlp:64", "boosting"),
    "regression": ("linear", "ridge", "boosting"),
}


def split(texts: Iterable[str]) -> tuple[str, ...]:
    """The models of lists such as ``softmax,mlp:64,32,boosting:trees=50,rate=0.2``.

    A model begins where its name stands, or another bare word, which may be a name with a mistake;
    all else are values of the one before. A layer goes on with the network before it.

    Raises UsageError (one comes twice, or there is none).
    """
    names = {*MODELS.builtin, *NETWORKS, *FITS}
    found: list[str] = []
    for text in texts:
        is_network = False
        for number, part in enumerate(text.split(",")):
            name = re.match(r"[\w-]*", part.strip())
            assert name is not None
            is_layer = name[0] in LAYERS.builtin
            is_own = re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", part.strip()) is not None
            begins = name[0] in names or (is_own and not is_layer) or (is_layer and not is_network)
            # No value of a model is a word alone, but a mistyped name is.
            begins |= not is_network and re.fullmatch(r"[A-Za-z][\w-]*", part.strip()) is not None
            if begins or not number:
                found.append(part.strip())
                is_network = is_layer
            else:
                found[-1] += f",{part.strip()}"
    for model in found:
        if not model or found.count(model) > 1:
            raise UsageError(f"--models: expected each model once, found {model!r} in {found}")
    return tuple(found)


def check(models: Iterable[str], values: Mapping[str, Any]) -> None:
    """Refuse unknown models and wrong options of them, before anything is read.

    ``values``: Those of a plan.
    """
    (option,) = (row for row in plan_flags.PLAN if row.name == "model")
    for model in models:
        if FITS.fits(model):
            FITS.parse(model)
            continue
        option.check(model)
        plan_flags.settings({**values, "model": model}).trust_members()
