"""Plain modules as programs, without torch.export, whose import takes longer than most exports.

A module runs once with its example inputs, and every operator it calls is noted as torch.export
notes it: before PyTorch takes it apart. Whatever is not plain raises Untraced, and torch.export
does it: inputs that are no tensors, tensors that are neither inputs nor parameters nor buffers,
attributes that change, control flow, other devices than the CPU, and values that are read in Python
and depend on inputs. Those that do not, such as sizes kept in buffers, are what they are.
"""

from __future__ import annotations

import inspect
import operator
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._export.utils import _compiling_state_context
from torch._export.verifier import TrainingIRVerifier
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import CodeGen
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tosaic.front.torchapi.nodes import sweep
from tosaic.front.torchapi.operators import is_repeatable
from tosaic.front.torchapi.standin import stand_in, zeros_of_layer

_TORCH, _CPU = os.path.dirname(torch.__file__), torch.device("cpu")
_SKIPPED = tuple(
    os.path.join(_TORCH, *path)
    for path in (("_ops.py",), ("_library",), ("utils",), ("nn", "functional.py"),
                 ("nn", "modules", "module.py"), ("_jit_internal.py",))
)  # fmt: skip
_DEPENDENT = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape
_REFRESHED = {"_flat_weights", "_flat_weight_refs"}  # lists of a layer's own parameters
_READING = frozenset(("aten.item.default", "aten.is_nonzero.default", "aten.equal.default",
                      "aten._local_scalar_dense.default"))  # fmt: skip
_UNSEEN = torch.Tag.inplace_view  # a tensor would change its sizes behind our back


class Untraced(Exception):
    """Something that is left to torch.export."""


def traced(module: nn.Module, args: tuple[Any, ...]) -> ExportedProgram:
    """A module in inference mode as torch.export's program of it; Untraced if it is not plain."""
    try:
        return _Trace(module, args).program()
    except Untraced:
        raise
    except (Exception, SystemExit) as problem:  # torch.export has the last word
        raise Untraced(str(problem)) from problem


class TracedProgram(ExportedProgram):
    """A program that is not checked, since that loads an algebra system.

    Nothing calls its module as a function of Python: its code is written when something does.
    """

    def __init__(self, root: nn.Module, graph: fx.Graph, *args: Any, **kwargs: Any) -> None:
        super().__init__(root, fx.Graph(), *args, **kwargs)
        graph.set_codegen(CodeGen())
        self._graph_module = _LazyGraphModule(root, graph)
        self._graph_module.meta.update(getattr(root, "meta", {}))

    def _validate(self) -> None:  # type: ignore[misc]
        """It is as it was traced."""


class _Traced(Tensor):
    """A value of the run, and the node that makes it."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    value: Tensor
    node: fx.Node

    @staticmethod
    def __new__(cls, value: Tensor, node: fx.Node) -> _Traced:
        made: _Traced = Tensor._make_wrapper_subclass(
            cls, value.size(), strides=value.stride(), dtype=value.dtype, device=_CPU
        )
        made.value, made.node = value, node
        return made

    def __init__(self, value: Tensor, node: fx.Node) -> None:
        """All is said in ``__new__``."""

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{self.node.name}: {tuple(self.shape)}, {self.dtype}"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise Untraced(f"{func} is called beside the run")


class _Recorder(SchemaCheckMode):  # type: ignore[no-untyped-call]
    """Runs each operator for real and notes it; torch lets few modes see operators whole."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # that would import it

    def __init__(self, graph: fx.Graph) -> None:
        key = torch._C.DispatchKey.PreDispatch
        TorchDispatchMode.__init__(self, key)  # type: ignore[no-untyped-call]
        self.graph = graph
        self.given: set[int] = set()  # memory of inputs, parameters and buffers
        self.names: set[str] = set()
        self.varying: set[fx.Node] = set()  # what depends on an input, or on chance
        self.mixed = False  # whether such has been written into what may have depended on none
        self.stack: list[tuple[str, tuple[str, str]]] = []

    def take(self, tensor: Tensor, name: str) -> _Traced:
        """A tensor that the program is given."""
        self.given.add(_memory(tensor))
        node = self.graph.placeholder(name)
        if node.name != name and name not in self.names:
            node.name = name  # torch.export gives arguments the names of Python's functions, too
        node.target = node.name
        self.names.add(node.name)
        node.meta["val"] = stand_in(tensor)
        return _Traced(tensor, node)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if str(func) in _READING and not self._may_vary(func, args):
            with torch._C._DisablePythonDispatcher():
                return func(*pytree.tree_map(lambda v: _real(v, {}), args))
        self._check(func, args, kwargs)
        positional, named = pytree.tree_map(_node, (args, kwargs))
        name = func.overloadpacket.__name__
        node = self.graph.create_node("call_function", func, positional, named, name=name)
        node.meta["nn_module_stack"] = dict(self.stack)
        node.meta["stack_trace"] = _stack_trace()
        if self.varying.intersection(node.all_input_nodes) or not is_repeatable(func):
            self.varying.add(node)
            self.mixed |= func._schema.is_mutable
        same: dict[int, _Traced] = {}
        with torch._C._DisablePythonDispatcher():
            plain, named = pytree.tree_map(lambda v: _real(v, same), (args, kwargs))
            result = zeros_of_layer(func, plain) if node in self.varying else None
            result = func(*plain, **named) if result is None else result
        return self._results(node, result, same)

    def _check(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if _UNSEEN in func.tags or (_depends_on_values(func, args) and self._may_vary(func, args)):
            raise Untraced(f"{func} depends on values, or changes sizes in place")
        if torch.is_autocast_enabled("cpu"):
            raise Untraced("types are chosen by autocast")
        if not func._schema.is_mutable:
            return
        for argument, value in zip(func._schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write and (
                not isinstance(value, _Traced) or _memory(value.value) in self.given
            ):  # fmt: skip
                raise Untraced(f"{func} writes to what the program is given")
        if any(isinstance(value, Tensor) for value in kwargs.values()):
            raise Untraced(f"{func} may write to an argument by name")

    def _may_vary(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether another input could give a result of another size."""
        deciding = args[1] if func is torch.ops.aten.index.Tensor else args
        given = (v for v in pytree.tree_leaves(deciding) if isinstance(v, _Traced))
        return self.mixed or any(value.node in self.varying for value in given)

    def _results(self, node: fx.Node, result: Any, same: Mapping[int, _Traced]) -> Any:
        """The results as values of the run; what was given back is now what the node makes."""
        if isinstance(result, Tensor):
            node.meta["val"] = stand_in(result)
            made = same.get(id(result))
            if made is None:
                return _Traced(result, node)
            made.node = node
            return made
        if not isinstance(result, (list, tuple)) or not all(isinstance(r, Tensor) for r in result):
            raise Untraced(f"{node.target} does not give tensors alone")
        parts = []
        for index, part in enumerate(result):
            item = self.graph.call_function(operator.getitem, (node, index))
            item.meta |= {k: node.meta[k] for k in ("nn_module_stack", "stack_trace")}
            self.varying |= {item} if node in self.varying else set()
            parts.append(self._results(item, part, same))
        node.meta["val"] = type(result)(part.node.meta["val"] for part in parts)
        return type(result)(parts)


class _Trace:
    def __init__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if isinstance(module, (fx.GraphModule, torch.jit.ScriptModule)):
            raise Untraced("a module of this kind has been traced before")
        self.module, self.args = module, args
        self.graph = fx.Graph()
        self.recorder = _Recorder(self.graph)
        self.inputs: list[InputSpec] = []
        self.state: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}

    def program(self) -> ExportedProgram:
        held = self._hold()
        leaves, in_spec = pytree.tree_flatten((self.args, {}))
        given = [self._input(leaf, name) for leaf, name in zip(leaves, self._leaf_names())]
        values, _ = pytree.tree_unflatten(given, in_spec)
        result = self._run(held, values)
        outs, out_spec = pytree.tree_flatten(result)
        if not outs or not all(isinstance(out, _Traced) for out in outs):
            raise Untraced("a result is no tensor that was computed")
        self.graph.output(tuple(out.node for out in outs))
        sweep(self.graph)
        specs = [OutputSpec(OutputKind.USER_OUTPUT, _argument(out.node), None) for out in outs]
        call = ModuleCallSignature([], [], in_spec, out_spec, self._names())
        return TracedProgram(
            root=nn.Module(), graph=self.graph,
            graph_signature=ExportGraphSignature(self.inputs, specs), state_dict=self.state,
            range_constraints={}, module_call_graph=[ModuleCallEntry("", call)],
            constants=self.constants, verifiers=[TrainingIRVerifier],
        )  # fmt: skip

    def _hold(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, as values of the run."""
        made: dict[str, Tensor] = {}
        for name, parameter in self.module.named_parameters():
            made[name] = self._held(name, parameter, InputKind.PARAMETER, "p_")
            made[name]._is_param = True
            self.state[name] = parameter
        for name, tensor in self.module.named_buffers():
            parent, _, own = name.rpartition(".")
            lasts = own not in self.module.get_submodule(parent)._non_persistent_buffers_set
            made[name] = self._held(name, tensor, InputKind.BUFFER, "b_", lasts)
            (self.state if lasts else self.constants)[name] = tensor
        return made

    def _held(
        self, name: str, tensor: Tensor, kind: InputKind, prefix: str, lasts: bool | None = None
    ) -> _Traced:
        made = self.recorder.take(_plain(tensor), prefix + re.sub(r"[^a-zA-Z0-9]", "_", name))
        self.inputs.append(InputSpec(kind, _argument(made.node), name, lasts))
        return made

    def _input(self, value: Any, name: str) -> _Traced:
        made = self.recorder.take(_plain(value), name)
        self.recorder.varying.add(made.node)
        self.inputs.append(InputSpec(InputKind.USER_INPUT, _argument(made.node), None))
        return made

    def _names(self) -> list[str]:
        """The names of the arguments as the author of the module wrote them."""
        bound = inspect.signature(self.module.forward).bind(*self.args)
        kinds = {p.kind for p in bound.signature.parameters.values() if p.name in bound.arguments}
        if kinds - {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
            raise Untraced("arguments have no names")
        return list(bound.arguments)

    def _leaf_names(self) -> Iterator[str]:
        """A name for each tensor: its argument, and its place in there."""
        for name, value in zip(self._names(), self.args, strict=True):
            for path, _ in pytree.tree_flatten_with_path(value)[0]:
                parts = [re.sub(r"\W", "", pytree.keystr((key,))) for key in path]
                yield "_".join([name, *parts])

    def _run(self, held: dict[str, Tensor], values: tuple[Any, ...]) -> Any:
        before = dict(held)
        with ExitStack() as stack:
            for context in (
                torch.no_grad(), torch.random.fork_rng(devices=[]), _unchanged(self.module),
                _compiling_state_context(), _without_fast_paths(), self._placed(),
                _reparametrize_module(self.module, held, tie_weights=True),
                torch._C._EnablePythonDispatcher(), self.recorder,
            ):  # fmt: skip
                stack.enter_context(context)
            result = self.module(*values)
        if any(held[name] is not tensor for name, tensor in before.items()):
            raise Untraced("a parameter or buffer is replaced")
        return result

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """While modules say when they start and end: nodes tell which they are in."""
        stack, handles = self.recorder.stack, []
        for path, part in self.module.named_modules():
            kind = f"{type(part).__module__}.{type(part).__qualname__}"
            entry = f"L__self__{path}", (path, kind)
            handles += [
                part.register_forward_pre_hook(lambda *_, e=entry: stack.append(e), prepend=True),
                part.register_forward_hook(lambda *_: _ended(stack)),
            ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _ended(stack: list[Any]) -> None:
    stack.pop()


def _depends_on_values(func: Any, args: tuple[Any, ...]) -> bool:
    if func is torch.ops.aten.index.Tensor:  # with numbers as indices it does not
        return any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    return any(tag in func.tags for tag in _DEPENDENT)


def _argument(node: fx.Node) -> TensorArgument:
    return TensorArgument(name=node.name)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() or id(tensor)


def _plain(value: Any) -> Tensor:
    if type(value) not in (Tensor, nn.Parameter, nn.Buffer) or value.layout is not torch.strided:
        raise Untraced(f"{type(value).__name__} is no plain tensor")
    if value.device.type != "cpu" or value.is_quantized or value.is_complex():
        raise Untraced("a tensor is not on the CPU, or is not of plain numbers")
    plain: Tensor = value.detach()
    return plain


def _node(value: Any) -> Any:
    if isinstance(value, _Traced):
        return value.node
    if isinstance(value, Tensor):
        raise Untraced("a tensor is neither computed nor given")
    return value


def _real(value: Any, same: dict[int, _Traced]) -> Any:
    if isinstance(value, torch.device) and value.type != "cpu":
        raise Untraced(f"a value is on {value}")
    if not isinstance(value, _Traced):
        return value
    same[id(value.value)] = value
    return value.value


def _stack_trace() -> str:
    """Where in the user's source and in PyTorch's modules an operator is called."""
    lines = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not _Trace._run.__code__:
        code = frame.f_code
        if not code.co_filename.startswith(_SKIPPED):
            lines.append(f'File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}')
        frame = frame.f_back
    return "\n  ".join(reversed(lines))


@contextmanager
def _without_fast_paths() -> Iterator[None]:
    """Attention as it is written: its fast path in inference is one operator for all of it."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Untraced if attributes of modules change in a run; they are set back."""
    before = [(part.__dict__, dict(part.__dict__)) for part in module.modules()]
    inside: list[tuple[str, Any, Any]] = [
        (name, value, value.copy()) for _, attributes in before
        for name, value in attributes.items() if isinstance(value, (list, dict, set))
    ]  # fmt: skip
    try:
        yield
    finally:
        plain = all(_is_same(_kept(now), _kept(was)) for now, was in before) and all(
            name in _REFRESHED or _is_same(held, kept) for name, held, kept in inside
        )
        for now, was in before:
            if not _is_same(now, was):
                now.clear()
                now.update(was)
        for _, held, kept in inside:
            if not _is_same(held, kept):
                held.clear()
                held.extend(kept) if isinstance(held, list) else held.update(kept)
    if not plain:
        raise Untraced("an attribute of a module changes")


def _kept(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name not in _REFRESHED}


def _is_same(now: Any, was: Any) -> bool:
    if len(now) != len(was):
        return False
    if isinstance(now, set):
        return bool(now == was)
    if isinstance(now, list):
        return all(a is b for a, b in zip(now, was))
    return all(a == b and now[a] is was[b] for a, b in zip(now, was))
