"""All images: networks of the zoo on emulated boards and on Linux beside ``art.run``, bit for bit.

``make firmware`` is this: each network on its board, there with undefined-behaviour traps in the
whole image, on Linux with sanitizers, and for aarch64. ``ARGS="silero_vad --way traps"`` is one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from zoo.silero_vad import followed, silero_vad

import tosaic
import zoo
from firmware.images import compare, expected
from firmware.test_host_core import Branching
from tosaic.cli.examples import example
from tosaic.pipeline.artifact import Artifact
from zoo import digits

# Options of CMake, and the board if it is another than the network's.
WAYS: dict[str, tuple[dict[str, str], str | None]] = {
    "board": ({}, None),
    "traps": ({"UNDEFINED_TRAPS": "ON"}, None),
    "sanitizers": ({"SANITIZERS": "ON"}, "linux"),
    "aarch64": ({"TOOLCHAIN": "aarch64"}, "linux"),
}
U55, U85 = "ethos-u55-128", "ethos-u85-256"
FRAMES, TOKENS = 30, 20


@dataclass(frozen=True)
class Image:
    """Networks of one image, and the arguments of their inferences."""

    artifacts: dict[str, Artifact]
    inputs: dict[str, list[tuple[Any, ...]]]
    board: str = "corstone-300"


class Listening(nn.Module):
    """Silero VAD, which keeps its state itself."""

    def __init__(self) -> None:
        super().__init__()
        self.net = silero_vad()
        self.register_buffer("h", torch.zeros(1, 128))
        self.register_buffer("c", torch.zeros(1, 128))

    def forward(self, audio: Tensor) -> Tensor:
        speech, h, c = self.net(audio, self.h, self.c)
        self.h.copy_(h)
        self.c.copy_(c)
        return speech


def of_zoo(name: str, target: str, runs: int, board: str = "corstone-300") -> Image:
    net, x, data = zoo.build(name)
    art = tosaic.compile(net, x, target=target, calibration=data)
    return Image({name: art}, {name: [x, *data][:runs]}, board)


def trained_digits() -> Image:
    pictures, wanted = digits.data()
    net = digits.train(pictures[: digits.TRAINED], wanted[: digits.TRAINED])
    data = [(each,) for each in pictures[: digits.CALIBRATION].split(1)]
    scanner = tosaic.IO("uint8", scale=1 / 8, zero_point=8)
    art = tosaic.compile(net, data[0], target=U55, calibration=data, io=(scanner, "float"))
    unseen = ((pictures[digits.TRAINED :] + 1) * 8).to(torch.uint8)
    return Image({"digits": art}, {"digits": [(each,) for each in unseen.split(1)[:50]]})


def speech() -> Image:
    (audio, _, _), _ = followed(12, 0)
    data = [(each,) for each in audio.split(1)]
    art = tosaic.compile(Listening().eval(), data[0], target=U55, calibration=data[:64])
    return Image({"speech": art}, {"speech": data[:FRAMES]})


def tokens() -> Image:
    net, _, data = zoo.build("decoder")
    first = torch.tensor([[7]]), torch.tensor([0])
    art = tosaic.compile(net, first, target=U85, calibration=data)
    word, said = first[0], []
    for place in range(TOKENS):
        said.append((word, torch.tensor([place])))
        word = art.run(*said[-1]).argmax(-1)
    return Image({"decoder": art}, {"decoder": said}, "corstone-320")


def branching() -> Image:
    torch.manual_seed(0)
    data = [(torch.randn(1, 16),) for _ in range(8)]
    art = tosaic.compile(Branching().eval(), data[0], target=f"{U55}+cortex-m55", calibration=data)
    return Image({"branching": art}, {"branching": data})


def attention() -> Image:
    net, x, data = example("encoder")
    art = tosaic.compile(net, x, target=f"{U55}+cortex-m55", scheme="a16w8", calibration=data)
    return Image({"attention": art}, {"attention": data[:2]})


def two() -> Image:
    one, other = of_zoo("ds_cnn", U55, 2), trained_digits()
    return Image(
        one.artifacts | other.artifacts, {**one.inputs, "digits": other.inputs["digits"][:2]}
    )


IMAGES: dict[str, Callable[[], Image]] = {
    "digits": trained_digits,
    "ds_cnn": lambda: of_zoo("ds_cnn", U55, 3),
    "mobilenet_v2": lambda: of_zoo("mobilenet_v2", U55, 2),
    "silero_vad": speech,
    "minilm": lambda: of_zoo("minilm", U85, 1, "corstone-320"),
    "decoder": tokens,
    "branching": branching,
    "attention": attention,
    "two": two,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(IMAGES))
    parser.add_argument("--way", action="append", choices=WAYS, help="all of them without one")
    told = parser.parse_args()
    for name in told.names or IMAGES:
        start = time.process_time()
        image = IMAGES[name]()
        wanted = expected(image.artifacts, image.inputs)
        print(f"{name}: compiled and run, {time.process_time() - start:.0f} s of CPU here")
        for way in told.way or WAYS:
            options, board = WAYS[way]
            ran = compare(
                image.artifacts, image.inputs, wanted, board or image.board, options=options,
                timeout=3600,
            )  # fmt: skip
            print(f"{name}, {way}: equal in every bit")
            print("  " + ran.console.strip().replace("\n", "\n  "), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
