"""The interpreter on a GPU: the same bits as the processor, and inputs a second beside eager fp16.

``--pack FILE`` makes, on any machine, what the GPU machine needs: integer conformance tests, the
integer graphs of the zoo with inputs, MobileNetV2 at 224×224 in int8. ``--run FILE`` runs it where
torch has CUDA; torch, numpy and ml_dtypes are all that it needs there. Results are compared bit by
bit with the interpreter on that machine's processor, of conformance tests with the reference
model's as well; then speed, the best of several runs, inputs in the GPU's memory.
"""

from __future__ import annotations

import argparse
import io
import lzma
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_ROOT = Path(__file__).resolve().parent.parent
_LIMIT = 44 << 20  # bytes of graphs of the zoo
_BATCH = 256


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


def pack(path: Path) -> None:
    """Everything that ``run`` needs, in one file."""
    sys.path[:0] = [str(_ROOT / "tests"), str(_ROOT / "examples")]
    import tosaic
    import zoo
    from judges import recipes
    from judges.generate import cases
    from judges.suite import work

    tests, graphs, taken = [], [], 0
    for recipe, operator in work(recipes.INTEGER):
        for case in cases(recipe, operator, "full"):
            wanted = None
            if case.status == "TOSA_VALID":
                wanted = [case.expected(i) for i in range(len(case.output_types))]
            tests.append((str(case), case.graph, case.inputs, wanted))
    for scheme in ("int8", "a16w8"):
        for name, entry in zoo.ZOO.items():
            if zoo.missing(name):
                continue
            samples, target = zoo.samples(name, 4, 7), f"TOSA-1.0+INT+int16+int4{entry.extensions}"
            made = tosaic.compile(
                zoo.build(name)[0].eval(), samples[0], target=target, calibration=samples,
                scheme=scheme,
            )  # fmt: skip
            for number, (graph, file) in enumerate(zip(made.partition.graphs, made.files)):
                if taken + len(file) <= _LIMIT:
                    taken += len(file)
                    rows = [_operands(made, graph, sample) for sample in samples[:3]]
                    graphs.append((f"{name}, {scheme}, graph {number}", file, rows))
    x = torch.randn(2, 3, 224, 224)
    made = tosaic.compile(
        mobilenet_v2(), (x[:1],), target="TOSA-1.0+INT", calibration=[(row[None],) for row in x]
    )
    data = pickle.dumps((tests, graphs, made.bytes), protocol=4)
    path.write_bytes(lzma.compress(data, preset=1))
    print(f"{len(tests)} tests, {len(graphs)} graphs, {path.stat().st_size:,} bytes")


def _equal(ours: list[Any], right: list[Any]) -> bool:
    return len(ours) == len(right) and all(
        np.array_equal(a, np.asarray(b).astype(a.dtype)) for a, b in zip(ours, right)
    )


def conformance(tests: list[Any]) -> None:
    """Every test that the processor passes, on the GPU."""
    import tosaic

    passed, wrong, refused = 0, [], 0
    for name, graph, inputs, wanted in tests:
        if wanted is None:
            continue
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
    total = passed + len(wrong)
    print(
        f"conformance: {passed} of {total} tests equal on the GPU ({refused} not passed by the CPU)"
    )
    for each in wrong[:20]:
        print(f"  {each}")


def networks(graphs: list[Any]) -> None:
    """The zoo, three inputs stacked where the graph allows it."""
    import tosaic

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
            values = sum(len(np.unique(array)) for array in right)
            told = f"{'equal' if good else 'DIFFERS'}, {values} distinct values"
        except (tosaic.TosaicError, RuntimeError) as problem:
            told = f"FAILS: {str(problem)[:150]}"
        print(f"{name:<40} {told}", flush=True)


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
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--only", choices=("conformance", "zoo", "speed"))
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.pack:
        pack(options.pack)
        return 0
    if not torch.cuda.is_available():
        print("no GPU here: torch sees no CUDA device")
        return 0
    if options.run is None:
        print("give --run the file that --pack made")
        return 2
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    tests, graphs, file = pickle.load(io.BytesIO(lzma.decompress(options.run.read_bytes())))
    if options.only in (None, "speed"):
        speed(file, options.profile)
    if options.only in (None, "conformance"):
        conformance(tests)
    if options.only in (None, "zoo"):
        networks(graphs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
