"""Goals of automatic precision, and what was chosen for them: data, and a table to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.runtime.printed import Printed, grid

_SHOWN = 24  # calls in a table


@dataclass(frozen=True, slots=True)
class Goal:
    """What ``scheme="auto"`` has to reach with as few bits as possible.

    ``sqnr`` is the signal-to-noise ratio of the outputs in decibels, on calibration data that was
    held out. ``metric`` is a function of a model, called as the original is, that gives a score;
    ``drop`` is how much lower than that of the original it may be. ``cycles`` and ``sram`` (bytes)
    are budgets by the target's own estimate: the most accurate form within them is taken. Without
    any, the goal is 30 dB.
    """

    sqnr: float | None = None
    metric: Callable[[Callable[..., Any]], float] | None = None
    drop: float = 0.0
    cycles: int | None = None
    sram: int | None = None

    def __post_init__(self) -> None:
        given = [
            name for name in ("sqnr", "metric", "cycles", "sram") if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise InvalidInput(f"a goal is one thing to reach, not {' and '.join(given)}")
        if not given:
            object.__setattr__(self, "sqnr", 30.0)
        if self.metric is not None and not callable(self.metric):
            raise InvalidInput("metric is a function of a model that gives a number")
        if self.drop and self.metric is None:
            raise InvalidInput("drop goes with a metric: Goal(metric=..., drop=...)")
        for name in ("sqnr", "cycles", "sram", "drop"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and value == value):
                raise InvalidInput(f"{name} is a number, not {value!r}")

    @property
    def is_budget(self) -> bool:
        """Whether cost is limited, and accuracy is what is sought."""
        return self.cycles is not None or self.sram is not None

    def __str__(self) -> str:
        if self.sqnr is not None:
            return f"{self.sqnr:g} dB"
        if self.metric is not None:
            return f"a metric at most {self.drop:g} below that of the original"
        if self.cycles is not None:
            return f"at most {self.cycles:,} cycles"
        return f"at most {self.sram:,} bytes of SRAM"


@dataclass(frozen=True, slots=True)
class Point:
    """A form of the network that was measured on held-out data."""

    name: str
    wide: int  # calls with 16 bits
    sqnr: float
    cost: float  # cycles, or an estimate of work where the target has none; 0 if not asked for
    sram: int = 0
    score: float | None = None  # of the metric


@dataclass(frozen=True, slots=True)
class ChosenCall:
    """A call, its scheme, and what decided: decibels that 8 bits leave, extra cycles of 16."""

    node: str
    module: str
    scheme: str
    alone: float
    extra: float

    @property
    def why(self) -> str:
        noise = (
            "8 bits of it do not show"
            if self.alone > 200
            else f"8 bits of it leave {self.alone:.1f} dB"
        )
        return f"{noise}, 16 cost {self.extra:+,.0f}"


@dataclass(frozen=True)
class Precision(Printed):
    """What automatic precision has chosen, layer by layer, and the points that it measured."""

    goal: str
    reached: bool
    sentence: str
    points: tuple[Point, ...]
    calls: tuple[ChosenCall, ...]
    unit: str = "cycles"

    def parts(self) -> Iterable[Any]:
        yield f"Automatic precision, for {self.goal}: {self.sentence}"
        numbers = ["calls with 16 bits", "dB", self.unit, "SRAM"]
        table = grid("form", *numbers, "metric", numbers=numbers)
        for p in self.points:
            score = "" if p.score is None else f"{p.score:g}"
            cells = (
                f"{p.sqnr:.1f}",
                f"{p.cost:,.0f}" if p.cost else "",
                f"{p.sram:,}" if p.sram else "",
                score,
            )
            table.add_row(p.name, str(p.wide), *cells)
        yield table
        wide = [call for call in self.calls if call.scheme != "int8"]
        if wide:
            chosen = grid("16 bits", "module", "why")
            for call in wide[:_SHOWN]:
                chosen.add_row(call.node, call.module, call.why)
            if len(wide) > _SHOWN:
                chosen.add_row(f"{len(wide) - _SHOWN} more")
            yield chosen
