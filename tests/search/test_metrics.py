"""Metrics beside scikit-learn, torch and textbooks' formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, top_k_accuracy_score

from tosaic.errors import InvalidInput
from tosaic.search.metrics import KNOWN, Metric, metric_of


def test_top_k_is_scikit_learns() -> None:
    random = np.random.default_rng(0)
    scores, labels = random.random((300, 12)), random.integers(0, 12, 300)
    for name, k in (("top1", 1), ("top5", 5)):
        records = [KNOWN[name].each(torch.from_numpy(s), int(y)) for s, y in zip(scores, labels)]
        wanted = top_k_accuracy_score(labels, scores, k=k, labels=range(12))
        assert KNOWN[name].score(records) == pytest.approx(wanted)


def test_mean_average_precision_of_classes_is_scikit_learns() -> None:
    random = np.random.default_rng(1)
    labels = (random.random((400, 5)) < 0.3).astype(int)
    scores = random.random((400, 5)) + 0.5 * labels
    metric = KNOWN["map"]
    records = [metric.each(torch.from_numpy(s), y) for s, y in zip(scores, labels)]
    assert metric.score(records) == pytest.approx(average_precision_score(labels, scores))


def test_boxes_count_once_and_by_class() -> None:
    metric, box, far = KNOWN["map50"], [0.0, 0.0, 10.0, 10.0], [50.0, 50.0, 60.0, 60.0]
    label = {"boxes": [box], "classes": [1]}

    def score(boxes: list[list[float]], scores: list[float], classes: list[int]) -> float:
        return metric.score([metric.each((boxes, scores, classes), label)])

    assert score([box], [0.9], [1]) == 1.0
    assert score([box, box], [0.9, 0.8], [1, 1]) == 1.0  # the second comes after all recall
    assert score([far, box], [0.9, 0.8], [1, 1]) == 0.5
    assert score([box], [0.9], [2]) == 0.0
    assert score([[0.0, 0.0, 10.0, 4.9]], [0.9], [1]) == 0.0  # less than half of it
    assert score([], [], []) == 0.0


@pytest.mark.parametrize(
    ("told", "wanted", "edits"),
    [("a b c", "a b c", 0), ("a x c", "a b c", 1), ("a c", "a b c", 1), ("a b b c", "a b c", 1),
     ("", "a b", 2), ([1, 2], [2], 1)],
)  # fmt: skip
def test_word_errors_are_the_fewest_edits(told: object, wanted: object, edits: int) -> None:
    found = KNOWN["wer"].each(told, wanted)
    assert found[0] == edits
    assert KNOWN["wer"].score([found]) == edits / found[1]


def test_steps_of_speech_are_tokens_without_blanks_and_repeats() -> None:
    steps = torch.nn.functional.one_hot(torch.tensor([0, 2, 2, 0, 2, 3, 3, 0])).float()
    assert KNOWN["wer"].each(steps, [2, 2, 3]) == [0.0, 3.0]


def test_decibels_are_of_all_outputs_together() -> None:
    real = (torch.ones(100), torch.tensor([3]))
    ours = (torch.ones(100) * 1.1, torch.tensor([4]))
    assert KNOWN["sqnr"].score([KNOWN["sqnr"].each(ours, real)]) == pytest.approx(20, abs=1e-3)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    random = np.random.default_rng(0)
    for name, draw, truth in (
        ("top1", lambda: (random.random(80) < 0.9).astype(float).tolist(), 0.9),
        ("top1", lambda: random.normal(3, 2, 80).tolist(), 3.0),
        ("wer", lambda: [[float(e), 10.0] for e in random.integers(0, 5, 80)], 0.2),
    ):
        found = [KNOWN[name].interval(draw()) for _ in range(120)]
        held = sum(low <= truth <= high for low, high in found)
        assert 104 <= held <= 120, name


def test_an_interval_of_none_wrong_is_not_certain() -> None:
    low, high = KNOWN["top1"].interval([1.0] * 50)
    assert (low < 0.95, high) == (True, 1.0)
    assert math.isnan(KNOWN["top1"].interval([])[0])


def test_a_function_of_the_users_own_is_a_metric_and_its_failure_a_sentence() -> None:
    made = metric_of(lambda output, label: output.sum() - label)
    assert made.score([made.each(torch.ones(3), 1), made.each(torch.ones(3), 2)]) == 1.5
    with pytest.raises(InvalidInput, match="fails: AttributeError"):
        made.each(3, 1)
    with pytest.raises(InvalidInput, match="there is no metric 'best'"):
        metric_of("best")
    with pytest.raises(InvalidInput, match="none of the 3"):
        KNOWN["top1"].each(torch.ones(3), 7)
    assert [KNOWN["top1"].each(torch.arange(3), label) for label in ([2], "2", 2.0)] == [1.0] * 3
    for label in ("cat", 0.5, [0, 1], None):
        with pytest.raises(InvalidInput, match="a class is a whole number, not"):
            KNOWN["top1"].each(torch.ones(3), label)


def test_equal_scores_are_no_advantage() -> None:
    """An int8 SOFTMAX of many classes is zero in most of them."""
    flat = [KNOWN["top5"].each(torch.zeros(50), label) for label in range(50)]
    assert KNOWN["top5"].score(flat) == 0.1
    random = np.random.default_rng(2)
    labels = (random.random((200, 5)) < 0.3).astype(int)
    scores = random.integers(0, 6, (200, 5)) + 2 * labels
    metric = KNOWN["map"]
    for order in (slice(None), slice(None, None, -1)):
        pairs = zip(scores[order], labels[order])
        records = [metric.each(torch.from_numpy(s), y) for s, y in pairs]
        assert metric.score(records) == pytest.approx(average_precision_score(labels, scores))


def test_words_are_not_compared_with_tokens_or_scores() -> None:
    for output, label, sentence in (
        ([1, 2], "one two", "one of output and label is a text"),
        (torch.tensor([0.25, 0.5]), [1], "decode to them"),
        (torch.zeros(1, 2, 3), [1], "decode to them"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            KNOWN["wer"].each(output, label)
    assert KNOWN["wer"].each(["a", "b"], "a c") == [1.0, 2.0]


def test_a_metric_of_ones_own_may_be_no_mean() -> None:
    def ratio(factor: float) -> Metric:
        return Metric("ratio", lambda o, y: [float(o), y], lambda r: factor * r[0][0] / r[0][1])

    made = metric_of(ratio(3.0))
    assert made.score([made.each(torch.tensor(2.0), 4)]) == 1.5
    assert made.key == metric_of(ratio(3.0)).key
    assert made.key != metric_of(ratio(2.0)).key
    with pytest.raises(InvalidInput, match="ratio fails: ZeroDivisionError"):
        made.score([[1.0, 0.0]])
    mean = metric_of(lambda output, label: math.inf)
    assert (mean.score([math.inf, 1.0]), *mean.interval([math.inf, 1.0])) == (math.inf,) * 3
