"""What optimizers are made of beside their learning rate."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """What an optimizer may be told beside its learning rate.

    Attributes
    ----------
    momentum : float
        For ``momentum`` only.
    weight_decay : float
        For ``adamw`` times the learning rate, subtracted from the parameters apart from the
        gradient (Loshchilov and Hutter 2019); for others a term of the gradient.
    clip_norm : float, optional
    skip_non_finite : bool
    loss_scale : float, optional
        See :class:`mapreduce.optim.guarded.Guarded`.
    pairs : int
    rounds : int
    tol : float
        See :class:`mapreduce.optim.lbfgs.LBFGS`.
    """

    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = None
    skip_non_finite: bool = False
    loss_scale: float | None = None
    pairs: int = 10
    rounds: int = 1
    tol: float = 0.0
