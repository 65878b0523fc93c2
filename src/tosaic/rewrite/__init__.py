"""Rewrites: the same meaning in a better graph, checked with the same table."""

from tosaic.rewrite.clean import remove_dead
from tosaic.rewrite.layout import sink_transposes

__all__ = ["remove_dead", "sink_transposes"]
