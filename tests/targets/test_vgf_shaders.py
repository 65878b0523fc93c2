"""Custom operators by GLSL: the function here, the shader in the file, the same on Vulkan."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.vulkan import needs_converter, needs_vulkan
from tosaic.errors import InvalidInput, Unsupported
from tosaic.files.flatbuffer import write
from tosaic.files.vgf.container import read_container
from tosaic.files.vgf.shaders import DOMAIN
from tosaic.ir.build import Builder
from tosaic.spec.dtypes import F32, TensorType
from tosaic.targets.vgf.converter import convert

pytestmark = needs_converter

HEAD = """#version 460
#extension GL_ARM_tensors : require
layout(local_size_x = 1) in;
"""
SORT = (
    HEAD
    + """
layout(set = 0, binding = 0) uniform tensorARM<float, 2> x;
layout(set = 0, binding = 1) uniform tensorARM<float, 2> y;
void main() {
  uint row = gl_GlobalInvocationID.x, count = tensorSizeARM(x, 1);
  for (uint i = 0; i < count; i++) {
    float v, w;
    tensorReadARM(x, uint[](row, i), v);
    uint rank = 0;
    for (uint j = 0; j < count; j++) {
      tensorReadARM(x, uint[](row, j), w);
      if (w < v || (w == v && j < i)) rank++;
    }
    tensorWriteARM(y, uint[](row, rank), v);
  }
}
"""
)
WARP = (
    HEAD
    + """
layout(set = 0, binding = 0) uniform tensorARM<float, 4> image;
layout(set = 0, binding = 1) uniform tensorARM<float, 4> flow;
layout(set = 0, binding = 2) uniform tensorARM<float, 4> warped;
void main() {
  uint h = gl_GlobalInvocationID.x, w = gl_GlobalInvocationID.y, c = gl_GlobalInvocationID.z;
  float dy, dx, v;
  tensorReadARM(flow, uint[](0, 0, h, w), dy);
  tensorReadARM(flow, uint[](0, 1, h, w), dx);
  int y = clamp(int(h) + int(round(dy)), 0, int(tensorSizeARM(image, 2)) - 1);
  int x = clamp(int(w) + int(round(dx)), 0, int(tensorSizeARM(image, 3)) - 1);
  tensorReadARM(image, uint[](0, c, uint(y), uint(x)), v);
  tensorWriteARM(warped, uint[](0, c, h, w), v);
}
"""
)


@tosaic.shader(SORT, groups=lambda x: (x[0], 1, 1))
def sort_rows(x: Tensor) -> Tensor:
    return torch.sort(x, dim=1).values


@tosaic.shader(WARP, groups=lambda image, flow: (*image[2:], image[1]))
def warp(image: Tensor, flow: Tensor) -> Tensor:
    height, width = image.shape[2:]
    rows = torch.arange(height)[:, None] + flow[0, 0].round().to(torch.int64)
    columns = torch.arange(width)[None, :] + flow[0, 1].round().to(torch.int64)
    return image[:, :, rows.clamp(0, height - 1), columns.clamp(0, width - 1)]


@tosaic.shader(SORT.replace("w < v", "w > v"), groups=lambda x: (x[0], 1, 1))
def sort_wrongly(x: Tensor) -> Tensor:
    return torch.sort(x, dim=1).values


class Sorted(nn.Module):
    def __init__(self, order: object = sort_rows) -> None:
        super().__init__()
        self.before, self.after, self.order = nn.Linear(6, 8), nn.Linear(8, 3), order

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.order(self.before(x)))  # type: ignore[operator]


class Warped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flow, self.mix = nn.Conv2d(3, 2, 3, padding=1), nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.mix(warp(x, 3 * self.flow(x))))


def _networks() -> list[tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    return [(Sorted().eval(), torch.randn(4, 6)), (Warped().eval(), torch.randn(1, 3, 8, 9))]


@needs_vulkan
@pytest.mark.parametrize("number", [0, 1], ids=["sort", "warp"])
@pytest.mark.parametrize("options", [{}, {"scheme": "int8"}], ids=["float", "int8"])
def test_a_shader_in_a_network_end_to_end(
    number: int, options: dict[str, str], tmp_path: Path
) -> None:
    model, x = _networks()[number]
    made = tosaic.compile(
        model, (x,), target="vgf", calibration=[(x,)] if options else None, **options
    )
    assert not made.report.refused
    assert any("gives what its function does" in c for p in made.partition.pieces for c in p.checks)
    ours, theirs = made.run(x), made.run(x, engine="vulkan")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    if not options:  # rounded to integers, a flow may lead to other pixels
        torch.testing.assert_close(ours, model(x).detach(), rtol=1e-4, atol=1e-4)
    made.save(tmp_path / "net.vgf")
    loaded = tosaic.load(tmp_path / "net.vgf")
    torch.testing.assert_close(torch.from_numpy(loaded.run(x.numpy())[0]), ours)
    held = read_container(memoryview((tmp_path / "net.vgf").read_bytes()))
    assert [m.language for m in held.modules].count("GLSL") == 1


@needs_vulkan
def test_a_shader_that_computes_something_else_is_an_error() -> None:
    torch.manual_seed(0)
    with pytest.raises(InvalidInput, match="the shader of sort_wrongly and its function differ"):
        tosaic.compile(Sorted(sort_wrongly).eval(), (torch.randn(4, 6),), target="vgf")


@needs_vulkan
@pytest.mark.parametrize(
    ("glsl", "groups", "reason"),
    [
        (SORT.replace("w < v", "w < u"), lambda x: (x[0], 1, 1), "of wrong does not run: .*'u'"),
        ("void", lambda x: (x[0], 1, 1), "the shader of wrong does not run"),
        (SORT, (1, 2), r"workgroups of wrong are three numbers above 0, not \(1, 2\)"),
        (SORT, lambda x, y: (x[0], 1, 1), r"workgroups of wrong for \[\(4, 8\)\]: .*argument: 'y'"),
        (SORT, None, "the workgroups of wrong for .*NoneType"),
    ],
    ids=["undeclared", "no-main", "two-groups", "other-arguments", "no-groups"],
)
def test_a_shader_that_cannot_be_used_is_an_error(glsl: str, groups: Any, reason: str) -> None:
    @tosaic.shader(glsl, groups=groups)
    def wrong(x: Tensor) -> Tensor:
        return torch.sort(x, dim=1).values

    with pytest.raises(InvalidInput, match=reason):
        tosaic.compile(Sorted(wrong).eval(), (torch.randn(4, 6),), target="vgf")


def test_a_shader_is_declared_with_types_and_source() -> None:
    with pytest.raises(InvalidInput, match="a shader is GLSL source"):
        tosaic.shader(7, groups=(1, 1, 1))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"declared as 'def untyped\(x: Tensor\) -> Tensor'"):

        @tosaic.shader(SORT, groups=(1, 1, 1))
        def untyped(x):  # type: ignore[no-untyped-def]
            return x.sort(1)


def test_without_vulkan_the_function_stays_in_pytorch() -> None:
    model, x = _networks()[0]
    made = tosaic.compile(model, (x,), target="TOSA-1.0+FP")
    assert [r.reason for r in made.report.refused] == [
        "a shader is for targets with Vulkan; PyTorch runs its function"
    ]
    torch.testing.assert_close(made.run(x), model(x).detach(), rtol=1e-4, atol=1e-5)


def test_a_file_whose_function_is_not_known_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = _networks()[0]
    monkeypatch.setattr("tosaic.sim.vulkan.environment.find_lavapipe", lambda: None)
    made = tosaic.compile(model, (x,), target="vgf")
    assert any("was not compared" in c for p in made.partition.pieces for c in p.checks)
    monkeypatch.setattr("tosaic.targets.vgf.shaders._KNOWN", {})
    loaded = tosaic.load(made.delegates[0].data)
    assert "CUSTOM" in [op.name for op in loaded.graph.ops]
    with pytest.raises(Unsupported, match="a shader whose function is not known here: import"):
        loaded.run(x)


BUFFERS = """#version 460
layout(local_size_x = 1) in;
layout(set = 0, binding = 0) buffer Read { float x[]; };
layout(set = 0, binding = 1) buffer Written { float y[]; };
void main() { y[gl_GlobalInvocationID.x] = 3.0 * x[gl_GlobalInvocationID.x]; }
"""


@needs_vulkan
@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "between graphs"])
def test_files_of_others_with_shaders_of_buffers_run_on_vulkan(is_alone: bool) -> None:
    """As the SDK has them: a buffer at the boundary, and one that is a tensor of the graphs."""
    held: dict[str, object] = {
        "entry_point": "main", "is_vkshader": True, "workgroup_sizes": [8, 1, 1],
        "shader_language": "GLSL", "shader_code": BUFFERS,
    }  # fmt: skip
    for binding, port in enumerate(("input_0", "output_0")):
        held |= {
            f"{port}_binding": binding, f"{port}_descriptorset": 0, f"{port}_type": "BUFFER",
            f"{port}_vkdescriptortype": "VK_DESCRIPTOR_TYPE_STORAGE_BUFFER",
            f"{port}_vkformat": "VK_FORMAT_R32_SFLOAT",
        }  # fmt: skip
    b = Builder("TOSA-1.0+FP")
    x = b.input("f32", (2, 4), "x")
    (y,) = b.results(
        "CUSTOM", x if is_alone else b.ABS(x), out=[TensorType(F32, (2, 4))],
        operator_name="thrice", domain_name=DOMAIN, implementation_attrs=json.dumps(held).encode(),
    )  # fmt: skip
    b.output(y if is_alone else b.NEGATE(y, b.const([0.0], "f32"), b.const([0.0], "f32")))
    given = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)  # two samples
    (made,) = tosaic.load(convert(write(b.graph))).run(given, engine="vulkan")
    assert np.array_equal(made, 3 * given if is_alone else -3 * np.abs(given))
