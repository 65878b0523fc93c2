"""Runs a case on the simulator and compares every bit with the reference model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npu.configurations import compile_stream
from npu.families import Case, case, difference
from tosaic.errors import TosaicError
from tosaic.sim import ethosu


def typed(results: Sequence[np.ndarray], like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The simulator's results, of six dimensions and plain integers, as arrays like others."""
    shaped = []
    for result, other in zip(results, like, strict=True):
        array = result.reshape(other.shape)
        if other.dtype == np.bool_ and np.isin(array, (0, 1)).all():
            array = array.astype(np.bool_)
        shaped.append(array)
    return shaped


def simulate(compiled: Any, inputs: Sequence[np.ndarray], like: Sequence[np.ndarray]) -> list[Any]:
    return typed(ethosu.load(compiled).run(*inputs), like)


def judge(given: Case) -> str:
    """What is wrong with the simulation of a case, in words; nothing if it is bit-exact."""
    compiled = compile_stream(given.data, given.configuration)
    try:
        actual = simulate(compiled, given.inputs, given.expected)
    except TosaicError as problem:
        return f"{type(problem).__name__}: {problem}"
    return difference(actual, given.expected)


def failures(name: str, machine: str, count: int) -> list[str]:
    """Of the first graphs of a family, those that are not bit-exact, and how."""
    found = []
    for index in range(count):
        given = case(name, machine, index)
        problem = judge(given)
        if problem:
            found.append(f"{given}: {problem}")
    return found
