"""Data sets as streams: folders, shards, iterables; hostile files are sentences."""

from __future__ import annotations

import io
import json
import math
import pickle
import sys
import tarfile
import types
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from tosaic.errors import InvalidInput
from tosaic.search.datasets import stream_of
from tosaic.search.inputs import decoded, fitted
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


@pytest.mark.parametrize(
    ("given", "takes", "is_right"),
    [(torch.uint8, torch.float32, False), (torch.float64, torch.float32, True),
     (torch.int64, torch.float32, True), (torch.int64, torch.int32, True),
     (torch.uint8, torch.uint8, True)],
)  # fmt: skip
def test_numbers_become_the_models_type_where_they_stay_the_same(
    given: torch.dtype, takes: torch.dtype, is_right: bool
) -> None:
    part, example = torch.tensor([0, 1, 200]).to(given), torch.zeros(1, 3, dtype=takes)
    if is_right:
        assert fitted((part,), (example,), "it")[0].tolist() == [[0, 1, 200]]
    else:
        with pytest.raises(InvalidInput, match="it holds uint8, and the model takes float32"):
            fitted((part,), (example,), "it")
    tokens = (torch.zeros(1, 1, dtype=torch.int32),)
    for wrong in (torch.tensor([0.5]), torch.tensor([2**40]), torch.tensor([math.nan])):
        with pytest.raises(InvalidInput, match="takes int32: convert it"):
            fitted((wrong,), tokens, "it")


def test_a_sample_does_not_hold_the_tensor_that_it_is_a_part_of() -> None:
    samples = list(stream_of((torch.zeros(1000, 100), torch.zeros(1000)))())
    assert max(len(pickle.dumps(sample)) for sample in samples) < 4000


def test_pictures_of_16_bits_keep_their_range_and_colours_become_luma() -> None:
    deep = PIL.fromarray(np.array([[0, 13107], [39321, 65535]], np.uint16))
    to = io.BytesIO()
    deep.save(to, "PNG")
    for picture in (deep, PIL.open(io.BytesIO(to.getvalue()))):
        (sample,) = stream_of([(picture, 0)])()
        (made,) = decoded(sample, None)
        assert torch.allclose(made, torch.tensor([[[0.0, 0.2], [0.6, 1.0]]]))
    red = PIL.new("RGB", (4, 4), (200, 100, 50))
    (sample,) = stream_of([(red, 0)])()
    (made,) = fitted(decoded(sample, None), (torch.zeros(1, 1, 4, 4),), "it")
    assert torch.allclose(made * 255, torch.full_like(made, np.array(red.convert("L"))[0, 0]), 0.01)


def test_what_torch_and_webdataset_give_is_a_data_set() -> None:
    x, y = torch.arange(10.0).reshape(5, 2), torch.arange(5) % 3

    class Named(Dataset[Any]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            return {"image": x[index], "label": y[index], "path": f"{index}.png"}

    whole = TensorDataset(x, y)
    for source in (
        whole, (x, y), (x.numpy(), y.numpy()), DataLoader(whole, 2), DataLoader(whole, 1),
        DataLoader(whole, None), Named(), DataLoader(Named(), 3),
        [{"npy": a.numpy(), "cls": int(b), "__key__": "k"} for a, b in zip(x, y)],
    ):  # fmt: skip
        found = list(stream_of(source)())
        fit = [fitted(decoded(s, None), (x[:1],), s.name)[0] for s in found]
        assert torch.equal(torch.cat(fit), x)
        assert [np.ravel(s.label).tolist() for s in found] == [[0], [1], [2], [0], [1]]
    assert [s.label for s in stream_of(Subset(whole, [4, 2]))()] == [1, 2]


def test_columns_are_bound_by_the_names_of_inputs() -> None:
    item = {"mask": [1, 1], "ids": [3, 4], "text": "two words", "label": 1}
    (sample,) = stream_of([item])()
    assert sample.label == 1
    examples = (torch.zeros(1, 2, dtype=torch.int32),) * 2
    made = fitted(decoded(sample, None), examples, "it", ("ids", "mask"))
    assert [part.tolist() for part in made] == [[[3, 4]], [[1, 1]]]
    assert [p.tolist() for p in fitted(decoded(sample, None), examples, "it", ("mask", "ids"))] == [
        [[1, 1]], [[3, 4]],
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="it has mask, ids, and the model takes words, mask"):
        fitted(decoded(sample, None), examples, "it", ("words", "mask"))
    (pair,) = stream_of([({"b": torch.ones(2), "a": torch.zeros(2)}, 0)])()
    both = (torch.zeros(1, 2), torch.zeros(1, 2))
    assert fitted(decoded(pair, None), both, "it", ("a", "b"))[0].sum() == 0
    sound = {"audio": {"array": np.ones(4), "sampling_rate": 16000}, "sentence": "one"}
    (heard,) = stream_of([sound])()
    assert heard.label == "one"
    assert fitted(decoded(heard, None), (torch.zeros(1, 4),), "it")[0].tolist() == [[1.0] * 4]


def test_pictures_of_a_data_set_and_of_a_folder_are_known_by_all_their_pixels() -> None:
    large = np.zeros((80, 80), np.uint8)
    other = large.copy()
    other[40, 40] = 1
    digests = {next(stream_of([(PIL.fromarray(pixels), 0)])()).digest for pixels in (large, other)}
    assert len(digests) == 2


def test_a_transform_gets_the_pixels() -> None:
    seen: list[Any] = []
    for source in ([(PIL.open(io.BytesIO(png(7, "RGB"))), 0)], [{"image": PIL.new("RGB", (6, 4))}]):
        (sample,) = stream_of(source)()
        decoded(sample, lambda pixels: seen.append(pixels) or torch.zeros(1))
    assert [(pixels.shape, pixels.dtype) for pixels in seen] == [((4, 6, 3), np.uint8)] * 2
    with pytest.raises(InvalidInput, match="the transform's result for 0 is no tensor"):
        decoded(sample, lambda pixels: None)
    sample = next(iter(stream_of([(torch.arange(3), None)])()))
    assert decoded(sample, lambda x: x.float() * 2)[0].tolist() == [0, 2, 4]


def test_texts_are_for_a_transform() -> None:
    def tokens(item: Any) -> Any:
        words = item["sentence"] if isinstance(item, dict) else item
        return torch.tensor([len(word) for word in words.split()])

    for source in ([("one three", 1)], [{"sentence": "one three", "idx": 7, "label": 1}]):
        (sample,) = stream_of(source)()
        assert sample.label == 1
        assert decoded(sample, tokens)[0].tolist() == [3, 5]
    assert decoded(sample, None)["idx"] == 7
    for source in ([("one three", 1)], [{"sentence": "one three", "label": 1}]):
        (sample,) = stream_of(source)()
        with pytest.raises(InvalidInput, match="0 is a text: a transform makes tensors of it"):
            decoded(sample, None)


@pytest.mark.parametrize(("kind", "middle"), [("<i2", 0), ("<i4", 0), ("u1", 128)])
def test_sounds_are_numbers_from_minus_one_to_one(tmp_path: Path, kind: str, middle: int) -> None:
    half = 1 << 8 * np.dtype(kind).itemsize - 2
    levels = np.array([0, half, -half, -2 * half]) + middle
    for name, channels in (("yes", 1), ("yes2", 2)):
        (tmp_path / name).mkdir()
        with wave.open(str(tmp_path / name / "a.wav"), "wb") as made:
            made.setparams((channels, np.dtype(kind).itemsize, 8000, 0, "NONE", ""))
            made.writeframes(levels.astype(kind).tobytes())
    one, two = (decoded(sample, None)[0] for sample in stream_of(tmp_path)())
    assert one.tolist() == [0, 0.5, -0.5, -1]
    assert two.tolist() == [[0, -0.5], [0.5, -1]]
    (tmp_path / "yes" / "a.wav").write_bytes(b"RIFF and no more")
    with pytest.raises(InvalidInput, match=r"yes/a is no \.wav file"):
        decoded(next(stream_of(tmp_path)()), None)


def test_classes_by_name_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    path = tar(tmp_path / "s.tar", {"dog/a.png": png(1), "cat/a.png": png(2)})
    with pytest.raises(InvalidInput, match="'cat' comes behind 'dog': sort the files"):
        list(stream_of(str(path))())
    tar(path, {"cat/a.png": png(2), "dog/a.png": png(1), "cat/b.png": png(2)})
    assert [s.label for s in stream_of(str(path))()] == [0, 1, 0]


def test_hidden_files_are_no_data(tmp_path: Path) -> None:
    for name in ("0/a.png", "0/._a.png", ".trash/b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(png(1))
    assert [s.name for s in stream_of(tmp_path)()] == ["0/a"]


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

    def load_dataset(name: str, kind: Any = None, *, split: str, streaming: bool) -> Any:
        asked.append((name, kind, split, streaming))
        return ({"image": PIL.open(io.BytesIO(png(n))), "label": n} for n in range(3))

    stand_in = types.ModuleType("datasets")
    stand_in.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    assert [s.label for s in stream_of("hf:org/digits:test")()] == [0, 1, 2]
    list(stream_of("hf:glue:sst2:validation")())
    assert asked == [("org/digits", None, "test", True), ("glue", "sst2", "validation", True)]
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


@pytest.mark.parametrize(
    ("items", "sentence"),
    [([1], "item 0 of the data set is no pair"), ([(1, 2, 3)], "is no pair"),
     ([{"sound": None}], "item 0 has no numbers: sound"),
     (5, "iterable of pairs, not int"), ([(None, 1)], "item 0 is no tensor"),
     ({"train": [], "test": []}, "a dict of data sets: give one of train, test"),
     (torch.zeros(3, 2), "a tensor has no labels"),
     ((torch.zeros(3, 2), torch.zeros(2)), "3 inputs and 2 labels")],
)  # fmt: skip
def test_what_is_no_data_set_is_a_sentence(items: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        list(stream_of(items)())
