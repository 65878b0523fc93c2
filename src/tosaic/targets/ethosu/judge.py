"""Vela as the judge of forms: what small graphs take, compiled as they would be emitted.

Answers are kept by the bytes of the file that Vela gets, which has neither names nor places.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from tosaic.errors import ToolFailed, TosaicError
from tosaic.files import flatbuffer
from tosaic.ir.graph import Graph
from tosaic.rewrite.candidates import Figures
from tosaic.spec.env import Env
from tosaic.targets.ethosu.vela import VelaConfig, has_constants_in_sram, run_many
from tosaic.targets.ethosu.vela_workarounds import apply_workarounds

_KNOWN: dict[tuple[VelaConfig, bytes], Figures | None] = {}
_MOST = 1 << 14


def judge(config: VelaConfig, env: Env, graphs: Sequence[Graph]) -> list[Figures | None]:
    """Cycles and bytes of each graph; None where Vela does not compile it."""
    files = [_file(config, env, graph) for graph in graphs]
    keys = [(config, sha256(file).digest()) for file in files]
    if len(_KNOWN) > _MOST:
        _KNOWN.clear()
    new = {key: file for key, file in zip(keys, files) if file and key not in _KNOWN}
    for key, made in zip(new, run_many(list(new.values()), config)):
        _KNOWN[key] = None
        if not isinstance(made, ToolFailed):
            found = made.performance
            constants = found.flash if has_constants_in_sram(config) else 0
            _KNOWN[key] = Figures(found.total_cycles, made.scratch_size, constants)
    return [_KNOWN[key] if file else None for key, file in zip(keys, files)]


def _file(config: VelaConfig, env: Env, graph: Graph) -> bytes:
    """A graph as Vela gets it, nothing where it cannot be written."""
    try:
        apply_workarounds(graph, env, config.accelerator.removeprefix("ethos-"))
        return flatbuffer.write(graph)
    except TosaicError:
        return b""
