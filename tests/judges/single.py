"""Graphs of one or a few operators, run by the reference model: expected values for kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tosa_reference_model
import tosa_serializer as ts

HELD = {"INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT48": np.int64}


def _empty() -> Any:
    return ts.TosaSerializer("", ts.ConstMode.EMBED, 1, 0, 0, False)


@dataclass
class Single:
    """A graph in the making; tensors are named by the caller."""

    file: Any = field(default_factory=_empty)
    inputs: list[np.ndarray] = field(default_factory=list)

    def input(self, name: str, array: np.ndarray, dtype: str) -> None:
        tensor = ts.TosaSerializerTensor(name, list(array.shape), getattr(ts.DType, dtype))
        self.file.addInputTensor(tensor)
        self.inputs.append(array.astype(HELD[dtype]))

    def const(self, name: str, values: Any, dtype: str) -> None:
        array = np.asarray(values).astype(HELD[dtype])
        self.file.addConst(list(array.shape), getattr(ts.DType, dtype), array, name)

    def op(
        self,
        name: str,
        operands: Sequence[str],
        result: str,
        shape: Sequence[int],
        dtype: str,
        attribute: Callable[[Any], None],
    ) -> None:
        self.file.currRegion.currBasicBlock.addTensor(result, list(shape), getattr(ts.DType, dtype))
        attributes = ts.TosaSerializerAttribute()
        attribute(attributes)
        self.file.addOperator(getattr(ts.Op, name), list(operands), [result], attributes)

    def run(self, result: str) -> tuple[np.ndarray, str]:
        """The result and the status; the model may not fork a debugger when it fails."""
        self.file.currRegion.currBasicBlock.addOutput(result)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", "")
            outputs, status = tosa_reference_model.run(
                bytes(self.file.serialize()), self.inputs, tosa_level="NONE"
            )
        return outputs[0], status.name
