"""Custom operators that are compute shaders: how TOSA's CUSTOM and a segment of a file say so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tosaic.errors import InvalidGraph
from tosaic.files.vgf.formats import vulkan_name
from tosaic.ir.graph import Op
from tosaic.spec.dtypes import TensorType

DOMAIN = "com.arm.VulkanCustomShader"


@dataclass(frozen=True, slots=True)
class Shader:
    """The source of a shader, its entry point, and how many workgroups run it."""

    code: str
    groups: tuple[int, ...]
    entry: str = "main"
    language: str = "GLSL"

    def attributes(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> bytes:
        """The attributes of CUSTOM: bindings count from 0, inputs first."""
        held: dict[str, object] = {
            "entry_point": self.entry, "is_vkshader": True, "workgroup_sizes": list(self.groups),
            "shader_language": self.language, "shader_code": self.code,
        }  # fmt: skip
        sides = [("input", i, t) for i, t in enumerate(inputs)]
        sides += [("output", i, t) for i, t in enumerate(outputs)]
        for binding, (side, number, kind) in enumerate(sides):
            held |= {
                f"{side}_{number}_binding": binding, f"{side}_{number}_descriptorset": 0,
                f"{side}_{number}_type": "TENSOR",
                f"{side}_{number}_vkdescriptortype": "VK_DESCRIPTOR_TYPE_TENSOR_ARM",
                f"{side}_{number}_vkformat": vulkan_name(kind.dtype),
            }  # fmt: skip
        return json.dumps(held).encode()


def shader_of(op: Op) -> Shader | None:
    """The shader of a CUSTOM; None if it is something else."""
    if op.name != "CUSTOM" or op.attrs["domain_name"] != DOMAIN:
        return None
    try:
        held = json.loads(op.attrs["implementation_attrs"])
        groups = tuple(int(n) for n in held["workgroup_sizes"])
        entry, language = str(held["entry_point"]), str(held.get("shader_language", ""))
        return Shader(str(held.get("shader_code", "")), groups, entry, language)
    except (ValueError, KeyError, TypeError):
        raise InvalidGraph("the attributes of a shader are not what they should be", op) from None
