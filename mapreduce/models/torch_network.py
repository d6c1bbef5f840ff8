"""A PyTorch module as a function of a flat vector: tensors, batch norms, random numbers.

All of it is meant for one thread at a time: the module has one set of tensors, and torch's settings
and random state are the process's.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NoReturn

import numpy as np

from mapreduce.errors import BadRowError, GradreduceError, MemberError, UsageError
from mapreduce.models.base import Array, Parameter
from mapreduce.models.context import NOWHERE, Key
from mapreduce.reduction.aggregator import MOMENTS, moments

try:
    import torch
except ImportError as error:
    raise UsageError(
        f"--model torch needs PyTorch ({error}). Install it: pip install 'gradreduce[torch]'"
    ) from error

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

#: What batch norm keeps: the moments are buffers of ours, the number of forward passes is not.
_RUNNING, _PASSES = ("running_mean", "running_var"), "num_batches_tracked"


def pin() -> None:
    """Have torch compute the same bits in every process of a run.

    One thread is also what lets a process be forked after torch has computed in it: with more, the
    threads of its pool are missing in the fork, which waits for them for ever. Users of torch in
    the same process may have set other values since the last call.
    """
    torch.set_num_threads(1)
    # As use_deterministic_algorithms(True), which takes seconds to import a compiler.
    if torch.get_deterministic_debug_mode() != 2:
        torch.set_deterministic_debug_mode("error")
    backend = torch.backends.mkldnn
    backend.deterministic = True
    for products in (backend.matmul, backend.conv, backend.rnn):
        products.fp32_precision = "ieee"


pin()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's random numbers; afterwards they go on as if nothing had been drawn."""
    # That of the CPU alone: torch.manual_seed formats the stack to seed GPUs later.
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(before)


def seed_of(key: Key) -> int:
    """64 bits for torch's generator, of which that of the CPU takes the lower 32."""
    return int.from_bytes(hashlib.sha256(repr(tuple(key)).encode()).digest()[:8])


class Network:
    """A module whose parameters are parts of one vector, and their gradients of another.

    ``name``: ``MODULE:NAME`` of the factory, for messages.
    ``outputs``: Columns of the output.

    ``parameters``: Under torch's names, in the order of the modules: trained parameters; frozen
      ones and the running moments of batch norms as buffers. What is shared by several modules is
      there once.
    ``flat``: array (size,). Memory of the parameters, which begins where torch aligns its own.
    ``norms``: The batch norms, by the names of their moments.
    ``is_checked``: For the caller: whether a gradient was compared with its repetition.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], object],
        shape: tuple[int, ...],
        outputs: int,
        dtype: np.dtype[Any],
    ) -> None:
        self._name, self._make, self._dtype = name, make, dtype
        # An image of one channel has no axis for it.
        self._shape = (1, *shape) if len(shape) == 2 else shape
        self.outputs = outputs
        self._float: torch.dtype = getattr(torch, dtype.name)
        pin()
        self._module = self.made()
        self._tensors = self.tensors(self._module)
        self.parameters = [
            Parameter(one, tuple(tensor.shape), _role(one, tensor))
            for one, tensor in self._tensors.items()
        ]
        ends = [*accumulate((one.numel() for one in self._tensors.values()), initial=0)]
        self._parts = [slice(*pair) for pair in pairwise(ends)]
        memory = torch.empty(ends[-1], dtype=self._float)
        self.flat: Array = memory.numpy()
        for one, part in zip(self._tensors.values(), self._parts, strict=True):
            memory[part] = one.detach().reshape(-1)
            one.data = memory[part].view(one.shape)
        # Modules keep their tensors in these; to walk through the modules takes longer.
        self._held = [
            (f"{path}." * bool(path), tensors)
            for path, one in self._module.named_modules()
            for tensors in (one._parameters, one._buffers)
        ]
        self._bound: tuple[object, ...] | None = None
        self._inputs = torch.empty(0, dtype=self._float)
        self._mode: tuple[bool, bool] | None = None
        self.norms = dict(_norms(self._module))
        self._trained: set[str] = set()
        self._moments: dict[str, Array] | None = None
        for one, norm in self.norms.items():
            norm.register_forward_pre_hook(self._hook(one))
            # In training it then takes the moments of its input, and changes no buffer.
            norm.track_running_stats = False
        self.is_checked = False
        self._check_output()

    def refuse(self, what: str) -> NoReturn:
        raise MemberError(f"--model torch:{self._name}: {what}")

    # The module

    def made(self) -> nn.Module:
        """A new module of the factory, in the network's dtype."""
        try:
            module = self._make()
        except Exception as error:
            self.refuse(
                f"expected a function or class without arguments that returns a torch.nn.Module, "
                f"but it raised {type(error).__name__}: {error}"
            )
        if not isinstance(module, nn.Module):
            self.refuse(f"expected a torch.nn.Module, found {module!r:.60}")
        for name, tensor in module.named_parameters():
            if is_lazy(tensor):
                self.refuse(f"{name} has no shape before the first forward pass: give its sizes")
            if not tensor.is_floating_point() or tensor.device.type != "cpu":
                self.refuse(
                    f"expected real numbers on the CPU, found {name} of {tensor.dtype} on "
                    f"{tensor.device}"
                )
        return module.to(self._float)

    def tensors(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """The tensors of a module that are parts of the flat vector."""
        found: dict[str, torch.Tensor] = {}
        known = set()
        for path, one in module.named_modules():
            prefix = f"{path}." if path else ""
            own: dict[str, Any] = dict(one.named_parameters(recurse=False))
            if isinstance(one, _BatchNorm):
                self._check_norm(path, one)
                own |= {name: getattr(one, name) for name in _RUNNING}
            for name, tensor in own.items():
                if id(tensor) not in known:
                    known.add(id(tensor))
                    found[prefix + name] = tensor
        if not any(tensor.requires_grad for tensor in found.values()):
            self.refuse("it has no parameter to train")
        return found

    def _check_norm(self, path: str, norm: _BatchNorm) -> None:
        if norm.momentum is None or norm.running_mean is None:
            found = "track_running_stats=False" if norm.running_mean is None else "momentum=None"
            self.refuse(
                f"the batch norm {path} has {found}: expected running moments that follow the "
                f"rounds by a number, such as momentum=0.1"
            )

    def _check_output(self) -> None:
        """Refuse a module that does not take rows, or does not give what the loss is taken of."""
        taken = f"(2, {', '.join(map(str, self._shape))})"
        expected = f"(2, {self.outputs})"
        self.rows(2)[:] = 0
        try:
            with torch.no_grad():
                found = self.forward(2, training=False)
        except Exception as error:
            self.refuse(
                f"expected an output {expected} for rows {taken} of {self._dtype}, but it raised "
                f"{type(error).__name__}: {error}{self._flat_advice()}"
            )
        if not isinstance(found, torch.Tensor):
            self.refuse(f"expected a tensor {expected} for rows {taken}, found {found!r:.60}")
        shapes = [(2, self.outputs), *([(2,)] if self.outputs == 1 else [])]
        if tuple(found.shape) not in shapes or found.dtype != self._float:
            self.refuse(
                f"expected an output {expected} of {self._dtype} for rows {taken}, found "
                f"{tuple(found.shape)} of {str(found.dtype).removeprefix('torch.')}"
                f"{self._flat_advice()}"
            )

    def _flat_advice(self) -> str:
        """What to write if the module takes the rows as vectors."""
        with contextlib.suppress(Exception), torch.no_grad():
            found = self._module(self._inputs[:2].flatten(1))
            if len(self._shape) > 1 and tuple(found.shape) == (2, self.outputs):
                return ". It takes flat rows: put torch.nn.Flatten() before its first layer"
        return ""

    def state(self) -> dict[str, Array]:
        """The module's ``state_dict``, under all names of what is shared; no copies."""
        return {name: one.numpy() for name, one in self._module.state_dict().items()}

    # Parameters and gradients

    def bind(self, params: Array, key: Key) -> None:
        """Take parameters (size,): one copy for all slices of a round.

        The copy has the same place relative to the processor's cache lines in every process, on
        which products may depend, and a module that writes to it does no harm.
        """
        binding = (params, key.round, key.replica, key.step)
        known = self._bound
        if known is None or key == NOWHERE or known[0] is not params or known[1:] != binding[1:]:
            np.copyto(self.flat, params)
            self._bound = None if key == NOWHERE else binding

    @contextlib.contextmanager
    def gradients(self, out: Array) -> Iterator[None]:
        """Have backward passes add to ``out`` (size,), which must outlive this context alone."""
        views = {}
        for (name, tensor), part in zip(self._tensors.items(), self._parts, strict=True):
            if tensor.requires_grad:
                views[name] = tensor.grad = torch.from_numpy(out[part]).view(tensor.shape)
        try:
            yield
            for name, view in views.items():
                found = self._tensors[name].grad
                if found is None or found.data_ptr() != view.data_ptr():
                    self.refuse(f"it replaces the gradient of {name}, which is added up by torch")
        finally:
            for name in views:
                self._tensors[name].grad = None

    # Passes

    def rows(self, rows: int) -> Array:
        """Memory (rows, features) for the rows of the next forward pass."""
        if len(self._inputs) < rows:
            self._inputs = torch.empty((rows, *self._shape), dtype=self._float)
        memory: Array = self._inputs[:rows].view(rows, -1).numpy()
        return memory

    def outputs_of(self, rows: int, training: bool, moments: dict[str, Array] | None = None) -> Any:
        """As :meth:`forward`; a :class:`BadRowError` names a row for which the module fails."""
        try:
            return self.forward(rows, training, moments)
        except GradreduceError:
            raise
        except Exception as error:
            # What is not deterministic is not so for any row.
            if "deterministic" in str(error):
                raise
            raised = f"it raised {type(error).__name__}: {error}"
            self._set_mode(training=False, is_single=True)
            for row in range(rows):
                try:
                    self._module(self._inputs[row : row + 1])
                except Exception:
                    message = f"--model torch:{self._name}: {raised}"
                    raise BadRowError(message, row) from error
            self.refuse(f"{raised}, for {rows} rows and for none of them alone")

    def named_modules(self) -> dict[str, str]:
        """The modules within the module by name, and the class of each."""
        return {path: type(one).__name__ for path, one in self._module.named_modules() if path}

    def module_outputs(self, rows: int, name: str) -> torch.Tensor:
        """The output of a module within the module, a tensor (rows, n); see :meth:`outputs_of`."""
        found: list[Any] = []
        hook = self._module.get_submodule(name).register_forward_hook(
            # What comes after it may write over its output.
            lambda one, inputs, output: found.append(
                output.clone() if isinstance(output, torch.Tensor) else output
            )
        )
        try:
            self.outputs_of(rows, training=False)
        finally:
            hook.remove()
        if len(found) != 1:
            self.refuse(f"{name} is called {len(found)} times in a forward pass: expected once")
        (output,) = found
        if not isinstance(output, torch.Tensor) or output.shape[:1] != (rows,):
            shown = tuple(output.shape) if isinstance(output, torch.Tensor) else f"{output!r:.60}"
            self.refuse(f"{name} gives {shown}: expected a tensor of {rows} rows")
        return output.reshape(rows, -1)

    def forward(self, rows: int, training: bool, moments: dict[str, Array] | None = None) -> Any:
        """The module's output for the memory that :meth:`rows` gave.

        ``moments`` gets those of the inputs of all batch norms; a count of 0 for one that was not
        called, or does not train.
        """
        self._set_mode(training, rows == 1)
        before = self._stamps()
        self._moments = moments
        try:
            output = self._module(self._inputs[:rows])
        finally:
            self._moments = None
        if changed := before ^ self._stamps():
            self.refuse(
                f"{min(changed)[0]} changes in a forward pass. The rows of a round are divided "
                f"among processes: only the running moments of a batch norm may follow them"
            )
        if moments is not None:
            for name, norm in self.norms.items():
                moments.setdefault(name, np.zeros(1 + 2 * norm.num_features))
        return output

    def _set_mode(self, training: bool, is_single: bool) -> None:
        """A single row has no variance: it is normalised by the running moments."""
        mode = training, training and is_single
        if mode == self._mode:
            return
        self._module.train(training)
        # A module may keep some of its batch norms from training.
        self._trained = {name for name, norm in self.norms.items() if norm.training}
        if mode[1]:
            for norm in self.norms.values():
                norm.eval()
        self._mode = mode

    def _stamps(self) -> set[tuple[str, int, int]]:
        """What changes if a parameter or buffer is replaced or written to."""
        return {
            (prefix + name, id(tensor), tensor._version)
            for prefix, tensors in self._held
            for name, tensor in tensors.items()
            if tensor is not None
        }

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def note(norm: nn.Module, inputs: tuple[Any, ...]) -> None:
            if self._moments is None or name not in self._trained:
                return
            if name in self._moments:
                self.refuse(
                    f"the batch norm {name.removeprefix(MOMENTS)} is called twice in a forward "
                    f"pass, so that its moments are those of neither place. Make two of them"
                )
            self._moments[name] = _moments_of(inputs[0].detach())

        return note


def _moments_of(x: Any) -> Array:
    """Moments of the channels of a tensor (rows, channels, ...)."""
    columns = x.transpose(0, 1).flatten(1).double()
    means = columns.mean(1)
    squares = (columns - means[:, None]).square_().sum(1)
    return moments(columns.shape[1], means.numpy(), squares.numpy())


def _norms(module: nn.Module) -> Iterator[tuple[str, _BatchNorm]]:
    for path, one in module.named_modules():
        if isinstance(one, _BatchNorm):
            yield MOMENTS + path, one


def _role(name: str, tensor: torch.Tensor) -> Any:
    if not tensor.requires_grad:
        return "buffer"
    # As bias, or bias_ih_l0 of a recurrent layer.
    return "bias" if name.rpartition(".")[2].startswith("bias") else "weight"


@lru_cache(maxsize=2)
def network(
    name: str, make: Callable[[], object], shape: tuple[int, ...], outputs: int, dtype: str
) -> Network:
    """A network, which a process makes once: models are made often, and modules may be large."""
    return Network(name, make, shape, outputs, np.dtype(dtype))
