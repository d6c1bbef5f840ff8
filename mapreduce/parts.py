"""The door for parts of one's own: all that a model, an optimizer, a schedule, a reader, a
strategy, a program, an executor, a runner or a callback of somebody else's is made of.

``from mapreduce.parts import Model`` is the same class as in the module of ``mapreduce`` that has
it. Other modules may change with any version, and these names do not. Each of them loads its module
when it is asked for.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

from mapreduce.support.suggest import unknown_name

if TYPE_CHECKING:
    # The one list of the modules, which ``_places`` reads, too.
    from mapreduce.data.batch import Batch, Csr
    from mapreduce.data.importer import Rows, Source
    from mapreduce.data.shards import Dataset
    from mapreduce.data.slices import Slices
    from mapreduce.engine.executor import QUIET, WHOLE, Executor, Hooks, Limit, Times

    # isort: split
    from mapreduce.engine.earlier import block_key, block_of
    from mapreduce.engine.executor import blocks_of, reduced
    from mapreduce.engine.leaf_ranges import LeafRange, leaf_ranges
    from mapreduce.engine.program import Concluding, EndsEarly, InBlocks, Owning, Stateful

    # isort: split
    from mapreduce.engine.program import Layout, Phase, Program, Round, Task, built, is_over
    from mapreduce.engine.state import InFolder, InMemory, State
    from mapreduce.engine.sums import ExactSum, Monoid, Sum
    from mapreduce.executors.chain import ChainJob
    from mapreduce.executors.here import Here
    from mapreduce.executors.resumable import Resumable
    from mapreduce.models.base import Model, Parameter
    from mapreduce.models.context import Context
    from mapreduce.models.fitted import Estimator, FittedModel, TrainedOn
    from mapreduce.models.layers.activation import GELU, LeakyReLU, ReLU, Sigmoid, Tanh
    from mapreduce.models.layers.convolution import Conv
    from mapreduce.models.layers.dense import Dense
    from mapreduce.models.layers.dropout import Dropout
    from mapreduce.models.layers.embedding import Embedding
    from mapreduce.models.layers.normalisation import BatchNorm, LayerNorm
    from mapreduce.models.layers.pooling import AveragePool, GlobalAveragePool, MaxPool
    from mapreduce.models.layers.recurrent import GRU, LSTM, RNN, Last
    from mapreduce.models.layers.residual import Residual
    from mapreduce.models.linear import Linear, Logistic
    from mapreduce.models.mlp import MLP
    from mapreduce.models.softmax import Softmax
    from mapreduce.optim.contract import GlobalTransformation, Transformation
    from mapreduce.optim.contract import Options as OptimizerOptions
    from mapreduce.optim.members import OptimizerFactory, elementwise
    from mapreduce.optim.transforms import chain, scale_by_adagrad, scale_by_adam, trace
    from mapreduce.plan.flags import PLAN
    from mapreduce.reduction.aggregator import VectorSum
    from mapreduce.reduction.message import Message
    from mapreduce.reduction.tree import PAGE, Node, TreeFold
    from mapreduce.reduction.vectors import dense
    from mapreduce.runners.parallel.runner import ParallelMRJobRunner
    from mapreduce.runners.parallel.traits import PARALLEL
    from mapreduce.runs import events
    from mapreduce.runs.execution import Execution
    from mapreduce.runs.flags import EXECUTION, PROFILE
    from mapreduce.strategies.base import Strategy
    from mapreduce.support.blas import in_one_thread
    from mapreduce.support.options import POSITIVE, Bound, between, option
    from mapreduce.support.traits import Costs, Traits
    from mapreduce.training.console import start as start_training


# fmt: off
__all__ = [
    "EXECUTION", "GELU", "GRU", "LSTM", "MLP", "PAGE", "PARALLEL", "PLAN", "POSITIVE", "PROFILE",
    "QUIET", "RNN", "WHOLE", "AveragePool", "Batch", "BatchNorm", "Bound", "ChainJob", "Concluding",
    "Context", "Conv", "Costs", "Csr", "Dataset", "Dense", "Dropout", "Embedding", "EndsEarly",
    "Estimator", "ExactSum", "Execution", "Executor", "FittedModel", "GlobalAveragePool",
    "GlobalTransformation", "Here", "Hooks", "InBlocks", "InFolder", "InMemory", "Last",
    "LayerNorm", "Layout", "LeafRange", "LeakyReLU", "Limit", "Linear", "Logistic", "MaxPool",
    "Message", "Model", "Monoid", "Node", "OptimizerFactory", "OptimizerOptions", "Owning",
    "ParallelMRJobRunner", "Parameter", "Phase", "Program", "ReLU", "Residual", "Resumable",
    "Round", "Rows", "Sigmoid", "Slices", "Softmax", "Source", "State", "Stateful", "Strategy",
    "Sum", "Tanh", "Task", "Times", "TrainedOn", "Traits", "Transformation", "TreeFold",
    "VectorSum", "between", "block_key", "block_of", "blocks_of", "built", "chain", "dense",
    "elementwise", "events", "in_one_thread", "is_over", "leaf_ranges", "option", "reduced",
    "scale_by_adagrad", "scale_by_adam", "start_training", "trace",
]
# fmt: on


@cache
def _places() -> dict[str, Any]:
    """The module of each name, and the name there, as the imports above have them."""
    # Loaded here alone: who imports no name does not wait for it.
    import ast

    source = __spec__.loader.get_source(__name__)  # type: ignore[union-attr]
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return {each.asname or each.name: (n.module, each.name) for n in imports for each in n.names}


if not TYPE_CHECKING:
    # Type checkers would take any name for one of these.
    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise unknown_name(__name__, name, __all__)
        module, inner = _places()[name]
        return getattr(__import__(module, fromlist=[inner]), inner)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
