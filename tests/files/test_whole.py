"""What is written is whole or absent, wherever the disk is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tosaic.errors import InvalidInput
from tosaic.files.whole import write_folder, write_together

FILES = {"a": b"1", "deep/er/b": b"2", "deep/c": b"3"}


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


@pytest.mark.parametrize("room", range(len(FILES)))
@pytest.mark.parametrize("old", [{}, {"deep/c": b"old"}], ids=["new", "there is an older one"])
def test_a_folder_is_as_before_where_the_disk_is_full(tmp_path, monkeypatch, old, room):
    place = tmp_path / "some" / "where"
    if old:
        write_folder(place, old)
    before, written = tree(tmp_path), []
    write = Path.write_bytes

    def full(self, data):
        if len(written) == room:
            with self.open("wb") as file:
                file.write(b"a part")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(self)
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InvalidInput, match="cannot write .*: No space left on device"):
        write_folder(place, FILES)
    assert len(written) == room
    assert tree(tmp_path) == before
    monkeypatch.undo()
    write_folder(place, FILES)
    assert {n: b for n, b in tree(place).items() if b is not None} == FILES


def test_a_folder_that_cannot_be_made_is_a_sentence_and_leaves_none(tmp_path):
    (tmp_path / "deep").write_bytes(b"a file")
    before = tree(tmp_path)
    with pytest.raises(InvalidInput, match="cannot make the folder"):
        write_folder(tmp_path, FILES)
    with pytest.raises(InvalidInput, match="there is a file of that name"):
        write_folder(tmp_path / "deep", FILES)
    assert tree(tmp_path) == before


def test_a_folder_in_the_place_of_one_file_keeps_the_others_from_being_written(tmp_path):
    (tmp_path / "b").mkdir()
    with pytest.raises(InvalidInput, match="b': Is a directory"):
        write_together({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert os.listdir(tmp_path) == ["b"]
