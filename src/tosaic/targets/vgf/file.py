"""A ``.vgf`` that is read: its graph for the interpreter, and the file itself for Vulkan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tosaic.errors import InvalidInput, Unsupported
from tosaic.files import vgf
from tosaic.files.vgf.shaders import shader_of
from tosaic.interp.device import CPU
from tosaic.interp.kernel import to_numpy
from tosaic.interp.model import Model
from tosaic.ir.graph import Array
from tosaic.ir.verify import verify
from tosaic.spec.env import everything

if TYPE_CHECKING:
    from tosaic.sim.vulkan.session import Session


ENGINES = ("vgf", "vulkan")


class VgfFile(Model):
    """What ``load`` makes of a ``.vgf``; ``run(..., engine="vulkan")`` runs it on the driver.

    A file with shaders that have no function here is read, too: Vulkan alone runs it.
    """

    def __init__(self, data: bytes) -> None:
        graph = vgf.read(data)
        verify(graph, everything(graph.version, level="none"))
        self._data = data
        self._sessions: dict[str, Session] = {}
        self._is_foreign = False
        try:
            super().__init__(graph)
        except Unsupported:
            if all(shader_of(op) is None for op in graph.ops):
                raise
            self._is_foreign = True

    def run(
        self, *inputs: Any, device: str = CPU, max_memory: int | None = None, engine: str = "vgf"
    ) -> list[Array]:
        """The outputs: by the interpreter, or on Vulkan, where ``device`` is as in ``compile``."""
        if engine == "vulkan":
            return self._on_vulkan(inputs, "lavapipe" if device == CPU else device)
        if engine not in ENGINES:
            raise InvalidInput(f"a .vgf has no engine {engine!r}: {', '.join(ENGINES)}")
        if self._is_foreign:
            raise Unsupported(
                "the file has a shader whose function is not known here: import the module with "
                'its @tosaic.shader before the file is loaded, or run it with engine="vulkan"'
            )
        return super().run(*inputs, device=device, max_memory=max_memory)

    def _on_vulkan(self, inputs: tuple[Any, ...], device: str) -> list[Array]:
        tensors, count = self._accept(inputs, CPU)
        if count > 1:
            return self._one_by_one(tensors, count, device=device, engine="vulkan")
        if device not in self._sessions:
            from tosaic.sim.vulkan.session import Session

            self._sessions[device] = Session(self._data, device)
        arrays = [to_numpy(t, port.dtype) for t, port in zip(tensors, self.inputs)]
        return self._sessions[device].run(*arrays)
