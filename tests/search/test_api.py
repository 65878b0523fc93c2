"""``tosaic.tune`` and ``tosaic.evaluate``: what the command line does, with objects."""

from __future__ import annotations

import json
import resource
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tosaic
from search.search_networks import broken, margin, model, pictures
from tosaic.errors import InvalidInput
from tosaic.search.front import option_words
from tosaic.search.functions import source_digest
from tosaic.search.store import Store
from tosaic.search.tasks import Result
from tosaic.search.tune import SWEEP, Sweep, sweep_of


def labelled(count: int = 40) -> Any:
    return zip(*pictures(count))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    net, example, data = model()
    return tosaic.tune(
        {"first": (net, example, data), "second": (net, example[0], data[:4])},
        target=["ethos-u55-64", "TOSA-1.0+INT"], scheme="int8", mixed=0, jobs=1,
        db=tmp_path_factory.mktemp("api") / "s.db",
    )  # fmt: skip


def test_a_sweep_is_rows_a_front_and_files(swept: Sweep, tmp_path: Path) -> None:
    assert [(r.model, r.target) for r in swept.rows] == [
        (m, t) for m in ("first", "second") for t in ("ethos-u55-64", "TOSA-1.0+INT")
    ]
    assert {r.number for r in swept.front} == {r.number for r in swept.rows if r.is_on_front}
    assert f"{len(swept.front)} of 4 points are on the front" in str(swept)
    for suffix in ("html", "json", "csv"):
        swept.save(tmp_path / f"front.{suffix}")
    assert json.loads((tmp_path / "front.json").read_text())["rows"][0]["model"] == "first"
    assert len(list(tmp_path.glob("front.files/*/network.*"))) == len(swept.front)


def test_the_command_of_a_point_compiles_it_again(swept: Sweep) -> None:
    net, example, data = model()
    known = {"tosaic": tosaic, "model": net, "example_inputs": example, "calibration": data}
    made = eval(swept.rows[0].command, known)
    assert (made.report.cycles, made.report.sram) == (swept.rows[0].cycles, swept.rows[0].sram)


def test_an_evaluation_is_what_running_each_input_gives(swept: Sweep) -> None:
    net, example, data = model()
    forms = {
        name: tosaic.compile(net, example, target="ethos-u55-64", scheme=name, calibration=data)
        for name in ("int8", "a16w8")
    }
    found = tosaic.evaluate(net, example, forms, data=labelled, jobs=1, engine=("tosa", "npu"))
    x, y = pictures(40)
    for name, form in forms.items():
        right = [int(form.run(p[None])[0].argmax()) == int(q) for p, q in zip(x, y)]
        assert found.score_of(name).score == pytest.approx(sum(right) / 40)
        assert found.score_of(f"{name}, tosa").score == found.score_of(name).score
    points = tosaic.evaluate(swept, data=labelled, metric=margin, jobs=1)
    assert len(points.scores) == 5  # four points, and the original once: both are one program
    own = tosaic.evaluate(net, example, forms["int8"], data=labelled, metric=margin, jobs=1)
    one = next(s.score for s in points.scores if s.form.startswith("1: first · ethos-u55-64"))
    assert own.score_of("ethos-u55-64").score == pytest.approx(one)


def test_a_broken_function_ends_it_and_a_mended_one_goes_on(tmp_path: Path) -> None:
    net, example, data = model()
    form = tosaic.compile(net, example, calibration=data)
    judge = partial(tosaic.evaluate, net, example, form, jobs=1, db=tmp_path / "e.db")
    with pytest.raises(InvalidInput, match="input 0: broken fails: ValueError: no such thing"):
        judge(data=labelled, metric=broken)
    read: list[int] = []

    def spoiled() -> Any:
        for index, (x, y) in enumerate(labelled(140)):
            read.append(index)
            yield (x if index < 70 or mended else torch.zeros(3)), y

    mended = False
    with pytest.raises(InvalidInput, match="as 70 is: it takes"):
        judge(data=spoiled)
    assert len(read) < 140  # the rest of the data is not gone through first
    mended = True
    told: list[str] = []
    assert judge(data=spoiled, progress=told.append).inputs == 140
    assert told == ["inputs from 64", "inputs from 128"]  # the first ones were kept


def test_many_tensors_and_functions_without_a_name_go_to_processes() -> None:
    """As shared memory each tensor would be an open file."""
    net, example, data = model()
    form = tosaic.compile(net, example, calibration=data)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, limit[1]))
    try:
        found = tosaic.evaluate(
            net, example, form, data=[(x.clone(), y) for x, y in labelled(900)], jobs=4,
            metric=lambda output, label: float(output.argmax() == label),
        )  # fmt: skip
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    x, y = pictures(900)
    assert found.scores[0].score == pytest.approx(float((net(x).argmax(1) == y).float().mean()))


def test_a_network_that_does_not_take_the_data_does_not_end_the_others(tmp_path: Path) -> None:
    net, example, data = model()
    seen = torch.rand(16, 3, generator=torch.Generator().manual_seed(0))
    other = torch.nn.Linear(3, 4), (seen[:1],), list(seen.split(1))
    swept = tosaic.tune(
        {"one": (net, example, data), "other": other},
        target="TOSA-1.0+INT", scheme="int8", mixed=0, jobs=1, db=tmp_path / "s.db",
        data=labelled,
    )  # fmt: skip
    assert [row.problem[:30] for row in swept.rows] == ["", "the model does not take inputs"]
    assert swept.rows[0].score == tosaic.evaluate(swept, data=labelled, jobs=1).scores[1].score


class Counting(torch.nn.Module):
    """A sum over all that came before."""

    def __init__(self) -> None:
        super().__init__()
        self.total: Tensor
        self.register_buffer("total", torch.zeros(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.total.copy_(self.total + x)
        return self.total.clone()


def test_a_network_with_a_state_is_judged_input_by_input() -> None:
    x = torch.rand(6, 1, 4, generator=torch.Generator().manual_seed(0))
    form = tosaic.compile(Counting(), (x[0],), calibration=[(each,) for each in x])
    ratio = tosaic.evaluate(
        Counting(), (x[0],), form, data=[(each, 0) for each in x], metric="sqnr", jobs=1
    ).scores[1]
    assert (ratio.problem, ratio.score > 30) == ("", True)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [({"target": ()}, "nothing to compile: no target"), ({"target": "ethos-u55-63"}, "u55-63"),
     ({"metric": "top1"}, "needs a labelled data set"), ({"mixed": -1}, "at least 0"),
     ({"target": 5}, "target is a text"), ({"sizes": "0x9"}, "no size"), ({"jobs": 0}, "jobs"),
     ({"scheme": ["int8", "int3"]}, "int3"), ({"scheme": "auto"}, "what mixed and goals are for"),
     ({"scheme": tosaic.Schemes("a16w8")}, "int8 with nodes in a16w8"),
     ({"calibration": "r.json"}, "give the data"), ({"calibration": []}, "is empty"),
     ({"db": "nowhere/s.db"}, "no folder 'nowhere'"), ({"limit": 0}, "limit is a whole number"),
     ({"jobs": "2"}, "jobs is a whole number"), ({"mixed": "3"}, "mixed is a whole number"),
     ({"goals": "sqnr=30"}, "ratios in decibels"), ({"progress": 1}, "progress is a function"),
     ({"sizes": "2x2"}, "Quarters at 2x2: "), ({"ray": "localhost:9"}, "no Ray cluster at"),
     ({"ray": "somewhere"}, "auto or host:port"), ({"colour": 1}, "no option 'colour'"),
     ({"data": "nowhere", "metric": "top1"}, "no data set"), ({"decode": 3}, "function is wanted")],
)  # fmt: skip
def test_what_does_not_fit_is_a_sentence(
    given: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    net, example, data = model()
    words = {"target": "ethos-u55-64", "calibration": data, "jobs": 1, "mixed": 0, **given}
    with pytest.raises(InvalidInput, match=sentence):
        tosaic.tune(net, example, **words)


def test_goals_that_no_mixture_is_for_are_told(tmp_path: Path) -> None:
    net, example, data = model()
    swept = tosaic.tune(
        net, example, target="TOSA-1.0+INT+int16", calibration=data, scheme="int8", mixed=0,
        goals=[1, 500, 600], jobs=1, db=tmp_path / "s.db",
    )  # fmt: skip
    for made in (swept, sweep_of(Store(swept.database))):
        assert len(made.rows) == 1
        low, high = made.notes
        assert "has no mixed precision for 1 dB: int8 reaches it" in low
        assert "has no mixed precision for 500 dB, 600 dB: out of reach" in high
    printed = str(swept).splitlines()
    assert sum(line.startswith("Quarters on ") for line in printed) == 2
    assert "flash" not in str(swept)  # of which nothing is known


def test_an_exported_program_brings_its_inputs(tmp_path: Path) -> None:
    net, example, data = model()
    program = torch.export.export(net, example)
    words: Any = {"target": "TOSA-1.0+INT", "calibration": data}
    swept = tosaic.tune(program, scheme="int8", mixed=0, jobs=1, db=tmp_path / "s.db", **words)
    form = tosaic.compile(program, **words)
    judged = tosaic.evaluate(program, None, form, data=labelled, metric="sqnr", jobs=1)
    assert (swept.rows[0].score or 0) > 30
    assert judged.scores[1].score > 30


def test_values_of_options_that_say_nothing_have_their_names() -> None:
    given = {"memory_mode": "Sram_Only", "check": False, "size": "64"}
    assert option_words(given) == ["Sram_Only", "check=False", "size=64"]


def test_an_option_is_for_the_targets_that_have_it(tmp_path: Path) -> None:
    net, example, data = model()
    swept = tosaic.tune(
        net, example, target=["ethos-u55-64", "cortex-m4"], calibration=data[:2], scheme="int8",
        mixed=0, jobs=1, db=tmp_path / "s.db", memory_mode=["Sram_Only", "Shared_Sram"],
    )  # fmt: skip
    assert [(row.target, row.options) for row in swept.rows] == [
        ("ethos-u55-64", {"memory_mode": "Sram_Only"}),
        ("ethos-u55-64", {"memory_mode": "Shared_Sram"}), ("cortex-m4", {}),
    ]  # fmt: skip


def test_results_beside_another_original_are_not_mistaken(tmp_path: Path) -> None:
    net, example, data = model()
    form = tosaic.compile(net, example, target="TOSA-1.0+INT", calibration=data)

    class Less(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            whole: Tensor = net(x)
            return whole * 0.5

    found = [
        tosaic.evaluate(each, example, form, data=labelled, metric="sqnr", jobs=1, db=place)
        for each, place in (
            (net, tmp_path / "one.db"), (Less(), tmp_path / "one.db"), (Less(), tmp_path / "2.db")
        )
    ]  # fmt: skip
    first, second, alone = (each.scores[1].score for each in found)
    assert second == alone
    assert second < first - 20


@pytest.mark.parametrize(
    ("given", "sentence"),
    [({"device": "tpu"}, "device 'tpu' is not known"), ({"artifacts": [1]}, "list is no artifact"),
     ({"data": [(torch.zeros(1, 8, 8), 0.5)]}, "a class is a whole number, not 0.5")],
)  # fmt: skip
def test_an_evaluation_that_does_not_fit_is_a_sentence(
    given: dict[str, Any], sentence: str
) -> None:
    net, example, data = model()
    form = tosaic.compile(net, example, target="TOSA-1.0+INT", calibration=data)
    words = {"artifacts": form, "data": labelled, "jobs": 1, **given}
    with pytest.raises(InvalidInput, match=sentence):
        tosaic.evaluate(net, example, **words)


def test_functions_that_compute_something_else_have_another_digest() -> None:
    def times(factor: float) -> Any:
        return lambda output, label: output.sum() * factor

    class Held:
        def __init__(self, weight: Tensor) -> None:
            self.weight = weight

        def __call__(self, output: Tensor, label: int) -> float:
            return float((output * self.weight).sum())

    def again(output: Tensor, label: int) -> float:
        return again(output, label - 1) if label else 0.0

    made = [
        times(1.0), times(2.0), lambda o, y: o.sum(), lambda o, y: o.mean(), margin, broken, again,
        partial(margin, label=1), partial(margin, label=2), Held(torch.ones(2)).__call__,
        Held(torch.ones(2)), Held(torch.zeros(2)), max,
    ]  # fmt: skip
    assert len({source_digest(each) for each in made}) == len(made)
    assert source_digest(times(2.0)) == source_digest(times(2.0))


def test_a_sweep_of_another_version_is_shown_and_not_run(swept: Sweep, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with sqlite3.connect(swept.database) as held, sqlite3.connect(path) as copy:
        held.backup(copy)
    store = Store(path)
    told = store.described(SWEEP)
    told["versions"]["tosaic"] = "0.0.1"
    for point in told["points"]:
        point["network"]["program"] = "what that version called it"
    store.describe(SWEEP, told)
    assert [r.cycles for r in sweep_of(store).rows] == [r.cycles for r in swept.rows]
    with pytest.raises(InvalidInput, match=r"computed by tosaic 0\.0\.1, .* again"):
        tosaic.evaluate(sweep_of(store), data=labelled, jobs=1)
    del told["points"][0]["target"]
    store.describe(SWEEP, told)
    with pytest.raises(InvalidInput, match="is damaged: KeyError"):
        sweep_of(store)
    store.close()
    with sqlite3.connect(path) as opened:
        opened.execute("PRAGMA application_id=0x705A1C00")
    with pytest.raises(InvalidInput, match="another version of Tosaic"):
        Store(path)


def test_a_file_that_cannot_be_written_is_shown(
    swept: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a folder? with #odd %41 characters" / "s.db"
    path.parent.mkdir()
    path.write_bytes(Path(swept.database).read_bytes())
    monkeypatch.setattr("os.access", lambda *_: False)
    store = Store(path, must_exist=True)
    assert [r.cycles for r in sweep_of(store).rows] == [r.cycles for r in swept.rows]
    with pytest.raises(InvalidInput, match="readonly"):
        store.put("key", b"data")
    store.close()
    assert [each.name for each in path.parent.iterdir()] == ["s.db"]


def test_a_hostile_file_of_results_writes_nothing_outside(swept: Sweep, tmp_path: Path) -> None:
    path = tmp_path / "in" / "evil.db"
    path.parent.mkdir()
    with sqlite3.connect(swept.database) as held, sqlite3.connect(path) as copy:
        held.backup(copy)
    with sqlite3.connect(path) as opened:
        opened.execute("UPDATE results SET data = replace(data, 'report.html', '../../../out')")
    store = Store(path)
    with pytest.raises(InvalidInput, match="no name of a file"):
        sweep_of(store).save(path.with_suffix(".html"))
    store.close()
    assert not list(tmp_path.glob("**/out"))


def test_a_full_disk_is_a_sentence_and_what_was_kept_stays(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = Store(path)
    store.keep({"first": Result(1, {"blob": b"x"})}, 0.0)
    store._open.execute("PRAGMA max_page_count=9")  # as if the disk ended there
    with pytest.raises(InvalidInput, match=r"'.*s\.db' cannot be .* full; .* goes on"):
        store.keep({"second": Result(2, {"large": bytes(1 << 16)}), "third": Result(3)}, 0.0)
    store.close()
    again = Store(path)
    assert [again.get(name) for name in ("first", "second", "third")] == [1, None, None]
    assert again.blob("blob") == b"x"
    again.close()
