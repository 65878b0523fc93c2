"""Shares constants among command streams: one block of weights that all of them read.

What a stream reads of its constants, and by which commands it sets their addresses, is known from
its decoded steps. Parts that are equal in several streams are stored once, and the addresses are
written anew. Streams with branches, or with an address that also names another region, stay alone.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tosaic.sim.ethosu.memory import Span
from tosaic.sim.ethosu.program import Step
from tosaic.sim.ethosu.simulation import Simulation, load
from tosaic.sim.ethosu.stream import Command, words_of
from tosaic.sim.ethosu.velabin import Stream

_ADDRESS = re.compile(r"(IFM2?|WEIGHT|SCALE)\d?_BASE\d?|(DMA0_SRC|DMA0_IDX)")
_ALIGNMENT = 16


def share(streams: Sequence[Stream]) -> list[Stream]:
    """The same streams over one block of constants; as they were where that is no smaller."""
    found = [_parts(stream) for stream in streams]
    blocks = dict[bytes, None]()
    for stream, parts in zip(streams, found):
        if parts is None:
            return list(streams)
        blocks.update((stream.weights[start:stop], None) for start, stop in parts.blocks)
    places, weights = _packed(blocks)
    if len(weights) >= sum(len(each) for each in {stream.weights for stream in streams}):
        return list(streams)
    made = [
        parts.moved(stream, places, weights)
        for stream, parts in zip(streams, found) if parts is not None
    ]  # fmt: skip
    same = all(_touched(a) == _touched(b) for a, b in zip(streams, made))
    return made if same else list(streams)


def _packed(blocks: Iterable[bytes]) -> tuple[dict[bytes, int], bytes]:
    """A place for each block in one of all, where smaller ones may lie within larger ones."""
    places, whole = dict[bytes, int](), bytearray()
    for data in sorted(blocks, key=len, reverse=True):
        # A stream copies scales with the weights behind them, where another reads each in place.
        at = whole.find(data)
        while at % _ALIGNMENT and at >= 0:
            at = whole.find(data, at + 1)
        if at < 0:
            at = len(whole)
            whole += data + bytes(-len(data) % _ALIGNMENT)
        places[data] = at
    return places, bytes(whole)


class _Parts:
    """What a stream reads of its constants: blocks, and the commands that set addresses in them."""

    def __init__(self, blocks: list[tuple[int, int]], commands: dict[Command, int]) -> None:
        self.blocks, self.commands = blocks, commands

    def moved(self, stream: Stream, places: dict[bytes, int], weights: bytes) -> Stream:
        """The stream with its constants elsewhere."""
        payload = bytearray(stream.command_stream)
        whole = np.frombuffer(stream.command_stream, "<u4")
        base = int(words_of(stream.command_stream)[1].ctypes.data) - int(whole.ctypes.data)
        for command, block in self.commands.items():
            start, stop = self.blocks[block]
            address = command.value - start + places[stream.weights[start:stop]]
            at = base + command.offset
            (word,) = struct.unpack_from("<I", payload, at)
            word = word & 0xFFFF | (address >> 32) << 16
            struct.pack_into("<II", payload, at, word, address & 0xFFFFFFFF)
        return replace(stream, command_stream=bytes(payload), weights=weights)


def _parts(stream: Stream) -> _Parts | None:
    simulation = load(stream)
    if not simulation.program.is_straight:
        return None
    steps = {step.command: step for step in simulation.program.steps()}
    blocks = _joined(span for step in steps.values() for span in _spans(simulation, step))
    now: dict[str, Command] = {}
    moved: dict[Command, int] = {}
    fixed = set[Command]()
    for command in simulation.stream.commands:
        if not command.is_operation:
            now[command.name] = command
            continue
        spans = _spans(simulation, steps[command]) if command in steps else []
        for name, setter in now.items():
            match = _ADDRESS.fullmatch(name)
            if match is None or command not in steps:
                continue
            region = now.get(f"{match[1] or match[2]}_REGION")
            inside = [s for s in spans if s.start <= setter.value < s.stop]
            if region is not None and region.value & 7 == simulation.image.weights_region:
                if inside:
                    moved[setter] = _block_of(blocks, setter.value)
            elif _uses(command, match[1] or match[2]):
                fixed.add(setter)
    return None if fixed & moved.keys() else _Parts(blocks, moved)


def _uses(command: Command, what: str) -> bool:
    """Whether an operation may read what an address of some kind names."""
    return command.name.startswith("DMA") is what.startswith("DMA")


def _spans(simulation: Simulation, step: Step) -> list[Span]:
    """The constants that a step reads."""
    return [span for span in _accesses(step) if span.region == simulation.image.weights_region]


def _accesses(step: Step) -> list[Span]:
    """All that a step reads and writes."""
    found: list[Span] = []
    if step.transfer is not None:
        found += [step.transfer.source.span, step.transfer.target.span]
    operation = step.operation
    if operation is not None:
        for stored in (*(operand.map for operand in operation.inputs), operation.output.map):
            found += stored.spans if stored is not None else ()
        found += [block.span for block in operation.scales]
        found += [block.span for block in (operation.coded.weights if operation.coded else ())]
    return found


def _joined(spans: Iterator[Span]) -> list[tuple[int, int]]:
    """Blocks of bytes that no two of have a byte in common."""
    made: list[tuple[int, int]] = []
    for start, stop in sorted({(span.start, span.stop) for span in spans}):
        if made and start < made[-1][1]:
            made[-1] = (made[-1][0], max(stop, made[-1][1]))
        else:
            made.append((start, stop))
    return made


def _block_of(blocks: list[tuple[int, int]], address: int) -> int:
    return next(n for n, (start, stop) in enumerate(blocks) if start <= address < stop)


def _touched(stream: Stream) -> list[bytes | Span]:
    """What a stream does with memory, step by step: constants by their bytes, others by place."""
    simulation, weights = load(stream), stream.weights
    return [
        weights[a.start : a.stop] if a.region == simulation.image.weights_region else a
        for step in simulation.program.steps() for a in _accesses(step)
    ]  # fmt: skip
