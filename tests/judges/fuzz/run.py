"""The run of the fuzzer: worker processes judge programs, faults are reduced, saved and counted."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from judges.fuzz.case import Case, Finding, Verdict
from judges.fuzz.generate import program
from judges.fuzz.judge import CONFIGURATIONS, internal, judge
from judges.fuzz.program import Program
from judges.fuzz.reduce import operators, reduced

LIMIT = 60  # CPU seconds that one program may take on one configuration
PATIENCE = 600  # seconds without a word after which a worker is ended
TASKS = 400  # programs after which a worker is started anew


class Hang(BaseException):
    """The limit is reached; no handler of errors may catch it."""


def limited(case: Case, configuration: str, seconds: float = LIMIT) -> Verdict:
    """``judge`` with a limit on its time; a hang is a fault."""

    def stop(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return judge(case, configuration)
    except Hang as hang:
        place = traceback.extract_tb(hang.__traceback__)[-1]
        told = f"more than {seconds:.0f} s, in {place.filename}:{place.lineno}"
        return Verdict([Finding("hang", told, place.name)])
    except Exception as error:  # noqa: BLE001 - of a judge, which must not end the run
        return Verdict([internal("judge", error)])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def chosen(seed: int) -> tuple[str, ...]:
    """TOSA in float and one other configuration, in turn."""
    others = [name for name in CONFIGURATIONS if name != "fp"]
    return "fp", others[seed % len(others)]


def reduce(made: Program, configuration: str, fault: Finding) -> Program:
    """A smaller program with the same fault."""

    def fails(candidate: Program) -> bool:
        found = limited(Case(candidate.text), configuration)
        every = (*found.faults, *found.listed)
        return any(f.kind == fault.kind and f.key == fault.key for f in every)

    return reduced(made, fails)


@dataclass(slots=True)
class Judged:
    """What a worker says of one program on one configuration."""

    seed: int
    configuration: str
    verdict: Verdict
    seconds: float


@dataclass(frozen=True, slots=True)
class Task:
    """A program to judge on configurations, or a fault of one to reduce."""

    seed: int
    configurations: tuple[str, ...]
    fault: Finding | None = None


def work(pipe: Connection) -> None:
    """The loop of a worker: each answer is one configuration; None ends a task."""
    import torch

    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # native libraries print what nobody asked for
    while True:
        task: Task = pipe.recv()
        made = program(task.seed)
        if task.fault is not None:
            pipe.send(reduce(made, task.configurations[0], task.fault))
            pipe.send(None)
            continue
        case = Case(made.text, f"<program {task.seed}>")
        for configuration in task.configurations:
            pipe.send(configuration)
            start = time.process_time()
            verdict = limited(case, configuration)
            spent = time.process_time() - start
            pipe.send(Judged(task.seed, configuration, verdict, spent))
        pipe.send(None)


class Worker:
    """A process with its pipe, the task it is at, and since when."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.task: Task | None = None
        self.configuration = ""
        self.since, self.done = time.monotonic(), 0

    def give(self, task: Task) -> None:
        self.task, self.since = task, time.monotonic()
        self.configuration = task.configurations[0]
        self.pipe.send(task)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


@dataclass
class Summary:
    """Programs, faults and what is listed, by configuration; each class of faults once."""

    folder: Path
    most: int = 20  # reductions for each kind without a key
    programs: Counter[str] = field(default_factory=Counter)
    whole: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    listed: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    classes: dict[str, str] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)
    seeds: set[int] = field(default_factory=set)

    def add(self, judged: Judged) -> list[Task]:
        """Count it; the tasks are faults that are to be reduced."""
        name = judged.configuration
        self.seeds.add(judged.seed)
        if len(self.seeds) % 100 == 0 and judged.configuration == "fp":
            print(f"{len(self.seeds)} programs", flush=True)
        self.programs[name] += 1
        self.whole[name] += judged.verdict.whole
        self.seconds[name] += judged.seconds
        for finding in judged.verdict.listed:
            self.listed[finding.kind, name] += 1
            self._log("listed", judged, finding)
        tasks = []
        for finding in judged.verdict.faults:
            self.faults[finding.kind, name] += 1
            self._log("fault", judged, finding)
            if self._is_new(finding):
                tasks.append(Task(judged.seed, (name,), finding))
        return tasks

    def _is_new(self, finding: Finding) -> bool:
        if finding.kind in ("hang", "crash"):
            return False
        if finding.key:
            known = finding.key in self.classes
            self.classes.setdefault(finding.key, "")
            return not known
        self.tried[finding.kind] += 1
        return self.tried[finding.kind] <= self.most

    def _log(self, kind: str, judged: Judged, finding: Finding) -> None:
        line = f"{kind} {judged.seed} {judged.configuration} {finding.kind}: {finding.told}"
        with (self.folder / "log.txt").open("a") as file:
            file.write(" ".join(line.split()) + "\n")
        if kind == "fault":
            print(" ".join(line.split())[:240], flush=True)

    def keep(self, task: Task, made: Program) -> None:
        """Save the reduced program of a new class, with the command that repeats it."""
        assert task.fault is not None
        configuration = task.configurations[0]
        key = task.fault.key or f"{task.fault.kind}: {operators(made.text)}"
        if self.classes.get(key):
            return
        name = f"{task.fault.kind}-{configuration}-{task.seed}.py"
        self.classes[key] = name
        told = f"# {task.fault.kind} on {configuration}: {task.fault.told}\n"
        again = f"# python -m judges.fuzz --file {self.folder / name} --target {configuration}\n"
        whole = f"# python -m judges.fuzz --seed {task.seed} --target {configuration}\n"
        (self.folder / name).write_text(told + again + whole + made.text)
        print(f"new class: {key}\n  {self.folder / name}", flush=True)

    def __str__(self) -> str:
        kinds = sorted({k for k, _ in self.faults}), sorted({k for k, _ in self.listed})
        lines = [f"{len(self.seeds)} programs", ""]
        head = ["target", "programs", "whole", "s each", *kinds[0], *(f"({k})" for k in kinds[1])]
        rows = [head]
        for name in (n for n in CONFIGURATIONS if self.programs[n]):
            count = self.programs[name]
            rows.append([
                name, str(count), str(self.whole[name]), f"{self.seconds[name] / count:.2f}",
                *(str(self.faults[k, name]) for k in kinds[0]),
                *(str(self.listed[k, name]) for k in kinds[1]),
            ])  # fmt: skip
        wide = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines += ["  ".join(c.rjust(n) for c, n in zip(row, wide)) for row in rows]
        lines += [
            "",
            "in brackets: listed, not faults",
            "",
            f"{len(self.classes)} classes of faults",
        ]
        lines += [f"  {key}  {name}" for key, name in sorted(self.classes.items())]
        return "\n".join(lines)


def fuzz(
    seeds: Iterator[int], configurations: Sequence[str] | None, jobs: int, minutes: float,
    folder: Path,
) -> Summary:  # fmt: skip
    """Judge programs until the seeds or the time are spent."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    summary, end = Summary(folder), time.monotonic() + minutes * 60
    queue: list[Task] = []
    workers = [Worker() for _ in range(jobs)]
    while True:
        for place, worker in enumerate(workers):
            if worker.task is not None:
                continue
            task = queue.pop() if queue else None
            if task is None and time.monotonic() < end:
                seed = next(seeds, None)
                if seed is not None:
                    task = Task(seed, tuple(configurations or chosen(seed)))
            if task is None:
                continue
            if worker.done >= TASKS:
                worker.end()
                workers[place] = worker = Worker()
            worker.give(task)
        busy = [w for w in workers if w.task is not None]
        if not busy:
            break
        ready = wait([w.pipe for w in busy], timeout=5)
        for worker in busy:
            late = time.monotonic() - worker.since > PATIENCE
            if worker.pipe in ready or late or not worker.process.is_alive():
                lost = _heard(worker, summary, queue, late)
                if lost:
                    worker.end()
                    workers[workers.index(worker)] = Worker()
    for worker in workers:
        worker.end()
    return summary


def _heard(worker: Worker, summary: Summary, queue: list[Task], late: bool) -> bool:
    """Take an answer; true where the worker is lost, which is a fault of its program."""
    task = worker.task
    assert task is not None
    try:
        if late and not worker.pipe.poll():
            raise EOFError
        answer = worker.pipe.recv()
    except (EOFError, OSError):
        kind = "hang" if late else "crash"
        told = f"the process was ended in {worker.configuration}"
        if task.fault is None:
            verdict = Verdict([Finding(kind, told, f"{kind} {task.seed}")])
            summary.add(Judged(task.seed, worker.configuration, verdict, 0.0))
        else:
            summary.keep(task, program(task.seed))
        return True
    worker.since = time.monotonic()
    if answer is None:
        worker.task, worker.done = None, worker.done + 1
    elif isinstance(answer, str):
        worker.configuration = answer
    elif isinstance(answer, Program):
        summary.keep(task, answer)
    else:
        queue.extend(summary.add(answer))
    return False
