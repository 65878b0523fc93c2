"""Stand-ins for tensors: sizes, strides and type without values.

torch's own are FakeTensors, and making the first one loads the half of PyTorch that compiles,
which takes longer than all the rest of an import. Programs that Tosaic traces itself have ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, fx
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from tosaic.errors import InvalidInput
from tosaic.front.torchapi.overloads import bind

_CHEAP, _MOST = 1 << 16, 1 << 24  # elements
_CHEAP_TOO = tuple(getattr(torch.ops.aten, name).default for name in ("addmm", "cat", "stack"))
_CPU = torch.device("cpu")
_aten = torch.ops.aten
_CONVOLUTIONS = {_aten.conv1d.default, _aten.conv2d.default, _aten.conv3d.default}


class StandIn(Tensor):
    """A tensor on the CPU that has no values; operators give stand-ins of their results."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    like: Tensor  # on the meta device

    @staticmethod
    def __new__(cls, like: Tensor) -> StandIn:
        made: StandIn = Tensor._make_wrapper_subclass(
            cls, like.size(), strides=like.stride(), dtype=like.dtype, device=_CPU
        )
        made.like = like
        return made

    def __init__(self, like: Tensor) -> None:
        """All is said in ``__new__``."""

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"StandIn({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = {}

        def bare(value: Any) -> Any:
            if isinstance(value, StandIn):
                given[id(value.like)] = value
                return value.like
            if isinstance(value, Tensor):
                return value.to("meta")
            return torch.device("meta") if isinstance(value, torch.device) else value

        args, kwargs = pytree.tree_map(bare, (args, kwargs or {}))
        if _is_cheap(func, given.values()):
            zeros = pytree.tree_map_only(Tensor, _zeros, (args, kwargs))
            return pytree.tree_map_only(Tensor, stand_in, func(*zeros[0], **zeros[1]))
        made = func(*args, **kwargs)
        # A call in place gives its argument; the truth of a tensor is not to be asked.
        return pytree.tree_map_only(
            Tensor, lambda t: given[id(t)] if id(t) in given else StandIn(t), made
        )


def _is_cheap(func: Any, given: Iterable[Tensor]) -> bool:
    """Whether zeros are computed with instead: the first use of a Python form loads a compiler."""
    is_plain = torch.Tag.pointwise in func.tags or func in _CHEAP_TOO
    return is_plain and not func._schema.is_mutable and sum(t.numel() for t in given) < _CHEAP


def _zeros(tensor: Tensor) -> Tensor:
    shape, strides = tensor.size(), tensor.stride()
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=_CPU).zero_()


def stand_in(tensor: Tensor) -> StandIn:
    """The sizes, strides and type of a tensor."""
    return StandIn(
        torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
    )


def zeros_of_layer(function: Any, args: tuple[Any, ...]) -> Tensor | None:
    """Zeros in the place of what a plain layer gives, which takes most of a run's time.

    None where it is another operator, or where only running it tells what comes out.
    """
    if function is _aten.linear.default and _fit(*args[:3]):
        x, weight = args[:2]
        rows = x.dim() > 1 and weight.dim() == 2 and x.shape[-1] == weight.shape[1]
        return x.new_zeros(*x.shape[:-1], len(weight)) if rows else None
    if function not in _CONVOLUTIONS or len(args) < 3 or not _fit(*args[:3]):
        return None
    (x, weight), bound = args[:2], bind(function, args, {})
    rank, groups = weight.dim() - 2, bound["groups"]
    moves = [bound[name] for name in ("stride", "padding", "dilation")]
    windows = [x.shape[2:], weight.shape[2:], *moves]
    if x.dim() != rank + 2 or any(len(each) != rank for each in windows):
        return None
    if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        return None
    if min(bound["padding"]) < 0:
        return None
    sizes = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(*windows)]
    if min(*x.shape, *sizes) < 1:
        return None
    zeros: Tensor = x.new_zeros(x.shape[0], weight.shape[0], *sizes)
    return zeros


def _fit(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether the tensors of a layer are floats of one type in the usual layout."""
    if bias is not None and (bias.shape != weight.shape[:1] or bias.dtype != x.dtype):
        return False
    one = weight.dtype == x.dtype and x.is_floating_point() and x.numel() * weight.numel() > 0
    return one and all(map(_is_plain, (x, weight)))


def _is_plain(tensor: Tensor) -> bool:
    """Whether its strides are the usual ones, those of axes of one element included."""
    return tensor.stride() == torch.empty(tensor.shape, device="meta").stride()


def is_stand_in(tensor: Tensor) -> bool:
    """Whether a tensor has a shape and a type but no values."""
    return isinstance(tensor, (FakeTensor, StandIn))


def stand_in_beside(node: fx.Node, tensor: Tensor) -> Tensor:
    """A stand-in for a tensor, of the same kind as that of a node's result."""
    for example in pytree.tree_leaves(node.meta.get("val")):
        if isinstance(example, StandIn):
            return stand_in(tensor)
        if isinstance(example, FakeTensor):
            return example.fake_mode.from_tensor(tensor, static_shapes=True)
    raise InvalidInput(f"{node.name} carries no example of its result: export the model again")


def computed_beside(
    node: fx.Node, function: Callable[..., Any], args: Iterable[Any],
    kwargs: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """What a function gives for stand-ins, of the same kind as that of a node's result.

    In the place of ours there are zeros: what operators do without values loads a compiler.
    """
    given = tuple(args), kwargs or {}
    fakes = [e for e in pytree.tree_leaves(node.meta.get("val")) if isinstance(e, FakeTensor)]
    with fakes[0].fake_mode if fakes else nullcontext(), torch.no_grad():
        if fakes:
            return function(*given[0], **given[1])
        ours = [e for e in pytree.tree_leaves(given) if isinstance(e, StandIn)]
        is_small = sum(t.numel() for t in ours) < _MOST
        made = _of_zeros(function, *given) if is_small else function(*given[0], **given[1])
    return pytree.tree_map_only(
        Tensor, lambda t: t if isinstance(t, StandIn) else stand_in(t), made
    )


def _of_zeros(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    zeros = pytree.tree_map_only(StandIn, _zeros, (args, kwargs))
    layer = None if kwargs else zeros_of_layer(function, zeros[0])
    try:
        return function(*zeros[0], **zeros[1]) if layer is None else layer
    except RuntimeError:  # integers are not divided by 0
        return function(*args, **kwargs)


def new_call(
    home: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> fx.Node:
    """A call where the graph of a node inserts it; it is at home where that node is."""
    made = home.graph.call_function(target, args, kwargs or {})
    shown, named = fx.map_arg((args, kwargs or {}), lambda n: n.meta["val"])
    made.meta = {**home.meta, "val": computed_beside(home, target, shown, named)}
    return made


def as_fakes(examples: Iterable[Any]) -> tuple[FakeTensorMode, list[Any]]:
    """Examples as torch's own stand-ins, all of one mode."""
    examples = list(examples)
    mode = detect_fake_mode(examples) or FakeTensorMode()

    def fake(example: Any) -> Any:
        if isinstance(example, StandIn):
            return _fake(mode, example)
        return mode.from_tensor(example) if isinstance(example, Tensor) else example

    return mode, [fake(example) for example in examples]


def as_stand_ins(module: fx.GraphModule) -> None:
    """Give every node of a module our own stand-ins."""
    for node in module.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map_only(FakeTensor, stand_in, node.meta["val"])


def give_fakes(graph: fx.Graph) -> None:
    """Give a graph torch's own stand-ins, for passes of torch and torchao that want these."""
    if not any(_has_stand_ins(node) for node in graph.nodes):
        return
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    for node in graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map_only(
                StandIn, lambda t: _fake(mode, t), node.meta["val"]
            )


def _fake(mode: FakeTensorMode, example: Tensor) -> Tensor:
    with mode:
        return torch.empty_strided(example.size(), example.stride(), dtype=example.dtype)


def _has_stand_ins(node: fx.Node) -> bool:
    return any(isinstance(leaf, StandIn) for leaf in pytree.tree_leaves(node.meta.get("val")))
