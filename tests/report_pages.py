"""Pages of a report that no model was compiled for."""

from __future__ import annotations

from tosaic.pipeline.report import Report
from tosaic.report.layout import layout
from tosaic.report.page import Page, View


def deep_page(count: int) -> Page:
    """A network of so many nodes, each a layer of its own, with skips and branches."""
    edges = [(n - 1, n, 0) for n in range(1, count)]
    edges += [(n, n + 7, 0) for n in range(0, count - 7, 7)]
    nodes = [
        {"op": ("CONV2D", "DEPTHWISE_CONV2D", "ADD", "RESCALE")[n % 4], "place": "device",
         "cycles": 1000 + n * 37 % 900, "macs": 5000 * (n % 4 < 2), "moved": {"Sram": 100 + n},
         "loc": {"node": "aten.conv2d.default", "module": f"stage{n // 100}.layer{n}",
                 "file": "net.py", "line": n},
         "outputs": [{"name": f"t{n}", "dtype": "i8", "shape": [1, 8, 8, 16], "scale": 0.1,
                      "zero_point": 3}]}
        for n in range(count)
    ]  # fmt: skip
    members = [[n] for n in range(count)]
    placed = layout(count, [(start, end) for start, end, _ in edges])
    views = {name: View(members, edges, placed) for name in ("layers", "operators")}
    return Page("Deep", "ethos-u55-128", Report("ethos-u55-128", ()), nodes, edges, views, [], [])
