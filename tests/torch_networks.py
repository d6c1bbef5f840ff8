"""Modules of PyTorch for tests: those that can be trained, and those that cannot."""

from itertools import count

import numpy as np
import torch
from torch import nn


def plain():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def small_cnn():
    """For images of 8 × 8 and 3 classes; with all that depends on the slice."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(36, 3),
    )


def coloured_cnn():
    """For images of 3 × 8 × 8 and 4 classes; more than two pages of parameters.

    With a batch norm of vectors, too.
    """
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(128, 250),
        nn.BatchNorm1d(250),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(250, 4),
    )


def one_number():
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0))


class Tied(nn.Module):
    """Both layers have one weight; there is a constant buffer and a frozen parameter."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.last = nn.Linear(6, 3)
        self.shift = nn.Parameter(torch.arange(6.0), requires_grad=False)
        self.register_buffer("factor", torch.tensor([2.0]))

    def forward(self, x):
        return self.last(
            torch.tanh(self.second(torch.tanh(self.first(x) * self.factor))) + self.shift
        )


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Odd(nn.Module):
    """Modules that are called twice or not at all, or give no tensor."""

    def __init__(self):
        super().__init__()
        self.twice, self.never, self.pair = nn.Linear(6, 6), nn.Linear(6, 6), Pair()
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.pair(self.twice(self.twice(x)))[0])


class Wrong(nn.Module):
    """Linear, after something that no module may do."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.count = 0

    def forward(self, x):
        return self.linear(self.wrong(x))

    def wrong(self, x):
        return x


class Clips(Wrong):
    def wrong(self, x):
        self.linear.weight.data.clamp_(-0.01, 0.01)
        return x


class Counts(Wrong):
    def wrong(self, x):
        self.count += 1
        return x * self.count


class CountsInABuffer(Wrong):
    def wrong(self, x):
        self.calls += 1
        return x


class Replaces(Wrong):
    def wrong(self, x):
        self.calls = self.calls + 1
        return x


class DrawsElsewhere(Wrong):
    def wrong(self, x):
        return x * float(np.random.default_rng().random())


class NotDeterministic(Wrong):
    def wrong(self, x):
        # Only in training, so that the network can be made.
        places = torch.zeros(1, dtype=torch.int64)
        return x.clone().put_(places, x[0, :1]) if self.training else x


class Detaches(Wrong):
    def forward(self, x):
        return self.linear(x).detach()


class NotFinite(Wrong):
    def wrong(self, x):
        return x / 0 if self.training else x


class Fails(Wrong):
    def wrong(self, x):
        raise KeyError("nothing here")


class LooksUp(Wrong):
    def wrong(self, x):
        return x + torch.zeros(3)[x[:, :1].abs().long()]


class ReplacesGradients(Wrong):
    def __init__(self):
        super().__init__()
        self.linear.weight.register_post_accumulate_grad_hook(self.replace)

    def replace(self, weight):
        weight.grad = weight.grad * 2


class WithoutItsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return self.linear(x)


class TwiceNormalised(WithoutItsNorm):
    def forward(self, x):
        return self.linear(self.norm(self.norm(x)))


def on_meta():
    return nn.Linear(6, 3, device="meta")


def of_complex_numbers():
    return nn.Sequential(nn.Linear(6, 3, dtype=torch.complex64))


def takes_arguments(width):
    return nn.Linear(6, width)


def no_module():
    return {"weight": 1}


def too_wide():
    return nn.Linear(6, 4)


def two_outputs():
    return nn.LSTM(6, 3)


def lazy():
    return nn.LazyLinear(3)


def no_momentum():
    return nn.Sequential(nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 3))


def no_running_moments():
    return nn.Sequential(nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3))


def nothing_to_train():
    return plain().requires_grad_(False)


_sizes = count(5)


def other_each_time():
    width = next(_sizes)
    return nn.Sequential(nn.Linear(6, width), nn.Linear(width, 3))


NOT_CALLABLE = 3
