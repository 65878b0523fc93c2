"""Programs of torch.export: made, read, copied, and turned into modules."""

from __future__ import annotations

import copy
import inspect
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from traceback import StackSummary, walk_tb
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.fx.proxy import TracerBase
from torch.nn.utils.rnn import PackedSequence

from tosaic.errors import InvalidInput, first_line
from tosaic.files import foreign
from tosaic.front.torchapi.forwards import Scripted, positional, unscripted
from tosaic.front.torchapi.indexing import gathering
from tosaic.front.torchapi.nodes import raised_at
from tosaic.front.torchapi.operators import bound_arguments, overload_of
from tosaic.front.torchapi.overloads import SHARING, plain_name
from tosaic.front.torchapi.standin import give_fakes
from tosaic.front.torchapi.tracing import Untraced, traced
from tosaic.front.torchapi.trees import register_dataclass
from tosaic.front.torchapi.tried import warn_if_untried
from tosaic.runtime.default_device import as_chosen

_SHAPES = "torch.fx.experimental.symbolic_shapes"  # a logger
_FAKES = "torch._subclasses.fake_tensor"  # another
_PLAIN_INPUTS = {
    InputKind.USER_INPUT,
    InputKind.PARAMETER,
    InputKind.BUFFER,
    InputKind.CONSTANT_TENSOR,
}


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    dynamic_shapes: Any = None,
    kwargs: dict[str, Any] | None = None,
) -> ExportedProgram:
    """torch.export in inference mode, or its reason in short; the module is left as it was.

    A number that Python reads from a tensor, as ``int(i)``, is known to its strict mode alone.
    """

    if isinstance(module, torch.jit.ScriptModule):
        module = Scripted(module.eval())

    def exported(strict: bool) -> ExportedProgram:
        with (
            torch.no_grad(), quiet(), _untold(), _inference(module), positional(module),
            gathering(module), unscripted(module), _whole_traces(), as_chosen(),
            _unvalidated(),
        ):  # fmt: skip
            return torch.export.export(
                module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict
            )

    try:
        return exported(strict=False)
    except (Exception, SystemExit) as problem:
        if "data-dependent" in first_line(problem):
            with suppress(Exception):
                return exported(strict=True)
        if register_dataclass(first_line(problem)):
            return export(module, args, dynamic_shapes, kwargs)
        raise InvalidInput(_reason(module, args, kwargs, problem), raised_at(problem)) from problem


def _reason(module: torch.nn.Module, args: Any, kwargs: Any, problem: BaseException) -> str:
    """Why torch.export does not take a module, and what to do where that is known."""
    name = type(module).__name__
    try:
        signature = inspect.signature(module.forward)
        signature.bind(*args, **(kwargs or {}))
    except TypeError as misfit:
        told = f"the example inputs do not fit {name}.forward{signature}: {misfit}"
        is_shape = len(args) > 1 and all(type(value) is int for value in args)
        return told + f"; {args} is a shape: give a tensor, as torch.rand{args}" * is_shape
    except ValueError:
        pass  # nobody knows its signature
    why = first_line(problem)
    if "data-dependent" in why:
        why = (
            "a branch, a loop or a size depends on values that are known only when it runs; "
            "write it with torch.where or torch.cond, or keep it out of the model"
        )
    elif any(
        isinstance(value, PackedSequence)
        for frame, _ in walk_tb(problem.__traceback__)
        for value in frame.f_locals.values()
    ):
        why = (
            "a packed sequence has sizes that are known only when it runs; give the layer the "
            "padded tensor, and mask what lies behind each length"
        )
    elif "not a known type" in why:
        why = f"{why.split(',')[0]}: give and return tensors in tuples, lists, dicts or dataclasses"
    elif ".numpy() is not supported" in why:
        why = "a tensor becomes an array of NumPy: write it with torch, or compute it before"
    elif "We found a fake tensor" in why:
        why = "a tensor leaves the graph and comes back, as by x.data: write x.detach()"
    elif not isinstance(problem, RuntimeError):
        why = f"{type(problem).__name__}: {why}" if str(problem) else why
    return f"torch.export does not take {name}: {why}"


@contextmanager
def _unvalidated() -> Iterator[None]:
    """Without torch.distributions' checks of values, which are not known before a program runs."""
    kind = torch.distributions.Distribution
    before = kind._validate_args
    kind.set_default_validate_args(False)
    try:
        yield
    finally:
        kind.set_default_validate_args(before)


@contextmanager
def _untold() -> Iterator[None]:
    """Without torch's own account of a failure, which prints the graph so far."""
    from torch.export import _trace  # imported by whoever exports, which not everybody does

    loggers = [logging.getLogger(name) for name in (_trace.__name__, _SHAPES, _FAKES)]
    silence = logging.Filter("nothing of this name")
    for log in loggers:
        log.addFilter(silence)
    vars(_trace)["print"] = lambda *_, **__: None
    try:
        yield
    finally:
        vars(_trace).pop("print", None)
        for log in loggers:
            log.removeFilter(silence)


@contextmanager
def _whole_traces() -> Iterator[None]:
    """While traces keep helper functions: torch.export's have the lines of ``forward`` alone."""

    def kept(_: Any, frames: StackSummary) -> StackSummary:
        start = next((n for n, frame in enumerate(frames) if frame.name == "forward"), 0)
        return StackSummary.from_list(frames[start:])

    own = TracerBase._filter_traceback_frames
    TracerBase._filter_traceback_frames = kept  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        TracerBase._filter_traceback_frames = own  # type: ignore[method-assign]


def captured(
    module: torch.nn.Module, args: tuple[Any, ...], dynamic_shapes: Any = None
) -> ExportedProgram:
    """The same for a program that Tosaic reads itself: plain modules need no torch.export."""
    warn_if_untried()
    if dynamic_shapes is None:
        with suppress(Untraced), quiet(), _inference(module), positional(module):
            return traced(module, args)
    return export(module, args, dynamic_shapes)


@contextmanager
def _inference(module: torch.nn.Module) -> Iterator[None]:
    """In inference mode; then each part is in its own mode again."""
    modes = {part: part.training for part in module.modules()}
    try:
        with suppress(NotImplementedError):  # of a module that was exported, in a mode for good
            module.eval()
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def load(path: str | os.PathLike[str]) -> ExportedProgram:
    """The program in a ``.pt2`` file."""
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  (what quantized ones call)

    if (told := foreign.no_model(path)) is not None:
        raise InvalidInput(told)
    if not os.path.isfile(path):
        raise InvalidInput(f"there is no file '{os.fspath(path)}'")
    log = logging.getLogger("torch.export")
    level = log.level
    log.setLevel(logging.CRITICAL)  # torch tells a failure twice; once is ours to tell
    try:
        with quiet():
            program: ExportedProgram = torch.export.load(path)
            return program
    except Exception as problem:
        reason = f"'{os.fspath(path)}' is no program that torch.export.save wrote"
        raise InvalidInput(f"{reason}: {first_line(problem)}") from problem
    finally:
        log.setLevel(level)


def function_transforms(exported: ExportedProgram) -> set[str]:
    """Calls of torch.vmap and torch.func.grad around others, which decomposing resolves."""
    targets = [node.target for module in graphs_of(exported) for node in module.graph.nodes]
    return {
        target.__name__ for target in targets
        if getattr(target, "__module__", "") == "torch._functorch.predispatch"
    }  # fmt: skip


def functional(exported: ExportedProgram) -> ExportedProgram:
    """The same program without writes in place; what it changes is among its outputs."""
    try:
        with torch.no_grad(), quiet():
            program = _with_whole_copies(_with_aliases(exported))
            give_fakes(program.graph)
            made: ExportedProgram = program.run_decompositions(_hidden_views(program))
    except Exception as problem:
        reason = "torch does not find a form of this program without writes in place"
        raise InvalidInput(f"{reason}: {first_line(problem)}") from problem
    for module in graphs_of(made):
        reshape_views(module.graph)
        module.recompile()
    return made


def reshape_views(graph: fx.Graph) -> None:
    """Views as reshapes, which need no contiguous operand: passes drop and move copies."""
    for node in graph.nodes:
        if node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
            node.target = torch.ops.aten.reshape.default


def _with_aliases(exported: ExportedProgram) -> ExportedProgram:
    """Dropout in inference gives its operand back, which only ``alias`` says to torch."""

    def is_identity(node: fx.Node) -> bool:
        overload = overload_of(node)
        return (overload is not None and plain_name(overload).endswith("dropout")
                and bound_arguments(node).get("train") is False)  # fmt: skip

    if not any(is_identity(node) for node in exported.graph.nodes):
        return exported
    made = copied_program(exported)
    for node in filter(is_identity, made.graph.nodes):
        node.target, node.args = torch.ops.aten.alias.default, node.args[:1]
    return made


def _with_whole_copies(exported: ExportedProgram) -> ExportedProgram:
    """Sources of ``copy_`` in the type and shape of what they overwrite, which torch forgets."""

    def differs(node: fx.Node) -> bool:
        if node.target is not torch.ops.aten.copy_.default:
            return False
        values = [n.meta["val"] for n in node.all_input_nodes]
        return len({(v.dtype, tuple(v.shape)) for v in values}) > 1

    if not any(differs(node) for node in exported.graph.nodes):
        return exported
    made = copied_program(exported)
    for node in filter(differs, list(made.graph.nodes)):
        old, new = node.args[:2]
        kind, shape = old.meta["val"].dtype, list(old.meta["val"].shape)
        source = new
        with made.graph.inserting_before(node):
            for call, argument in (
                (torch.ops.aten.to.dtype, kind),
                (torch.ops.aten.expand.default, shape),
            ):
                made_by = made.graph.call_function(call, (source, argument))
                made_by.meta = {**new.meta, "val": call(source.meta["val"], argument)}
                source = made_by
        node.replace_input_with(new, source)
    return made


def _hidden_views(exported: ExportedProgram) -> Any:
    """How to take operators apart whose results are views without their schemas saying so."""
    used = {overload_of(n) for module in graphs_of(exported) for n in module.graph.nodes}
    hidden = [
        o for o in used
        if o is not None and plain_name(o) in SHARING and o._can_decompose()
        and all(r.alias_info is None for r in o._schema.returns)
    ]  # fmt: skip
    # Their own kernels: `decompose` would ask for what stands in their place meanwhile, itself.
    return {o: partial(o._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd) for o in hidden}


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """A graph module to change; its nodes keep their names, be they those of Python's functions."""
    with quiet():
        made = copy.deepcopy(module)
    for node, source in zip(made.graph.nodes, module.graph.nodes, strict=True):
        node.name = source.name
    return made


def copied_program(exported: ExportedProgram) -> ExportedProgram:
    """A program whose graph may be changed; tensors are the same."""
    return _program_around(copied(exported.graph_module), exported, exported.verifiers)


def with_own_operators(exported: ExportedProgram) -> ExportedProgram:
    """A program of ATen's operators from one of ExecuTorch's edge dialect, which wraps them."""
    if not any(_is_wrapped(n) for module in graphs_of(exported) for n in module.graph.nodes):
        return exported
    copy_of = copied(exported.graph_module)
    for part in copy_of.modules():
        for node in part.graph.nodes if isinstance(part, fx.GraphModule) else ():
            node.target = overload_of(node) or node.target
    return _program_around(copy_of, exported, None)


def _is_wrapped(node: fx.Node) -> bool:
    return node.op == "call_function" and overload_of(node) not in (None, node.target)


def _program_around(
    module: fx.GraphModule, exported: ExportedProgram, verifiers: Any
) -> ExportedProgram:
    return type(exported)(
        root=module, graph=module.graph, graph_signature=exported.graph_signature,
        state_dict=exported.state_dict, range_constraints=exported.range_constraints,
        module_call_graph=exported.module_call_graph, constants=exported.constants,
        verifiers=verifiers,
    )  # fmt: skip


def graphs_of(exported: ExportedProgram) -> Iterator[fx.GraphModule]:
    """The graph of a program and those of its regions."""
    return (m for m in exported.graph_module.modules() if isinstance(m, fx.GraphModule))


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's warnings about its own future."""
    with warnings.catch_warnings():
        # Recurrent modules refresh a list of their own parameters; nothing is lost.
        warnings.filterwarnings("ignore", message=".*_flat_weights.* assigned during export")
        # Flags of one backend, when they are set back, speak of devices that are not there.
        warnings.filterwarnings("ignore", message="TF32 acceleration on top of oneDNN")
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def module_of(exported: ExportedProgram | fx.GraphModule) -> fx.GraphModule:
    """The program as a module to change, without calls that check its inputs.

    ``exported.module()`` compares every parameter with every submodule; this is its plain part, in
    time that grows with the program. What changes buffers is left to it.
    """
    if isinstance(exported, fx.GraphModule):
        with quiet():
            graph = copy.deepcopy(exported.graph)
        for node, source in zip(graph.nodes, exported.graph.nodes, strict=True):
            node.name = source.name
        made = _LazyGraphModule(exported, graph)
        made.meta.update(exported.meta)
        return made
    signature, held = exported.graph_signature, {**exported.constants, **exported.state_dict}
    plain = all(out.kind is OutputKind.USER_OUTPUT for out in signature.output_specs)
    if not plain or any(spec.kind not in _PLAIN_INPUTS for spec in signature.input_specs):
        return exported.module(check_guards=False)
    root, graph = torch.nn.Module(), copy.deepcopy(exported.graph)
    for name, submodule in exported.graph_module.named_children():
        root.add_module(name, submodule)
    placeholders = graph.find_nodes(op="placeholder")
    for spec, node in zip(signature.input_specs, placeholders, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            node.name = spec.arg.name  # a copy does not keep those of Python's functions
            continue
        assert spec.target is not None
        _register(root, spec.target, held[spec.target])
        with graph.inserting_before(node):
            made = graph.create_node("get_attr", spec.target)
        made.meta = node.meta
        node.replace_all_uses_with(made)
        graph.erase_node(node)
    graph.set_codegen(_PyTreeCodeGen(_interface(exported)))
    module = _LazyGraphModule(root, graph)  # its Python code is written when it is called
    module.meta.update(exported.graph_module.meta)
    return module


def written(module: fx.GraphModule) -> fx.GraphModule:
    """With its Python code in place, for whoever looks at its signature."""
    _LazyGraphModule.force_recompile(module)
    return module


def _register(root: torch.nn.Module, path: str, value: Any) -> None:
    """Put a tensor where its dotted name says."""
    *parents, name = path.split(".")
    for parent in parents:
        below = root._modules.get(parent)
        if below is None:
            below = root._modules[parent] = torch.nn.Module()
        root = below
    if isinstance(value, torch.nn.Parameter):
        root.register_parameter(name, value)
    else:
        root.register_buffer(name, value)


def _interface(exported: ExportedProgram) -> _PyTreeInfo:
    """The names of a program's arguments, and the structures of arguments and results."""
    arguments = exported.module_call_graph[0].signature
    in_spec, out_spec = exported.call_spec
    assert in_spec is not None
    positional, named = in_spec.children()
    plain = [*(f"arg_{i}" for i in range(positional.num_children)), *named.context]
    names = arguments.forward_arg_names if arguments else None
    return _PyTreeInfo(names or plain, in_spec, out_spec)
