"""Where an image lies on a board: which memory has code, data, weights, arena and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tosaic.errors import InvalidInput
from tosaic.firmware.boards import Board, Memory

_SLACK = 8 << 10  # bytes of data beside the stack
_REGISTERS = 64 << 10  # bytes before the memories that the emulated NPU shares


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of an image that are known before it is compiled."""

    weights: int
    arena: int
    fast: int
    tensors: int
    states: int
    has_npu: bool


def layout(board: Board, needs: Needs, chosen: Mapping[str, str]) -> dict[str, Memory]:
    """The memory of each part; InvalidInput says which part fits none."""
    known = {memory.name: memory for memory in board.memories}
    for part, name in chosen.items():
        if name not in known or part not in ("data", "arena", "fast", "tensors", "weights"):
            raise InvalidInput(
                f"'{part}={name}' places nothing: parts are data, arena, fast, tensors and weights,"
                f" and {board.name} has the memories {', '.join(known)}"
            )
    free = {memory.name: memory.size for memory in board.memories}
    free[board.boot.name] -= min(free[board.boot.name], 64 << 10)  # code
    ram = sorted((m for m in board.memories if not m.is_flash), key=lambda m: (m.rank, m.boots))
    store = sorted(board.memories, key=lambda m: (not m.is_flash, -m.rank))
    found = {"code": board.boot}
    wanted = (
        ("data", board.stack + needs.states + _SLACK, ram, False),
        ("fast", needs.fast, ram, needs.has_npu and needs.fast > 0),
        ("arena", needs.arena, ram, needs.has_npu),
        ("weights", needs.weights, store, needs.has_npu),
        ("tensors", needs.tensors, ram, False),
    )
    for part, size, order, is_shared in wanted:
        options = [known[chosen[part]]] if part in chosen else order
        reached = [m for m in options if not is_shared or m.port is not None]
        fits = [m for m in reached if size <= free[m.name]]
        if not fits:
            sizes = ", ".join(f"{m.name} {free[m.name]:,}" for m in reached) or "none"
            by = " that the NPU reaches" if is_shared else ""
            raise InvalidInput(
                f"the {part} of the image needs {size:,} bytes, and {board.name} has no memory{by} "
                f"with as many free: {sizes}"
            )
        found[part] = fits[0]
        free[fits[0].name] -= size
    return found


def emulated(board: Board) -> dict[str, Memory]:
    """The memories as QEMU has them: those of the NPU lie in the memory that it shares."""
    assert board.emulator is not None
    at, end = board.emulator.shared + _REGISTERS, board.emulator.shared + board.emulator.size
    found = {}
    for memory in sorted(board.memories, key=lambda m: m.size):
        if memory.port is not None and board.npu is not None:
            size = min(memory.size, end - at)
            if size <= 0:
                raise InvalidInput(
                    f"the memory that the emulator of {board.name} shares has no room for "
                    f"{memory.name}: 'size' of [emulator] is too small"
                )
            found[memory.name] = replace(memory, address=at, size=size)
            at += -(-size // (1 << 20)) * (1 << 20)
        else:
            place = memory.address if memory.emulated is None else memory.emulated
            size = memory.size if memory.emulated_size is None else memory.emulated_size
            found[memory.name] = replace(memory, address=place, size=size)
    return {memory.name: found[memory.name] for memory in board.memories}


def script(template: str, board: Board, parts: Mapping[str, Memory], is_emulated: bool) -> str:
    """The linker script."""
    known = emulated(board) if is_emulated else {m.name: m for m in board.memories}
    rows = "".join(
        f"  {m.name} (rwx) : ORIGIN = {m.address:#x}, LENGTH = {m.size:#x}\n"
        for m in known.values()
    )
    about = f"{board.name}, emulated" if is_emulated else board.name
    given = {"about": about, "memories": rows, "stack": board.stack,
             **{part: memory.name for part, memory in parts.items()}}  # fmt: skip
    for name, value in given.items():
        template = template.replace(f"@{name}@", str(value))
    return template
