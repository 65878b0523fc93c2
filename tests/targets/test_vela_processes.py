"""Whatever happens to Vela costs a graph, and nothing else: it runs in processes of its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.velagraphs import FAULTY, pooled
from tosaic.errors import InvalidInput, ToolFailed
from tosaic.files import flatbuffer
from tosaic.interp.model import Model
from tosaic.ir.build import Builder
from tosaic.targets.ethosu import vela, vela_processes, vela_worker
from tosaic.targets.ethosu.delegate import compile_graph
from tosaic.targets.ethosu.vela import Table, VelaConfig, VelaResult, run_many, run_vela

CONFIG = VelaConfig("ethos-u55-128")


@pytest.fixture
def anew() -> Iterator[None]:
    """No worker of another test before, and none of this one after."""
    vela_processes.stop()
    yield
    vela_processes.stop()


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch, anew: None) -> Callable[..., None]:
    """Have Vela go wrong in a way, on graphs with a mark."""

    def chosen(how: str, mark: str = "marked", seconds: float = 600.0) -> None:
        vela_processes.stop()
        monkeypatch.setattr(vela_processes, "PROGRAM", FAULTY)
        monkeypatch.setenv("VELA_WORKER", vela_worker.__file__)
        monkeypatch.setenv("VELA_FAULT", how)
        monkeypatch.setenv("VELA_MARK", mark)
        monkeypatch.setenv("TOSAIC_VELA_BYTES", str(2 << 30))
        limit = property(lambda job: seconds if mark.encode() in job.file else 600.0)
        monkeypatch.setattr(vela_processes.Job, "seconds", limit)

    return chosen


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts Python, also where what runs in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


SLOW = {"stopped": 0.1, "spinning": 0.1, "sleeping": 0.1}  # seconds, the others have many
SENTENCES = {
    "killed": "Vela ends with SIGKILL (Killed) on the graph for ethos-u55-128",
    "crashed": "Vela ends with SIGSEGV (Segmentation fault) on the graph for ethos-u55-128 (to the "
    "errors)",
    "stopped": "Vela does not finish within 0.1 seconds on the graph for ethos-u55-128",
    "spinning": "Vela does not finish within 0.1 seconds on the graph for ethos-u55-128",
    "sleeping": "Vela does not finish within 0.1 seconds on the graph for ethos-u55-128",
    "out of memory": "Vela needs more than 2,147,483,648 bytes of memory on the graph for "
    "ethos-u55-128",
    "exited": "Vela ends with exit status 3 on the graph for ethos-u55-128",
    "garbage": "Vela gives an answer that cannot be read on the graph for ethos-u55-128",
    "nested": "Vela gives an answer that cannot be read on the graph for ethos-u55-128",
    "huge": "Vela gives an answer that cannot be read on the graph for ethos-u55-128",
    "half": "Vela ends with exit status 0 on the graph for ethos-u55-128",
    "other": "Vela gives an answer that cannot be read on the graph for ethos-u55-128",
}


@pytest.mark.parametrize("how", SENTENCES)
def test_a_lost_worker_is_a_failure_of_the_graph_alone(
    how: str, fault: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    """The sentence says what happened and how to repeat it; what comes after is compiled."""
    fault(how, seconds=SLOW.get(how, 600.0))
    before = run_vela(pooled(), CONFIG)
    with pytest.raises(ToolFailed) as failure:
        run_vela(pooled("marked"), CONFIG)
    said, _, command = failure.value.reason.partition("; to repeat it: ")
    assert said == SENTENCES[how]
    *words, path = command.split()
    assert words[:2] == ["vela", "--accelerator-config=ethos-u55-128"]
    assert Path(path).read_bytes() == pooled("marked")
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    assert run_vela(pooled(), CONFIG) == before
    assert capfd.readouterr() == ("", "")


class Net(nn.Module):
    """The call that Vela is made to go wrong with lies between others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(nn.functional.max_pool2d(self.first(x), 2))


@pytest.mark.parametrize("how", ["killed", "stopped", "spinning", "garbage"])
def test_a_program_loses_the_call_that_vela_goes_wrong_with(
    how: str, fault: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    net, data = Net().eval(), [(torch.randn(1, 3, 12, 12),) for _ in range(2)]
    whole = tosaic.compile(net, data[0], target="ethos-u55-128", calibration=data)
    assert not whole.report.refused
    fault(how, "aten.max_pool2d", SLOW.get(how, 600.0))
    run, tried = vela_processes.run, []

    def counted(jobs: Sequence[vela_processes.Job]) -> object:
        tried.extend(job for job in jobs if b"aten.max_pool2d" in job.file)
        return run(jobs)

    monkeypatch.setattr(vela_processes, "run", counted)
    made = tosaic.compile(net, data[0], target="ethos-u55-128", calibration=data)
    (refused,) = made.report.refused
    assert refused.op.startswith("aten.max_pool2d")
    assert SENTENCES[how] in refused.reason
    assert len(made.delegates) == 2
    assert torch.equal(made.run(*data[0]), whole.run(*data[0]))
    assert how not in SLOW or len(tried) <= 3  # each of them takes the whole time


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.gather(x, 0, x.argsort(0))
        return torch.addcdiv(x, x, y.abs() + 1, value=0.5)


def test_a_graph_that_ends_vela_leaves_an_artifact() -> None:
    torch.manual_seed(0)
    data = [(torch.randn(2, 2),) for _ in range(8)]
    made = tosaic.compile(
        Sorted(), data[0], target="ethos-u85-256", scheme="a16w8", calibration=data
    )
    for given in data:
        assert torch.equal(made.run(*given), made.run(*given, engine="tosa"))
        assert (made.run(*given) - Sorted()(*given)).abs().max() < 0.01


def rescaled(b: Builder, x: object, multiplier: int, shift: int, kind: str) -> object:
    wide = multiplier > 1 << 15
    return b.RESCALE(
        x, b.const([multiplier], "i32" if wide else "i16"), b.const([shift], "i8"),
        b.const([0], str(x.dtype)), b.const([0], kind), scale32=wide,  # type: ignore[attr-defined]
        rounding_mode="SINGLE_ROUND", per_channel=False, input_unsigned=False,
        output_unsigned=False,
    )  # fmt: skip


def test_a_segmentation_fault_of_vela_is_a_failure() -> None:
    """Of Vela itself: it takes an accumulator of 48 bits for the operand of ABS."""
    b = Builder("TOSA-1.0+INT+int16")
    x = b.input("i16", (1, 2, 1, 2), "x")
    sums = b.CONV2D(
        x, b.const(np.ones((4, 2, 1, 2)), "i8"), b.const([0], "i48"), b.const([0], "i16"),
        b.const([0], "i8"), pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type="i48",
    )  # fmt: skip
    narrow = b.RESHAPE(rescaled(b, sums, 1 << 14, 14, "i16"), b.shape((2, 2)))
    b.output(rescaled(b, b.ABS(rescaled(b, narrow, 1 << 30, 30, "i32")), 1 << 30, 30, "i16"))
    with pytest.raises(ToolFailed, match="Vela ends with SIGSEGV"):
        run_vela(flatbuffer.write(b.graph), VelaConfig("ethos-u85-256"))


def in_process(file: bytes, config: VelaConfig) -> VelaResult:
    """What Vela makes of a file in this very process."""
    from ethosu import regor

    job = {
        "architecture": config.architecture, "kind": "TOSA", "system": vela._system(config),
        "options": vela._options(config),
    }  # fmt: skip
    found = vela._read(vela_worker.compile_with(regor, job, file), config)
    assert isinstance(found, VelaResult)
    return found


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_a_worker_gives_the_very_bytes_of_a_compile_in_process(target: str) -> None:
    torch.manual_seed(0)
    data = [(torch.randn(1, 3, 12, 12),)]
    made = tosaic.compile(Net().eval(), data[0], target=target, calibration=data)
    for flags in ((), ("--enable-debug-db",), ("--optimise=Size",)):
        config, file = VelaConfig(target, flags=flags), made.delegates[0].tosa
        ours, theirs = run_vela(file, config), in_process(file, config)
        assert replace(ours, database={}) == replace(theirs, database={})
        assert sizes(ours.database) == sizes(theirs.database)  # Vela counts its rows on and on


def sizes(database: Mapping[str, Table]) -> dict[str, tuple[list[str], int]]:
    return {name: (sorted(table.header), len(table.rows)) for name, table in database.items()}


def test_many_graphs_are_compiled_at_once_and_lost_alone(fault: Callable[..., None]) -> None:
    fault("killed")
    files = [pooled("marked" if n % 3 == 1 else "plain", 4 + 2 * n) for n in range(6)]
    found = run_many(files, CONFIG)
    assert [isinstance(each, ToolFailed) for each in found] == [False, True, False] * 2
    assert [each for each in found if isinstance(each, VelaResult)] == [
        in_process(file, CONFIG) for file in files if b"marked" not in file
    ]


def test_threads_compile_side_by_side(fault: Callable[..., None]) -> None:
    """One of them in a worker that does not finish, until the other one's is done."""
    fault("sleeping", seconds=60)
    found: list[object] = []

    def compile_marked() -> None:
        try:
            run_vela(pooled("marked"), CONFIG)
        except ToolFailed as failure:
            found.append(failure)

    thread = threading.Thread(target=compile_marked)
    thread.start()
    while not (busy := {w for w in list(vela_processes._POOL.all) if w.answered == 0}):
        assert thread.is_alive()
        time.sleep(0.001)
    for size in (4, 6, 8):
        assert run_vela(pooled(size=size), CONFIG) == in_process(pooled(size=size), CONFIG)
    assert thread.is_alive()
    for worker in busy:
        worker.process.kill()
    thread.join()
    assert [str(each)[:25] for each in found] == ["Vela ends with SIGKILL (K"]


def test_a_worker_that_ends_between_two_graphs_is_replaced(anew: None) -> None:
    wanted = run_vela(pooled(), CONFIG)
    (worker,) = vela_processes._POOL.idle
    os.kill(worker.process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOWAIT)
    assert run_vela(pooled(), CONFIG) == wanted


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_workers_of_its_own(anew: None) -> None:
    """It holds nothing of the parent's, and both go on."""
    wanted = run_vela(pooled(), CONFIG)
    (worker,) = vela_processes._POOL.idle
    child = os.fork()
    if not child:
        good = worker.channel.fileno() < 0 and run_vela(pooled(), CONFIG) == wanted
        vela_processes.stop()
        os._exit(not good)
    assert os.waitpid(child, 0)[1] == 0
    assert run_vela(pooled(), CONFIG) == wanted
    assert vela_processes._POOL.idle == [worker]


def test_an_interrupted_compile_leaves_no_worker_behind(
    fault: Callable[..., None], interruptible: None
) -> None:
    fault("sleeping", seconds=12)

    def interrupt() -> None:
        while not any(worker.answered == 0 for worker in list(vela_processes._POOL.all)):
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident
    assert main is not None
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_vela(pooled("marked"), CONFIG)
    thread.join()
    assert not vela_processes._POOL.all
    assert run_vela(pooled(), CONFIG) == in_process(pooled(), CONFIG)


def test_what_is_interrupted_beside_vela_does_not_wait_for_it(fault: Callable[..., None]) -> None:
    fault("sleeping", seconds=600)
    assert run_vela(pooled(), CONFIG)  # the worker has answered: its next job could be tried again
    given = flatbuffer.read(pooled("marked"))

    def interrupted(_: Model) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_graph(given, CONFIG, interrupted)
    assert not vela_processes._POOL.all


def test_a_worker_starts_before_the_model_is_exported(anew: None) -> None:
    seen = []

    class Watching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(vela_processes._POOL.all))
            return torch.relu(x)

    x = torch.randn(1, 4)
    tosaic.compile(Watching(), (x,), target="ethos-u55-128", calibration=[x])
    assert seen[0] == 1
    assert len(vela_processes._POOL.all) == 1


def test_a_worker_that_does_not_start_is_told_of(
    anew: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is no failure of the graph, which would be left to the CPU."""
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit('No module')")
    monkeypatch.setattr(vela_processes, "PROGRAM", program)
    with pytest.raises(InvalidInput, match="the process for Vela does not start: No module"):
        run_vela(pooled(), CONFIG)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match="the process for Vela does not start: .*none"):
        run_vela(pooled(), CONFIG)


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOSAIC_VELA_SECONDS", text)
    with pytest.raises(InvalidInput, match="TOSAIC_VELA_SECONDS must be a number above 0"):
        run_vela(pooled(), CONFIG)


def test_the_memory_of_the_process_that_starts_a_worker_is_not_the_workers(
    anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has reached a quarter of its limit takes no more graphs."""
    monkeypatch.setenv("TOSAIC_VELA_BYTES", str(2 << 30))
    large = bytearray(b"1") * (600 << 20)
    run_vela(pooled(), CONFIG)
    assert len(vela_processes._POOL.idle) == 1
    assert large
