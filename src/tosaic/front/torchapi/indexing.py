"""Subscripts with integer tensors of no axes as gathers, while a module is exported.

``x[i]`` and ``x[:, i] = y`` read ``i`` as a number of Python's in torch.export, which then knows
nothing of it. A tensor of one element in its place means the same, and stays a tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tosaic.front.torchapi.forwards import replaced


@contextmanager
def gathering(module: torch.nn.Module) -> Iterator[None]:
    """While subscripts in this module gather; its own ``forward`` is there again afterwards."""
    forward = module.forward

    @functools.wraps(forward)
    def gathered(*args: Any, **kwargs: Any) -> Any:
        with _Subscripts():
            return forward(*args, **kwargs)

    if isinstance(module, (torch.fx.GraphModule, torch.jit.ScriptModule)):
        yield
        return
    with replaced(module, gathered):
        yield


class _Subscripts(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(map(_is_number, index)) and not any(map(_is_other, index)):
                plain = tuple(slice(None) if _is_number(i) else i for i in index)
                view = args[0] if all(map(_is_whole, plain)) else args[0][plain]
                places = _places(index, args[0].dim())
                if func is Tensor.__getitem__:
                    return torch.ops.aten.index.Tensor(view, places)
                value = torch.as_tensor(args[2], dtype=view.dtype)
                rank = view.dim() - sum(place is not None for place in places)
                while value.dim() > rank and value.shape[0] == 1:
                    value = value[0]  # as subscripts do, and index_put does not
                torch.ops.aten.index_put_.default(view, places, value)
                return None
        return func(*args, **(kwargs or {}))


def _is_number(index: Any) -> bool:
    return (
        isinstance(index, Tensor) and not index.dim()
        and index.dtype in (torch.int64, torch.int32, torch.int16, torch.int8)
    )  # fmt: skip


def _is_other(index: Any) -> bool:
    """What an index of no axes does not stand beside here: masks, lists, other tensors."""
    is_plain = index is None or index is Ellipsis or isinstance(index, (int, torch.SymInt, slice))
    return isinstance(index, bool) or not (is_plain or _is_number(index))


def _is_whole(index: Any) -> bool:
    return index is Ellipsis or (isinstance(index, slice) and index == slice(None))


def _places(index: tuple[Any, ...], rank: int) -> list[Tensor | None]:
    """An index for each axis of the view that the plain subscripts make, up to the last one."""
    taken = sum(i is not None and i is not Ellipsis for i in index)
    at = next((n for n, i in enumerate(index) if i is Ellipsis), len(index))
    whole = [*index[:at], *[slice(None)] * (rank - taken), *index[at + 1 :]]
    kept = [i for i in whole if i is None or isinstance(i, (Tensor, slice))]
    return [i if isinstance(i, Tensor) else None for i in kept]
