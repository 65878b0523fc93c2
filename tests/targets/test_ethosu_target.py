"""Compiling for an Ethos-U: delegates, options, limits, and what is wrong with a request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.errors import InvalidInput
from tosaic.ir.build import Constraint
from tosaic.targets.ethosu import target as ethosu
from tosaic.targets.ethosu.target import ETHOS_U
from tosaic.targets.ethosu.vela import VelaConfig, check

X = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A convolution, a comparison in the middle, a choice by it, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.stem(x))
        y = torch.where(y > 0.3, y, y * 0.5)
        return self.head(y.amax((2, 3)))


def compiled(target: str = "ethos-u55-128", net: nn.Module | None = None, **options: object):  # type: ignore[no-untyped-def]
    return tosaic.compile(net or Net().eval(), (X,), target=target, calibration=[X], **options)


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_a_network_with_masks_runs_whole_on_every_product(target: str) -> None:
    art = compiled(target)
    assert not art.report.refused, art.report
    (delegate,) = art.delegates
    assert delegate.graph is art.graph
    assert delegate.tosa == art.bytes
    assert delegate.result.accelerator == target
    assert delegate.result.command_stream[:4] == b"COP1"
    plain = tosaic.compile(Net().eval(), (X,), target="TOSA-1.0+INT", calibration=[X])
    assert torch.equal(art.run(X), plain.run(X))
    assert len(art.run(X).unique()) > 3


def test_each_operation_of_the_npu_leads_home_to_its_module() -> None:
    (delegate,) = compiled().delegates
    cost = {o.loc.module: o for o in delegate.operators if o.loc}
    assert cost["stem"].macs >= 8 * 8 * 8 * 27  # with zeros between the weights it may be more
    assert cost["head"].macs == 40
    riders = ("TABLE", "CLAMP")  # which are done on the way
    assert all(o.cycles > 0 for o in delegate.operators if o.op not in riders)
    assert sum(o.cycles for o in delegate.operators) == delegate.result.performance.total_cycles
    assert sum(o.macs for o in delegate.operators) == delegate.result.performance.macs
    assert "stem" in {t.loc.module for t in delegate.tensors if t.loc}
    assert sum(t.size for t in delegate.largest()) == delegate.result.scratch_size


def test_a_mask_enters_and_leaves_as_bool() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            return x.masked_fill(mask, 0.0), (x > 0.5) & mask

    x, mask = torch.randn(4, 6), torch.rand(4, 6) > 0.5
    art = tosaic.compile(Masked(), (x, mask), target="ethos-u55-128", calibration=[(x, mask)])
    assert not art.report.refused, art.report
    filled, both = art.run(x, mask)
    assert both.dtype is torch.bool
    assert torch.equal(filled == 0, mask | (filled == 0))
    assert bool((both <= mask).all())
    assert 0 < int(both.sum()) < both.numel()


def test_the_options_reach_vela(tmp_path: Path) -> None:
    usual = compiled().delegates[0].result
    small = compiled(system_config="Ethos_U55_Deep_Embedded", memory_mode="Sram_Only",
                     vela_flags=("--optimise=Size",)).delegates[0].result  # fmt: skip
    assert small.performance.memories != usual.performance.memories
    assert small.performance.total_cycles != usual.performance.total_cycles
    other = compiled(vela_flags="--cop-format COP2").delegates[0].result
    assert other.command_stream[:4] != usual.command_stream[:4]
    import ethosu.vela as vela

    shipped = Path(vela.__file__).parent.parent / "config_files" / "Arm" / "vela.ini"
    own = tmp_path / "own.ini"
    own.write_text(shipped.read_text().replace("Ethos_U55_High_End_Embedded", "My_Board"))
    mine = compiled(vela_ini=str(own), system_config="My_Board").delegates[0].result
    assert mine.command_stream == usual.command_stream


@pytest.mark.parametrize(
    ("target", "options", "sentence"),
    [
        ("ethos-u55-127", {}, "there is no target 'ethos-u55-127', perhaps ethos-u55-128; `tosaic"),
        ("Ethos_U55_129", {}, "there is no target 'Ethos_U55_129', perhaps ethos-u55-128; `tosaic"),
        ("ethos-u55-128", {"vela_ini": "/none.ini"}, "no Vela configuration file '/none.ini'"),
        ("ethos-u55-128", {"system_config": "Mars"}, "has no System_Config 'Mars'; it has Ethos_"),
        ("ethos-u55-128", {"memory_mode": "Moon"}, "has no Memory_Mode 'Moon'; it has Sram_Only"),
        ("ethos-u55-128", {"vela_flags": ("--warp",)}, "Vela's flag --warp has no meaning here"),
        ("ethos-u55-128", {"speed": 3}, "ethos-u55-128 has no option 'speed'; it has system_con"),
        ("TOSA-1.0+INT", {"memory_mode": "x"}, "INT has no option 'memory_mode'; it has check"),
        ("ethos-u55-128", {"max_scratch_bytes": 100},
         r"the graph needs [\d,]+ bytes of scratch memory, and 100 are allowed; the largest: "
         r"[\d,]+ bytes of "),
        ("ethos-u55-128", {"max_flash_bytes": 100},
         r"the graph needs [\d,]+ bytes of flash, and 100 are allowed; the largest: .*\d bytes of"
         r" stem"),
    ],
)  # fmt: skip
def test_a_wrong_request_gets_a_sentence(
    target: str, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        compiled(target, **options)


SYSTEM, MODE = "[System_Config.S]\n", "[Memory_Mode.M]\n"
PORTS = "axi0_port=Sram\naxi1_port=OffChipFlash\n"
AREAS = "const_mem_area=Axi1\ncache_mem_area=Axi0\narena_mem_area=Axi0\n"
CLOCK = "core_clock=5e8\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no System_Config 'S'; it has none"),
        (SYSTEM + MODE, "Vela's core_clock of S must be a number above 0, not ''"),
        (SYSTEM + "core_clock=nan\n" + MODE, "must be a number above 0, not 'nan'"),
        (SYSTEM + "core_clock=%(x)s\n" + MODE, r"must be a number above 0, not '%\(x\)s'"),
        (SYSTEM + CLOCK + MODE + AREAS, "M has const_mem_area=Axi1, and S has no such port"),
        (SYSTEM + CLOCK + "axi1_port=Moon\n" + MODE + AREAS, "S has Axi1_port=Moon: a port is one"),
        (SYSTEM + CLOCK + PORTS + MODE + "inherit=Memory_Mode.M\n",
         "Memory_Mode.M of the Vela configuration inherits from Memory_Mode.M, which inherits"),
        (SYSTEM + "inherit=System_Config.T\n" + MODE, "from System_Config.T, which is not there"),
        (SYSTEM + CLOCK + PORTS + MODE + AREAS + "arena_cache_size=-1\n", "a whole number up to"),
        (SYSTEM + CLOCK + PORTS + MODE + AREAS.replace("Axi0", "Axi1"), "which cannot be written"),
    ],
)  # fmt: skip
def test_a_wrong_vela_configuration_gets_a_sentence_before_vela_runs(
    text: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "own.ini").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=sentence):
        check(VelaConfig("ethos-u55-128", "S", "M", str(tmp_path / "own.ini")))


def test_a_vela_configuration_may_come_from_windows(tmp_path: Path) -> None:
    text = "\ufeff" + SYSTEM + CLOCK + PORTS + MODE + AREAS
    (tmp_path / "own.ini").write_bytes(text.replace("\n", "\r\n").encode())
    check(VelaConfig("ethos-u55-128", "S", "M", str(tmp_path / "own.ini")))


def test_a_model_with_nothing_for_the_npu_gets_a_sentence() -> None:
    class Bessel(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.special.bessel_j0(x)

    with pytest.raises(InvalidInput, match="nothing of the model runs on ethos-u55-128; the first"):
        compiled(net=Bessel())


class Fallen(nn.Module):
    """One operator that U55 lacks, whose forms it is given none of."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 4, 1)
        self.last = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        y = torch.flip(y, (1, 3))
        return self.last(y)


def test_a_call_that_vela_refuses_after_all_stays_in_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    none: tuple[Constraint, ...] = ()
    bare = {name: replace(target, constraints=none) for name, target in ETHOS_U.items()}
    monkeypatch.setattr(ethosu, "ETHOS_U", bare)
    art = compiled(net=Fallen().eval())
    (refusal,) = art.report.refused
    assert refusal.op == "aten.flip.default"
    assert "Vela does not compile the graph for ethos-u55-128" in refusal.reason
    assert len(art.delegates) == len(art.partition.graphs) == 2
    plain = tosaic.compile(Fallen().eval(), (X,), target="TOSA-1.0+INT", calibration=[X])
    assert torch.allclose(art.run(X), plain.run(X), atol=0.05)
