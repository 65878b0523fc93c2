"""A compiled file as a C array, to link into firmware."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.files.whole import write_whole

_COLUMNS = 16
_TEMPLATE = """\
/* {title}: {size:,} bytes of {kind}, made by Tosaic for {target}.
 *
 * NETWORK_MODEL_SECTION may name a section of the linker script, as in
 *   #define NETWORK_MODEL_SECTION __attribute__((section("network_model_sec")))
 */
#ifndef {guard}
#define {guard}

#ifndef NETWORK_MODEL_SECTION
#define NETWORK_MODEL_SECTION
#endif

#if defined(_MSC_VER)
__declspec(align(16))
#else
__attribute__((aligned(16)))
#endif
NETWORK_MODEL_SECTION static const unsigned char {name}[{size}] = {{
{rows}
}};
static const unsigned int {name}_size = {size};

#endif /* {guard} */
"""


def write_array(artifact: Any, path: str | os.PathLike[str], *, of: str | None = None) -> None:
    """Write the file that a device runs as a header: ``of`` is its suffix.

    Without it that is ``.pte`` where the artifact is for a device, and ``.tosa`` otherwise.
    """
    kind = of or (".pte" if artifact.delegates else ".tosa")
    if kind == ".h":
        raise InvalidInput("a .h file holds another file: of='.pte' or of='.tosa'")
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        file = Path(folder) / f"network{kind}"
        artifact.save(file)
        data = file.read_bytes()
    write_whole(path, array(data, Path(path).stem, kind, artifact.target).encode())


def array(data: bytes, title: str, kind: str, target: str) -> str:
    """Bytes as the text of a header, under a name that C allows."""
    name = re.sub(r"\W", "_", title, flags=re.ASCII)
    name = f"_{name}" if not name or name[0].isdigit() else name
    texts = [f"0x{byte:02x}," for byte in data]
    rows = ("    " + " ".join(texts[n : n + _COLUMNS]) for n in range(0, len(texts), _COLUMNS))
    return _TEMPLATE.format(
        title=name, size=len(data), kind=kind, target=target, guard=f"{name.upper()}_H_",
        name=name, rows="\n".join(rows),
    )  # fmt: skip
