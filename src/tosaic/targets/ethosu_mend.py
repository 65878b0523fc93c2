"""Repair of a graph that Vela refuses or compiles wrongly: reduce it, then try workarounds.

The fault is first reduced to a few operators. Each workaround is tried on those alone, which takes
milliseconds, and what helps there on the whole graph. All of them are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tosaic.errors import ToolFailed, TosaicError
from tosaic.files import flatbuffer
from tosaic.ir.graph import Graph
from tosaic.spec.env import Env
from tosaic.targets.ethosu_outputs import own_outputs
from tosaic.targets.ethosu_repairs import repair
from tosaic.targets.ethosu_twins import tell_apart
from tosaic.targets.reduce import Case, Judge
from tosaic.targets.vela import VelaConfig, run_vela

_REFUSED = "refused: "


def prepare(graph: Graph, env: Env, config: VelaConfig) -> None:
    """Apply the known workarounds to a graph."""
    repair(graph, env, config.accelerator.split("-")[1])
    own_outputs(graph, env)
    tell_apart(graph, env)


@dataclass(frozen=True, slots=True)
class Compiler:
    """Vela with its configuration and the simulator of what it makes."""

    config: VelaConfig
    env: Env

    def judge(self, case: Case) -> str:
        """What is wrong with the stream of a case, whose graph gets the known workarounds."""
        prepare(case.graph, self.env, self.config)
        found = self._judge(case, self.config)
        if not found or found.startswith(_REFUSED):
            return found
        flags = (*self.config.flags, "--disable-buffering")
        return found if self._judge(case, replace(self.config, flags=flags)) else ""

    def _judge(self, case: Case, config: VelaConfig) -> str:
        from tosaic.sim.ethosu import load

        try:
            made = run_vela(flatbuffer.write(case.graph), config)
        except ToolFailed as problem:
            return f"{_REFUSED}{problem}"
        try:
            found = load(made).run(*case.inputs)
        except TosaicError as problem:
            return str(problem)
        if len(found) != len(case.expected):
            return f"{len(found)} results instead of {len(case.expected)}"
        for number, (ours, right) in enumerate(zip(found, case.expected)):
            wrong = int(np.count_nonzero(ours.reshape(right.shape) != right.astype(ours.dtype)))
            if wrong:
                return f"{wrong} of {right.size} elements of result {number} differ"
        return ""

    def alike(self, first: str) -> Judge:
        """A judge of cases that counts the kind of fault alone that one case has."""

        def judge(case: Case) -> str:
            found = self.judge(case)
            if first.startswith(_REFUSED):
                return found if found == first else ""
            return "" if found.startswith(_REFUSED) else found

        return judge
