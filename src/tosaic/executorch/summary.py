"""Vela's summary of a network as its command line prints it: clock, time, memory, bandwidth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tosaic.pipeline.artifact import Artifact


def summary(artifact: Artifact) -> str:
    """The estimates of all graphs of an artifact, or nothing where nobody makes any."""
    return "".join(f"{line}\n" for line in _lines(artifact))


def _lines(artifact: Artifact) -> Iterator[str]:
    report, moved = artifact.report, Counter[str]()
    if report.cycles is None:
        return
    for told, made in zip(report.delegates, artifact.delegates):
        for cost in made.estimate.operators:
            moved.update({memory: told.calls * size for memory, size in cost.moved.items()})
    clock = max(each.estimate.clock for each in artifact.delegates)
    yield ""
    yield f"Network summary for {artifact.target}, {len(artifact.delegates)} delegate(s)"
    for name in ("system_config", "memory_mode"):
        if name in report.settings:
            yield f"{name.replace('_', ' ').capitalize():<32}{report.settings[name]}"
    if clock:
        yield f"{'Core clock':<32}{clock / 1e6:,.0f} MHz"
    yield f"{'SRAM used':<32}{(report.sram or 0) / 1024:,.2f} KiB"
    yield f"{'Flash used':<32}{(report.flash or 0) / 1024:,.2f} KiB"
    for memory, size in moved.items():
        if size and memory.lower() not in ("shram", "lutram"):
            rate = f", {size / report.milliseconds / 1e6:,.2f} GB/s" if report.milliseconds else ""
            yield f"{memory + ' traffic':<32}{size / 1e6:,.3f} MB/inference{rate}"
    yield f"{'Neural network MACs':<32}{report.macs:,} MACs/batch"
    yield f"{'NPU cycles':<32}{report.cycles:,} cycles/batch"
    if report.milliseconds:
        runs = 1e3 / report.milliseconds
        yield f"{'Batch inference time':<32}{report.milliseconds:,.3f} ms, {runs:,.2f} inferences/s"
