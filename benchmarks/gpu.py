"""The interpreter on a GPU: the same bits as the processor, and inputs a second beside eager fp16.

``--pack FOLDER`` makes, on any machine, what the GPU machine needs: integer conformance tests, the
integer graphs of the zoo with inputs, MobileNetV2 at 224×224 in int8. ``--run FOLDER`` runs it
where torch has CUDA; torch, numpy and ml_dtypes are all that it needs there. Results are compared
bit by bit with the interpreter on that machine's processor, of conformance tests with the reference
model's as well; speed is the best of several runs, inputs in the GPU's memory. ``--only`` is a part
of either.
"""

from __future__ import annotations

import argparse
import io
import lzma
import multiprocessing
import pickle
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_ROOT = Path(__file__).resolve().parent.parent
_PARTS = ("speed", "zoo", "conformance")
# Weights of one network in two schemes are stored once: the dictionary spans both.
_XZ = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 64 << 20}]
_LARGE = 1 << 20  # elements of an embedding of which only the rows that are read travel
_BATCH = 256
_SHARES = 96  # parts of the conformance tests


class _Block(nn.Module):
    """An inverted residual block without batch norms: they fold into its convolutions."""

    def __init__(self, cin: int, cout: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = cin * expand
        first = [nn.Conv2d(cin, inner, 1), nn.ReLU6()] if expand > 1 else []
        self.layers = nn.Sequential(
            *first, nn.Conv2d(inner, inner, 3, stride, 1, groups=inner), nn.ReLU6(),
            nn.Conv2d(inner, cout, 1),
        )  # fmt: skip
        self.adds = stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)  # type: ignore[no-any-return]


def mobilenet_v2() -> nn.Module:
    torch.manual_seed(0)
    parts: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU6()]
    cin = 32
    for expand, cout, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        for index in range(count):
            parts.append(_Block(cin, cout, stride if index == 0 else 1, expand))
            cin = cout
    parts += [nn.Conv2d(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(1280, 1000)).eval()


def _operands(made: Any, graph: Any, sample: Any) -> list[Any]:
    """What a graph of an artifact gets, when the artifact runs a sample."""
    from tosaic.pipeline import execution

    values = made.trace(*sample)
    piece = next(each for each in made.partition.pieces if each.graph is graph)
    return [np.asarray(tensor.contiguous()) for tensor in execution.operands(piece, values)]


def _without_unread_rows(file: bytes, rows: list[list[Any]]) -> bytes:
    """A graph whose large embedding has zeros where no input looks; its results stay the same."""
    import tosaic
    from tosaic.files import flatbuffer
    from tosaic.ir.graph import Const

    graph = flatbuffer.read(file)
    large = [
        op.ins[0] for op in graph.ops
        if op.name == "GATHER" and op.ins[0].const is not None and op.ins[0].type.size > _LARGE
    ]  # fmt: skip
    if not large:
        return file
    read = np.unique(np.concatenate([a.reshape(-1) for row in rows for a in row if a.ndim > 1]))
    for table in large:
        whole = table.const.array
        known = read[(read >= 0) & (read < whole.shape[1])].astype(int)
        kept = np.zeros_like(whole)
        kept[:, known] = whole[:, known]
        table.const = Const(kept)
    made = flatbuffer.write(graph)
    for row in rows:
        assert _equal(tosaic.load(made).run(*row), tosaic.load(file).run(*row))
    return made


def _conformance() -> list[Any]:
    from judges import recipes
    from judges.generate import cases
    from judges.suite import work

    tests = []
    for recipe, operator in work(recipes.INTEGER):
        for case in cases(recipe, operator, "full"):
            if case.status == "TOSA_VALID":
                wanted = [case.expected(i) for i in range(len(case.output_types))]
                tests.append((str(case), case.graph, case.inputs, wanted))
    return tests


def _zoo() -> list[Any]:
    import tosaic
    import zoo

    graphs = []
    for name, entry in zoo.ZOO.items():
        if zoo.missing(name):
            print(f"{name} is left out: {zoo.missing(name)} is not installed")
            continue
        samples, target = zoo.samples(name, 4, 7), f"TOSA-1.0+INT+int16+int4{entry.extensions}"
        for scheme in ("int8", "a16w8"):
            made = tosaic.compile(
                zoo.build(name)[0].eval(), samples[0], target=target, calibration=samples,
                scheme=scheme,
            )  # fmt: skip
            for number, (graph, file) in enumerate(zip(made.partition.graphs, made.files)):
                rows = [_operands(made, graph, sample) for sample in samples[:3]]
                title = f"{name}, {scheme}, graph {number}"
                graphs.append((title, _without_unread_rows(file, rows), rows))
    return graphs


def _speed() -> bytes:
    import tosaic

    x = torch.randn(2, 3, 224, 224)
    made = tosaic.compile(
        mobilenet_v2(), (x[:1],), target="TOSA-1.0+INT", calibration=[(row[None],) for row in x]
    )
    return made.bytes


def pack(folder: Path, parts: tuple[str, ...]) -> None:
    """Everything that ``run`` needs, a file for each part."""
    sys.path[:0] = [str(_ROOT / "tests"), str(_ROOT / "examples")]
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        made = {"speed": _speed, "zoo": _zoo, "conformance": _conformance}[part]()
        path = folder / f"{part}.xz"
        path.write_bytes(lzma.compress(pickle.dumps(made, protocol=4), filters=_XZ))
        print(f"{part}: {len(made):,} {'bytes' if part == 'speed' else part}", end=", ")
        print(f"{path.stat().st_size:,} bytes packed", flush=True)


@lru_cache(maxsize=1)
def _unpacked(folder: Path, part: str) -> Any:
    return pickle.load(io.BytesIO(lzma.decompress((folder / f"{part}.xz").read_bytes())))


def _equal(ours: list[Any], right: list[Any]) -> bool:
    return len(ours) == len(right) and all(
        np.array_equal(a, np.asarray(b).astype(a.dtype)) for a, b in zip(ours, right)
    )


def _judged(folder: Path, first: int, step: int) -> tuple[int, int, list[str]]:
    """Every test that the processor passes, on the GPU: how many agree, are refused, and which do
    not."""
    import tosaic

    passed, wrong, refused = 0, list[str](), 0
    for name, graph, inputs, wanted in _unpacked(folder, "conformance")[first::step]:
        try:
            model = tosaic.load(graph)
            right = model.run(*inputs)
        except tosaic.TosaicError:
            refused += 1
            continue
        if not _equal(right, wanted):
            refused += 1
            continue
        try:
            good = _equal(model.run(*inputs, device="cuda"), right)
        except (tosaic.TosaicError, RuntimeError) as problem:
            wrong.append(f"{name}: {str(problem)[:150]}")
            continue
        passed += good
        if not good:
            wrong.append(name)
    return passed, refused, wrong


def conformance(folder: Path, jobs: int, begin: int) -> None:
    """The integer conformance tests, in some processes that share the GPU."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        shares = range(begin, _SHARES)
        waiting = [pool.submit(_judged, folder, first, _SHARES) for first in shares]
        passed, refused, wrong = 0, 0, list[str]()
        for count, done in enumerate(waiting, begin + 1):
            found = done.result()
            passed, refused, wrong = passed + found[0], refused + found[1], wrong + found[2]
            print(
                f"conformance, {count} of {_SHARES} parts: {passed} of {passed + len(wrong)} tests "
                f"equal on the GPU ({refused} not passed by the CPU)", flush=True,
            )  # fmt: skip
    for each in wrong[:20]:
        print(f"  {each}")


def networks(graphs: list[Any]) -> None:
    """The zoo, three inputs stacked where the graph allows it."""
    import tosaic

    equal = 0
    for name, file, inputs in graphs:
        model = tosaic.load(file)
        stacked = [np.concatenate(some) if some[0].ndim else some[0] for some in zip(*inputs)]
        try:
            right = model.run(*stacked)
        except tosaic.TosaicError:
            stacked = inputs[0]
            try:
                right = model.run(*stacked)
            except tosaic.TosaicError as problem:
                print(f"{name:<40} no result on the CPU: {str(problem)[:80]}")
                continue
        try:
            good = _equal(model.run(*stacked, device="cuda"), right)
            equal += good
            values = sum(len(np.unique(array)) for array in right)
            told = f"{'equal' if good else 'DIFFERS'}, {values} distinct values"
        except (tosaic.TosaicError, RuntimeError) as problem:
            told = f"FAILS: {str(problem)[:150]}"
        print(f"{name:<40} {told}", flush=True)
    print(f"zoo: {equal} of {len(graphs)} graphs equal on the GPU")


def _best(run: Any, runs: int = 10) -> float:
    """Inputs a second, the best of some runs after three that are not counted."""
    times = []
    for index in range(runs + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        if index > 2:
            times.append(time.perf_counter() - start)
    return _BATCH / min(times)


def speed(file: bytes, profile: bool) -> None:
    """MobileNetV2 in int8 beside eager PyTorch on the same GPU."""
    import tosaic

    model = tosaic.load(file)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(
        rng.integers(-128, 128, (_BATCH, *model.inputs[0].shape[1:]), dtype=np.int8)
    ).cuda()
    start = time.perf_counter()
    model.run(x, device="cuda")
    print(f"first run {time.perf_counter() - start:.1f} s")
    ours = _best(lambda: model.run(x, device="cuda"))
    print(f"int8, exact, batch {_BATCH}: {ours:,.0f} inputs a second")
    if profile:
        from torch.profiler import ProfilerActivity
        from torch.profiler import profile as profiled

        with profiled(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
            model.run(x, device="cuda")
        print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=25))
    torch.set_num_threads(2)
    few = x[:8].cpu()
    model.run(few)
    start = time.perf_counter()
    model.run(few)
    processor = 8 / (time.perf_counter() - start)
    print(f"the same on two cores: {processor:,.0f} inputs a second; ratio {ours / processor:,.0f}")
    net = mobilenet_v2().cuda().half().to(memory_format=torch.channels_last)
    picture = torch.randn(_BATCH, 3, 224, 224, device="cuda").half()
    picture = picture.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        eager = _best(lambda: net(picture))
    print(f"fp16 eager, channels_last: {eager:,.0f}; ratio {ours / eager:.2f}")
    limit = 2 << 30
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model.run(x.cpu(), device="cuda", max_memory=limit)
    print(f"max_memory {limit:,}: {torch.cuda.max_memory_allocated():,} bytes taken at most")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pack", type=Path, metavar="FOLDER")
    parser.add_argument("--run", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", choices=_PARTS, default=_PARTS)
    parser.add_argument("--jobs", type=int, default=6, help="processes for conformance tests")
    parser.add_argument(
        "--begin", type=int, default=0, metavar="PART", help="parts of conformance tests to skip"
    )
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.pack:
        pack(options.pack, tuple(options.only))
        return 0
    if not torch.cuda.is_available():
        print("no GPU here: torch sees no CUDA device")
        return 0
    if options.run is None:
        print("give --run the folder that --pack made")
        return 2
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    if "speed" in options.only:
        speed(_unpacked(options.run, "speed"), options.profile)
    if "zoo" in options.only:
        networks(_unpacked(options.run, "zoo"))
    if "conformance" in options.only:
        conformance(options.run, options.jobs, options.begin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
