"""Search and evaluation at scale: fronts, kills, a cluster, twenty networks, ten thousand pictures.

``python benchmarks/search.py front`` tunes MobileNetV2 and a transformer; ``kills`` does it again,
kills the process at random and compares the table of what goes on after that. ``cluster`` kills one
of three nodes of a Ray cluster, ``sweep`` compiles twenty networks for three targets in two
schemes, ``pictures`` evaluates a folder. Without a word a small part of each is run. Networks are
named in commands by this file. ``NETWORKS`` are others for fronts, ``JOBS`` is how many processes
each command has.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "examples")]
FOLDER = ROOT / "build" / "search"
NETWORKS = os.environ.get("NETWORKS", "").split()  # of fronts, else MobileNetV2 and BERT
NAMES = (
    "autoencoder", "bert", "crepe_tiny", "decoder", "ds_cnn", "early_exit", "mobilenet_v2",
    "mobilenet_v3_small", "onet", "refinement", "resnet18", "squeezenet", "ssd",
    "super_resolution", "unet", "wav2letter",
)  # fmt: skip
EXAMPLES = ("cnn", "keywords", "encoder")  # of the command line


def _network(name: str) -> Any:
    from zoo import build

    return build(name)


globals().update({name: partial(_network, name) for name in NAMES})


def digits() -> Any:
    """A small network for digits of 8×8, trained in a second, with data to calibrate."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    x, y = _digits(2000, 0)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(24 * 16, 10),
    )  # fmt: skip
    step = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(250):
        step.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        step.step()
    return net.eval(), (x[:1],), [(each,) for each in x[:32].split(1)]


def _digits(count: int, seed: int) -> Any:
    """Digits with noise, moved by up to a pixel."""
    import torch
    from sklearn.datasets import load_digits

    data = load_digits()
    draw = torch.Generator().manual_seed(seed)
    chosen = torch.randint(0, len(data.target), (count,), generator=draw)
    x = torch.tensor(data.images, dtype=torch.float32)[chosen] / 16
    moves = torch.randint(-1, 2, (count, 2), generator=draw)
    x = torch.stack([each.roll(tuple(move), (0, 1)) for each, move in zip(x, moves.tolist())])
    x = (x + 0.25 * torch.randn(x.shape, generator=draw)).clamp(0, 1)
    return x[:, None], torch.tensor(data.target)[chosen].long()


def command(*words: object) -> list[str]:
    jobs = os.environ.get("JOBS", "")
    more = ["--jobs", jobs] if jobs and "--jobs" not in words else []
    return [sys.executable, "-m", "tosaic.cli", *map(str, words), *more]


def environment() -> dict[str, str]:
    known = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{known}"}


def run(*words: object) -> tuple[float, float]:
    """Run a command; its seconds by the clock, and of processors, children included."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command(*words), check=True, env=environment(), cwd=FOLDER)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, cpu


def killed(kills: int, total: int, database: Path, *words: object) -> list[int]:
    """Run a command that gives so many results, killing it; the results there were at each kill.

    A kill comes within a second after a random result, however busy the machine is.
    """
    draw, found = random.Random(0), []
    words = (*words, "--db", database)
    database.unlink(missing_ok=True)
    for wanted in sorted(draw.sample(range(total), kills)):
        process = subprocess.Popen(command(*words), env=environment(), cwd=FOLDER)
        while process.poll() is None and _results(database) < wanted:
            time.sleep(0.1)
        time.sleep(draw.uniform(0, 1))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        found.append(_results(database))
    run(*words)
    return [*found, _results(database)]


def _results(database: Path) -> int:
    """How many results a file has, as another process sees them."""
    if not database.is_file():
        return 0
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as opened:
        tables = opened.execute("SELECT name FROM sqlite_master").fetchall()
        counted = opened.execute("SELECT count(*) FROM results") if ("results",) in tables else None
        return counted.fetchone()[0] if counted else 0


def _told_of_kills(found: list[int], same: bool) -> str:
    return (
        f"killed {len(found) - 1} times, after {', '.join(map(str, found[:-1]))} of {found[-1]} "
        f"results, and resumed: {'the same' if same else 'ANOTHER'} table"
    )


def _fronts(small: bool) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Networks of which there are fronts, and the words that say what is tried."""
    if small:
        yield "ds_cnn", ("-t", "ethos-u55-128", "--mixed", 1)
        return
    more = ("-t", "ethos-u55-128,ethos-u55-256,ethos-u85-256")
    more += ("--memory-mode", "Sram_Only,Shared_Sram")
    for name in NETWORKS or ("mobilenet_v2", "bert"):
        yield name, (*more, "--mixed", 3)


def _tuned(name: str, words: tuple[object, ...]) -> None:
    """A front of a network in one run."""
    files = [FOLDER / f"{name}.{suffix}" for suffix in ("db", "csv", "html", "json")]
    outputs = [w for path in files[1:] for w in ("-o", path)]
    files[0].unlink(missing_ok=True)
    words = ("tune", f"{HERE}:{name}", *words, "-q", "--db", files[0], *outputs)
    wall, cpu = run(*words)
    rows = json.loads(files[3].read_text())["rows"]
    best = [row for row in rows if row["is_on_front"]]
    checked = sum(bool(row["checks"]) for row in best)
    print(
        f"{name}: {len(best)} of {len(rows)} points on the front, {checked} of them with a stream "
        f"that was checked; {wall:.0f} s by the clock, {cpu:.0f} s of processors"
    )
    of_each = Counter(row["target"] for row in best)
    print("  " + ", ".join(f"{target}: {count}" for target, count in of_each.items()), flush=True)


def fronts(small: bool) -> None:
    for name, words in _fronts(small):
        _tuned(name, words)


def kills(small: bool) -> None:
    """The fronts again, killed at random, beside the tables that there are."""
    for name, words in _fronts(small):
        table, database = FOLDER / f"{name}.csv", FOLDER / f"{name}.db"
        if not table.is_file():
            _tuned(name, words)
        again, other = (FOLDER / f"{name}.killed.{suffix}" for suffix in ("csv", "db"))
        words = ("tune", f"{HERE}:{name}", *words, "-q", "-o", again)
        found = killed(2 if small else 10, _results(database), other, *words)
        told = _told_of_kills(found, again.read_bytes() == table.read_bytes())
        print(f"{name}: {told}", flush=True)


def cluster(small: bool) -> None:
    """Three nodes, of which one is killed; two workers beside one."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ.update(environment())
    targets = "ethos-u55-128" if small else "ethos-u55-128,ethos-u65-256,ethos-u85-256"
    names = ("cnn",) if small else ("cnn", "keywords", "encoder")
    words = ("tune", *names, "-t", targets, "--scheme", "int8,a16w8", "--mixed", 0, "-q")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(*words, "--db", place / "here.db", "-o", place / "here.csv", "--jobs", 1)
        nodes = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        try:
            others = [nodes.add_node(num_cpus=1) for _ in range(2)]
            journal = place / "journal"
            far = ("--ray", nodes.address)
            seconds = {}
            for jobs in (1, 2):
                more = ("--db", place / f"{jobs}.db", "--jobs", jobs, "-o", place / f"{jobs}.csv")
                begun = place / f"{jobs}.journal"
                run(*words, *far, *more, "--journal", begun)
                seconds[jobs] = time.time() - json.loads(begun.read_text().splitlines()[0])["time"]
            threading.Thread(target=_kill_node, args=(nodes, others[0], journal)).start()
            run(*words, *far, "--db", place / "lost.db", "-o", place / "lost.csv",
                "--journal", journal)  # fmt: skip
        finally:
            ray.shutdown()
            nodes.shutdown()
        tables = {name: (place / f"{name}.csv").read_bytes() for name in ("here", "1", "2", "lost")}
        ran = Counter(json.loads(line)["key"] for line in journal.read_text().splitlines())
    same = len(set(tables.values())) == 1
    print(
        f"cluster of three nodes, one killed in the middle: {'the same' if same else 'ANOTHER'} "
        f"table as one process gives; {len(ran)} tasks, none begun more than "
        f"{max(ran.values())} times; two workers are {seconds[1] / seconds[2]:.2f} times as fast "
        "as one from the first task on"
    )


def _kill_node(nodes: Any, node: Any, journal: Path) -> None:
    """Kill a node when some tasks have begun."""
    while not journal.exists() or len(journal.read_text().splitlines()) < 5:
        time.sleep(0.05)
    nodes.remove_node(node, allow_graceful=False)


def sweep(small: bool) -> None:
    names = [f"{HERE}:{name}" for name in (("ds_cnn",) if small else (*NAMES, "digits"))]
    targets = "ethos-u55-128" if small else "ethos-u55-128,ethos-u65-256,ethos-u85-256"
    models = names if small else [*names, *EXAMPLES]
    words = ("tune", *models, "-t", targets, "--scheme", "int8,a16w8")
    files = [FOLDER / f"sweep.{suffix}" for suffix in ("json", "html")]
    outputs = [w for path in files for w in ("-o", path)]
    wall, cpu = run(*words, "--mixed", 0, "-q", "--db", FOLDER / "sweep.db", *outputs)
    rows = json.loads(files[0].read_text())["rows"]
    networks, devices = ({row[key] for row in rows} for key in ("model", "target"))
    right = sum(not row["problem"] for row in rows)
    print(
        f"sweep: {len(networks)} networks on {len(devices)} targets, {right} of {len(rows)} points "
        f"with a result; {wall:.0f} s by the clock, {cpu:.0f} s of processors; "
        f"{files[1].stat().st_size / 1e6:.1f} MB of page"
    )
    for row in rows:
        if row["problem"]:
            print(f"  {row['model']} {row['target']} {row['precision']}: {row['problem'][:120]}")


def pictures(small: bool) -> None:
    """Labelled pictures in a folder: memory while they stream, a kill, and the same table."""
    from PIL import Image

    count = 500 if small else 10_000
    folder = FOLDER / f"digits-{count}"
    if not folder.is_dir():
        x, y = _digits(count, 1)
        for number in range(10):
            (folder / str(number)).mkdir(parents=True)
        for index, (picture, label) in enumerate(zip(x, y.tolist())):
            pixels = (255 * picture[0]).round().byte().numpy()
            Image.fromarray(pixels).save(folder / str(label) / f"{index:05d}.png")
    words = ("evaluate", f"{HERE}:digits", "-d", folder, "-t", "ethos-u55-128", "--jobs", 2,
             "--engine", "npu,tosa", "-q")  # fmt: skip
    memory: list[tuple[float, float]] = []
    database = FOLDER / "digits.db"
    database.unlink(missing_ok=True)
    outputs = ("-o", FOLDER / "digits.json", "-o", FOLDER / "digits.html")
    process = subprocess.Popen(
        command(*words, "--db", database, *outputs),
        env=environment(), cwd=FOLDER,
    )  # fmt: skip
    start = time.monotonic()
    while process.poll() is None:
        memory.append((time.monotonic() - start, _memory(process.pid)))
        time.sleep(0.1)
    assert process.returncode == 0
    for row in json.loads((FOLDER / "digits.json").read_text())["scores"]:
        told = "" if row["agreement"] is None else f", as the original in {row['agreement']:.2%}"
        print(f"  {row['form']}: {row['score']:.2%} ({row['low']:.2%} to {row['high']:.2%}){told}")
    whole = memory[-1][0]
    parts = [max(m for t, m in memory if n <= 5 * t / whole <= n + 1) for n in range(5)]
    again = FOLDER / "digits.killed.json"
    found = killed(3, _results(database), FOLDER / "digits.killed.db", *words, "-o", again)
    same = again.read_bytes() == (FOLDER / "digits.json").read_bytes()
    print(
        f"pictures: {count:,} in {whole:.0f} s; at most {', '.join(f'{m:.0f}' for m in parts)} MB "
        f"in each fifth of the time; {_told_of_kills(found, same)}"
    )


def _memory(pid: int) -> float:
    """Megabytes of a process and its children, those that they share counted once."""
    total, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
        except OSError:
            continue
        total += sum(int(n.split()[1]) for n in lines if n.startswith("Pss:")) / 1024
        waiting += map(int, children)
    return total


PARTS = {"front": fronts, "kills": kills, "cluster": cluster, "sweep": sweep, "pictures": pictures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="all of it, not a small part")
    chosen = parser.parse_args().part
    FOLDER.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends commands, too
    for name in chosen or PARTS:
        PARTS[name](not chosen)


if __name__ == "__main__":
    main()
