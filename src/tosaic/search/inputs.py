"""Inputs of a network from samples: pictures, sounds and arrays decoded, and fitted to it."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tosaic.errors import InvalidInput, first_line

if TYPE_CHECKING:
    from tosaic.search.datasets import Sample

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
SOUNDS = (".wav",)
FILES = (*PICTURES, *SOUNDS, ".npy", ".npz")
LARGEST = 1 << 28  # bytes of one file, and pixels of one picture
# Columns that a data set's one input is in, the first that is there.
_INPUT_NAMES = ("image", "img", "x", "input", "pixel_values", "audio", "png", "jpg", "npy")
_LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, by ITU-R BT.601
Pixels = np.ndarray[Any, Any]
Parts = tuple[Tensor, ...] | dict[str, Tensor]  # in order, or by name


def decoded(sample: Sample, transform: Callable[[Any], Any] | None) -> Parts:
    """The inputs of a sample; pictures are channels of numbers from 0 to 1 unless transformed.

    ``transform`` gets a picture as rows of pixels, or the tensors and texts as they are.
    """
    found: Any = sample.data
    if isinstance(found, bytes):
        kinds = dict.fromkeys(PICTURES, _pixels) | dict.fromkeys(SOUNDS, _sound)
        found = kinds.get(sample.suffix, _arrays)(sample)
    elif isinstance(found, tuple) and len(found) == 1:
        (found,) = found
    if transform is not None:
        found = transform(_main(found) if isinstance(found, Mapping) else found)
    else:
        found = _without_texts(found, sample.name)
    try:
        if isinstance(found, Mapping):
            return {str(name): _tensor(part, transform) for name, part in found.items()}
        parts = found if isinstance(found, (tuple, list)) else (found,)
        return tuple(_tensor(part, transform) for part in parts)
    except (TypeError, ValueError, RuntimeError) as problem:
        told = f"the transform's result for {sample.name} is no tensor: {first_line(problem)}"
        raise InvalidInput(told) from None


def _without_texts(found: Any, name: str) -> Any:
    """The numbers of a sample, of columns by name those that are any."""
    parts = found if isinstance(found, tuple) else (found,)
    if isinstance(found, Mapping):
        found = {key: part for key, part in found.items() if not isinstance(part, str)}
        parts = tuple(found.values())
    if not parts or any(isinstance(part, str) for part in parts):
        raise InvalidInput(f"{name} is a text: a transform makes tensors of it")
    return found


def _tensor(part: Any, transform: object) -> Tensor:
    if isinstance(part, np.ndarray) and transform is None:
        return _picture_tensor(part)
    return torch.as_tensor(part)


def _main(columns: Mapping[str, Any]) -> Any:
    """The column that is the input; all of them where none is called so."""
    named = next((name for name in _INPUT_NAMES if name in columns), None)
    named = named or (next(iter(columns)) if len(columns) == 1 else None)
    return columns if named is None else columns[named]


def _picture_tensor(pixels: Pixels) -> Tensor:
    planes = pixels[..., None] if pixels.ndim == 2 else pixels
    largest = np.iinfo(pixels.dtype).max
    real = torch.from_numpy(np.ascontiguousarray(planes).astype(np.float32))
    return real.movedim(-1, 0) / largest


def pixels_of(opened: Any) -> Pixels:
    """The pixels of a picture that Pillow opened: grey or in colours, of 8 or 16 bits."""
    if opened.mode.startswith("I"):  # (conversion to RGB would cut 16 bits off at 255)
        return np.clip(np.array(opened), 0, 65535).astype(np.uint16)
    grey = opened.mode in ("1", "L", "LA")
    return np.array(opened.convert("L" if grey else "RGB"))


def _pixels(sample: Sample) -> Pixels:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InvalidInput(
            f"a {sample.suffix} file needs Pillow: pip install pillow, or give .npy files"
        ) from None
    try:
        with Image.open(io.BytesIO(sample.data)) as opened:
            if opened.width * opened.height > LARGEST:
                raise ValueError("it has too many pixels")
            return pixels_of(opened)
    except UnidentifiedImageError:
        raise InvalidInput(f"{sample.name} is no picture of a kind that Pillow knows") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as problem:
        raise InvalidInput(f"{sample.name} is no picture: {first_line(problem)}") from None


def _sound(sample: Sample) -> Tensor:
    """The numbers of a .wav file from -1 to 1: of one channel a row, else a row a channel."""
    try:
        with wave.open(io.BytesIO(sample.data)) as opened:
            count, width = opened.getnchannels(), opened.getsampwidth()
            raw = opened.readframes(opened.getnframes())
        kind = {1: "u1", 2: "<i2", 4: "<i4"}[width]
        levels = np.frombuffer(raw, kind).astype(np.float64) - (128 if width == 1 else 0)
        real = torch.from_numpy((levels / (1 << 8 * width - 1)).astype(np.float32))
        return real if count == 1 else real.reshape(-1, count).T
    except (wave.Error, EOFError, ValueError, KeyError) as problem:
        raise InvalidInput(
            f"{sample.name} is no .wav file of 8, 16 or 32 bits without compression: "
            f"{first_line(problem)}"
        ) from None


def _arrays(sample: Sample) -> Tensor | tuple[Tensor, ...]:
    try:
        found = np.load(io.BytesIO(sample.data), allow_pickle=False)
        arrays = [found[name] for name in found.files] if sample.suffix == ".npz" else [found]
        made = tuple(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)
        return made if sample.suffix == ".npz" else made[0]
    except (OSError, ValueError, TypeError, KeyError, EOFError) as problem:
        raise InvalidInput(f"{sample.name} holds no arrays: {first_line(problem)}") from None


def fitted(
    parts: Parts, examples: tuple[Tensor, ...], name: str, names: Sequence[str] = ()
) -> list[Tensor]:
    """Inputs with the shapes of examples: pictures resized, grey or in colours, with a batch.

    ``names`` are those of the model's inputs, by which a sample's tensors may be called.
    """
    if isinstance(parts, dict):
        parts = _in_order(parts, len(examples), name, names)
    if len(parts) != len(examples):
        raise InvalidInput(f"{name} has {len(parts)} inputs, and the model takes {len(examples)}")
    return [_fitted(part, example, name) for part, example in zip(parts, examples)]


def _in_order(
    parts: Mapping[str, Tensor], count: int, name: str, names: Sequence[str]
) -> tuple[Tensor, ...]:
    if names and all(each in parts for each in names):
        return tuple(parts[each] for each in names)
    main = _main(parts)
    if count == 1 and isinstance(main, Tensor):
        return (main,)
    has, takes = ", ".join(parts), ", ".join(names)
    raise InvalidInput(f"{name} has {has}, and the model takes {takes}")


def _fitted(part: Tensor, example: Tensor, name: str) -> Tensor:
    wanted = tuple(example.shape[1:])
    if part.dim() == example.dim() and part.shape[0] == 1:
        part = part[0]
    if part.dim() == 3 and len(wanted) == 3 and part.is_floating_point():
        if (part.shape[0], wanted[0]) == (1, 3):
            part = part.expand(3, -1, -1)
        elif (part.shape[0], wanted[0]) == (3, 1):
            part = torch.tensordot(torch.tensor(_LUMA, dtype=part.dtype), part, 1)[None]
        if part.shape[0] == wanted[0] and part.shape[1:] != wanted[1:]:
            part = torch.nn.functional.interpolate(
                part[None], wanted[1:], mode="bilinear", antialias=True
            )[0]
    if tuple(part.shape) != wanted:
        raise InvalidInput(
            f"the model does not take inputs of {list(part.shape)}, as {name} is: it takes "
            f"{list(wanted)}"
        )
    return _cast(part, example.dtype, name)[None]


def _cast(part: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    """Numbers in the type that the model takes, as long as they are the same there."""
    if part.dtype == dtype:
        return part
    made = part.to(dtype)
    is_pixels = dtype.is_floating_point and part.dtype in (torch.uint8, torch.uint16)
    if is_pixels or not (dtype.is_floating_point or torch.equal(made.to(part.dtype), part)):
        has, takes = (str(each).removeprefix("torch.") for each in (part.dtype, dtype))
        raise InvalidInput(
            f"{name} holds {has}, and the model takes {takes}: convert it, with a transform"
        )
    return made
