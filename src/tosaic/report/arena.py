"""The memory of a graph over time: as the target places tensors, or by a plan of our own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tosaic.ir.graph import Graph, Value
from tosaic.lowering.target import Compiled, Estimate, PlacedTensor
from tosaic.report.network import Network


@dataclass(frozen=True, slots=True)
class Block:
    """A tensor at an address while the steps from ``start`` to ``end`` run; ``node`` makes it."""

    name: str
    address: int
    size: int
    start: int
    end: int
    node: int = -1


@dataclass(frozen=True, slots=True)
class Arena:
    """One memory of one graph. ``steps`` are the nodes that run, by time; -1 is none."""

    graph: int
    memory: str
    planned: str
    size: int
    blocks: tuple[Block, ...]
    steps: tuple[int, ...]


def arenas(graphs: list[Graph], delegates: tuple[Compiled, ...], network: Network) -> list[Arena]:
    """The arenas of all graphs."""
    found: list[Arena] = []
    for number, graph in enumerate(graphs):
        told = delegates[number].estimate if delegates else None
        if told is not None and told.tensors:
            found += _as_told(number, graph, told, network)
        else:
            found.append(_by_us(number, graph, network))
    return [arena for arena in found if arena.blocks]


def _as_told(number: int, graph: Graph, told: Estimate, network: Network) -> Iterable[Arena]:
    nodes = [network.at[op] for op in graph.ops]
    steps = {c.time: nodes[c.index] for c in told.operators if c.index is not None}
    end = max((t.end for t in told.tensors), default=0)
    times = tuple(steps.get(time, -1) for time in range(end + 1))
    for memory in dict.fromkeys(t.memory for t in told.tensors):
        tensors = [t for t in told.tensors if t.memory == memory]
        blocks = tuple(_placed(t, nodes, steps) for t in tensors)
        size = max((b.address + b.size for b in blocks), default=0)
        yield Arena(number, memory, "the compiler", size, blocks, times)


def _placed(tensor: PlacedTensor, nodes: list[int], steps: dict[int, int]) -> Block:
    """A result belongs to the operator that makes it, a buffer to the next operation."""
    if tensor.index is not None:
        node = nodes[tensor.index]
    else:
        times = range(tensor.start, tensor.end + 1)
        node = next((steps[time] for time in times if time in steps), -1)
    return Block(tensor.name, tensor.address, tensor.size, tensor.start, tensor.end, node)


def _by_us(number: int, graph: Graph, network: Network) -> Arena:
    """Each value from where it is made to where it is last read, at the lowest free address."""
    last = {value: step for step, op in enumerate(graph.ops) for value in op.ins}
    last.update(dict.fromkeys(graph.outputs, len(graph.ops) - 1))
    waiting: list[tuple[int, Value, int]] = [
        (0, value, -1) for value in graph.inputs if value in last
    ]
    for step, op in enumerate(graph.ops):
        waiting += [(step, value, network.at[op]) for value in op.outs if value in last]
    blocks: list[Block] = []
    live: list[Block] = []
    for start, value, node in waiting:
        live = [block for block in live if block.end >= start]
        size = (value.type.size * value.dtype.bits + 7) // 8
        block = Block(value.name, _free(live, size), size, start, last[value], node)
        if size:
            blocks.append(block)
            live.append(block)
    size = max((b.address + b.size for b in blocks), default=0)
    steps = tuple(network.at[op] for op in graph.ops)
    return Arena(number, "tensors", "a simple plan", size, tuple(blocks), steps)


def _free(live: list[Block], size: int) -> int:
    address = 0
    for block in sorted(live, key=lambda block: block.address):
        if block.address - address >= size:
            break
        address = max(address, block.address + block.size)
    return address
