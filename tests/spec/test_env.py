"""Environments: the strings of the ecosystem, what they mean, and what is refused."""

from __future__ import annotations

import pickle

import pytest

from tosaic.errors import InvalidInput
from tosaic.spec import Env, everything
from tosaic.spec.env import EXTENSIONS, LEVELS, VERSIONS, extensions_of

INT_1_0 = "int16, int4, var, cf, dynamic, doubleround, inexactround"


@pytest.mark.parametrize(
    "text",
    [
        "TOSA-1.0+INT",
        "TOSA-1.0+FP",
        "TOSA-1.0+INT+FP+int16+int4+bf16+cf",
        "TOSA-1.1+FP+shape",
        "TOSA-1.1+INT+FP+int64+mx+mxfp4e2m1",
        "TOSA-1.0+INT+int16+level-none",
    ],
)
def test_a_specification_prints_as_it_is_written(text: str) -> None:
    assert str(Env.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("TOSA-1.0.0+INT", "TOSA-1.0+INT"),
        ("TOSA-1.0+FP+INT", "TOSA-1.0+INT+FP"),
        ("TOSA-1.0+int+INT16", "TOSA-1.0+INT+int16"),
        ("TOSA-1.0+INT+cf+int4+int16", "TOSA-1.0+INT+int16+int4+cf"),
        ("TOSA-1.0+INT+variable+controlflow", "TOSA-1.0+INT+var+cf"),
        ("TOSA-1.0+INT+8k", "TOSA-1.0+INT"),
        (
            "TOSA-1.1+FP+mxfp",
            "TOSA-1.1+FP+fp8e4m3+fp8e5m2+mx+mxfp4e2m1+mxfp6e2m3+mxfp6e3m2+mxfp8e4m3+mxfp8e5m2"
            "+mxint8+mxfpconv",
        ),
    ],
)
def test_other_spellings_mean_the_usual_one(text: str, usual: str) -> None:
    assert str(Env.parse(text)) == usual


def test_a_specification_means_its_version_profiles_extensions_and_level() -> None:
    env = Env.parse("TOSA-1.1+INT+FP+int16+bf16+level-none")
    assert env == Env(
        (1, 1), frozenset(("INT", "FP")), frozenset(("int16", "bf16")), LEVELS["none"]
    )
    assert env.features == {"INT", "FP", "int16", "bf16"}
    assert env.has("bf16")
    assert not env.has("int4")
    assert Env.parse(env) is env
    assert Env.parse("TOSA-1.0+INT").level is LEVELS["8K"]


def test_an_environment_is_a_key_and_can_be_pickled() -> None:
    env = Env.parse("TOSA-1.0+INT+int16")
    assert hash(env) == hash(Env.parse("TOSA-1.0+int16+INT"))
    assert pickle.loads(pickle.dumps(env)) == env


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is no TOSA specification; write one such as TOSA-1.0+INT+int16"),
        (None, "'None' is no TOSA specification; write one such as TOSA-1.0+INT+int16"),
        ("INT", "'INT' is no TOSA specification; write one such as TOSA-1.0+INT+int16"),
        (
            "TOSA-1.0+INT+",
            "'TOSA-1.0+INT+' is no TOSA specification; write one such as TOSA-1.0+INT+int16",
        ),
        ("TOSA-0.80+INT", "TOSA 0.80 is unknown; there are 1.0, 1.1"),
        ("TOSA-2.0+INT", "TOSA 2.0 is unknown; there are 1.0, 1.1"),
        ("TOSA-1.0", "TOSA-1.0 names no profile; there are INT, FP: write TOSA-1.0+INT"),
        (
            "TOSA-1.0+int16",
            "TOSA-1.0+int16 names no profile; there are INT, FP: write TOSA-1.0+int16+INT",
        ),
        (
            "TOSA-1.0+INT+u55",
            f"'u55' is no profile or extension of TOSA; TOSA-1.0+INT takes {INT_1_0}",
        ),
        (
            "TOSA-1.0+INT+bf16",
            "extension 'bf16' needs the FP profile, which TOSA-1.0+INT lacks; "
            f"TOSA-1.0+INT takes {INT_1_0}",
        ),
        (
            "TOSA-1.0+FP+int16",
            "extension 'int16' needs the INT profile, which TOSA-1.0+FP lacks; "
            "TOSA-1.0+FP takes bf16, fp8e4m3, fp8e5m2, fft, var, cf, dynamic",
        ),
        (
            "TOSA-1.0+INT+shape",
            f"extension 'shape' came with TOSA 1.1; TOSA-1.0+INT takes {INT_1_0}",
        ),
    ],
)
def test_a_refusal_lists_what_exists(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Env.parse(text)
    assert str(refusal.value) == sentence


def test_extensions_of_a_version() -> None:
    assert len(extensions_of((1, 0))) == 11
    assert len(extensions_of((1, 1))) == len(EXTENSIONS) == 21
    assert set(extensions_of((1, 0))) < set(extensions_of((1, 1)))


def test_everything_has_all_features_of_its_version() -> None:
    for version in VERSIONS:
        env = everything(version, "none")
        assert env.features == {"INT", "FP", *extensions_of(version)}
        assert env.level is LEVELS["none"]
    assert everything().version == VERSIONS[-1]
