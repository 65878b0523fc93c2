"""The graph for Model Explorer, which opens such a file as it is."""

from __future__ import annotations

import json
import os
from typing import Any

from tosaic.files.whole import write_whole
from tosaic.pipeline.artifact import Artifact
from tosaic.report.network import Node, network_of


def write_explorer(artifact: Artifact, path: str | os.PathLike[str]) -> None:
    """Write the nodes and edges of an artifact as a collection of graphs of Model Explorer."""
    network = network_of(artifact)
    nodes = [_node(index, node) for index, node in enumerate(network.nodes)]
    for edge in network.edges:
        nodes[edge[1]]["incomingEdges"].append(_edge(nodes, *edge))
    made = {"label": artifact.target, "graphs": [{"id": artifact.target, "nodes": nodes}]}
    write_whole(path, json.dumps(made).encode())


def _node(index: int, node: Node) -> dict[str, Any]:
    facts = {"runs on": node.place, **node.attributes}
    if node.loc is not None:
        facts |= {"call": node.loc.node, "line": node.loc.place}
    facts |= {f"constant {n}": text for n, text in enumerate(node.constants)}
    facts |= {name: f"{value:,}" for name, value in (("cycles", node.cycles), ("multiplications",
              node.macs), ("bytes of weights", node.weights)) if value}  # fmt: skip
    module = node.loc.module if node.loc is not None else ""
    return {
        "id": str(index),
        "label": node.op,
        "namespace": module.replace(".", "/"),
        "attrs": _pairs(facts),
        "incomingEdges": [],
        "outputsMetadata": [
            {"id": str(n), "attrs": _pairs(_wire(node, n))} for n in range(len(node.outputs))
        ],
    }


def _wire(node: Node, output: int) -> dict[str, str]:
    wire = node.outputs[output]
    found = {"__tensor_tag": wire.name, "tensor_shape": f"{wire.dtype}{list(wire.shape)}"}
    if wire.scale is not None:
        found["quantization"] = f"{wire.scale:.6g} * (q - {wire.zero_point})"
    return found


def _edge(nodes: list[dict[str, Any]], start: int, end: int, output: int) -> dict[str, str]:
    place = len(nodes[end]["incomingEdges"])
    return {
        "sourceNodeId": str(start), "sourceNodeOutputId": str(output),
        "targetNodeInputId": str(place),
    }  # fmt: skip


def _pairs(facts: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in facts.items() if value]
