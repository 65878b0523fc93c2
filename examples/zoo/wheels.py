"""Trained weights out of installed packages, whose own code needs more than we have."""

import json
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor, nn


def load(net: nn.Module, package: str, path: str) -> nn.Module:
    """The network with the weights of a file in a package, tensor by tensor in order."""
    file = metadata.distribution(package).locate_file(path)
    trained = torch.load(str(file), map_location="cpu", weights_only=True)
    named = zip(net.state_dict(), trained.values(), strict=True)
    net.load_state_dict(dict(named))
    return net.eval()


def safetensors(package: str, path: str) -> dict[str, Tensor]:
    """The float32 tensors of a .safetensors file in a package, by their names."""
    data = Path(str(metadata.distribution(package).locate_file(path))).read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    found = {}
    for name, about in header.items():
        if name != "__metadata__":
            start, stop = about["data_offsets"]
            values = torch.frombuffer(
                bytearray(data[end + start : end + stop]), dtype=torch.float32
            )
            found[name] = values.reshape(about["shape"])
    return found


def installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True
