"""Inserts observers where the annotations ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from tosaic.quant.annotations import ANNOTATION
from tosaic.quant.pt2e import (
    DerivedObserverOrFakeQuantize,
    DerivedQuantizationSpec,
    EdgeOrNode,
    FixedQParamsObserver,
    FixedQParamsQuantizationSpec,
    ObserverBase,
    SharedQuantizationSpec,
    SteppedQuantizationSpec,
)

_MEANING = (
    "dtype", "is_dynamic", "quant_min", "quant_max", "qscheme", "ch_axis", "scale", "zero_point",
    "step",
)  # fmt: skip


def prepare(module: fx.GraphModule, quantizer: Any) -> fx.GraphModule:
    """What ``prepare_pt2e`` does after training, in time that grows with the program."""
    quantizer.transform_for_annotation(module)
    quantizer.annotate(module)
    specs = dict(_annotated(module.graph))
    groups = _Groups(specs)
    found: dict[EdgeOrNode, Any] = {}
    made: dict[EdgeOrNode, Any] = {}
    for key in specs:
        root = groups.root(key)
        if root not in made:
            made[root] = _observer(groups.meaning(key), found)
        found[key] = made[root]
    quantizer.prepare_obs_or_fq_callback(module, found)
    _Insertion(module, found).run()
    module.recompile()
    return module


def _annotated(graph: fx.Graph) -> Iterator[tuple[EdgeOrNode, Any]]:
    """What is asked for each value, as calls read it and as calls give it."""
    for node in graph.nodes:
        if ANNOTATION in node.meta:
            annotation = node.meta[ANNOTATION]
            for source, spec in annotation.input_qspec_map.items():
                if spec is not None:
                    yield (source, node), spec
            if annotation.output_qspec is not None:
                yield node, annotation.output_qspec


class _Groups:
    """Values that have one observer: what shares, and what is one tensor with one meaning."""

    def __init__(self, specs: dict[EdgeOrNode, Any]) -> None:
        self.specs = specs
        self.above: dict[EdgeOrNode, EdgeOrNode] = {}
        readings: dict[tuple[fx.Node, Any], EdgeOrNode] = {}
        for key, spec in specs.items():
            if isinstance(key, tuple):
                meaning = _described(self.meaning(key))
                self._join(readings.setdefault((key[0], meaning), key), key)
                if key[0] in specs and _described(self.meaning(key[0])) == meaning:
                    self._join(key[0], key)
            if isinstance(spec, SharedQuantizationSpec):
                self._join(spec.edge_or_node, key)

    def root(self, key: EdgeOrNode) -> EdgeOrNode:
        while (above := self.above.get(key, key)) != key:
            self.above[key] = self.above.get(above, above)
            key = above
        return key

    def meaning(self, key: EdgeOrNode) -> Any:
        """What is asked for a value, or for the one that it shares with."""
        spec = self.specs[key]
        while isinstance(spec, SharedQuantizationSpec):
            spec = self.specs[spec.edge_or_node]
        return spec

    def _join(self, first: EdgeOrNode, second: EdgeOrNode) -> None:
        one, other = self.root(first), self.root(second)
        if one != other:
            self.above[other] = one


def _described(spec: Any) -> tuple[Any, ...]:
    return tuple(getattr(spec, name, "") for name in _MEANING)


def _observer(spec: Any, found: dict[EdgeOrNode, Any]) -> Any:
    if isinstance(spec, FixedQParamsQuantizationSpec):
        return FixedQParamsObserver(spec)
    if isinstance(spec, DerivedQuantizationSpec):
        return DerivedObserverOrFakeQuantize(
            spec.dtype, [found[key] for key in spec.derived_from], spec.derive_qparams_fn,
            spec.quant_min, spec.quant_max, spec.qscheme, spec.ch_axis,
        )  # fmt: skip
    kind = spec.observer_or_fake_quant_ctr
    options = {
        "dtype": spec.dtype, "quant_min": spec.quant_min, "quant_max": spec.quant_max,
        "qscheme": spec.qscheme, "is_dynamic": spec.is_dynamic,
    }  # fmt: skip
    if "PerChannel" in kind.__name__:
        options["ch_axis"] = spec.ch_axis
    if isinstance(spec, SteppedQuantizationSpec):
        options["step"] = spec.step
    return kind.with_args(**options)()


class _Insertion:
    def __init__(self, module: fx.GraphModule, observers: dict[EdgeOrNode, Any]) -> None:
        self.module, self.observers = module, observers
        self.source: dict[fx.Node, fx.Node] = {}  # what the call of an observer observes
        self.calls: dict[tuple[fx.Node, int], fx.Node] = {}

    def run(self) -> None:
        for node in list(self.module.graph.nodes):
            if ANNOTATION not in node.meta:
                continue
            node.args = tuple(self._read(node, argument) for argument in node.args)
            observer = self.observers.get(node)
            if observer is not None and isinstance(node.meta.get("val"), torch.Tensor):
                users = list(node.users)
                call = self._observed(node, observer)
                for user in users:
                    user.replace_input_with(node, call)

    def _read(self, node: fx.Node, argument: Any) -> Any:
        """An argument of a call through the observer of that reading."""
        if isinstance(argument, (list, tuple)):
            return type(argument)(self._read(node, each) for each in argument)
        if not isinstance(argument, fx.Node):
            return argument
        origin = self._origin(argument)
        observer = self.observers.get((origin, node))
        if observer is None or observer is self.observers.get(origin):
            return argument
        return self._observed(argument, observer)

    def _origin(self, node: fx.Node) -> fx.Node:
        while node in self.source:
            node = self.source[node]
        return node

    def _observed(self, node: fx.Node, observer: ObserverBase) -> fx.Node:
        key = node, id(observer)
        if key not in self.calls:
            name = f"activation_post_process_{len(self.calls)}"
            self.module.add_module(name, observer)
            with self.module.graph.inserting_after(node):
                self.calls[key] = self.module.graph.call_module(name, (node,))
            self.source[self.calls[key]] = node
        return self.calls[key]
