"""Partitioners for ``to_edge_transform_and_lower``, which tag the nodes of the plan."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers what stays round the delegates)
import torch
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from executorch.exir.program._program import _default_decomposition_table
from torch import Tensor, fx
from torch.export import ExportedProgram

from tosaic.errors import InvalidInput, Unsupported, kind_of
from tosaic.executorch.api import quiet
from tosaic.executorch.backends import come_last
from tosaic.executorch.delegates import lowered_module
from tosaic.executorch.outer import outer_module
from tosaic.executorch.plan import Plan, compiled_artifact, plan_of
from tosaic.executorch.specs import (
    ArmCompileSpec,
    EthosUCompileSpec,
    TosaCompileSpec,
    TosaSpecification,
    VgfCompileSpec,
)
from tosaic.executorch.summary import summary
from tosaic.front import torchapi
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.report import Report
from tosaic.runtime.warn import warn


class TosaicPartitioner(Partitioner):  # type: ignore[misc]
    """Takes every group of calls whose rules lower; ``refused`` says why the rest stays.

    ``report`` is what ``tosaic.compile`` would have reported, unless it waits its turn.

    ``to_edge_transform_and_lower`` asks it before anything is decomposed, so it comes before other
    partitioners wherever it is in their list, and ExecuTorch has only the rest to work on. With
    ``in_turn``, or ``additional_checks``, which are written for the edge dialect, it waits until
    the program is in that dialect and it is its turn.
    """

    spec_type: type[ArmCompileSpec]

    def __init__(
        self,
        compile_spec: ArmCompileSpec,
        additional_checks: Sequence[Any] | None = None,
        *,
        in_turn: bool = False,
    ) -> None:
        if not isinstance(compile_spec, self.spec_type):
            own, wanted = type(self).__name__, self.spec_type.__name__
            raise InvalidInput(f"give {own}({wanted}(...)), not {kind_of(compile_spec)}")
        super().__init__()
        self.compile_spec = compile_spec
        self.additional_checks = tuple(additional_checks or ())
        self.in_turn = in_turn or bool(self.additional_checks)
        self.refused: list[Any] = []
        self.report: Report | None = None
        self._is_first = False  # whether the program is that round finished delegates
        self._seen: dict[str, Tensor] = {}

    @property
    def delegation_spec(self) -> DelegationSpec:
        """The backend, and what its delegates are told."""
        return DelegationSpec(self.compile_spec.backend, self.compile_spec.to_list())

    @property
    def tosa_spec(self) -> TosaSpecification:
        return self.compile_spec.tosa_spec

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """The program with calls of finished delegates, unless it is to wait its turn."""
        if self.in_turn or exported_program.example_inputs is None:
            return exported_program
        with quiet(), torch.no_grad():
            try:
                artifact = compiled_artifact(exported_program, self.compile_spec)
            except Unsupported:
                return exported_program
            delegates = self._delegates(artifact)
            if not delegates:
                return exported_program
            self.refused, self._is_first = list(artifact.partition.refused), True
            self.report = artifact.report
            sys.stdout.write(summary(artifact))  # where the Arm backend prints Vela's
            args, kwargs = exported_program.example_inputs
            return torchapi.export(outer_module(artifact, delegates), args, kwargs=kwargs)

    def _delegates(self, artifact: Artifact) -> dict[int, Any]:
        """A lowered module for each graph, by the piece that it is."""
        entries, found = self.compile_spec.to_list(), {}
        compiled = iter(artifact.delegates)
        for piece in artifact.partition.walk():
            if piece.graph is not None:
                made = next(compiled, None)
                blob = self.compile_spec.blob(piece.graph, made)
                self.compile_spec.dump(piece.graph, blob)
                found[id(piece)] = lowered_module(piece, blob, entries)
        return found

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        come_last(self.compile_spec.backend)
        plan = self._plan(exported_program)
        self.refused = self.refused if self._is_first else list(plan.partition.refused)
        is_first, self._is_first = self._is_first, False
        if not plan.group and not is_first:
            self._warn_of_floats(exported_program)
        tags, spec = {}, self.delegation_spec
        for node, number in plan.group.items():
            tag = f"tosaic_{number}"
            node.meta["delegation_tag"] = tag
            tags[tag] = spec
        tag_constant_data(exported_program)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)

    def _warn_of_floats(self, program: ExportedProgram) -> None:
        """Nothing is delegated of a float model where the target has integers alone."""
        quantized = any("quantize" in str(n.target) for n in program.graph.nodes)
        if self.compile_spec.tosa_spec.support_float() or quantized or not self.refused:
            return
        kind = type(self).__name__.replace("Partitioner", "Quantizer")
        warn(
            f"nothing of the model is quantized, and {self.compile_spec.target} has integers "
            f"alone, so nothing is delegated: quantize it with {kind} and prepare_pt2e, "
            "convert_pt2e before"
        )

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[fx.Node], bool] | None]:
        """What the plan takes whole, and only there; in the edge dialect all is decided."""
        nodes = [n for n in ep.graph.nodes if n.op == "call_function"]
        if any(torchapi.overload_of(n) not in (None, n.target) for n in nodes):
            return [], None
        self._see(ep)
        taken, table = set(self._plan(ep).group), _default_decomposition_table()
        targets = {n.target: None for n in nodes if n in taken and n.target in table}
        if all(n in taken for n in nodes if n.target in targets):
            return list(targets), None  # ExecuTorch need not ask for each node
        return list(targets), taken.__contains__

    def register_custom_partition_op(self, op: torch._ops.OpOverload) -> None:
        """Refused: an operator of the user's own has a rule, or stays on the CPU."""
        raise Unsupported(f"{op} has no rule: write one for it with tosaic.front.registry.rule")

    def _see(self, ep: ExportedProgram) -> None:
        """Keep real parameters: ``partition`` is given stand-ins for them."""
        self._seen.update(
            {name: t for name, t in ep.state_dict.items() if not torchapi.is_stand_in(t)}
        )

    def _plan(self, ep: ExportedProgram) -> Plan:
        return plan_of(ep, self.compile_spec, self._seen, self._refusal)

    def _refusal(self, node: fx.Node) -> str | None:
        for check in self.additional_checks:
            if not check.is_node_supported({}, node):
                return f"{type(check).__name__} keeps it"
        return None


class TOSAPartitioner(TosaicPartitioner):
    """For delegates that hold TOSA itself."""

    spec_type = TosaCompileSpec


class EthosUPartitioner(TosaicPartitioner):
    """For an Ethos-U."""

    spec_type = EthosUCompileSpec


class VgfPartitioner(TosaicPartitioner):
    """For Vulkan ML."""

    spec_type = VgfCompileSpec


def create_partitioner(
    compile_spec: ArmCompileSpec, additional_checks: Sequence[Any] | None = None
) -> TosaicPartitioner:
    """The partitioner for a compile spec."""
    for kind in (EthosUPartitioner, TOSAPartitioner, VgfPartitioner):
        if isinstance(compile_spec, kind.spec_type):
            return kind(compile_spec, additional_checks)
    raise InvalidInput(f"there is no partitioner for a {type(compile_spec).__name__}")
