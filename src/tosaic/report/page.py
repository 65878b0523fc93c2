"""The page: everything there is to show of an artifact, as data."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tosaic.front import torchapi
from tosaic.front.program import Program
from tosaic.ir.graph import Loc
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.checked import checked
from tosaic.pipeline.compare import Comparison, Layer
from tosaic.pipeline.report import Report, grouped, source_line
from tosaic.report import arena
from tosaic.report.advice import Told, told_together
from tosaic.report.layout import Layout, layout
from tosaic.report.network import Network, network_of
from tosaic.runtime.printed import plain
from tosaic.runtime.progress import say

_EMPTY: tuple[Any, ...] = (None, [], {}, 0, "")


@dataclass(frozen=True, slots=True)
class View:
    """A graph to draw: which nodes stand for one, where they are, and how edges run."""

    members: list[list[int]]
    edges: list[tuple[int, int, int]]
    layout: Layout


@dataclass(frozen=True, slots=True)
class Measured:
    """A layer beside the original, and its place in the view of layers."""

    layer: Layer
    group: int


@dataclass(frozen=True, slots=True)
class Page:
    """What a report shows."""

    title: str
    target: str
    report: Report
    nodes: list[dict[str, Any]]
    edges: list[tuple[int, int, int]]
    views: dict[str, View]
    arenas: list[arena.Arena]
    refused: list[Told]
    layers: list[Measured] = field(default_factory=list)
    outputs: list[Layer] = field(default_factory=list)
    peak_macs: int = 0
    lines: dict[str, str] = field(default_factory=dict)
    facts: list[tuple[str, str]] = field(default_factory=list)
    fall: str = ""

    def data(self) -> Any:
        """The same as plain data, for JSON, with the report's totals of all graphs."""
        return {**plain(self), "report": self.report.data()}


def page_of(artifact: Artifact, title: str, comparison: Comparison | None) -> Page:
    """Everything about an artifact that a page shows."""
    say("drawing the report")
    network = network_of(artifact)
    groups = network.groups()
    return Page(
        title, artifact.target, artifact.report, list(map(_node, network.nodes)), network.edges,
        {"modules": _view(network, network.modules()), "layers": _view(network, groups),
         "operators": _view(network, [[n] for n in range(len(network.nodes))])},
        arena.arenas(artifact.partition.graphs, artifact.delegates, network),
        [
            told_together(same, network.calls, artifact.device.advice)
            for same in grouped((*artifact.partition.refused, *artifact.partition.hosted))
        ],
        _measured(comparison.layers, artifact.program, network, groups) if comparison else [],
        list(comparison.outputs) if comparison else [],
        artifact.device.peak_macs, _lines(network), list(_facts(artifact)), _fall(comparison),
    )  # fmt: skip


def _node(node: Any) -> dict[str, Any]:
    """A node without what is empty: most are small."""
    return {
        name: value for name, value in plain(node).items() if value not in (None, [], {}, 0, "")
    }


def _lines(network: Network) -> dict[str, str]:
    """The text of the user's lines that nodes come from, by file and number."""
    places = {node.loc.place for node in network.nodes if node.loc is not None and node.loc.file}
    found = {place.rpartition(", ")[2]: source_line(place) for place in sorted(places)}
    return {place: text for place, text in found.items() if text}


def _view(network: Network, members: list[list[int]]) -> View:
    group = {node: index for index, nodes in enumerate(members) for node in nodes}
    joined: dict[tuple[int, int], tuple[int, int, int]] = {}
    for number, (start, end, _) in enumerate(network.edges):
        pair = group[start], group[end]
        if pair[0] != pair[1]:
            joined.setdefault(pair, (*pair, number))
    edges = list(joined.values())
    return View(members, edges, layout(len(members), [(start, end) for start, end, _ in edges]))


def _measured(
    layers: Sequence[Layer], program: Program, network: Network, groups: list[list[int]]
) -> list[Measured]:
    """Layers beside the group of operators that come from the same call.

    An activation that is fused with a layer has no operators of its own: it belongs to that layer.
    """
    waiting: dict[Loc, list[int]] = {}
    for index, members in enumerate(groups):
        loc = network.nodes[members[0]].loc
        if loc is not None:
            waiting.setdefault(loc, []).append(index)
    own: dict[str, int] = {}
    for node in program.calls:
        same = waiting.get(torchapi.location(node))
        if same:  # a line that runs often has a group each time, in the same order
            own[node.name] = same.pop(0) if len(same) > 1 else same[0]
        elif node.all_input_nodes:
            own[node.name] = own.get(node.all_input_nodes[0].name, -1)
    return [Measured(layer, own.get(layer.name, -1)) for layer in layers]


def _fall(comparison: Comparison | None) -> str:
    """Where the ratio falls, in a few words."""
    if comparison is None or (layer := comparison.fall) is None:
        return ""
    before = layer.sqnr + comparison.lost(layer)
    return f"falls at {layer.name}, {before:.0f} to {layer.sqnr:.0f} dB"


def _facts(artifact: Artifact) -> Iterable[tuple[str, str]]:
    """What it takes to make the same again."""
    yield "target", artifact.target
    yield from artifact.settings.items()
    for number, node in enumerate(artifact.program.arguments):
        example = node.meta.get("val")
        if example is not None and hasattr(example, "shape"):
            kind = str(example.dtype).removeprefix("torch.")
            yield f"input {number}", f"{kind} {'×'.join(map(str, example.shape))}"
    for number, data in enumerate(artifact.files):
        yield f"graph {number}, sha256 of its TOSA", hashlib.sha256(data).hexdigest()
    for graphs, sentence in checked([each.checks for each in artifact.report.delegates]):
        yield f"{graphs}, checked", sentence
    for output in artifact.report.accuracy:
        yield "quantized beside float, on one example", str(output)
    for name, size in artifact.report.file_sizes.items():
        yield f"size of {name}", f"{size:,} bytes"
    yield from artifact.report.versions.items()
    yield "made", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
