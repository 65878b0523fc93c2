"""Trained weights out of installed packages, whose own code needs more than we have."""

from importlib import metadata

import torch
from torch import nn


def load(net: nn.Module, package: str, path: str) -> nn.Module:
    """The network with the weights of a file in a package, tensor by tensor in order."""
    file = metadata.distribution(package).locate_file(path)
    trained = torch.load(str(file), map_location="cpu", weights_only=True)
    named = zip(net.state_dict(), trained.values(), strict=True)
    net.load_state_dict(dict(named))
    return net.eval()


def installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True
