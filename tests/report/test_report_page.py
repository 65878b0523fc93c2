"""What a report says is what was compiled: nodes, costs, memory, layers, refusals, facts."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.cli.examples import example
from tosaic.errors import InvalidInput
from tosaic.pipeline.artifact import Artifact
from tosaic.report.page import page_of

HOSTILE = "</script><script>alert(1)</script><!--"


class Mixed(nn.Module):
    """A residual network with a call that has no form in TOSA, and a name that means harm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.add_module(HOSTILE, nn.Conv2d(8, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = x + torch.relu(self.second(x))
        x = torch.special.bessel_j0(x)  # <b>the line that refusals must name</b>
        result: Tensor = getattr(self, HOSTILE)(x)
        return result


Made = tuple[Artifact, dict[str, Any], str]


def page(path: Path) -> tuple[dict[str, Any], str]:
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1]), text


def made(net: nn.Module, data: list[tuple[Tensor]], target: str, folder: Path) -> Made:
    art = tosaic.compile(net, data[0], target=target, calibration=data)
    art.save(folder / "report.html", model=net, inputs=data[:2])
    return (art, *page(folder / "report.html"))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    torch.manual_seed(0)
    data = [(torch.randn(1, 3, 8, 8),) for _ in range(4)]
    return made(Mixed().eval(), data, "ethos-u55-128", tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Made:
    net, _, data = example("cnn")
    return made(net, data, "TOSA-1.0+INT", tmp_path_factory.mktemp("plain"))


@pytest.fixture(params=["mixed", "plain"])
def any_page(request: pytest.FixtureRequest) -> Made:
    found: Made = request.getfixturevalue(request.param)
    return found


def test_every_operator_and_every_call_in_pytorch_is_a_node(any_page: Made) -> None:
    art, data, _ = any_page
    inside = Counter(n["op"] for n in data["nodes"] if n["place"] in ("device", "tosa"))
    assert inside == Counter(art.report.ops)
    outside = [p for p in art.partition.pieces if p.graph is None]
    assert sum(n["place"] == "cpu" for n in data["nodes"]) == len(outside)


def test_edges_lead_forward_and_reach_every_output(any_page: Made) -> None:
    _, data, _ = any_page
    assert all(start < end for start, end, _ in data["edges"])
    read = {end for _, end, _ in data["edges"]}
    ports = [i for i, n in enumerate(data["nodes"]) if n["place"] == "port"]
    assert [i in read for i in ports] == [False] + [True] * (len(ports) - 1)
    alone = [i for i in range(len(data["nodes"])) if i not in read]
    assert alone == ports[:1]  # all else has an operand that is no constant


@pytest.mark.parametrize("name", ["layers", "modules"])
def test_groups_hold_each_node_once_and_no_way_leads_back(any_page: Made, name: str) -> None:
    _, data, _ = any_page
    view = data["views"][name]
    assert sorted(n for group in view["members"] for n in group) == list(range(len(data["nodes"])))
    assert len(view["members"]) < len(data["nodes"])
    assert all(start < end for start, end, _ in view["edges"])


def test_a_recurrent_layer_is_one_box_of_the_folded_graph() -> None:
    x = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(0))
    net = torch.nn.Sequential(torch.nn.GRU(4, 5, batch_first=True)).eval()
    art = tosaic.compile(net, (x,), target="TOSA-1.0+INT+int16", calibration=[(x,)])
    page = page_of(art, "", None)
    assert len(page.views["layers"].members) > 40
    assert len(page.views["modules"].members) < 8


def test_cycles_of_nodes_add_up_to_velas(mixed: Made) -> None:
    art, data, _ = mixed
    wanted = sum(cost.cycles for d in art.delegates for cost in d.operators)
    assert sum(n.get("cycles", 0) for n in data["nodes"]) == wanted > 0
    assert sum(n.get("macs", 0) for n in data["nodes"]) == art.report.macs
    rows = [d.result.database["perf_debug"] for d in art.delegates]
    read = sum(
        int(cell or 0) for table in rows for row in table.rows
        for name, cell in zip(table.header, row)
        if re.fullmatch(r"Sram(Lut|FeatureMap|Weights|Scales)_(read|write)", name)
    )  # fmt: skip
    assert sum(n.get("moved", {}).get("Sram", 0) for n in data["nodes"]) == read > 0


def test_tensors_that_live_together_do_not_overlap_in_our_plan(plain: Made) -> None:
    art, data, _ = plain
    (arena,) = data["arenas"]
    blocks = arena["blocks"]
    for index, one in enumerate(blocks):
        for other in blocks[:index]:
            together = one["start"] <= other["end"] and other["start"] <= one["end"]
            apart = (
                one["address"] >= other["address"] + other["size"]
                or other["address"] >= one["address"] + one["size"]
            )
            assert apart or not together
    largest = max(
        sum(v.type.size * v.dtype.bits // 8 for v in {*op.ins, *op.outs} if not v.is_const)
        for op in art.graph.ops
    )
    assert arena["size"] >= largest


def test_the_arena_of_an_npu_is_velas(mixed: Made) -> None:
    art, data, _ = mixed
    placed = [t for d in art.delegates for t in d.tensors]
    shown = [b for a in data["arenas"] for b in a["blocks"]]
    wanted = sorted((t.name, t.address, t.size, t.start, t.end) for t in placed)
    keys = ("name", "address", "size", "start", "end")
    assert sorted(tuple(b[k] for k in keys) for b in shown) == wanted


def test_layers_are_those_of_compare_at_their_own_operators(plain: Made) -> None:
    art, data, _ = plain
    net, _, inputs = example("cnn")
    told = tosaic.compare(net, art, inputs[:2])
    shown = [m["layer"] for m in data["layers"]]
    assert [m["name"] for m in shown] == [layer.name for layer in told.layers]
    assert [m["sqnr"] for m in shown] == pytest.approx([layer.sqnr for layer in told.layers])
    by_name = {m["layer"]["name"]: m["group"] for m in data["layers"]}
    members = data["views"]["layers"]["members"]
    place = {
        name: {data["nodes"][n]["op"] for n in members[g]} for name, g in by_name.items() if g >= 0
    }
    assert "CONV2D" in place["relu"]  # it rides on the convolution
    assert "AVG_POOL2D" in place["adaptive_avg_pool2d"]


def test_histograms_count_every_value_of_the_original(plain: Made) -> None:
    _, data, _ = plain
    _, _, inputs = example("cnn")
    (first,) = [m["layer"]["values"] for m in data["layers"] if m["layer"]["op"] == "input"]
    seen = torch.cat([x.flatten() for (x,) in inputs[:2]])
    assert sum(first["counts"]) == seen.numel()
    assert first["low"] == pytest.approx(float(seen.min()))
    assert first["high"] == pytest.approx(float(seen.max()))
    inside = (seen >= first["percentiles"][0]) & (seen <= first["percentiles"][1])
    assert 0.99 < float(inside.float().mean()) < 1
    low, high = first["covered"]
    zero, scale = first["zero_point"], first["scale"]
    assert (low, high) == pytest.approx(((-128 - zero) * scale, (127 - zero) * scale))


def test_a_refusal_shows_the_users_line_and_what_to_do(mixed: Made) -> None:
    _, data, _ = mixed
    (refused,) = data["refused"]
    assert "there is no rule" in refused["reason"]
    assert "leave it on the CPU" in refused["advice"]
    (line,) = [line for line in refused["lines"] if line["is_it"]]
    assert "torch.special.bessel_j0(x)" in line["text"]
    assert min(len(n["text"]) - len(n["text"].lstrip()) for n in refused["lines"] if n["text"]) == 0
    assert data["nodes"][refused["node"]]["op"] == refused["op"]


def test_facts_say_what_it_takes_to_make_it_again(mixed: Made) -> None:
    _, data, _ = mixed
    facts = dict(data["facts"])
    assert facts["target"] == "ethos-u55-128"
    assert facts["torch"] == torch.__version__
    assert facts["input 0"] == "float32 1×3×8×8"
    assert any("sha256" in name for name in facts)


def test_names_in_a_model_do_no_harm(mixed: Made) -> None:
    _, data, text = mixed
    assert any(HOSTILE in n.get("loc", {}).get("module", "") for n in data["nodes"])
    assert "alert(1)</script>" not in text
    scripts = re.findall(r"<script\b", text)
    assert len(scripts) == 2  # the data and the page's own
    assert text.count("</script>") == 2


def test_the_file_asks_nothing_of_a_network(any_page: Made) -> None:
    _, _, text = any_page
    outside = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+[^\s\"')]*", text))
    assert outside <= {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text


def test_a_report_without_the_original_leaves_accuracy_out(plain: Made, tmp_path: Path) -> None:
    art = plain[0]
    art.save(tmp_path / "r.html")
    data, _ = page(tmp_path / "r.html")
    assert data["layers"] == data["outputs"] == []
    with pytest.raises(InvalidInput, match="give model and inputs"):
        art.save(tmp_path / "r.html", inputs=[torch.zeros(1)])


def test_model_explorer_gets_the_same_nodes_and_edges(mixed: Made, tmp_path: Path) -> None:
    art, data, _ = mixed
    art.save(tmp_path / "graph.json")
    (graph,) = json.loads((tmp_path / "graph.json").read_text())["graphs"]
    assert [n["label"] for n in graph["nodes"]] == [n["op"] for n in data["nodes"]]
    edges = [
        [int(e["sourceNodeId"]), int(n["id"]), int(e["sourceNodeOutputId"])]
        for n in graph["nodes"] for e in n["incomingEdges"]
    ]  # fmt: skip
    assert sorted(edges) == sorted(data["edges"])


def test_the_step_of_a_loop_costs_as_often_as_it_is_called() -> None:
    x = torch.randn(1, 100, 8, generator=torch.Generator().manual_seed(0))
    net = torch.nn.Sequential(torch.nn.LSTM(8, 16, batch_first=True)).eval()
    art = tosaic.compile(net, (x,), target="ethos-u55-128", calibration=[(x,)])
    assert any(d.calls > 1 and 100 % d.calls == 0 for d in art.report.delegates)
    data = page_of(art, "", None).data()
    assert data["report"]["cycles"] == art.report.cycles
    assert data["report"]["sram"] == art.report.sram
    assert sum(n.get("macs", 0) for n in data["nodes"]) == art.report.macs >= 100 * 4 * 16 * 24
    told = [(d.calls, made.operators) for d, made in zip(art.report.delegates, art.delegates)]
    wanted = sum(calls * cost.cycles for calls, costs in told for cost in costs)
    assert sum(n.get("cycles", 0) for n in data["nodes"]) == wanted > 0
