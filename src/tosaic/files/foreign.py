"""Files of other tools that users try first, and what to give instead of each."""

from __future__ import annotations

import os

_WEIGHTS = (
    "holds weights or a pickled module, which only its own Python code can read: load it into its "
    "nn.Module and give that (on the command line as file.py:name), or export it once with "
    "torch.export.save to a .pt2 file"
)
_ONNX = (
    "is ONNX, which Tosaic does not read: give the PyTorch module that it was exported from, or "
    "the .pt2 file that torch.export.save writes of it"
)
_TENSORFLOW = (
    "is TensorFlow's, which Tosaic does not read: write the network in PyTorch and copy its "
    "weights, or give a .tflite to the device's own compiler"
)
_SENTENCES = {
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin", ".safetensors"), _WEIGHTS),
    ".onnx": _ONNX,
    **dict.fromkeys((".tflite", ".h5", ".keras", ".pb"), _TENSORFLOW),
}


_COMPILED = (".pte", ".bpte", ".tosa", ".vgf")


def no_model(path: object) -> str | None:
    """Why a file is no model to compile, and what to do; None if it may be one."""
    if isinstance(path, (str, os.PathLike)) and os.fspath(path).lower().endswith(_COMPILED):
        return f"'{os.fspath(path)}' is compiled: tosaic.load and `tosaic run` take it"
    return sentence(path)


def sentence(path: object) -> str | None:
    """Why a file of another tool is not taken and what to do; None for all other things."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    told = _SENTENCES.get(os.path.splitext(os.fspath(path))[1].lower())
    return f"'{os.fspath(path)}' {told}" if told else None
