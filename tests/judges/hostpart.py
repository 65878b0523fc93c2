"""The part of a ``.pte`` that runs on the host, in ExecuTorch's stock runtime.

The wheel's runtime has no Arm backends. So the calls of their delegates are cut out of the file:
what a delegate reads becomes an output of the program, what it gives an input. All else, operators,
memory plan and other backends' delegates, stays as it is in the file.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from judges.etorch import deserialized
from tosaic.executorch.api import quiet
from tosaic.executorch.blobs import contents_of
from tosaic.executorch.executors import executor_of


def stock_runtime(data: bytes, inputs: Sequence[Tensor]) -> list[Tensor]:
    with quiet():
        from executorch.extension.pybindings import portable_lib

        return portable_lib._load_for_executorch_from_buffer(data).forward(tuple(inputs))


def run_in_stock_runtime(data: bytes, inputs: Sequence[Tensor], backend: str) -> list[Tensor]:
    """Run what is round the one delegate of a backend; the interpreter stands in for that."""
    program = deserialized(data).program
    plan = program.execution_plan[0]
    (number,) = [i for i, d in enumerate(plan.delegates) if d.id == backend]
    blob = bytes(program.backend_delegate_data[plan.delegates[number].processed.index].data)
    executor = executor_of(backend, blob, contents_of(0, backend, blob, {}))
    call = next(
        i.instr_args for i in plan.chains[0].instructions
        if getattr(i.instr_args, "delegate_index", None) == number
    )  # fmt: skip
    reads, gives = call.args[: executor.inputs], call.args[executor.inputs :]
    host = _without(data, number, reads, gives)
    blank = [_zeros(plan.values[i].val) for i in gives]
    count = len(plan.outputs)
    asked = stock_runtime(host, [*inputs, *blank])[count:]
    made = executor.run([t.contiguous().reshape(-1).view(torch.uint8) for t in asked])
    given = [m.view(b.dtype).reshape(b.shape) for m, b in zip(made, blank)]
    return stock_runtime(host, [*inputs, *given])[:count]


def _zeros(value: Any) -> Tensor:
    assert list(value.dim_order) == sorted(value.dim_order)
    return torch.zeros(tuple(value.sizes), dtype=torch.int8)


def _without(data: bytes, number: int, reads: list[int], gives: list[int]) -> bytes:
    from executorch.exir._serialize._program import serialize_pte_binary
    from executorch.exir.schema import AllocationDetails

    file = copy.deepcopy(deserialized(data))
    plan = file.program.execution_plan[0]
    steps = plan.chains[0].instructions
    plan.chains[0].instructions = [
        s for s in steps if getattr(s.instr_args, "delegate_index", None) != number
    ]
    for step in plan.chains[0].instructions:
        if getattr(step.instr_args, "delegate_index", -1) > number:
            step.instr_args.delegate_index -= 1
    gone = plan.delegates[number].processed.index
    del plan.delegates[number], file.program.backend_delegate_data[gone]
    for delegate in plan.delegates:
        delegate.processed.index -= delegate.processed.index > gone
    for index in (*reads, *gives):  # memory of their own, since they live longer now
        tensor = plan.values[index].val
        plan.non_const_buffer_sizes.append(max(torch.Size(tensor.sizes).numel(), 16))
        tensor.allocation_info = AllocationDetails(len(plan.non_const_buffer_sizes) - 1, 0, 0)
    plan.inputs += gives
    plan.outputs += reads
    with quiet():
        return bytes(serialize_pte_binary(file, extract_delegate_segments=True))
