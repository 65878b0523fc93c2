"""An NPU beside a processor: its registers and its regions are the processor's own memory.

The processor writes a register and rings; the NPU does what the register asks for, on the
addresses that the processor has given it, and answers whether it raises its interrupt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import InvalidInput, TosaicError
from tosaic.sim.ethosu import mlw
from tosaic.sim.ethosu.convolution import Decoder, Store
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.memory import INTERNAL, Bytes, Memory, Region, Sanitizer
from tosaic.sim.ethosu.program import Program, execute
from tosaic.sim.ethosu.simulation import OUTSTANDING, TABLES
from tosaic.sim.ethosu.stream import config_of, decode_words

ID, STATUS, CMD, RESET, QBASE, QSIZE, PROT, CONFIG, BASEP = (
    n // 4 for n in (0x00, 0x04, 0x08, 0x0C, 0x10, 0x20, 0x24, 0x28, 0x80)
)
RUNNING, IRQ, BUS, PARSE, ENDED, WEIGHTS = 1, 2, 4, 16, 32, 128
_IDLE = 0xFFFFFFFF  # what RESET holds when nobody has written it
_VERSION = 0x10000000  # of the architecture, in ID
_WORDS = 0x400  # registers


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of a command stream beside its words: bytes of its regions, by number."""

    weights: int
    sizes: Mapping[int, int]


@dataclass(slots=True)
class Guest:
    """The NPU of a processor whose memory ``window`` is, from ``address`` on.

    ``jobs`` are the streams that are known, by the hash of their words. ``findings`` are what the
    sanitizer or the decoder had to say; ``interrupts`` False leaves the interrupt out.
    """

    window: Bytes
    address: int
    registers: int
    config: int
    jobs: Mapping[str, Job]
    decode: Decoder = mlw.decode
    interrupts: bool = True
    findings: list[str] = field(default_factory=list)
    runs: int = 0
    _programs: dict[tuple[int, ...] | str, Program] = field(default_factory=dict)
    _seen: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    def __post_init__(self) -> None:
        block = self._block()
        block[:] = 0
        block[ID], block[CONFIG], block[RESET] = _VERSION, self.config, _IDLE

    def _block(self) -> NDArray[np.uint32]:
        start = self.registers - self.address
        return self.window[start : start + 4 * _WORDS].view(np.uint32)

    def ring(self) -> bool:
        """Do what the registers ask for; whether the interrupt is raised."""
        block = self._block()
        asked, command = int(block[RESET]), int(block[CMD])
        if asked != _IDLE:
            block[STATUS], block[CMD], block[PROT], block[RESET] = 0, 0, asked & 3, _IDLE
            return False
        block[CMD] = command & 0xC
        if command & 2:
            block[STATUS] &= np.uint32(~IRQ & _IDLE)
        if not command & 1:
            return False
        block[STATUS] = self._run(block) | IRQ
        return self.interrupts

    def _run(self, block: NDArray[np.uint32]) -> int:
        """Run the stream that the registers name: the bits of STATUS."""
        self.runs += 1
        bases = tuple(_address(block, BASEP + 2 * i) for i in range(8))
        try:
            words = self._place(_address(block, QBASE), int(block[QSIZE]), "the stream")
            name = sha256(words.tobytes()).hexdigest()
            program = self._program(name, words)
        except TosaicError as problem:
            self.findings.append(str(problem))
            return PARSE
        try:
            self._execute(name, program, bases)
        except TosaicError as problem:
            self.findings.append(f"{problem}; {self._told(bases)}")
            if isinstance(problem, Sanitizer):
                return BUS
            return WEIGHTS if "weight" in problem.reason else PARSE
        return ENDED

    def _program(self, name: str, words: Bytes) -> Program:
        if name not in self._programs:
            config = config_of(self.config)
            stream = decode_words(config, words.view(np.uint32).copy())
            self._programs[name] = Program(stream, Store(config, self.decode))
        return self._programs[name]

    def _execute(self, name: str, program: Program, bases: tuple[int, ...]) -> None:
        config, job = program.stream.config, self.jobs.get(name)
        regions = {}
        for number, base in enumerate(bases):
            if base == 0 or (job is not None and number not in job.sizes):
                continue
            size = job.sizes[number] if job is not None else self._rest(base)
            place = self._place(base, size, f"region {number}")
            is_weights = number == (job.weights if job is not None else 0)
            written = None if is_weights else ~unwritten(place, base)
            regions[number] = Region.at(place, written)
        regions[INTERNAL] = Region(TABLES if config.is_u85 else config.shram)
        memory = Memory(regions, watching=(name, bases) not in self._seen)
        transfers, kernels = OUTSTANDING[config.product]
        memory.transfers, memory.kernels = deque(maxlen=transfers), deque(maxlen=kernels)
        execute(program, Machine(memory))
        if program.is_straight:
            self._seen.add((name, bases))

    def _rest(self, base: int) -> int:
        return max(0, self.address + len(self.window) - base)

    def _place(self, start: int, size: int, what: str) -> Bytes:
        """Bytes of the processor's memory; Sanitizer where the NPU does not reach it."""
        at = start - self.address
        if at < 0 or size <= 0 or at + size > len(self.window):
            raise Sanitizer(f"{what} has {size} bytes at {start:#x}, where the NPU has no memory")
        if start % 16:
            raise InvalidInput(f"{what} at {start:#x} is not aligned to 16 bytes")
        return self.window[at : at + size]

    def _told(self, bases: tuple[int, ...]) -> str:
        told = (f"region {i} is at {base:#x}" for i, base in enumerate(bases) if base)
        return ", ".join(told)


def _address(block: NDArray[np.uint32], place: int) -> int:
    return int(block[place]) | int(block[place + 1]) << 32


def paint(address: int, words: int) -> NDArray[np.uint32]:
    """What the firmware paints memory with, so that what nobody wrote is known later."""
    places = np.uint32(address & _IDLE) + np.arange(words, dtype=np.uint32) * np.uint32(4)
    mixed = places * np.uint32(0x9E3779B1)
    made: NDArray[np.uint32] = mixed ^ mixed >> np.uint32(15) ^ np.uint32(0x5BD1E995)
    return made


def unwritten(place: Bytes, address: int) -> NDArray[np.bool_]:
    """Which bytes still hold paint: lines of 16 of them, since a byte may look so by chance."""
    lines = len(place) // 16
    words = place[: 16 * lines].view(np.uint32)
    is_paint = (words == paint(address, 4 * lines)).reshape(lines, 4).all(axis=1)
    found = np.zeros(len(place), np.bool_)
    found[: 16 * lines] = np.repeat(is_paint, 16)
    return found
