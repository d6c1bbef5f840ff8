"""Linear models with one output: linear and logistic regression, and the linear SVM."""

import copy
from typing import ClassVar, Self

import numpy as np

from mapreduce.data.batch import Batch, Csr
from mapreduce.models.base import Array, Model, Parameter
from mapreduce.models.context import Context
from mapreduce.reduction.vectors import DENSITY, SparseVector, Vector


class LinearModel(Model):
    """``x @ weight + bias`` with a loss of this score; starts from zeros.

    Takes dense and sparse rows. The gradient of sparse rows is sparse, if they have few columns.

    Attributes
    ----------
    loss : str
        See :func:`kernels.cpu.linear.linear_loss`.
    """

    takes_sparse = True
    # The scores, which are few, are used on the host between two kernels.
    stays_on_device = False
    loss: ClassVar[str]
    #: Second derivative of the loss by the score, where the score is 0.
    second: ClassVar[float]

    def _parameters(self) -> list[Parameter]:
        return [Parameter("weight", (self.features,)), Parameter("bias", (1,), "bias")]

    def init(self, seed: int) -> Array:
        # The loss is convex: every starting point leads to the same minimum.
        return np.zeros(self.size, self.dtype)

    def gradient(self, params: Array, batch: Batch, out: Array, context: Context) -> float:
        delta, loss = self._derivative(params, batch, context)
        weight_grad, bias_grad = self.views(out)
        features = batch.features
        if isinstance(features, Csr):
            self._kernel("csr_gradient")(*self._entries(features), delta, weight_grad)
            self._rescale(weight_grad, batch.scale)
            bias_grad[0] = delta.sum()
        else:
            x = self._inputs(params, batch, context)
            column = self._stored(delta.reshape(-1, 1), params, context)
            self._kernel("affine_gradient")(x, column, weight_grad.reshape(-1, 1), bias_grad)
        return loss

    def sparse_gradient(
        self, params: Array, batch: Batch, context: Context
    ) -> tuple[float, Vector] | None:
        features = batch.features
        if not isinstance(features, Csr):
            return None
        entries = int(features.indptr[-1] - features.indptr[0])
        if entries > DENSITY * self.size:
            return None
        delta, loss = self._derivative(params, batch, context)
        indices, values = self._kernel("csr_gradient_sparse")(
            *self._entries(features), delta, self.features
        )
        self._rescale(values, batch.scale)
        # The bias is the last element.
        return loss, SparseVector(
            np.append(indices, np.int32(self.features)),
            np.append(values, delta.sum()),
            self.size,
        )

    def curvature(self, batch: Batch) -> Array:
        # In double precision: float32 may hold the features and not their squares.
        weights = np.ones(batch.rows) if batch.weights is None else batch.weights
        delta = self.second * weights
        features = batch.features
        if isinstance(features, Csr):
            indptr, indices, values = self._entries(features)
            entries = slice(indptr[0], indptr[-1])
            squares = np.square(values[entries], dtype=np.float64)
            squares *= np.repeat(delta, np.diff(indptr))
            out = np.bincount(indices[entries], squares, self.size) * batch.scale**2
        else:
            x = self._inputs(np.empty(0, self.dtype), batch, Context())
            out = np.append(np.einsum("i,ij,ij->j", delta, x, x, dtype=np.float64), 0.0)
        out[-1] = delta.sum()
        return out

    def _derivative(self, params: Array, batch: Batch, context: Context) -> tuple[Array, float]:
        """The loss's derivative by each row's score, (rows,), and its sum over the rows.

        Both are times the rows' weights. A model with a loss of its own overrides this method.
        """
        scores = self._scores(params, batch, context)
        loss: float = self._kernel("linear_loss")(self.loss, scores, batch.labels, batch.weights)
        return scores, loss

    def of_logits(self) -> Self:
        found = copy.copy(self)
        vars(found)["_scores"] = lambda params, batch, context: np.array(batch.features[:, -1])
        return found

    def _scores(self, params: Array, batch: Batch, context: Context) -> Array:
        """(rows,), in the workspace's memory."""
        weight, bias = self.views(params)
        out = context.workspace.array("scores", (batch.rows, 1), self.dtype)
        features = batch.features
        if isinstance(features, Csr):
            if batch.scale != 1.0:
                weight = weight * self.dtype.type(batch.scale)
            scores = out[:, 0]
            self._kernel("csr_scores")(*self._entries(features), weight, bias[0], scores)
            return scores
        x = self._inputs(params, batch, context)
        self._kernel("affine")(x, weight.reshape(-1, 1), bias, out, relu=False)
        return out[:, 0]

    def _rescale(self, sums: Array, scale: float) -> None:
        if scale != 1.0:
            sums *= self.dtype.type(scale)
            # An underflow gives 0.0 and not -0.0, as elements that a sparse vector lacks.
            sums += 0

    def _entries(self, rows: Csr) -> tuple[Array, Array, Array]:
        return rows.indptr, rows.indices, rows.values.astype(self.dtype, copy=False)


class BinaryModel(LinearModel):
    """A linear classifier of two classes; the second is predicted if the score is above 0."""

    binary = True

    def probabilities(self, params: Array, batch: Batch, context: Context) -> Array:
        probabilities = context.workspace.array("probabilities", (batch.rows, 2), self.dtype)
        scores = self._scores(params, batch, context)
        probabilities[:, 1] = self._kernel("sigmoid")(scores.copy())
        probabilities[:, 0] = self._kernel("sigmoid")(np.negative(scores, out=scores))
        return probabilities

    def logits(self, params: Array, batch: Batch, context: Context) -> Array:
        scores = self._scores(params, batch, context)
        logits = context.workspace.array("logits", (batch.rows, 2), self.dtype)
        logits[:, 0] = 0
        logits[:, 1] = scores
        return logits

    def score(self, params: Array, batch: Batch, context: Context) -> tuple[float, int]:
        scores = self._scores(params, batch, context)
        correct = int(np.count_nonzero((scores > 0) == (batch.labels == 1)))
        loss: float = self._kernel("linear_loss")(self.loss, scores, batch.labels, batch.weights)
        return loss, correct


class Logistic(BinaryModel):
    """Logistic regression: cross-entropy of two classes.

    A subclass with another loss has a method ``_derivative``, as for :class:`Linear`, and a method
    :meth:`score`.
    """

    loss = "logistic"
    second = 0.25


class LinearSvm(BinaryModel):
    """Linear support vector machine with the squared hinge loss, which has a derivative.

    Its probabilities are those of a logistic model with the same scores; they are not calibrated.
    """

    loss = "squared_hinge"
    second = 2.0


class HingeSvm(BinaryModel):
    """Linear support vector machine with the hinge loss, by its subgradient.

    For probabilities see :class:`LinearSvm`.
    """

    loss = "hinge"
    # It has none; this is that of a parabola of the same height.
    second = 1.0


class Linear(LinearModel):
    """Linear regression: half the squared error.

    A subclass with another loss has a method ``_derivative(params, batch, context)``. It returns
    the derivatives with respect to the scores, (rows,), and the sum of the losses, both times the
    rows' weights. :meth:`score` calls ``_derivative``, so no other method is needed. Losses are
    computed on the host, also with ``--device cuda``.
    """

    regression = True
    loss = "squared"
    second = 1.0

    def logits(self, params: Array, batch: Batch, context: Context) -> Array:
        """The predictions, (rows, 1)."""
        return self._scores(params, batch, context).reshape(-1, 1)

    def score(self, params: Array, batch: Batch, context: Context) -> tuple[float, int]:
        """Sum of the losses, and 0."""
        return self._derivative(params, batch, context)[1], 0
