"""Quantized networks to measure with: `prepare("mobilenet_v2")`, `prepare("resnet18")`.

Weights and pictures are seeded, nothing is downloaded. What takes seconds to compute is kept under
build/networks, by the content of these sources and the version of torch.
"""

import hashlib
import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / "build" / "networks"
sys.path.append(str(ROOT / "examples"))  # the zoo's pictures; examples are not installed

from zoo.pictures import images  # noqa: E402

from .emit import build, emit  # noqa: E402
from .models import NETWORKS, Network, folded, settled  # noqa: E402
from .quantize import QuantizedNetwork, quantize  # noqa: E402

__all__ = ["NETWORKS", "Prepared", "build", "folded", "images", "prepare"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A network in both forms: the fp32 module and its quantized twin."""

    model: Network
    quantized: QuantizedNetwork
    key: str

    def graph(self, batch: int = 1) -> Path:
        """The path of the `.tosa` file for a batch size, written on first use."""
        path = CACHE / f"{self.quantized.name}-b{batch}-{self.key}.tosa"
        if not path.exists():
            _write(path, emit(self.quantized, batch))
        return path

    def inputs(self, count: int, seed: int = 9000) -> tuple[torch.Tensor, NDArray[np.int8]]:
        """Pictures that calibration has not seen: NCHW for the module, int8 NHWC for the graph."""
        pictures = images(count, seed)
        return pictures, self.quantized.encode(pictures)


def _key() -> str:
    digest = hashlib.sha256(torch.__version__.encode())
    for path in [*sorted(HERE.glob("*.py")), ROOT / "examples" / "zoo" / "pictures.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _write(path: Path, data: bytes) -> None:
    """Beside, then renamed: another process never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_bytes(data)
    beside.replace(path)


def prepare(name: str) -> Prepared:
    """The network with real batch-norm statistics, and its quantization."""
    key = _key()
    path = CACHE / f"{name}-{key}.pickle"
    if not path.exists():
        net = settled(name)
        state = {entry: tensor.numpy() for entry, tensor in net.state_dict().items()}
        _write(path, pickle.dumps((state, quantize(net))))
    stored: tuple[dict[str, NDArray[Any]], QuantizedNetwork] = pickle.loads(path.read_bytes())
    state, quantized = stored
    net = NETWORKS[name]()
    net.load_state_dict({entry: torch.from_numpy(array) for entry, array in state.items()})
    return Prepared(net.eval(), quantized, key)
