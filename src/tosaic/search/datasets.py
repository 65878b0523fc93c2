"""Data sets as streams of samples: folders, tar shards, arrays, iterables, Hugging Face's.

A sample travels as it is stored, and is decoded where it is used, so that a data set may be larger
than memory. Files come from anywhere: sizes are limited, and nothing in them is run.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tosaic.errors import InvalidInput, first_line
from tosaic.search.tasks import digest

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
_ARRAYS = (".npy", ".npz")
_LABELS = (".cls", ".txt", ".json")
_LARGEST = 1 << 28  # bytes of one file, and pixels of one picture


@dataclass(frozen=True, slots=True)
class Sample:
    """One input as it is stored: the bytes of a file with its suffix, or tensors; and its label."""

    name: str
    suffix: str
    data: Any
    label: Any

    @property
    def digest(self) -> str:
        return digest(self.suffix, self.data, _plain(self.label))

    @property
    def size(self) -> int:
        if isinstance(self.data, bytes):
            return len(self.data)
        return sum(t.numel() * t.element_size() for t in self.data)


Stream = Callable[[], Iterator[Sample]]


def stream_of(source: Any) -> Stream:
    """What gives the samples of a source from the beginning, each time it is called.

    A string is a folder, ``shards-{000..009}.tar`` or another pattern of tar files, or
    ``hf:name:split``; anything else is an iterable of pairs, or of dicts by name.
    """
    if not isinstance(source, (str, Path)):
        return lambda: _items(source)
    text = str(source)
    if text.startswith("hf:"):
        return lambda: _items(_hugging_face(text))
    if Path(text).is_dir():
        return lambda: _samples(_files(Path(text)))
    if text.endswith((".tar", ".tar.gz", ".tgz")):
        shards = _shards(text)
        return lambda: _samples(member for shard in shards for member in _members(shard))
    raise InvalidInput(
        f"'{text}' is no data set: give a folder, .tar shards, hf:name:split, .npz, .pt or "
        "file.py:name"
    )


def _files(folder: Path, within: tuple[Path, ...] = ()) -> Iterator[tuple[str, str, bytes]]:
    """Files by folder, stem, and bytes; those of one sample follow one another."""
    found, within = False, (*within, folder.resolve())
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.resolve() in within:
                raise InvalidInput(f"'{path}' is a link to a folder that it is in")
            for name, suffix, data in _files(path, within):
                found = True
                yield f"{path.name}/{name}", suffix, data
        elif path.suffix.lower() in (*PICTURES, *_ARRAYS, *_LABELS):
            found = True
            if path.stat().st_size > _LARGEST:
                raise InvalidInput(f"'{path}' has more than {_LARGEST:,} bytes")
            yield path.stem, path.suffix.lower(), path.read_bytes()
    if not found:
        raise InvalidInput(f"'{folder}' has no pictures and no arrays")


def _shards(text: str) -> list[str]:
    """The tar files of a pattern: ``*``, or ``{000..009}``."""
    inside = re.fullmatch(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", text)
    if inside is None:
        found = sorted(glob(text)) if glob(text) else [text]
    else:
        start, first, last, end = inside.groups()
        if int(last) - int(first) > 1_000_000:
            raise InvalidInput(f"'{text}' is too many files")
        found = [f"{start}{n:0{len(first)}d}{end}" for n in range(int(first), int(last) + 1)]
    for path in found:
        if not Path(path).is_file():
            raise InvalidInput(f"there is no file '{path}'")
    return found


def _members(path: str) -> Iterator[tuple[str, str, bytes]]:
    """Files in a tar, one after the other, each read once: names that begin alike are a sample."""
    try:
        with tarfile.open(path, "r|*") as opened:
            for member in opened:
                folder, _, file = member.name.rpartition("/")
                stem, dot, suffix = file.partition(".")
                if not member.isreg() or not dot:
                    continue
                if member.size > _LARGEST:
                    raise InvalidInput(f"{member.name} of '{path}' has over {_LARGEST:,} bytes")
                read = opened.extractfile(member)
                assert read is not None
                data = read.read()
                if len(data) != member.size:
                    raise InvalidInput(f"'{path}' ends within {member.name}")
                yield f"{folder}/{stem}".lstrip("/"), f".{suffix.lower()}", data
    except (tarfile.TarError, EOFError, OSError) as problem:
        raise InvalidInput(f"'{path}' is no whole tar file: {first_line(problem)}") from None


def _samples(files: Iterable[tuple[str, str, bytes]]) -> Iterator[Sample]:
    """Files that belong together: an input and its label, or the folder that it lies in."""
    classes: dict[str, int] = {}
    for name, group in groupby(files, key=lambda each: each[0]):
        parts = [(suffix, data) for _, suffix, data in group]
        inputs = [part for part in parts if part[0] in (*PICTURES, *_ARRAYS)]
        if len(inputs) != 1:
            continue  # such as a note beside the data
        labels = [_read_label(name, *part) for part in parts if part[0] in _LABELS]
        folder = name.rpartition("/")[0]
        if labels:
            label = labels[0]
        elif folder:
            label = _class_of(folder.rpartition("/")[2], classes)
        else:
            label = None
        yield Sample(name, *inputs[0], label)


def _class_of(folder: str, classes: dict[str, int]) -> int:
    """The number of a folder: its name, or which one of all folders it is."""
    if folder.isdigit() and all(name.isdigit() for name in classes):
        return classes.setdefault(folder, int(folder))
    if folder.isdigit() or any(name.isdigit() for name in classes):
        raise InvalidInput(f"folders of classes are all numbers or all names: see '{folder}'")
    return classes.setdefault(folder, len(classes))


def _read_label(name: str, suffix: str, data: bytes) -> Any:
    try:
        text = data.decode().strip()
        if suffix == ".cls":
            return int(text)
        return json.loads(text) if suffix == ".json" else text
    except ValueError as problem:
        raise InvalidInput(f"the label of {name} is no {suffix[1:]}: {problem}") from None


def _items(source: Any) -> Iterator[Sample]:
    """Pairs of an input and a label, or dicts that hold them by one of the usual names."""
    found = source() if callable(source) else source
    if not isinstance(found, Iterable):
        raise InvalidInput(f"a data set is an iterable of pairs, not {type(found).__name__}")
    for index, item in enumerate(found):
        if isinstance(item, Mapping):
            given = _named(item, ("image", "img", "x", "input", "pixel_values", "audio"))
            label = _named(item, ("label", "y", "target", "text", "labels"), None)
        elif isinstance(item, (tuple, list)) and len(item) == 2:
            given, label = item
        else:
            raise InvalidInput(f"item {index} of the data set is no pair of an input and a label")
        yield Sample(str(index), "", _tensors(given, index), _plain(label))


def _named(item: Mapping[str, Any], names: tuple[str, ...], *default: Any) -> Any:
    found = [item[name] for name in names if name in item]
    if not found and not default:
        raise InvalidInput(f"an item has {', '.join(item)}, and none of {', '.join(names)}")
    return found[0] if found else default[0]


def _tensors(given: Any, index: int) -> tuple[Tensor, ...]:
    parts = given if isinstance(given, (tuple, list)) else (given,)
    try:
        made = [p if isinstance(p, Tensor) else torch.from_numpy(np.array(p)) for p in parts]
    except (TypeError, ValueError) as problem:
        raise InvalidInput(f"item {index} is no tensor: {first_line(problem)}") from None
    if any(not isinstance(p, (Tensor, np.ndarray, float, int, list)) for p in parts):
        return tuple(_picture_tensor(t.numpy()) for t in made)  # a picture that PIL opened
    return tuple(made)


def _hugging_face(text: str) -> Iterator[Any]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise InvalidInput("hf: needs Hugging Face's datasets: pip install datasets") from None
    name, _, split = text.removeprefix("hf:").rpartition(":")
    if not name:
        raise InvalidInput(f"'{text}' names no split: write it as hf:mnist:test")
    try:
        yield from load_dataset(name, split=split, streaming=True)
    except Exception as problem:  # (of files, hosts and formats, each its own)
        raise InvalidInput(f"'{text}' cannot be read: {first_line(problem)}") from problem


def _plain(label: Any) -> Any:
    """A label as data of JSON."""
    if isinstance(label, (Tensor, np.ndarray, np.generic)):
        return label.tolist()
    if isinstance(label, Mapping):
        return {str(key): _plain(value) for key, value in label.items()}
    if isinstance(label, (tuple, list)):
        return [_plain(value) for value in label]
    return label


def decoded(sample: Sample, transform: Callable[[Any], Any] | None) -> tuple[Tensor, ...]:
    """The inputs of a sample; pictures are channels of numbers from 0 to 1 unless transformed.

    ``transform`` gets a picture as rows of pixels, or the tensors as they are.
    """
    if isinstance(sample.data, tuple):
        found: Any = sample.data if len(sample.data) > 1 else sample.data[0]
    elif sample.suffix in PICTURES:
        found = _pixels(sample)
    else:
        found = _arrays(sample)
    if transform is not None:
        found = transform(found)
    elif isinstance(found, np.ndarray):
        found = _picture_tensor(found)
    parts = found if isinstance(found, (tuple, list)) else (found,)
    return tuple(torch.as_tensor(part) for part in parts)


def _picture_tensor(pixels: np.ndarray[Any, Any]) -> Tensor:
    planes = pixels[..., None] if pixels.ndim == 2 else pixels
    return torch.from_numpy(np.ascontiguousarray(planes)).movedim(-1, 0).float() / 255


def _pixels(sample: Sample) -> np.ndarray[Any, Any]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InvalidInput(
            f"a {sample.suffix} file needs Pillow: pip install pillow, or give .npy files"
        ) from None
    try:
        with Image.open(io.BytesIO(sample.data)) as opened:
            if opened.width * opened.height > _LARGEST:
                raise ValueError("it has too many pixels")
            plain = opened if opened.mode in ("L", "RGB") else opened.convert("RGB")
            return np.array(plain)
    except UnidentifiedImageError:
        raise InvalidInput(f"{sample.name} is no picture of a kind that Pillow knows") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as problem:
        raise InvalidInput(f"{sample.name} is no picture: {first_line(problem)}") from None


def _arrays(sample: Sample) -> tuple[Tensor, ...]:
    try:
        found = np.load(io.BytesIO(sample.data), allow_pickle=False)
        arrays = [found[name] for name in found.files] if sample.suffix == ".npz" else [found]
        return tuple(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)
    except (OSError, ValueError, TypeError, KeyError, EOFError) as problem:
        raise InvalidInput(f"{sample.name} holds no arrays: {first_line(problem)}") from None


def fitted(parts: tuple[Tensor, ...], examples: tuple[Tensor, ...], name: str) -> list[Tensor]:
    """Inputs with the shapes of examples: pictures resized, grey or in colours, with a batch."""
    if len(parts) != len(examples):
        raise InvalidInput(f"{name} has {len(parts)} inputs, and the model takes {len(examples)}")
    return [_fitted(part, example, name) for part, example in zip(parts, examples)]


def _fitted(part: Tensor, example: Tensor, name: str) -> Tensor:
    wanted = tuple(example.shape[1:])
    if part.dim() == example.dim() and part.shape[0] == 1:
        part = part[0]
    if part.dim() == 3 and len(wanted) == 3 and part.is_floating_point():
        if part.shape[0] != wanted[0] and {part.shape[0], wanted[0]} == {1, 3}:
            part = part.mean(0, keepdim=True).expand(wanted[0], -1, -1)
        if part.shape[0] == wanted[0] and part.shape[1:] != wanted[1:]:
            part = torch.nn.functional.interpolate(
                part[None], wanted[1:], mode="bilinear", antialias=True
            )[0]
    if tuple(part.shape) != wanted:
        raise InvalidInput(
            f"the model does not take inputs of {list(part.shape)}, as {name} is: it takes "
            f"{list(wanted)}"
        )
    return part.to(example.dtype)[None]
