"""What was checked of the graphs of a program: each sentence once, with its graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def checked(told: Sequence[Sequence[str]]) -> Iterable[tuple[str, str]]:
    """What was checked: the graphs that a sentence is true of, and the sentence."""
    graphs: dict[str, list[str]] = {}
    for number, sentences in enumerate(told):
        for sentence in sentences:
            graphs.setdefault(sentence, []).append(str(number))
    for sentence, numbers in graphs.items():
        plural = "s" * (len(numbers) > 1)
        is_all = 1 < len(numbers) == len(told)
        yield (
            ("both graphs" if len(told) == 2 else f"all {len(told)} graphs")
            if is_all
            else f"graph{plural} {', '.join(numbers)}",
            sentence,
        )
