"""Whole networks from PyTorch, as Vela compiles them, run bit-exactly on the simulator."""

from __future__ import annotations

import pytest

from npu.configurations import Configuration
from npu.networks import configurations, judge_network

# The rest is part of `make simulate`: all networks, all machines, both goals.
_RUN = [
    (name, where)
    for name in ("mobilenet_v2", "yolo", "unet")
    for where in configurations()
    if ("--optimise=Performance" in where.flags) is (name != "unet")
]


@pytest.mark.parametrize(("name", "where"), _RUN, ids=[f"{n} on {w}" for n, w in _RUN])
def test_network_is_bit_exact(name: str, where: Configuration) -> None:
    assert not judge_network(name, where)
