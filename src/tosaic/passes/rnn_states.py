"""The states of recurrent layers at every step, from PyTorch's fused kernels.

Where they are known beforehand, the values of all steps are computed and observed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

STATES = "tosaic.states"  # of a loop, the layers that it stands for
_FUSED: dict[str, Callable[..., Any]] = {
    "aten.lstm.input": torch.lstm, "aten.gru.input": torch.gru,
    "aten.rnn_tanh.input": torch.rnn_tanh, "aten.rnn_relu.input": torch.rnn_relu,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of one direction, each of which feeds the next, with their parameters."""

    operator: str
    parameters: tuple[tuple[Tensor, ...], ...]
    has_biases: bool
    axis: int  # of the steps
    back: bool

    def states(self, x: Tensor, carried: Sequence[Tensor]) -> list[Tensor]:
        """Each state before every step and behind the last, along axis 0, in the steps' order."""
        line = x.movedim(self.axis, 0)
        line = line.flip(0) if self.back else line
        each, found = len(carried) // len(self.parameters), list[Tensor]()
        for number, own in enumerate(self.parameters):
            first = carried[number * each : (number + 1) * each]
            given = [state[None] for state in first]
            hx = given if each > 1 else given[0]
            how = self.has_biases, 1, 0.0, False, False, False
            after = _FUSED[self.operator](line, hx, own, *how)[0]
            hidden = torch.cat((given[0], after))
            found.append(hidden)
            if each > 1:
                found.append(self._cells(line, hidden[:-1], first[1], own))
            line = after
        return found

    def _cells(
        self, line: Tensor, hidden: Tensor, first: Tensor, own: tuple[Tensor, ...]
    ) -> Tensor:
        """The cells of an LSTM, which its kernel keeps to itself, from the gates of all steps."""
        biases = own[2:4] if self.has_biases else (None, None)
        linear = torch.nn.functional.linear
        gates = linear(line, own[0], biases[0]) + linear(hidden, own[1], biases[1])
        enters, keeps, new, _ = gates.chunk(4, -1)
        comes, keeps = enters.sigmoid() * new.tanh(), keeps.sigmoid()
        cells = [first]
        for come, keep in zip(comes.unbind(), keeps.unbind()):
            cells.append(torch.addcmul(come, keep, cells[-1]))
        return torch.stack(cells)
