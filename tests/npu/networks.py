"""Whole networks from PyTorch, through Vela, on the simulator: bit-exact with the interpreter.

That the interpreter equals the reference model on these very graphs is what ``tests/zoo`` shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

import tosaic
import zoo
from npu.configurations import Configuration, compile_stream
from npu.families import VacuousReference, difference
from npu.runner import typed
from tosaic.errors import TosaicError
from tosaic.interp.model import Model
from tosaic.sim import ethosu

_SYSTEMS = {
    "u55-128": (
        ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
        ("Ethos_U55_Deep_Embedded", "Sram_Only"),
    ),
    "u65-512": (
        ("Ethos_U65_High_End", "Dedicated_Sram_384KB"),
        ("Ethos_U65_Embedded", "Shared_Sram"),
    ),
    "u85-256": (
        ("Ethos_U85_SYS_DRAM_Mid", "Sram_Only"),
        ("Ethos_U85_SYS_DRAM_Low", "Dedicated_Sram_384KB"),
    ),
    "u85-2048": (
        ("Ethos_U85_SYS_DRAM_High", "Dedicated_Sram_512KB"),
        ("Ethos_U85_SYS_Flash_High", "Shared_Sram"),
    ),
}
_TARGETS = {"u55": "ethos-u55-128", "u65": "ethos-u65-256", "u85": "ethos-u85-256"}
NETWORKS = ("mobilenet_v2", "mobilenet_v3_small", "resnet18", "squeezenet", "unet", "yolo")


def configurations() -> Iterator[Configuration]:
    """The NPUs of a network with both goals, each with another system and memory mode."""
    for accelerator, systems in _SYSTEMS.items():
        for goal, (system, mode) in zip(("Performance", "Size"), systems):
            yield Configuration(accelerator, system, mode, (f"--optimise={goal}",))


@cache
def network(name: str, product: str) -> tuple[bytes, list[np.ndarray], list[np.ndarray]]:
    """The TOSA file of a network, a picture as integers, and what the interpreter makes of it."""
    net, example, calibration = zoo.build(name)
    art = tosaic.compile(net, example, target=_TARGETS[product], calibration=calibration)
    quant = art.graph.inputs[0].quant
    assert quant is not None
    levels = np.round(example[0].double().numpy() / quant.scale) + quant.zero_point
    given = [np.clip(levels, -128, 127).astype(np.int8)]
    expected = Model(art.graph).run(*given)
    for result in expected:
        _check_alive(result)
    return art.bytes, given, expected


def _check_alive(result: np.ndarray) -> None:
    """Scores may rest at the zero of an activation, but most must not."""
    values, counts = np.unique(result, return_counts=True)
    if len(values) < 24 or counts.max() > 0.5 * result.size:
        raise VacuousReference(f"{len(values)} values, {counts.max()} of {result.size} equal")


def judge_network(name: str, where: Configuration) -> str:
    """What is wrong with the simulation of a network; nothing if it is bit-exact, twice."""
    data, given, expected = network(name, where.accelerator.partition("-")[0])
    try:
        simulation = ethosu.load(compile_stream(data, where))
        for _ in range(2):  # the second run uses what the first has kept
            problem = difference(typed(simulation.run(*given), expected), expected)
            if problem:
                return problem
    except TosaicError as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""
