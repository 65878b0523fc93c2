"""Whole networks from PyTorch, as Vela compiles them, run bit-exactly on the simulator."""

from __future__ import annotations

import pytest

from npu.configurations import Configuration
from npu.networks import configurations, judge_network

# The rest is part of `make simulate`: all networks, all machines, both goals.
_RUN = [
    *(("yolo", where) for where in configurations("yolo")),
    *(("unet", where) for where in configurations("unet")),
    *(
        ("mobilenet_v2", where)
        for where in configurations("mobilenet_v2")
        if "--optimise=Performance" in where.flags
    ),
]


@pytest.mark.parametrize(("name", "where"), _RUN, ids=[f"{n} on {w}" for n, w in _RUN])
def test_network_is_bit_exact(name: str, where: Configuration) -> None:
    assert not judge_network(name, where)
