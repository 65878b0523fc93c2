"""Executors: the same results from one process, several, and a cluster, whatever is lost."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tosaic.errors import InvalidInput
from tosaic.search.executors import Processes, Serial
from tosaic.search.store import Store
from tosaic.search.tasks import REFUSED, Blobs, Executor, Result, Task, digest, packed

__tosaic_file__ = True  # other machines have no such file: a cluster is sent its functions


def square(number: Any, blobs: Blobs) -> Mapping[str, Result]:
    made = blobs.load("factor") * number**2
    return {f"square {number}": Result(made, {f"blob {number}": bytes([number])})}


def refuse(number: Any, blobs: Blobs) -> Mapping[str, Result]:
    raise InvalidInput("never")


def fail(number: Any, blobs: Blobs) -> Mapping[str, Result]:
    raise ZeroDivisionError("once")


def die(place: Any, blobs: Blobs) -> Mapping[str, Result]:
    """End the process the first time, and be fine the second."""
    if not os.path.exists(place):
        Path(place).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"died": Result("and lived")}


def doomed(number: Any, blobs: Blobs) -> Mapping[str, Result]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def squares(count: int) -> list[Task]:
    return [Task(f"{n}²", square, (f"square {n}",), ("factor",), n) for n in range(count)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "results.db")
    made.put("factor", packed(3))
    return made


def executor(kind: str, store: Store, journal: str = "") -> Executor:
    if kind == "serial":
        return Serial(store.blob, journal)
    return Processes(store.path, 2, journal=journal)


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_results_and_blobs_are_kept_and_nothing_runs_twice(
    kind: str, store: Store, tmp_path: Path
) -> None:
    journal = str(tmp_path / "log")
    for _ in range(2):
        made = executor(kind, store, journal)
        list(store.run(made, squares(7)))
        made.close()
    assert [store.get(f"square {n}") for n in range(7)] == [3 * n * n for n in range(7)]
    assert store.blob("blob 5") == b"\x05"
    ran = Counter(json.loads(line)["key"] for line in Path(journal).read_text().splitlines())
    assert ran == Counter({f"square {n}": 1 for n in range(7)})


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_a_refusal_is_an_answer_and_a_fault_is_tried_again(kind: str, store: Store) -> None:
    made = executor(kind, store)
    tasks = [Task("r", refuse, ("r",)), Task("f", fail, ("f",)), *squares(2)]
    told = {done.task.name: done.outcome for done in store.run(made, tasks)}
    assert store.get("r") == {REFUSED: "never"}
    assert not store.has("f")
    assert "ZeroDivisionError" in told["f"].fault
    assert store.get("square 1") == 3
    assert [done.task.name for done in store.run(made, tasks)] == ["f"]
    made.close()


def test_a_process_that_is_lost_costs_a_repetition(store: Store, tmp_path: Path) -> None:
    made = executor("processes", store)
    tasks = [*squares(3), Task("d", die, ("died",), (), str(tmp_path / "mark")), *squares(9)]
    assert not [done for done in store.run(made, tasks) if done.outcome.fault]
    assert store.get("died") == "and lived"
    assert store.get("square 8") == 192
    made.close()


def test_a_task_that_always_ends_its_process_is_given_up_and_the_others_are_not(
    store: Store,
) -> None:
    made = executor("processes", store)
    tasks = [*squares(2), Task("x", doomed, ("x",)), *squares(6)]
    faults = [done for done in store.run(made, tasks) if done.outcome.fault]
    assert [done.task.name for done in faults] == ["x"]
    assert "lost 3 times" in faults[0].outcome.fault
    assert store.get("square 5") == 75
    made.close()


def test_a_function_that_cannot_be_sent_is_a_sentence(store: Store) -> None:
    made = executor("processes", store)
    local = Task("l", lambda number, blobs: {}, ("l",))  # (in a task itself, not of the user's)
    with pytest.raises(InvalidInput, match="define it at the top of a module"):
        list(store.run(made, [local]))
    made.close()


def test_keys_tell_values_types_and_nestings_apart() -> None:
    given = (1, 1.0, "1", b"1", [1], [[1]], None, True, {"1": 1}, torch.ones(1), torch.ones(1, 1),
             torch.ones(1, dtype=torch.int8), ["a", "b"], ["ab"], [["a"], "b"])  # fmt: skip
    assert len({digest(value) for value in given}) == len(given)
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one" * 9, b""])
def test_a_store_is_made_of_nothing_but_its_own_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    if content:
        with pytest.raises(InvalidInput, match="no file of results"):
            Store(path)
        assert path.read_bytes() == content
    else:
        Store(path).close()


def test_a_cluster_that_loses_a_node_gives_the_same_and_repeats_little(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "tosaic[ray]"')
    from ray.cluster_utils import Cluster as Nodes

    from tosaic.search.cluster import Cluster

    journal = str(tmp_path / "log")
    nodes = Nodes(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "num_gpus": 1, "include_dashboard": False},
    )
    try:
        second = nodes.add_node(num_cpus=1)
        made = Cluster(nodes.address, store.blob, 2, journal)
        said = threading.Thread(target=print, args=("of a node",), name="ray_listen_error_messages")
        said.start()
        said.join()
        print("of the user's")
        tasks = [Task(f"{n}", slowly, (f"slow {n}",), ("factor",), n) for n in range(6)]
        alone = Task("a GPU", gpus_seen, ("gpus",), gpus=1)
        for count, _ in enumerate(store.run(made, tasks)):
            if count == 1:
                nodes.remove_node(second, allow_graceful=False)
        list(store.run(made, [alone, Task("no GPU", gpus_seen, ("no gpus",))]))
        made.close()
    finally:
        ray.shutdown()
        nodes.shutdown()
    assert capsys.readouterr().out == "of the user's\n"  # which may be JSON
    assert [store.get(f"slow {n}") for n in range(6)] == [3 * n for n in range(6)]
    ran = Counter(json.loads(line)["key"] for line in Path(journal).read_text().splitlines())
    assert max(ran.values()) <= 2
    assert len(ran) == 8
    assert (store.get("gpus"), store.get("no gpus")) == (1, 0)


def gpus_seen(arguments: Any, blobs: Blobs) -> Mapping[str, Result]:
    import ray

    found = ray.get_gpu_ids()
    return {"gpus" if found else "no gpus": Result(len(found))}


def slowly(number: Any, blobs: Blobs) -> Mapping[str, Result]:
    time.sleep(0.3)
    return {f"slow {number}": Result(blobs.load("factor") * number)}
