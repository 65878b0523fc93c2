"""Recipes of ``executorch.export`` under the Arm backend's names: model in, program out."""

import pytest

pytest.importorskip("executorch")

import torch
from torch import nn

import tosaic
from judges.vulkan import needs_converter
from tosaic.executorch.api import quiet

with quiet():
    from executorch.export import ExportRecipe, export, recipe_registry

    from tosaic.executorch.recipes import ArmRecipeProvider, ArmRecipeType


pytestmark = pytest.mark.filterwarnings("ignore:This API and all of its related functionality")


@pytest.fixture(autouse=True)
def _registered() -> None:
    """Others may have put a provider of their own in the place of ours."""
    recipe_registry.register_backend_recipe_provider(ArmRecipeProvider())


@needs_converter
@pytest.mark.parametrize("kind", [ArmRecipeType.VGF_FP, ArmRecipeType.VGF_INT8], ids=str)
def test_a_recipe_for_vgf_gives_a_program_that_runs_here(kind: ArmRecipeType) -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(1, 3, 6, 6)
    with quiet():
        data = export(net, [(x,)], ExportRecipe.get_recipe(kind)).get_pte_buffer()
    assert b"VGF1" in bytes(data)
    (made,) = tosaic.load(bytes(data)).run(x)
    bound = 1e-6 if kind is ArmRecipeType.VGF_FP else 0.02
    assert float((torch.as_tensor(made) - net(x)).detach().abs().max()) < bound


def test_every_name_makes_its_recipe(caplog: pytest.LogCaptureFixture) -> None:
    for kind in ArmRecipeType:
        recipe = ExportRecipe.get_recipe(kind)
        assert recipe.name == kind.value
        assert (recipe.quantization_recipe is None) == kind.value.endswith("_fp")
    ExportRecipe.get_recipe(ArmRecipeType.VGF_FP, macs=256)
    assert "arm_vgf_fp takes no 'macs'" in caplog.text
    made = ExportRecipe.get_recipe(ArmRecipeType.ETHOS_U85_INT8, macs=512)
    assert made.lowering_recipe is not None
