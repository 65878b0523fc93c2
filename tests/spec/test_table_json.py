"""The table against the specification's facts: each legal row accepted, its neighbours refused."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from judges import facts
from judges.facts import Fact
from judges.instances import instance
from tosaic.errors import Unsupported
from tosaic.ir import Graph, problems
from tosaic.spec import OPS, Env, OpDef, everything
from tosaic.spec.dtypes import PLAIN, SHAPE
from tosaic.spec.env import PROFILES, VERSIONS

pytestmark = facts.needed
NEIGHBOURS = 200  # of one operator, of up to 20,000 that there are

# What the specification says and no file can: CAST's attribute is in neither the schema nor the
# dialect, and DIM needs its operand's shape at compile time, not its values.
NOWHERE_ELSE = {("CAST", "input_unsigned"), ("VARIABLE", "var_shape")}
SHAPE_ONLY = ("DIM", "input1")

version = pytest.mark.parametrize("version", VERSIONS, ids=lambda v: f"{v[0]}.{v[1]}")
operator = pytest.mark.parametrize("name", sorted(OPS))


def combinations(version: tuple[int, int]) -> Iterator[tuple[OpDef, Fact]]:
    for name in facts.operators(version):
        for fact in facts.rows(OPS[name], version):
            yield OPS[name], fact


def built(defn: OpDef, fact: Fact, env: Env | None = None) -> Graph:
    return instance(defn, dict(zip(defn.variables, fact.types)), env)


@version
def test_the_table_has_the_operators_of_a_version(version: tuple[int, int]) -> None:
    ours = {name: defn.code for name, defn in OPS.items() if defn.since <= version}
    assert ours == {name: op["fbs"]["op"] for name, op in facts.operators(version).items()}
    assert len(ours) == {(1, 0): 75, (1, 1): 100}[version]


@version
def test_operands_results_and_attributes_are_those_of_the_specification(
    version: tuple[int, int],
) -> None:
    for name, op in facts.operators(version).items():
        defn = OPS[name]
        assert [o.name for o in defn.operands] == [o["name"] for o in op["inputs"]], name
        assert [o.name for o in defn.results] == [o["name"] for o in op["outputs"]], name
        attributes = [a["name"] for a in op["attributes"] if (name, a["name"]) not in NOWHERE_ELSE]
        assert [*(a.name for a in defn.attrs), *defn.regions] == attributes, name


@version
def test_constant_operands_and_ranks_are_those_of_the_specification(
    version: tuple[int, int],
) -> None:
    for name, op in facts.operators(version).items():
        for operand, said in zip(OPS[name].operands, op["inputs"]):
            constant = "compile_time_const" in said and (name, operand.name) != SHAPE_ONLY
            assert operand.const == constant, (name, operand.name)
            if operand.const:
                assert operand.always_const != ("ctc_removed_by" in said), (name, operand.name)
            if "rank" in said and operand.type not in ("shape", "pair"):
                low, high = said["rank"]
                assert operand.min_rank == int(low), (name, operand.name)
                assert (operand.dims is not None) == high.isdigit(), (name, operand.name)


@version
def test_the_rows_are_those_of_the_specification(version: tuple[int, int]) -> None:
    for name in facts.operators(version):
        ours: dict[object, set[object]] = {}
        for row in OPS[name].rows:
            if row.since <= version:
                ours.setdefault(row.types, set()).add((row.needs, row.since))
        assert ours == {f.types: set(f.ways) for f in facts.rows(OPS[name], version)}, name


@version
def test_every_row_is_accepted_where_exactly_its_needs_are_there(version: tuple[int, int]) -> None:
    count = 0
    for defn, fact in combinations(version):
        for needs, _ in fact.ways:
            env = facts.least(version, needs)
            assert list(problems(built(defn, fact, env), env)) == [], (defn.name, fact.types, env)
            count += 1
    assert count > {(1, 0): 300, (1, 1): 1900}[version]


def refused(defn: OpDef, fact: Fact, env: Env) -> str:
    """The sentence of the verifier about the operator, which must name it and its types."""
    graph = built(defn, fact)
    used = graph.ops[-1].name if graph.ops else "constant"
    said = [p.reason for p in problems(graph, env) if p.reason.startswith(used)]
    assert said, f"{defn.name} {fact.types} is accepted in {env}"
    for kind in fact.types if graph.ops else ():
        assert kind.name in said[0], said[0]
    return said[0]


def words(missing: str) -> str:
    return f"the {missing} profile" if missing in PROFILES else f"extension {missing}"


@version
def test_a_row_is_refused_without_any_one_of_its_needs(version: tuple[int, int]) -> None:
    count = 0
    for defn, fact in combinations(version):
        for needs, _ in fact.ways:
            for feature in needs:
                rest = needs - {feature}
                if feature in PROFILES and not rest & set(PROFILES):
                    rest |= set(PROFILES) - {feature}
                env = facts.least(version, rest)
                if fact.allowed(env):
                    continue
                sentence = refused(defn, fact, env)
                assert f"which {env} lacks" in sentence
                missing = [words(f) for way, _ in fact.ways for f in way - env.features]
                assert any(m in sentence for m in missing), sentence
                count += 1
    assert count > {(1, 0): 200, (1, 1): 2000}[version]


def test_a_row_of_1_1_is_refused_in_1_0() -> None:
    count = 0
    for defn, fact in combinations((1, 1)):
        env = everything((1, 0))
        if not fact.allowed(env):
            assert "TOSA 1.1" in refused(defn, fact, env)
            count += 1
    assert count > 1500


@operator
def test_a_neighbour_of_a_row_is_refused_with_the_types_it_got(name: str) -> None:
    defn, draw = OPS[name], random.Random(name)
    legal = {f.types for f in facts.rows(defn, (1, 1))}
    neighbours = {
        (*types[:i], kind, *types[i + 1 :])
        for types in legal
        for i in range(len(types))
        for kind in PLAIN
        if kind is not SHAPE
    } - legal
    chosen = sorted(neighbours, key=str)
    if name in ("CONST", "VARIABLE_READ"):
        chosen = []  # the Builder asks no row for a constant; a read follows its declaration
    for types in draw.sample(chosen, min(NEIGHBOURS, len(chosen))):
        with pytest.raises(Unsupported) as refusal:
            instance(defn, dict(zip(defn.variables, types)))
        sentence = str(refusal.value)
        assert sentence.startswith(name.removesuffix("_WRITE")), types
        assert any(kind.name in sentence for kind in types), sentence
