"""A cause: what cost a run some seconds."""

from dataclasses import dataclass

#: A cause of rounds and of what is around them.
START = "start and many jobs"

#: The part of work that remains in any case.
LEFT = 0.1


@dataclass(frozen=True)
class Cause:
    """What cost ``seconds``.

    Attributes
    ----------
    kind : str
        "slow worker", for example.
    seconds : float
        Which would be saved without it.
    text : str
        What is seen, as half a sentence.
    ranks : tuple of int
        Which ranks, workers or tasks it concerns, if not all.
    """

    kind: str
    seconds: float
    text: str
    ranks: tuple[int, ...] = ()
