"""Row streaming: chains of layers that keep only the rows which the next layer still needs.

Nothing is computed twice: a stage makes its rows in order, each when a later stage asks for it,
and its ring holds those that may be asked for again. Where chains begin and end is chosen so
that the arena is as small as it can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.expressions import Load, map_views, nodes
from tosaic.targets.cortexm.forms import lower
from tosaic.targets.cortexm.layers import Add, Conv, Pool
from tosaic.targets.cortexm.loops import loop
from tosaic.targets.cortexm.program import (
    Chain,
    Demand,
    Item,
    Program,
    Stage,
    Step,
    kernel_function,
)
from tosaic.targets.cortexm.views import SIZES, Buffer, View, sliced, whole

_LONGEST = 40  # stages of a chain
_NEVER = 1 << 62  # the cost of what does not fit


def stream(program: Program, core: Core, limit: int = 0) -> None:
    """Replace steps of a program by chains until the arena is small, or within a limit."""
    items = program.items
    if all(isinstance(item, Step) for item in items):
        program.items = _Streamer([i for i in items if isinstance(i, Step)], core).run(limit)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A step as a maker of rows: how it reads its inputs, and the shape of its result."""

    demands: tuple[Demand, ...]
    height: int
    row: int


class _Streamer:
    def __init__(self, steps: list[Step], core: Core) -> None:
        self.steps, self.core = steps, core
        self.known: dict[tuple[int, int], int | None] = {}
        self.rows = [_as_rows(step) for step in steps]
        self.written: dict[Buffer, int] = {}
        self.last: dict[Buffer, int] = {}
        self.writers: dict[Buffer, int] = {}
        for time, step in enumerate(steps):
            for buffer in step.writes:
                self.written.setdefault(buffer, time)
                self.writers[buffer] = self.writers.get(buffer, 0) + 1
            for buffer in (*step.reads, *step.writes):
                self.last[buffer] = time

    def run(self, limit: int) -> list[Item]:
        """Chains and single steps that compute the least by rows within a limit of bytes.

        Without one it is a fifth more than the smallest arena, which makes chains shorter.
        """
        smallest = self.cut(None)[0]
        _, cut = self.cut(max(limit, smallest) if limit else smallest + smallest // 5)
        items: list[Item] = []
        end = len(self.steps)
        while end:
            begin = cut[end]
            items.append(self.steps[begin] if end - begin == 1 else self.chain(begin, end))
            end = begin
        return items[::-1]

    def cut(self, limit: int | None) -> tuple[int, list[int]]:
        """What the best arrangement costs, and where the chain or step that ends at each begins.

        It is the one with the smallest arena, or within a limit that with the least work by rows.
        """
        best, cut = [0], [0]
        for end in range(1, len(self.steps) + 1):
            options = []
            for begin in range(end - 1, max(-1, end - 1 - _LONGEST), -1):
                bytes_ = self.bytes(begin, end)
                if bytes_ is None:
                    if end - begin > 1 and self.rows[begin] is None:
                        break
                elif limit is None:
                    options.append((max(best[begin], bytes_), begin))
                elif bytes_ <= limit:
                    options.append((best[begin] + self.work(begin, end), begin))
            chosen = min(options, default=(_NEVER, end - 1))
            best.append(chosen[0])
            cut.append(chosen[1])
        return best[-1], cut

    def work(self, begin: int, end: int) -> int:
        """Elements that steps compute by rows, if they are several."""
        rows = [each for each in self.rows[begin:end] if each is not None]
        return sum(each.height * each.row for each in rows) if end - begin > 1 else 0

    def bytes(self, begin: int, end: int) -> int | None:
        """What lives while steps run, as one chain if they are several; None if they cannot."""
        if (begin, end) not in self.known:
            self.known[begin, end] = self.lives(begin, end)
        return self.known[begin, end]

    def lives(self, begin: int, end: int) -> int | None:
        inner: set[Buffer] = set()
        rings = 0
        scratch = max(step.scratch for step in self.steps[begin:end])
        if end - begin > 1:
            made = self.plan(begin, end)
            if made is None:
                return None
            for stage_rows, ring, step in zip(self.rows[begin:end], made, self.steps[begin:end]):
                assert stage_rows is not None
                buffer = step.writes[0]
                if self.last[buffer] < end and step is not self.steps[end - 1]:
                    inner.add(buffer)
                    rings += -(-ring * stage_rows.row * SIZES[buffer.ctype] // 4) * 4
        around = sum(
            buffer.size
            for buffer, start in self.written.items()
            if buffer.kind == "arena"
            and start < end
            and self.last[buffer] >= begin
            and buffer not in inner
        )
        return around + rings + scratch

    def plan(self, begin: int, end: int) -> list[int] | None:
        """How many rows each stage's ring needs, by running the chain; None if it is no chain."""
        rows = self.rows[begin:end]
        if any(each is None for each in rows):
            return None
        stages = [each for each in rows if each is not None]
        places = {self.steps[begin + i].writes[0]: i for i in range(len(stages))}
        demands: list[list[tuple[int, Demand]]] = []
        for i, stage in enumerate(stages):
            found = []
            for need in stage.demands:
                source = places.get(need.buffer)
                if source is not None:
                    if source >= i or stages[source].height != need.height:
                        return None
                    if stages[source].height * stages[source].row != need.buffer.count:
                        return None
                    found.append((source, need))
            demands.append(found)
        for i in range(len(stages)):
            buffer = self.steps[begin + i].writes[0]
            reads = sum(source == i for each in demands for source, _ in each)
            if self.writers[buffer] > 1 or (i < len(stages) - 1 and not reads):
                return None
            if i < len(stages) - 1 and (self.last[buffer] >= end or buffer.kind != "arena"):
                return None
        return _rings(stages, demands)

    def chain(self, begin: int, end: int) -> Chain:
        rings = self.plan(begin, end)
        assert rings is not None
        places = {self.steps[begin + i].writes[0]: i for i in range(end - begin)}
        new: dict[Buffer, Buffer] = {}
        stages = []
        for i, step in enumerate(self.steps[begin:end]):
            rows = self.rows[begin + i]
            assert rows is not None
            old = step.writes[0]
            is_last = i == end - begin - 1
            ring = rows.height if is_last else rings[i]
            if ring < rows.height:
                new[old] = Buffer(old.ctype, ring * rows.row, value=old.value)
            demands = tuple(
                replace(need, buffer=new.get(need.buffer, need.buffer),
                        stage=places.get(need.buffer))
                for need in rows.demands
            )  # fmt: skip
            kept = {b: rings[places[b]] for b in places}
            made = self.row_step(step, rows, new, kept)
            stages.append(Stage(made, demands, rows.height, rows.row, ring))
        ops = tuple(op for step in self.steps[begin:end] for op in step.ops)
        return Chain(stages, ops)

    def row_step(
        self, step: Step, rows: _Rows, new: dict[Buffer, Buffer], kept: dict[Buffer, int]
    ) -> Step:
        """The step that makes one row, over rings in the place of whole tensors."""

        def moved(view: View) -> View:
            buffer = new.get(view.buffer)
            return view if buffer is None else replace(view, buffer=buffer)

        old = step.writes[0]
        target = new.get(old, old)
        if step.loop is not None:
            expr, _, store = step.loop
            cut = map_views(expr, lambda v: moved(_one_row(v)))
            assert cut is not None
            out = replace(_one_row(store), buffer=target)
            function = loop(cut, out.shape, out, target.ctype, forms=self.core.forms)
            call = layer = None
        else:
            call, layer = step.call, step.layer
            inputs = step.function.pointers[:-1]
            assert call is not None
            assert layer is not None
            if isinstance(layer, Add):
                layer = replace(layer, size=rows.row)
            elif isinstance(layer, (Conv, Pool)):
                ring = kept.get(inputs[0].buffer, layer.ih)
                layer = replace(layer, rows=min(ring, layer.ih))
            call = lower(layer, self.core)
            assert call is not None
            function = kernel_function(
                call, [moved(v) for v in inputs], whole(target, (target.count,))
            )
        reads = tuple(dict.fromkeys(new.get(b, b) for b in step.reads))
        return Step(function, reads, (target,), step.ops, step.kind, call, (0, 0), (), layer)


def _one_row(view: View) -> View:
    start, size = [0] * len(view.shape), list(view.shape)
    size[1] = 1
    return sliced(view, start, size)


def _as_rows(step: Step) -> _Rows | None:
    """A step as a maker of rows, if it is one: a convolution, a pool or an elementwise loop."""
    layer = step.layer
    out = step.function.pointers[0 if step.call is None else -1]
    if len(step.writes) != 1:
        return None
    if isinstance(layer, (Conv, Pool)):
        if layer.n != 1 or step.call is None or not step.call.streams or layer.oh == 1:
            return None
        source = step.function.pointers[0]
        if not source.is_whole and source.buffer.kind == "arena":
            return None
        dilation = layer.dy if isinstance(layer, Conv) else 1
        span = (layer.kh - 1) * dilation + 1
        need = Demand(source.buffer, None, layer.sy, span - layer.pt, -layer.pt, layer.ih)
        channels = layer.oc if isinstance(layer, Conv) else layer.c
        return _Rows((need,), layer.oh, layer.ow * channels)
    if isinstance(layer, Add):
        shape = out.shape
        if len(shape) != 4 or shape[0] != 1 or shape[1] == 1 or not out.is_whole:
            return None
        views = step.function.pointers[:-1]
        if not all(v.is_whole for v in views):
            return None
        return _elementwise([v.buffer for v in views], shape)
    if step.loop is None:
        return None
    expr, shape, store = step.loop
    if len(shape) != 4 or shape[0] != 1 or shape[1] == 1 or not store.is_whole:
        return None
    loads = [e.view for e in nodes(expr) if isinstance(e, Load)]
    for view in loads:
        if view.buffer.kind == "const":
            if view.strides[1]:
                return None
        elif not view.is_whole or tuple(view.shape) != tuple(shape):
            return None
    return _elementwise([v.buffer for v in loads if v.buffer.kind != "const"], shape)


def _elementwise(buffers: Sequence[Buffer], shape: Sequence[int]) -> _Rows:
    demands = tuple(Demand(b, None, 1, 1, 0, shape[1]) for b in dict.fromkeys(buffers))
    return _Rows(demands, shape[1], shape[2] * shape[3])


def _rings(stages: Sequence[_Rows], demands: Sequence[Sequence[tuple[int, Demand]]]) -> list[int]:
    """The most rows of each stage that are made and may still be read, over a whole run."""
    done = [0] * len(stages)
    rings = [1] * len(stages)
    readers: list[list[tuple[int, Demand]]] = [[] for _ in stages]
    for i, found in enumerate(demands):
        for source, need in found:
            readers[source].append((i, need))

    def make(i: int, rows: int) -> None:
        while done[i] < rows:
            for source, need in demands[i]:
                make(source, need.rows(done[i]))
            # The row about to be made lies beside all that a reader has yet to read.
            oldest = [need.oldest(done[r]) for r, need in readers[i] if done[r] < stages[r].height]
            if oldest:
                rings[i] = max(rings[i], done[i] + 1 - min(oldest))
            done[i] += 1

    make(len(stages) - 1, stages[-1].height)
    return [min(ring, stage.height) for ring, stage in zip(rings, stages)]
