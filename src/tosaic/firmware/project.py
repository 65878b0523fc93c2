"""A firmware project: the files of an image for a board, deterministic and without a path."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from tosaic.boundary.arguments import leaves_of
from tosaic.errors import InvalidInput
from tosaic.files.whole import write_folder
from tosaic.firmware import values
from tosaic.firmware.boards import Board, Memory, Npu, board_of
from tosaic.firmware.layout import Needs, layout, script
from tosaic.firmware.network import Network, network_of
from tosaic.firmware.places import Places, place
from tosaic.firmware.source import Writer, input_files
from tosaic.pipeline.artifact import Artifact
from tosaic.targets.cortexm.cores import CORES
from tosaic.targets.ethosu.vela import VelaResult

C = resources.files("tosaic.firmware") / "c"
_NPU_ONLY = ("ethosu.c", "ethosu.h", "ring.c", "npu.c")
MANIFEST = "firmware.json"


@dataclass(frozen=True, slots=True)
class Project:
    """Files by name, and what was made them of."""

    board: Board
    networks: tuple[Network, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the project into a folder, all of it or nothing, in the place of an older one."""
        folder = Path(path)
        old = _old_files(folder) - set(self.files)
        write_folder(folder, self.files)
        for name in old:
            (folder / name).unlink(missing_ok=True)


def _old_files(folder: Path) -> set[str]:
    """The files of a project that is in a folder, which the next would build with its own."""
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        names = {str(PurePosixPath(name)) for name in listed}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    own = ("firmware", "networks", "inputs")
    parts = {name: PurePosixPath(name).parts for name in names}
    return {n for n, p in parts.items() if len(p) == 1 or (p[0] in own and ".." not in p)}


def project(
    artifacts: Mapping[str, Artifact] | Artifact,
    board: str | Board,
    places: Mapping[str, str] | None = None,
    inputs: Mapping[str, Sequence[tuple[Any, ...]]] | None = None,
) -> Project:
    """The project of an image with networks by name; InvalidInput says what does not fit.

    ``places`` puts parts of the image into memories by name, as ``{"arena": "ddr"}``. ``inputs``
    are arguments of each network, by inference, that the project keeps: ``tosaic run`` takes them.
    """
    if isinstance(artifacts, Artifact):
        artifacts = {"net": artifacts}
    if not artifacts:
        raise InvalidInput("an image has at least one network")
    chosen = board if isinstance(board, Board) else board_of(board)
    for name in artifacts:
        check_name(name)
    networks = tuple(network_of(name, each, CORES[chosen.core]) for name, each in artifacts.items())
    _check_npu(networks, chosen)
    placed = [place(network) for network in networks]
    files = _network_files(networks, placed)
    has_npu = any(stage.on_npu for network in networks for stage in network.stages)
    needs = Needs(
        sum(len(data) for name, data in files.items() if name.endswith(".bin")),
        max(p.size for p in placed), max(p.fast for p in placed), _tensors(networks),
        sum(len(s.data) + 16 for n in networks for s in n.states), has_npu,
    )  # fmt: skip
    if inputs is not None:
        files |= input_files({n.name: _kept(n, inputs.get(n.name, ())) for n in networks})
    files |= _runtime(chosen, has_npu)
    files["networks/networks.h"] = _header(networks, needs).encode()
    files["networks/networks.c"] = _table(networks, needs, chosen.is_linux and has_npu).encode()
    parts = dict[str, Memory]()
    if chosen.is_linux:
        if places:
            raise InvalidInput("Linux has one memory for all parts: there is nothing to place")
    else:
        parts = layout(chosen, needs, places or {})
        files["board.cmake"] = _board_cmake(chosen, networks).encode()
        template = (C / "bare" / "board.ld").read_text(encoding="utf-8")
        files["board.ld"] = script(template, chosen, parts, False).encode()
        if chosen.emulator is not None:
            files["emulated.ld"] = script(template, chosen, parts, True).encode()
    files["board.h"] = _board_header(chosen, parts, has_npu).encode()
    made = _manifest(chosen, networks, placed, parts) | {"files": sorted(files)}
    files[MANIFEST] = (json.dumps(made, indent=1) + "\n").encode()
    return Project(chosen, networks, dict(sorted(files.items())))


def check_name(name: str) -> None:
    """InvalidInput unless C takes it as the name of a network."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name):
        raise InvalidInput(f"a network's name is a word of C in small letters, not {name!r}")


def _kept(network: Network, runs: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """The bytes of each input of a network, one inference after another."""
    program = network.artifact.program
    given = [values.taken(network, values.start(network, leaves_of(program, each, {})))
             for each in runs]  # fmt: skip
    return [b"".join(each[n].tobytes() for each in given) for n in range(len(network.inputs))]


def _network_files(networks: tuple[Network, ...], placed: list[Places]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for network, places in zip(networks, placed):
        for name, data in Writer(network, places).files().items():
            if found.setdefault(f"networks/{name}", data) != data or name in (
                "networks.c",
                "inputs.c",
            ):
                raise InvalidInput(f"two files would be {name}: give '{network.name}' another name")
    return found


def _check_npu(networks: tuple[Network, ...], board: Board) -> None:
    kinds = sorted({s.made.accelerator for n in networks for s in n.stages
                    if isinstance(s.made, VelaResult)})  # fmt: skip
    if not kinds:
        return
    if board.npu is None:
        raise InvalidInput(f"the board {board.name} has no NPU, and the image needs {kinds[0]}")
    if len(kinds) > 1:
        raise InvalidInput(f"one board has one NPU, and the networks are for {' and '.join(kinds)}")
    if not kinds[0].startswith(board.npu.kinds):
        raise InvalidInput(
            f"the board {board.name} has {' or '.join(board.npu.kinds)}, and the network was "
            f"compiled for {kinds[0]}"
        )


def _tensors(networks: tuple[Network, ...]) -> int:
    return max(
        sum(-(-port.size // 16) * 16 for port in (*n.inputs.values(), *n.outputs.values()))
        for n in networks
    )


def _runtime(board: Board, has_npu: bool) -> dict[str, bytes]:
    found = {}
    for folder in (C, C / ("linux" if board.is_linux else "bare")):
        for each in folder.iterdir():
            if each.name.endswith((".c", ".h")) and (has_npu or each.name not in _NPU_ONLY):
                found[f"firmware/{each.name}"] = each.read_bytes()
            elif each.name.endswith((".txt", ".cmake")):
                found[each.name] = each.read_bytes()
    return found


def _header(networks: tuple[Network, ...], needs: Needs) -> str:
    ports = max(len(n.inputs) + len(n.outputs) for n in networks)
    return (
        "/* Sizes that the networks of the image need. */\n#ifndef NETWORKS_H\n#define NETWORKS_H\n"
        f"#ifndef NETWORKS_ARENA_SIZE\n#define NETWORKS_ARENA_SIZE {max(needs.arena, 16)}\n#endif\n"
        f"#define NETWORKS_TENSORS_SIZE {max(needs.tensors, 16)}\n"
        f"#define NETWORKS_MOST_PORTS {max(ports, 1)}\n#endif\n"
    )


def _table(networks: tuple[Network, ...], needs: Needs, is_shared: bool) -> str:
    """The table of networks, and their memory: ``is_shared`` leaves the arena to the NPU's side."""
    fast = f'\nuint8_t fw_fast[{needs.fast}] FW_PLACED(".fast");\n' if needs.fast else ""
    arena = (
        '\nstatic uint8_t arena[NETWORKS_ARENA_SIZE] FW_PLACED(".arena");\n\n'
        "void *fw_arena(void)\n{\n    return arena;\n}\n"
    )
    return (
        '/* The networks of the image. */\n#include "networks.h"\n#include "firmware.h"\n\n'
        + "".join(f"extern const struct fw_network network_{n.name};\n" for n in networks)
        + ("" if is_shared else arena)
        + f"{fast}\nconst struct fw_network *const fw_networks[] = {{"
        + ", ".join(f"&network_{n.name}" for n in networks)
        + f"}};\nconst uint32_t fw_network_count = {len(networks)};\n"
    )


def _board_header(board: Board, parts: Mapping[str, Memory], has_npu: bool) -> str:
    rows = {"BOARD_CLOCK": f"{board.clock}u", "BOARD_HAS_CACHE": int(board.has_cache),
            "BOARD_HAS_NPU": int(has_npu)}  # fmt: skip
    if board.is_linux:
        rows["BOARD_STACK"] = board.stack
    text = "".join(f"#define {name} {value}\n" for name, value in rows.items())
    if has_npu and board.npu is not None:
        npu = board.npu
        ports = [parts[p].port or 0 if p in parts else 0 for p in ("weights", "arena", "fast")]
        region = sum(port << 2 * i for i, port in enumerate(ports))
        rows = {
            "BOARD_NPU_IRQ": npu.interrupt, "BOARD_NPU_ACCESS": f"{npu.access}u",
            "BOARD_NPU_TIMEOUT": f"{npu.timeout}u", "BOARD_NPU_QCONFIG": f"{ports[0]}u",
            "BOARD_NPU_REGIONCFG": f"{region}u",
            "BOARD_NPU_LIMITS": "{" + ", ".join(f"{each:#x}u" for each in npu.limits) + "}",
        }  # fmt: skip
        for name, value in rows.items():
            text += f"#ifndef {name}\n#define {name} {value}\n#endif\n"
        text += _reached(board, npu)
    about = f"/* The board {board.name} as numbers. */\n"
    return f"{about}#ifndef BOARD_H\n#define BOARD_H\n{text}#endif\n"


def _reached(board: Board, npu: Npu) -> str:
    """How the driver reaches registers and memory: on the board, emulated, or beside Linux."""
    shared, size = (board.emulator.shared, board.emulator.size) if board.emulator else (0, 0)
    if board.is_linux:
        return (
            "#include <stdint.h>\nvoid fw_ring(void);\nuintptr_t fw_npu_base(void);\n"
            "const void *fw_npu_reached(const void *start, uint32_t size);\n"
            f"#define BOARD_NPU_WINDOW {shared:#x}u\n#define BOARD_NPU_WINDOW_SIZE {size:#x}u\n"
            "#define BOARD_NPU_BASE fw_npu_base()\n#define BOARD_NPU_RING() fw_ring()\n"
            "#define BOARD_NPU_REACHED(start, size) fw_npu_reached(start, size)\n"
        )
    return (
        "#define BOARD_NPU_REACHED(start, size) (start)\n"
        "#if BOARD_IS_EMULATED\nvoid fw_ring(void);\n"
        f"#define BOARD_NPU_BASE {shared:#x}u\n#define BOARD_NPU_RING() fw_ring()\n#else\n"
        f"#define BOARD_NPU_BASE {npu.base:#x}u\n#define BOARD_NPU_RING() ((void)0)\n#endif\n"
    )


def _board_cmake(board: Board, networks: tuple[Network, ...]) -> str:
    codes = [s.made.name for n in networks for s in n.stages if not isinstance(s.made, VelaResult)]
    sections = "".join(f"\n  {name.upper()}_WEIGHTS_SECTION=.weights.{name}" for name in codes)
    emulator = board.emulator.core if board.emulator is not None else board.core
    # -mfpu=auto is what GCC does anyway, and Clang has no such flag.
    core, other = (
        " ".join(flag for flag in CORES[name].flags if flag != "-mfpu=auto")
        for name in (board.core, emulator)
    )
    return (
        f"# The board {board.name}: flags of its core.\nset(BOARD_CORE {core})\n"
        f"set(BOARD_EMULATED_CORE {other})\nset(BOARD_DEFINITIONS{sections})\n"
    )


def _manifest(
    board: Board, networks: tuple[Network, ...], placed: list[Places],
    parts: Mapping[str, Memory],
) -> dict[str, Any]:  # fmt: skip
    """What runs the image needs to know: ports, streams, and the emulated board."""
    streams, config = {}, 0
    for network, places in zip(networks, placed):
        for stage, own in zip(network.stages, places.stages):
            if isinstance(stage.made, VelaResult):
                config, name, job = _job(stage.made, own.size)
                streams[name] = job
    made: dict[str, Any] = {
        "board": board.name,
        "system": "linux" if board.is_linux else "none",
        "parts": {part: memory.name for part, memory in parts.items()},
        "networks": [
            {"name": n.name, "arena": p.size,
             "inputs": [_port(port) for port in n.inputs.values()],
             "outputs": [_port(port) for port in n.outputs.values()]}
            for n, p in zip(networks, placed)
        ],
    }  # fmt: skip
    if board.emulator is not None:
        made["emulator"] = {"machine": board.emulator.machine, "shared": board.emulator.shared,
                            "size": board.emulator.size}  # fmt: skip
    if streams:
        made["npu"] = {"config": config, "streams": streams}
    return made


def _port(port: Any) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype, "shape": list(port.shape)}


def _job(made: VelaResult, scratch: int) -> tuple[int, str, dict[str, Any]]:
    """The configuration in a payload, the hash of its commands, and its regions."""
    words = memoryview(made.command_stream).cast("I")
    at, config = 1, 0
    while words[at] & 0xFF != 2:
        if words[at] & 0xFF == 1:
            config, at = words[at + 1], at + 3
        else:
            at += 1
    count = (words[at] >> 8 & 0xFF) << 16 | words[at] >> 16
    stream = struct.pack(f"<{count}I", *words[at + 1 : at + 1 + count])
    sizes = {made.weights_region: -(-max(len(made.weights), 16) // 16) * 16,
             made.scratch_region: scratch}  # fmt: skip
    if made.scratch_fast_size:
        sizes[made.scratch_fast_region] = made.scratch_fast_size
    regions = {str(region): size for region, size in sorted(sizes.items())}
    return config, sha256(stream).hexdigest(), {"weights": made.weights_region, "sizes": regions}
