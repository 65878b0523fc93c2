"""Lookups of tables run on the host where the judge finds the device dearer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.executorch.package import plain_file
from tosaic.executorch.specs import LinuxOptions

U55, U85 = "ethos-u55-128", "ethos-u85-256"
ROWS = 600


class Words(nn.Module):
    """A table of words, positions, and a layer."""

    def __init__(self, rows: int = ROWS, way: str = "embedding") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(rows, 32), nn.Embedding(12, 32)
        self.norm, self.head, self.way = nn.LayerNorm(32), nn.Linear(32, 7), way

    def forward(self, i: Tensor) -> Tensor:
        if self.way == "computed":
            i = (i + 1) % self.words.num_embeddings
        table = self.words.weight
        found = {
            "index": lambda: table[i],
            "select": lambda: table.index_select(0, i),
        }.get(self.way, lambda: self.words(i))()
        return self.head(self.norm(found + self.places(torch.arange(12))))


def data(rows: int = ROWS) -> list[tuple[Tensor, ...]]:
    torch.manual_seed(1)
    return [(torch.randint(0, rows, (1, 12)),) for _ in range(4)]


def compiled(target: str = U55, rows: int = ROWS, way: str = "embedding", **more: Any) -> Any:
    given = [(i[0],) for (i,) in data(rows)] if way == "select" else data(rows)
    return tosaic.compile(
        Words(rows, way).eval(), given[0], target=target, calibration=given, **more
    )


def cycles(art: Any) -> int:
    return int(art.report.cycles)


def test_a_lookup_moves_to_the_host_and_gives_the_same_bits() -> None:
    art, whole = compiled(), compiled(all_on_npu=True)
    assert [call.op for call in art.report.hosted] == ["aten.embedding.default"]
    assert not art.report.refused
    assert not whole.report.hosted
    assert cycles(art) + 10_000 + 2 * 12 * 32 < cycles(whole)
    assert art.report.flash < whole.report.flash
    for given in data():
        assert torch.equal(art.run(*given), whole.run(*given))
    assert len(art.run(*data()[0]).unique()) > 20


def test_a_lookup_in_16_bits_is_the_same_on_both_sides() -> None:
    art = compiled(scheme="a16w8")
    assert [call.op for call in art.report.hosted] == ["aten.embedding.default"]
    plain = compiled(scheme="a16w8", all_on_npu=True)
    assert not plain.report.refused
    assert not plain.report.hosted
    for given in data():
        assert torch.equal(art.run(*given), plain.run(*given))


@pytest.mark.parametrize("way", ["index", "select"])
def test_so_does_a_table_that_is_indexed(way: str) -> None:
    art, whole = compiled(way=way), compiled(way=way, all_on_npu=True)
    assert len(art.report.hosted) == 1
    (i,) = data()[0]
    given = i[0] if way == "select" else i
    assert torch.equal(art.run(given), whole.run(given))


def test_the_file_for_the_device_has_the_table_in_integers(tmp_path: Path) -> None:
    art = compiled()
    art.save(tmp_path / "words.pte")
    assert (tmp_path / "words.pte").stat().st_size < ROWS * 32 * 2 + art.report.flash + 8192
    loaded = tosaic.load(tmp_path / "words.pte")
    assert plain_file(art, LinuxOptions()) is not None  # without ExecuTorch's compiler
    for given in data():
        assert torch.equal(loaded.run(*given), art.run(*given))


@pytest.mark.parametrize(
    ("target", "rows", "way"),
    [(U85, ROWS, "embedding"), (U55, 8, "embedding"), (U55, ROWS, "computed")],
)
def test_what_the_device_is_faster_at_or_computes_first_stays(
    target: str, rows: int, way: str
) -> None:
    assert not compiled(target, rows, way).report.hosted


def test_a_core_beside_the_npu_looks_up_in_c() -> None:
    art = compiled(f"{U55}+cortex-m55")
    assert len(art.report.hosted) == 1
    assert [d.place for d in art.report.delegates] == ["cortex-m55", "the device"]
    assert torch.equal(art.run(*data()[0]), compiled().run(*data()[0]))


def test_report_and_explanation_say_what_it_saves() -> None:
    told = " ".join(str(compiled().report).split())
    assert "On the host by choice: aten.embedding.default" in told
    assert "Everything else is compiled" in told
    found = tosaic.explain(Words().eval(), data()[0], target=U55)
    assert [call.op for call in found.hosted] == ["aten.embedding.default"]
    assert not found.refused
