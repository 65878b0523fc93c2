"""Shared observers: values with common parameters, weights with several consumers, biases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tosaic.front.hints import mark_of
from tosaic.quant.observer import RangeObserver
from tosaic.quant.pt2e import DerivedObserverOrFakeQuantize
from tosaic.quant.schemes import Scheme
from tosaic.quant.weights import BiasObserver, WeightObserver

# What goes round may go beyond what calibration has seen, and 16 bits have room for it.
_ROOM = 1.5


def share_observers(observers: dict[Any, Any]) -> None:
    """Let values with one tie have one range, and each weight one scale for each channel.

    ``observers`` are those of values, by their nodes, and of values as one call reads them. What
    shared an observer before still does: all that had one of a tie's get the first of them.
    """
    first: dict[Any, Any] = {}
    instead: dict[Any, Any] = {}
    for key, observer in observers.items():
        tie = _tie(key, observer)
        if tie is not None:
            root = _root(instead, first.setdefault(tie, observer))
            if isinstance(root, RangeObserver) and root.dtype is torch.int16:
                root.room = _ROOM
            if _root(instead, observer) is not root:
                instead[_root(instead, observer)] = root
    for key, observer in observers.items():
        observers[key] = _root(instead, observer)


def observe_biases(
    observers: dict[Any, Any], scheme_of: Callable[[fx.Node], Scheme | None]
) -> None:
    """Observe each bias with its layer, whose input and weight give its scale.

    Layers with other scales share none.
    """
    made = dict[Any, BiasObserver]()
    for edge, observer in observers.items():
        scheme = scheme_of(edge[1]) if isinstance(edge, tuple) else None
        if isinstance(observer, DerivedObserverOrFakeQuantize) and scheme is not None:
            bias, layer = edge
            source, weight = (observers[n, layer] for n in layer.args[:2])
            if isinstance(weight, WeightObserver):
                key = bias, source, weight
                if key not in made:
                    made[key] = BiasObserver(source, weight, source.dtype is not torch.int8)
                observers[edge] = made[key]
            else:
                observers[edge] = scheme.derived(source, weight, observer.derive_qparams_fn)


def _tie(key: Any, observer: Any) -> Any:
    """What an observer has in common with those that it is to be one with; None if nothing."""
    if isinstance(observer, WeightObserver) and isinstance(key, tuple):
        limits = observer.ch_axis, observer.dtype, observer.quant_min, observer.quant_max
        return key[0], limits
    if isinstance(observer, RangeObserver) and isinstance(key, fx.Node) and mark_of(key).tie:
        common, _, own = mark_of(key).tie.partition("/")
        return common, "" if observer.dtype is torch.int16 else own, observer.dtype
    return None


def _root(instead: dict[Any, Any], observer: Any) -> Any:
    while observer in instead:
        observer = instead[observer]
    return observer
