"""The ``forward`` of a module, replaced while it is exported."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_NAMED = inspect.Parameter.KEYWORD_ONLY


@contextmanager
def replaced(module: torch.nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """While another function is the forward of a module; then it has its own again."""
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own


@contextmanager
def positional(module: torch.nn.Module) -> Iterator[None]:
    """While keyword-only arguments follow the others in order, as example inputs have them."""
    forward, signature = module.forward, _signature(module)
    parameters = list(signature.parameters.values()) if signature is not None else []
    names = [p.name for p in parameters if p.kind is _NAMED]
    if not names or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        yield
        return
    before = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)

    @functools.wraps(forward)
    def ordered(*args: Any, **kwargs: Any) -> Any:
        return forward(*args[:before], **dict(zip(names, args[before:])), **kwargs)

    kinds = [p.replace(kind=p.POSITIONAL_OR_KEYWORD) if p.kind is _NAMED else p for p in parameters]
    last = max((n for n, p in enumerate(kinds) if p.default is p.empty), default=-1)
    # A parameter without a default may not follow one that has it.
    made = [p.replace(default=p.empty) if n < last else p for n, p in enumerate(kinds)]
    ordered.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    with replaced(module, ordered):
        yield


class Scripted(torch.nn.Module):
    """A scripted module as torch.export sees through it: operators, and weights as constants."""

    def __init__(self, script: torch.jit.ScriptModule) -> None:
        super().__init__()
        self.run = script._c._get_method("forward")

    def forward(self, *args: Any) -> Any:
        return self.run(*args)


@contextmanager
def unscripted(module: torch.nn.Module) -> Iterator[None]:
    """While scripted parts of a module are Scripted: torch.export refuses or miscalls them."""
    parts = [
        (parent, name, part) for parent in module.modules() for name, part in
        parent.named_children() if isinstance(part, torch.jit.ScriptModule)
        and not isinstance(parent, torch.jit.ScriptModule)
    ]  # fmt: skip
    try:
        for parent, name, part in parts:
            parent._modules[name] = Scripted(part)
        yield
    finally:
        for parent, name, part in parts:
            parent._modules[name] = part


def in_order(module: Any, named: dict[str, Any]) -> tuple[Any, ...] | str:
    """Arguments by name as a tuple in the order of ``forward``; a reason if they are no such."""
    signature = _signature(module) if isinstance(module, torch.nn.Module) else None
    if signature is None:
        return "a dict of example inputs needs an nn.Module, whose forward has their names"
    parameters = [
        p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    known = [p.name for p in parameters]
    if unknown := [name for name in named if name not in known]:
        return f"forward has no argument {unknown[0]!r}; it has {', '.join(known)}"
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in named]
    if missing:
        return f"the argument {missing[0]!r} is missing; forward has {', '.join(known)}"
    last = max((n for n, name in enumerate(known) if name in named), default=-1)
    return tuple(named.get(p.name, p.default) for p in parameters[: last + 1])


def _signature(module: torch.nn.Module) -> inspect.Signature | None:
    try:
        return inspect.signature(module.forward)
    except (TypeError, ValueError):
        return None
