"""Speed at length: long sequences, recurrences, first runs, calibration. One run, ratios.

For each network: seconds of a compilation by phase, calibration beside the forward pass, the
integer graph beside eager PyTorch, and a first run beside a later one, each with its bound.
``--lengths`` prints compile time against the number of steps and positions. Networks have random
weights and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from networks.models import settled
from torch import Tensor, nn

sys.path.remove(str(Path(__file__).resolve().parent))  # it has a file named as Vela's package
import tosaic
from tosaic.runtime import timing

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

from zoo.tokens import enliven


class Recurrent(nn.Module):
    """Recurrent layers over a sequence, and a layer that reads the last step."""

    def __init__(self, kind: str, steps: int, layers: int = 2, width: int = 64) -> None:
        super().__init__()
        both = kind == "gru"
        made: dict[str, type[nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU}
        self.steps = steps
        self.rnn = made[kind](32, width, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(width * (1 + both), 10)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.rnn(x)[0][:, -1])
        return y


class Last(nn.Module):
    """The last hidden state of a network of Hugging Face's."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x).last_hidden_state
        return y


def recurrent(kind: str, steps: int, layers: int = 2) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Recurrent(kind, steps, layers).eval(), (torch.randn(1, steps, 32),)


def whisper(positions: int = 1500) -> tuple[nn.Module, tuple[Tensor, ...]]:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    net = WhisperEncoder(WhisperConfig(max_source_positions=positions, encoder_layers=4,
                                       d_model=384, encoder_attention_heads=6,
                                       encoder_ffn_dim=1536))  # fmt: skip
    return enliven(Last(net)), (torch.randn(1, 80, 2 * positions),)


def swin() -> tuple[nn.Module, tuple[Tensor, ...]]:
    from transformers import SwinConfig, SwinModel

    return enliven(Last(SwinModel(SwinConfig()))), (torch.randn(1, 3, 224, 224),)


def vit() -> tuple[nn.Module, tuple[Tensor, ...]]:
    from transformers import ViTConfig, ViTModel

    return enliven(Last(ViTModel(ViTConfig()))), (torch.randn(1, 3, 224, 224),)


def bert(length: int = 128) -> tuple[nn.Module, tuple[Tensor, ...]]:
    from transformers import BertConfig, BertModel

    net = Last(BertModel(BertConfig(max_position_embeddings=max(512, length))))
    return enliven(net), (torch.randint(30000, (1, length)),)


def mobilenet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return settled("mobilenet_v2").eval(), (torch.randn(1, 3, 512, 512),)


@dataclass(frozen=True)
class Case:
    """A network, what it is compiled for, and the bounds of its ratios."""

    make: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]
    target: str
    ratio: float  # integer graph over eager
    compiled: float = 5.0  # seconds without the device's compiler
    in_all: float = 0.0


CASES = {
    "lstm200": Case(lambda: recurrent("lstm", 200), "ethos-u85-256", 30, in_all=5.0),
    "gru100": Case(lambda: recurrent("gru", 100), "ethos-u85-256", 30),
    "whisper": Case(whisper, "ethos-u85-1024", 2.0),
    "swin": Case(swin, "ethos-u85-256", 1.5),
    "vit": Case(vit, "ethos-u85-1024", 1.5),
    "bert": Case(bert, "TOSA-1.0+INT+int16", 1.1),
    "mobilenet512": Case(
        lambda: (settled("mobilenet_v2").eval(), (torch.randn(1, 3, 512, 512),)),
        "ethos-u55-256",
        0.8,
    ),
}


class Bounds:
    """Lines of figures, each with the bound that it must keep."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def line(self, what: str, value: float, bound: float) -> None:
        good = value <= bound
        print(f"  {what:46}{value:9.2f}  ≤ {bound:<6g}{'ok' if good else 'MISSED'}", flush=True)
        if not good:
            self.missed.append(what)


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock time; with one thread that of the processor, which other work does not change."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    run()
    return clock() - start


def measure(name: str, case: Case, target: str, bounds: Bounds, rounds: int) -> None:
    torch.manual_seed(0)
    net, example = case.make()
    with torch.inference_mode():
        net(*example)
        before = _peak()
        art: Any = tosaic.compile(net, example, target=target, calibration=[example])
        grown = _peak() - before
        operators = sum(art.report.ops.values())
        print(f"\n{name}, {target}: {operators:,} operators", flush=True)
        for row in art.timing.lines():
            print("  {:18}{:>8} s {:>5}".format(*row))
        fresh: Any = pickle.loads(pickle.dumps(art))  # which has run nothing yet
        first = seconds(lambda: fresh.run(*example, engine="tosa"))
        art.run(*example, engine="tosa")
        later, eager = [], []
        for _ in range(rounds):
            later.append(seconds(lambda: art.run(*example, engine="tosa")))
            eager.append(seconds(lambda: net(*example)))
    ours, theirs = statistics.median(later), statistics.median(eager)
    spent = art.timing.seconds
    print(f"  eager {theirs:.4f} s, integer graph {ours:.4f} s, first run {first:.4f} s")
    bounds.line(f"{name}: integer graph over eager", ours / theirs, case.ratio)
    bounds.line(f"{name}: first run over a later one", first / ours, 3.0)
    bounds.line(f"{name}: calibration over forward", spent["calibrate"] / theirs, 1.5)
    others = art.timing.total - spent.get("device compiler", 0.0)
    bounds.line(f"{name}: compile s without device's compiler", others, case.compiled)
    if case.in_all:
        bounds.line(f"{name}: compile s in all", art.timing.total, case.in_all)
    size = sum(p.numel() * 4 for p in net.parameters()) / 2**20
    bounds.line(f"{name}: memory of a compile, MB", grown, 3 * size + 600)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def lengths() -> None:
    """Compile seconds against length, and the sizes of files."""
    makes: list[tuple[str, tuple[int, ...], Callable[[int], Any], str]] = [
        ("LSTM steps", (50, 100, 200, 500, 1000, 2000),
         lambda n: recurrent("lstm", n), "ethos-u85-256"),
        ("encoder positions", (128, 256, 512, 1024, 2048, 4096), whisper, "TOSA-1.0+INT+int16"),
    ]  # fmt: skip
    for what, sizes, make, target in makes:
        print(f"\n{what}, {target}: seconds of a compilation, bytes of a file")
        for size in sizes:
            torch.manual_seed(0)
            net, example = make(size)
            art: Any = tosaic.compile(net, example, target=target, calibration=[example])
            file = Path(tempfile.gettempdir()) / f"length-{size}.pte"
            art.save(file)
            print(f"  {size:6} {art.timing.total:8.2f}  .pte {file.stat().st_size:,}", flush=True)
            file.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--target", help="compile for this instead")
    parser.add_argument("--lengths", action="store_true", help="time against length")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    if options.threads == 1:  # the processor's time, which other work changes little
        timing.clock = time.process_time
    bounds = Bounds()
    for name in options.names or CASES:
        case = CASES[name]
        measure(name, case, options.target or case.target, bounds, options.rounds)
    if options.lengths:
        lengths()
    print(f"\n{len(bounds.missed)} bounds missed" if bounds.missed else "\nall bounds kept")
    return 1 if bounds.missed else 0


if __name__ == "__main__":
    sys.exit(main())
