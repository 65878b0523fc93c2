"""What integers cost Silero VAD: frames of a recording that are told as in float, and rightly.

The state goes round as it does on a device: each step gets what its own last step gave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import tosaic

from .silero_vad import followed, silero_vad, steps

FORMS = {  # the target and the scheme of each
    "int8": ("TOSA-1.0+INT", "int8"),
    "int8, 16-bit magnitudes and gates": ("TOSA-1.0+INT+int16", "int8"),
    "a16w8": ("TOSA-1.0+INT+int16", "a16w8"),
}
CALIBRATION, SECONDS = 64, 24


def probabilities(run: Callable[..., Any], windows: Tensor) -> Tensor:
    """Of speech in each window of a recording, one after the other."""
    state, found = (torch.zeros(1, 128), torch.zeros(1, 128)), []
    with torch.no_grad():
        for window in windows.split(1):
            probability, *after = run(window, *state)
            state = after[0], after[1]
            found.append(probability[0, 0])
    return torch.stack(found)


def accuracy(seconds: int = SECONDS) -> dict[str, tuple[float, float]]:
    """For float and each form the percentage told as float tells it, and the one told rightly."""
    (windows, *_), speech = followed(seconds, seed=5000)
    net = silero_vad()
    data = list(zip(*(tensor.split(1) for tensor in steps(CALIBRATION, seed=2000)), strict=True))
    real = probabilities(net, windows) > 0.5
    rows = {"float": real}
    for name, (target, scheme) in FORMS.items():
        art = tosaic.compile(net, data[0], target=target, scheme=scheme, calibration=data)
        rows[name] = probabilities(art.run, windows) > 0.5
    return {name: (_percent(told == real), _percent(told == speech)) for name, told in rows.items()}


def _percent(right: Tensor) -> float:
    return 100 * float(right.float().mean())
