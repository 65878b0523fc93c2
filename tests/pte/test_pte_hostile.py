"""A damaged or hostile ``.pte`` gets a sentence, and nothing else."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
import torch

import tosaic
from judges.edgenets import Island, pictures, seeded
from judges.etorch import deserialized, executorch_or_skip
from tosaic.errors import InvalidInput, TosaicError
from tosaic.executorch.api import quiet

executorch_or_skip()


@cache
def island() -> bytes:
    import tempfile

    art = tosaic.compile(seeded(Island()), pictures(1)[0], calibration=pictures(8))
    with tempfile.TemporaryDirectory() as folder:
        art.save(Path(folder) / "net.pte")
        return (Path(folder) / "net.pte").read_bytes()


def attempt(data: bytes) -> str:
    """What becomes of a file: refused when it is loaded, refused when it runs, or it runs."""
    try:
        loaded = tosaic.load(data)
    except TosaicError:
        return "not loaded"
    try:
        loaded.run(*pictures(1)[0])
    except TosaicError:
        return "not run"
    return "run"


@pytest.mark.parametrize("end", [0, 7, 8, 31, 200, 1000, -1000, -1])
def test_a_cut_file_is_refused(end: int, tmp_path: Path) -> None:
    file = tmp_path / "cut.pte"
    file.write_bytes(island()[:end])
    with pytest.raises(TosaicError):
        tosaic.load(file).run(*pictures(1)[0])


def test_any_damage_is_an_error_or_a_program() -> None:
    data, chance = island(), random.Random(3)
    plan = data.index(b"forward") + 2000  # behind it come the blobs, which have their own tests
    seen = {"not loaded": 0, "not run": 0, "run": 0}
    for _ in range(120):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 2, 8))):
            damaged[chance.randrange(8, plan)] = chance.randrange(256)
        seen[attempt(bytes(damaged))] += 1
    assert seen["not loaded"] > 20
    assert sum(seen.values()) == 120


def rewritten(change: object) -> bytes:
    """The file with its program changed by a function."""
    from executorch.exir._serialize._program import serialize_pte_binary

    file = deserialized(island())
    assert callable(change)
    change(file.program.execution_plan[0])
    with quiet():
        return bytes(serialize_pte_binary(file, extract_delegate_segments=True))


def steps(plan: object) -> list:
    return plan.chains[0].instructions  # type: ignore[attr-defined]


def loop(plan: object) -> None:
    from executorch.exir.schema import Bool, EValue, Instruction, JumpFalseCall

    plan.values.append(EValue(Bool(False)))  # type: ignore[attr-defined]
    steps(plan).append(Instruction(JumpFalseCall(len(plan.values) - 1, 0)))  # type: ignore[attr-defined]


def renamed(plan: object) -> None:
    plan.operators[2].name, plan.operators[2].overload = "aten::from_file", "out"  # type: ignore[attr-defined]


def unknown(plan: object) -> None:
    plan.operators[2].name = "nothing::such"  # type: ignore[attr-defined]


def foreign(plan: object) -> None:
    plan.delegates[0].id = "SomeoneElsesBackend"  # type: ignore[attr-defined]


def outside(plan: object) -> None:
    tensor = next(v.val for v in plan.values if hasattr(v.val, "sizes"))  # type: ignore[attr-defined]
    tensor.allocation_info.memory_offset_low = 1 << 30


def huge(plan: object) -> None:
    plan.non_const_buffer_sizes[1] = 1 << 60  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (renamed, "PyTorch has no operator aten::from_file.out"),
        (unknown, "PyTorch has no operator nothing::such"),
        (foreign, "a delegate of SomeoneElsesBackend, which nothing here runs"),
        (outside, "bytes of memory"),
        (huge, "plans 1152921504606"),
    ],
)
def test_what_cannot_be_run_is_named(change: object, sentence: str) -> None:
    with pytest.raises(TosaicError, match=sentence):
        tosaic.load(rewritten(change)).run(*pictures(1)[0])


def test_a_loop_without_an_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tosaic.executorch.runner._STEPS", 50)
    with pytest.raises(InvalidInput, match="has not ended after 50 instructions"):
        tosaic.load(rewritten(loop)).run(*pictures(1)[0])


def test_wrong_inputs_get_a_sentence() -> None:
    loaded = tosaic.load(island())
    with pytest.raises(InvalidInput, match="takes 1 input, not 2"):
        loaded.run(torch.zeros(1), torch.zeros(1))
    with pytest.raises(InvalidInput, match=r"input 0 is float32\[1,3,8,8\], not float32\[2\]"):
        loaded.run(torch.zeros(2))
    with pytest.raises(InvalidInput, match="a str makes no tensor"):
        loaded.run("picture")
    with pytest.raises(InvalidInput, match="cannot read 'none.pte'"):
        tosaic.load("none.pte")
    with pytest.raises(InvalidInput, match="its identifier is not ET12"):
        tosaic.load(island()[:4] + b"ET99" + island()[8:])
