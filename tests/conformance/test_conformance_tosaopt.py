"""tosa-opt as a judge: a batch of modules gets a verdict each, and its words lead to the module."""

from __future__ import annotations

from judges.generate import cases
from judges.recipes import ERRORIF, INTEGER
from judges.tosaopt import Target, round_trip, to_mlir, validate, validate_all

INT = Target("1.0", ("pro_int",), ("int16", "int4", "doubleround", "inexactround"))
NO_EXTENSIONS = Target("1.0", ("pro_int",))
FP = Target("1.0", ("pro_fp",))


def test_generated_integer_graphs_are_legal_for_the_integer_profile_only() -> None:
    chosen = [c for o in ("conv2d_1x1", "table", "clz") for c in cases(INTEGER[0], o, "small")[:6]]
    modules = [to_mlir(case.graph) for case in chosen]
    assert all(verdict.ok for verdict in validate_all(modules, INT))
    assert not any(verdict.ok for verdict in validate_all(modules, FP))


def test_batch_names_the_module_that_needs_an_extension() -> None:
    tables = cases(INTEGER[0], "table", "small")
    modules = [to_mlir(case.graph) for case in tables]
    verdicts = validate_all(modules, NO_EXTENSIONS)
    assert [v.ok for v in verdicts] == ["_i8" in str(case) for case in tables]
    assert all("int16" in v.message for v in verdicts if not v.ok)


def test_text_that_does_not_parse_spoils_no_other_module() -> None:
    good = to_mlir(cases(INTEGER[0], "add", "small")[0].graph)
    verdicts = validate_all([good, "module { nonsense }", good], INT)
    assert [v.ok for v in verdicts] == [True, False, True]
    assert round_trip(good).strip() == good.strip()


def test_broken_graph_gets_a_verdict_not_an_exception() -> None:
    for case in cases(ERRORIF[0], "add", "small"):
        verdict = validate(case.graph, INT)
        # A spare or missing operand makes tosa-opt crash, or it does not mind.
        assert not verdict.ok or case.error == "WrongInputList"
        assert verdict.ok or verdict.message
