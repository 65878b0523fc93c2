"""Data sets as streams: folders, shards, iterables; hostile files are sentences."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tosaic.errors import InvalidInput
from tosaic.search.datasets import decoded, fitted, stream_of
from tosaic.search.judge import CHUNK, chunks

PIL = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install pillow")


def png(value: int, mode: str = "L") -> bytes:
    to = io.BytesIO()
    PIL.new(mode, (6, 4), value if mode == "L" else (value,) * 3).save(to, "PNG")
    return to.getvalue()


def tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as opened:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))
    return path


def npy(array: Any) -> bytes:
    to = io.BytesIO()
    np.save(to, array)
    return to.getvalue()


def test_folders_are_classes_by_name_or_by_number(tmp_path: Path) -> None:
    for folder, value in (("named/cat", 1), ("named/dog", 2), ("numbers/7", 3), ("numbers/3", 4)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.png").write_bytes(png(value))
        (tmp_path / folder / "note.md").write_text("no sample")
    labels = [(s.name, s.label) for s in stream_of(tmp_path / "named")()]
    assert labels == [("cat/a", 0), ("dog/a", 1)]
    assert [s.label for s in stream_of(tmp_path / "numbers")()] == [3, 7]
    (tmp_path / "numbers" / "cat").mkdir()
    (tmp_path / "numbers" / "cat" / "a.png").write_bytes(png(0))
    with pytest.raises(InvalidInput, match="all numbers or all names"):
        list(stream_of(tmp_path / "numbers")())
    with pytest.raises(InvalidInput, match="no pictures"):
        list(
            stream_of(tmp_path)() if not any(tmp_path.iterdir()) else stream_of(_empty(tmp_path))()
        )


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def test_shards_are_read_in_order_with_labels_beside_their_inputs(tmp_path: Path) -> None:
    for shard in range(3):
        members = {
            f"{shard}.png": png(shard), f"{shard}.cls": str(shard).encode(),
            f"x{shard}.npy": npy(np.full(3, shard)), f"x{shard}.txt": b" two words \n",
            f"y{shard}.npy": npy(np.zeros(1)), f"y{shard}.json": json.dumps([shard]).encode(),
        }  # fmt: skip
        tar(tmp_path / f"s-{shard:03d}.tar", members)
    for pattern in ("s-{000..002}.tar", "s-*.tar"):
        found = list(stream_of(str(tmp_path / pattern))())
        assert [s.label for s in found] == [v for n in range(3) for v in (n, "two words", [n])]
    assert decoded(found[1], None)[0].tolist() == [0, 0, 0]


def test_pictures_become_what_a_model_takes() -> None:
    (sample,) = stream_of([(PIL.open(io.BytesIO(png(51, "RGB"))), 3)])()
    assert decoded(sample, None)[0].shape == (3, 4, 6)
    (made,) = fitted(decoded(sample, None), (torch.zeros(1, 1, 8, 8),), "it")
    assert made.shape == (1, 1, 8, 8)
    assert torch.allclose(made, torch.full_like(made, 0.2))
    with pytest.raises(InvalidInput, match=r"does not take inputs of \[5\], as it is"):
        fitted((torch.zeros(5),), (torch.zeros(1, 1, 8, 8),), "it")


def test_a_transform_gets_the_pixels() -> None:
    sample = next(iter(stream_of([(torch.arange(3), None)])()))
    assert decoded(sample, lambda x: x.float() * 2)[0].tolist() == [0, 2, 4]


def test_a_folder_within_itself_is_not_read_again_and_again(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "a.png").write_bytes(png(1))
    (tmp_path / "2").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(InvalidInput, match="link to a folder that it is in"):
        list(stream_of(tmp_path)())


@pytest.mark.parametrize("broken", ["cut", "no tar", "bad picture", "pickled", "bad label"])
def test_a_damaged_shard_is_a_sentence(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "s.tar"
    members = {"a.png": png(1), "a.cls": b"1"}
    if broken == "bad picture":
        members["a.png"] = png(1)[:40]
    if broken == "pickled":
        members = {"a.npy": npy(np.array([{"an": "object"}], dtype=object))}
    if broken == "bad label":
        members["a.cls"] = b"one"
    tar(path, members)
    if broken == "cut":
        path.write_bytes(path.read_bytes()[:600])
    if broken == "no tar":
        path.write_bytes(b"nothing" * 300)
    with pytest.raises(InvalidInput, match="whole tar file|ends within|no picture|no arrays|label"):
        [decoded(sample, None) for sample in stream_of(str(path))()]


def test_hugging_face_streams_by_name_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load_dataset(name: str, split: str, streaming: bool) -> Any:
        asked.append((name, split, streaming))
        return ({"image": PIL.open(io.BytesIO(png(n))), "label": n} for n in range(3))

    stand_in = types.ModuleType("datasets")
    stand_in.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    assert [s.label for s in stream_of("hf:org/digits:test")()] == [0, 1, 2]
    assert asked == [("org/digits", "test", True)]
    stand_in.load_dataset = lambda *_, **__: 1 / 0  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match="'hf:org/digits:test' cannot be read: division"):
        list(stream_of("hf:org/digits:test")())
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InvalidInput, match="pip install datasets"):
        list(stream_of("hf:org/digits:test")())


def test_a_stream_without_end_is_read_as_far_as_it_is_used() -> None:
    read = 0

    def endless() -> Any:
        nonlocal read
        while True:
            read += 1
            yield torch.zeros(2), 0

    first = next(chunks(stream_of(endless)))
    assert len(first.samples) == read == CHUNK


@pytest.mark.parametrize("items", [[1], [(1, 2, 3)], [{"sound": 1}], 5, [("text", 1)]])
def test_what_is_no_data_set_is_a_sentence(items: Any) -> None:
    with pytest.raises(InvalidInput):
        list(stream_of(items)())
