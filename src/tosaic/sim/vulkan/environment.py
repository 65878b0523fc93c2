"""Finds a Vulkan driver and the emulation layers of its ML extensions, and sets both up.

The loader reads environment variables when an instance is created. They are set for that moment
and put back; manifests of the layers lie in a temporary folder, the graph layer's found first.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tosaic.errors import InvalidInput, ToolMissing

LAYERS = ("Graph", "Tensor")
"""Parts of the emulation, in the order in which the loader has to find them."""
DEVICES = ("lavapipe", "system")
_ICDS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
_ICD_PATTERNS = ("lvp_icd*.json",)
_LOCK = threading.RLock()
APT = "apt-get install -y --no-install-recommends mesa-vulkan-drivers libvulkan1"
PIP = 'pip install "tosaic[vgf]"'


@dataclass(frozen=True, slots=True)
class Driver:
    """What an instance is created with: a driver's manifest, and a folder for each layer."""

    name: str
    icd: Path | None
    layers: tuple[Path, ...]

    def variables(self, folder: Path) -> dict[str, str]:
        """The variables that the loader reads."""
        if self.icd is None:
            return {}
        return {
            "VK_ICD_FILENAMES": str(self.icd),
            "VK_DRIVER_FILES": str(self.icd),
            "VK_LAYER_PATH": os.pathsep.join(map(str, _folders(self.layers, folder))),
            "VK_INSTANCE_LAYERS": os.pathsep.join(f"VK_LAYER_ML_{n}_Emulation" for n in LAYERS),
        }


def check_device(device: str) -> None:
    """InvalidInput unless it is "lavapipe", "system" or the path of a driver's manifest."""
    if device in DEVICES:
        return
    if not device.endswith(".json"):
        known = ", ".join(map(repr, DEVICES))
        raise InvalidInput(f"there is no Vulkan device {device!r}: {known}, or an ICD's .json")
    if not Path(device).is_file():
        raise InvalidInput(f"there is no manifest of a Vulkan driver at '{device}'")


def find_driver(device: str = DEVICES[0]) -> Driver:
    """The driver of a name: "lavapipe", "system" as it is installed, or a manifest's path."""
    check_device(device)
    if device == "system":
        return Driver(device, None, ())
    icd = find_lavapipe() if device == "lavapipe" else Path(device)
    if icd is None:
        raise ToolMissing(f"no Vulkan driver is here: lavapipe is in Debian's packages ({APT})")
    return Driver(device, icd, find_layers())


def find_lavapipe() -> Path | None:
    """The manifest of Mesa's driver for processors."""
    data = os.environ.get("XDG_DATA_DIRS", "").split(os.pathsep)
    folders = [Path(each, "vulkan/icd.d") for each in data if each] + [Path(f) for f in _ICDS]
    for folder in folders:
        for pattern in _ICD_PATTERNS:
            for found in sorted(folder.glob(pattern)):
                return found
    return None


def find_loader() -> str | None:
    """The name of Vulkan's loader."""
    return ctypes.util.find_library("vulkan")


def find_layers() -> tuple[Path, ...]:
    """The manifests of the emulation layers in their wheel."""
    found = importlib.util.find_spec("emulation_layer")
    if found is None or found.origin is None:
        raise ToolMissing(f"the emulation layers of Vulkan's ML extensions are missing: {PIP}")
    folder = Path(found.origin).parent / "deploy" / "share" / "vulkan" / "explicit_layer.d"
    manifests = tuple(folder / f"VkLayer_{name}.json" for name in LAYERS)
    for manifest in manifests:
        if not manifest.is_file():
            raise ToolMissing(f"the emulation layers are incomplete: no {manifest.name}; {PIP}")
    return manifests


def _folders(manifests: tuple[Path, ...], folder: Path) -> Iterator[Path]:
    """Each manifest in a folder of its own, with the full path of its library."""
    for number, manifest in enumerate(manifests):
        held = json.loads(manifest.read_text(encoding="utf-8"))
        library = manifest.parents[3] / "lib" / held["layer"]["library_path"]
        held["layer"]["library_path"] = str(library)
        own = folder / f"{number}"
        own.mkdir(exist_ok=True)
        (own / manifest.name).write_text(json.dumps(held), encoding="utf-8")
        yield own


@contextmanager
def loading(driver: Driver, more: Mapping[str, str]) -> Iterator[None]:
    """The environment as the loader shall find it; afterwards it is as it was."""
    with _LOCK, tempfile.TemporaryDirectory(prefix="tosaic-vulkan-") as folder:
        wanted = {**driver.variables(Path(folder)), **more}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
