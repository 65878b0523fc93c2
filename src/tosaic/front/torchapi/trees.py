"""Structures of arguments and results."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree


def flatten(values: Any) -> tuple[list[Any], pytree.TreeSpec]:
    return pytree.tree_flatten(values)


def register_dataclass(told: str) -> bool:
    """Makes the dataclass that torch.export does not know, by its own words, one that it does."""
    found = re.search(r"<class '([\w.]+)\.(\w+)'>.* (not a known type|only supports)", told)
    if found is None:
        return False
    path = found[1].split(".")
    for split in range(len(path), 0, -1):  # a class may be inside of others
        kind: Any = sys.modules.get(".".join(path[:split]))
        if kind is not None:
            for name in (*path[split:], found[2]):
                kind = getattr(kind, name, None)
            if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
                return False
            torch.export.register_dataclass(kind, serialized_type_name=f"{found[1]}.{found[2]}")
            return True
    return False


def unflatten(values: Sequence[Any], spec: pytree.TreeSpec) -> Any:
    return pytree.tree_unflatten(list(values), spec)


def is_written_as_text(spec: pytree.TreeSpec) -> bool:
    """Whether torch can write a structure, and so export a program that gives it."""
    try:
        pytree.treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError):
        return False
    return True


def written_structure(spec: pytree.TreeSpec) -> str:
    """A structure as text; NotImplementedError if it is of a kind that torch does not write."""
    return pytree.treespec_dumps(spec)


def structure(text: str) -> pytree.TreeSpec | None:
    """The structure that torch wrote as text; None if this is none that it can read back."""
    try:
        return pytree.treespec_loads(text)
    except (ValueError, TypeError, KeyError, NotImplementedError, AttributeError, IndexError):
        return None


def arguments_of(spec: pytree.TreeSpec) -> tuple[int, set[str]]:
    """How many positional arguments a program takes, and the names of the others."""
    positional, named = spec.children()
    return positional.num_children, set(named.context)


def positional_of(spec: pytree.TreeSpec) -> list[pytree.TreeSpec]:
    """The structures of the positional arguments of a program."""
    positional, _ = spec.children()
    return list(positional.children())


def names_of(spec: pytree.TreeSpec) -> list[str]:
    """The names of arguments in a structure of positional and named ones; none if it is none."""
    parts = spec.children()
    named = parts[1] if len(parts) == 2 else spec
    return list(named.context) if named.type is dict else []


def keys_of(spec: pytree.TreeSpec) -> list[Any]:
    """The keys or fields of the children of a structure; nothing where they have an order alone."""
    context = spec.context
    if spec.type is defaultdict:
        context = context[1]  # before them is the factory
    elif isinstance(context, list) and context and isinstance(context[0], list):
        context = context[0]  # of a dataclass: behind them are the fields that are None
    is_named = isinstance(context, list) and len(context) == len(spec.children())
    return context if is_named else []


def flatten_as(values: Any, spec: pytree.TreeSpec) -> list[Any]:
    """The leaves of a structure that has to be like another; ValueError says where it is not."""
    return spec.flatten_up_to(values)
