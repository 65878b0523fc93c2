"""Rewrites of TOSA graphs: equal results at lower cost."""

from __future__ import annotations

from tosaic.rewrite.layout import sink_transposes
from tosaic.rewrite.match import Allowed, Cost, remove_dead, simplify
from tosaic.rewrite.phases import improve

__all__ = ["Allowed", "Cost", "improve", "remove_dead", "simplify", "sink_transposes"]
