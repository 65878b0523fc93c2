"""What integers cost at the task itself: five trained networks, judged by what they are for.

Digits told rightly (scikit-learn's scans, a network trained here), frames told rightly as speech or
not with the state going round (Silero VAD), portraits and cuts without a face told apart (O-Net on
the pictures of scikit-image), pitches within half a semitone (CREPE), and sentences whose nearest
neighbour is of the same text (MiniLM on the descriptions of scikit-learn's data sets). All data
ships in packages. Calibration sees none of what is judged.

Bound: int8 is at most one point below float, or `auto` for a drop of half a point on other
labelled data is, and its cycles are printed.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.remove(sys.path[0])  # beside this file lies one with the name of Vela's package
sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

import torch
from torch import Tensor
from torch.nn import functional as F
from zoo.crepe_tiny import hertz
from zoo.minilm import tokens
from zoo.sentences import SETS, told_of
from zoo.silero_vad import followed, silero_vad

import tosaic
import zoo
from zoo import digits, listening, sounds

DEVICES = "ethos-u55-128", "ethos-u85-256"
POINT, DROP = 1.0, 0.5
CENTS = 50
Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Task:
    """A network, its calibration data, and the percentage right on labelled data.

    ``judge`` is for the figures, ``tune`` for the goal of ``auto``.
    """

    net: torch.nn.Module
    data: list[tuple[Tensor, ...]]
    judge: Callable[[Run], float]
    tune: Callable[[Run], float]


def percent(right: Tensor) -> float:
    return 100 * float(right.float().mean())


def each(run: Run, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([run(x) for x in inputs.split(1)])


def of_digits() -> Task:
    pictures, wanted = digits.data()
    net = digits.train(pictures[: digits.TRAINED], wanted[: digits.TRAINED])

    def right(part: slice) -> Callable[[Run], float]:
        return lambda run: percent(each(run, pictures[part]).argmax(1) == wanted[part])

    data = [(p,) for p in pictures[: digits.CALIBRATION].split(1)]
    tuned = slice(digits.CALIBRATION, digits.CALIBRATION + 300)
    return Task(net, data, right(slice(digits.TRAINED, None)), right(tuned))


def of_speech() -> Task:
    def right(seconds: int, seed: int) -> Callable[[Run], float]:
        (windows, *_), speech = followed(seconds, seed=seed)
        return lambda run: percent((listening.probabilities(run, windows) > 0.5) == speech)

    data = zoo.samples("silero_vad", 64, seed=2000)
    return Task(silero_vad(), data, right(24, 5000), right(12, 7000))


def of_faces() -> Task:
    from skimage import data as pictures

    gray = torch.from_numpy(pictures.lfw_subset()).float()[:, None].expand(-1, 3, -1, -1)
    scaled = F.interpolate(gray, (48, 48), mode="bilinear", align_corners=False) * 2 - 1
    is_face = torch.arange(len(scaled)) < len(scaled) // 2

    def right(mirrored: bool) -> Callable[[Run], float]:
        shown = scaled.flip(3) if mirrored else scaled

        def judged(run: Run) -> float:
            with torch.no_grad():
                found = torch.cat([run(x)[2] for x in shown.split(1)])
            return percent((found[:, 1] > 0.5) == is_face)

        return judged

    net, _, data = zoo.build("onet")
    return Task(net, data, right(False), right(True))


def of_pitch() -> Task:
    def right(count: int, seed: int) -> Callable[[Run], float]:
        frames, pitch = sounds.notes(count, seed)

        def judged(run: Run) -> float:
            cents = 1200 * torch.log2(hertz(each(run, frames)) / pitch)
            return percent(cents.abs() < CENTS)

        return judged

    net, _, data = zoo.build("crepe_tiny")
    return Task(net, data, right(200, 5000), right(100, 7000))


def of_sentences() -> Task:
    texts = [(text, name) for name in SETS for text in told_of(name)]

    def right(part: list[tuple[str, str]]) -> Callable[[Run], float]:
        words, is_word = tokens([text for text, _ in part])
        of = torch.tensor([SETS.index(name) for _, name in part])

        def judged(run: Run) -> float:
            pairs = zip(words.split(1), is_word.split(1), strict=True)
            with torch.no_grad():
                found = F.normalize(torch.cat([run(*pair) for pair in pairs]), dim=1)
            alike = found @ found.T - 2 * torch.eye(len(found))
            return percent(of[alike.argmax(1)] == of)

        return judged

    net, _, data = zoo.build("minilm")
    return Task(net, data, right(texts[::2]), right(texts[1::2]))


TASKS = {
    "digits": of_digits, "silero_vad": of_speech, "onet": of_faces, "crepe_tiny": of_pitch,
    "minilm": of_sentences,
}  # fmt: skip


def cycles(made: Any) -> int:
    return sum(d.estimate.cycles for d in made.report.delegates if d.estimate)


def measure(task: Task, device: str, budget_s: float) -> tuple[str, bool]:
    """A line of the table, and whether the bound holds."""
    real = task.judge(task.net.eval())
    options = {"target": device, "calibration": task.data}
    made = tosaic.compile(task.net, task.data[0], scheme="int8", **options)
    narrow = task.judge(lambda *x: made.run(*x, engine="tosa")), cycles(made)
    line = f"{real:8.2f}{narrow[0]:8.2f}{narrow[1]:14,}"
    if narrow[0] >= real - POINT:
        return line, True
    goal = tosaic.Goal(metric=task.tune, drop=DROP)
    found = tosaic.compile(
        task.net, task.data[0], scheme="auto", accuracy=goal, budget_s=budget_s, **options
    )
    mixed = task.judge(lambda *x: found.run(*x, engine="tosa"))
    told = found.report.precision.sentence
    return f"{line}{mixed:8.2f}{cycles(found):14,}  {told}", mixed >= real - POINT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(TASKS)}; all if none is named")
    parser.add_argument("--device", action="append", help="one or more devices")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds for each search")
    options = parser.parse_args()
    torch.set_num_threads(1)
    missed = 0
    made = {n: TASKS[n]() for n in options.tasks or TASKS if n == "digits" or not zoo.missing(n)}
    for device in options.device or DEVICES:
        print(f"{device:16}{'float':>8}{'int8':>8}{'cycles':>14}{'auto':>8}{'cycles':>14}")
        for name, task in made.items():
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                line, holds = measure(task, device, options.budget)
            missed += not holds
            print(f"{name:16}{line}  ({time.process_time() - start:.0f} CPU s)", flush=True)
    print(f"{missed} bounds missed" if missed else "all bounds hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
