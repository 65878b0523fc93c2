"""Data sets as streams of samples: folders, tar shards, arrays, iterables, Hugging Face's.

A sample travels as it is stored, and is decoded where it is used, so that a data set may be larger
than memory. Files come from anywhere: sizes are limited, and nothing in them is run.
"""

from __future__ import annotations

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
from torch.utils.data import DataLoader

from tosaic.errors import InvalidInput, first_line
from tosaic.search.inputs import FILES, LARGEST, pixels_of
from tosaic.search.tasks import digest

_LABELS = (".cls", ".txt", ".json")
# Columns of a data set that hold the label, the first that is there.
_LABEL_NAMES = (
    "label", "labels", "y", "target", "class", "cls", "fine_label", "text", "sentence",
    "transcription",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """One input as it is stored: the bytes of a file with its suffix, or tensors; and its label.

    Tensors are in order or by name; an array among them is a picture's pixels, a text is as it is.
    """

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
        parts = self.data.values() if isinstance(self.data, Mapping) else self.data
        return sum(len(part) if isinstance(part, str) else part.nbytes for part in parts)


Stream = Callable[[], Iterator[Sample]]


def stream_of(source: Any) -> Stream:
    """What gives the samples of a source from the beginning, each time it is called.

    A string is a folder, ``shards-{000..009}.tar`` or another pattern of tar files, or
    ``hf:name:split``, with a configuration between them where there are several; anything else is
    an iterable of pairs or of dicts by name, a data set or a loader of torch's, or a tensor of
    inputs with one of labels.
    """
    if not isinstance(source, (str, Path)):
        _check_source(source)
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
        if path.name.startswith("."):
            continue  # what systems and editors leave
        if path.is_dir():
            if path.resolve() in within:
                raise InvalidInput(f"'{path}' is a link to a folder that it is in")
            for name, suffix, data in _files(path, within):
                found = True
                yield f"{path.name}/{name}", suffix, data
        elif path.suffix.lower() in (*FILES, *_LABELS):
            found = True
            if path.stat().st_size > LARGEST:
                raise InvalidInput(f"'{path}' has more than {LARGEST:,} bytes")
            yield path.stem, path.suffix.lower(), path.read_bytes()
    if not found:
        raise InvalidInput(f"'{folder}' has no pictures, sounds or arrays: {', '.join(FILES)}")


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
                if member.size > LARGEST:
                    raise InvalidInput(f"{member.name} of '{path}' has over {LARGEST:,} bytes")
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
        inputs = [part for part in parts if part[0] in FILES]
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
    if folder not in classes and any(name > folder for name in classes):
        raise InvalidInput(
            f"classes are numbered in the order of their names, and '{folder}' comes behind "
            f"'{max(classes)}': sort the files, or put labels beside them as .cls"
        )
    return classes.setdefault(folder, len(classes))


def _read_label(name: str, suffix: str, data: bytes) -> Any:
    try:
        text = data.decode().strip()
        if suffix == ".cls":
            return int(text)
        return json.loads(text) if suffix == ".json" else text
    except ValueError as problem:
        raise InvalidInput(f"the label of {name} is no {suffix[1:]}: {problem}") from None


def _check_source(source: Any) -> None:
    if isinstance(source, Mapping):
        names = ", ".join(map(str, source))
        raise InvalidInput(f"this is a dict of data sets: give one of {names}")
    if isinstance(source, (Tensor, np.ndarray)):
        raise InvalidInput("a tensor has no labels: give (inputs, labels), or pairs of both")


def _items(source: Any) -> Iterator[Sample]:
    """Pairs of an input and a label, or dicts that hold them by one of the usual names."""
    for index, item in enumerate(_each(source() if callable(source) else source)):
        if isinstance(item, Mapping):
            columns = dict(item)
            named = next((name for name in _LABEL_NAMES if name in columns), None)
            label = columns.pop(named) if named is not None else None
            data: Any = _columns(columns, index)
        elif isinstance(item, (tuple, list)) and len(item) == 2:
            given, label = item
            if isinstance(given, Mapping):
                data = _columns(given, index)
            else:
                data = _tensors(given if isinstance(given, (tuple, list)) else (given,), index)
        else:
            raise InvalidInput(f"item {index} of the data set is no pair of an input and a label")
        yield Sample(str(index), "", data, _plain(label))


def _each(found: Any) -> Iterator[Any]:
    """The items of an iterable, of a data set with a length, of a loader's batches, of a pair."""
    if isinstance(found, DataLoader) and found.batch_sampler is not None:
        for batch in found:
            yield from _unbatched(batch)
    elif isinstance(found, tuple) and len(found) == 2 and all(map(_is_array, found)):
        if len(found[0]) != len(found[1]):
            raise InvalidInput(f"there are {len(found[0])} inputs and {len(found[1])} labels")
        yield from zip(*found)
    elif isinstance(found, Iterable):
        yield from found
    elif hasattr(found, "__getitem__") and hasattr(found, "__len__"):
        yield from (found[index] for index in range(len(found)))
    else:
        raise InvalidInput(f"a data set is an iterable of pairs, not {type(found).__name__}")


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) and bool(value.ndim)


def _unbatched(batch: Any) -> Iterator[Any]:
    """The samples that torch's loader has put together."""
    count = _batch_size(batch)
    return (_part(batch, place) for place in range(count))


def _batch_size(batch: Any) -> int:
    if _is_array(batch):
        return len(batch)
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if not isinstance(parts, Iterable) or isinstance(parts, str):
        raise InvalidInput("the loader's batches have no tensors")
    return max((_batch_size(part) for part in parts if not isinstance(part, str)), default=0)


def _part(batch: Any, place: int) -> Any:
    if isinstance(batch, Mapping):
        return {name: _part(value, place) for name, value in batch.items()}
    is_texts = isinstance(batch, (tuple, list)) and all(isinstance(part, str) for part in batch)
    if isinstance(batch, (tuple, list)) and not is_texts:
        return tuple(_part(value, place) for value in batch)
    return batch[place]


def _columns(item: Mapping[Any, Any], index: int) -> dict[str, Any]:
    """What of an item can be inputs, by name; texts can where there is a transform."""
    found = {}
    for name, value in item.items():
        held = value.get("array", value) if isinstance(value, Mapping) else value  # of a sound
        try:
            (found[str(name)],) = _tensors((held,), index)
        except InvalidInput:
            continue
    if not found:
        raise InvalidInput(f"item {index} has no numbers: {', '.join(map(str, item)) or 'nothing'}")
    return found


def _tensors(parts: Iterable[Any], index: int) -> tuple[Any, ...]:
    """Tensors and texts; pictures that Pillow opened are arrays of pixels."""
    try:
        return tuple(_tensor(part) for part in parts)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise InvalidInput(f"item {index} is no tensor: {first_line(problem)}") from None


def _tensor(part: Any) -> Any:
    if isinstance(part, str):
        return part
    if isinstance(part, Tensor):
        found = part.detach().cpu()
        is_part = found.untyped_storage().nbytes() > found.nbytes  # with which all would travel
        return found.clone() if is_part else found
    if isinstance(part, (np.ndarray, np.generic, float, int, list, tuple)):
        return torch.from_numpy(np.array(part))
    if hasattr(part, "mode") and hasattr(part, "convert"):
        return pixels_of(part)
    raise TypeError(f"it is a {type(part).__name__}")


def _hugging_face(text: str) -> Iterator[Any]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise InvalidInput("hf: needs Hugging Face's datasets: pip install datasets") from None
    *name, split = text.removeprefix("hf:").split(":")
    if not name:
        raise InvalidInput(f"'{text}' names no split: write it as hf:mnist:test")
    try:
        yield from load_dataset(*name, split=split, streaming=True)
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
