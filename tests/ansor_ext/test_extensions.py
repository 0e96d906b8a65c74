"""The table of extensions: who is used, what is refused, and that only what has nothing to offer is left out."""

from __future__ import annotations

import os

import pytest

import ansor
import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.sketch.generate import extra_rules, extra_sketches, rules_in_use
from ansor.sketch.rule import SketchContext
from te_lite.errors import ExprError, TeError
from te_lite.expr.intrinsics import Intrinsic, register
from te_lite.extensions import BY_NAME, EXTENSIONS, chosen, using, with_needs
from tests.ansor_ext.test_extra_rules import DAGS
from tests.nonempty import nonempty
from tests.workloads import matmul


def test_whoever_chooses_one_gets_what_it_needs() -> None:
    with using("attention"):
        assert chosen() == with_needs("attention") >= {"attention", "tensor_core", "online", "pipeline", "analysis"}
        assert os.environ["ANSOR_EXTENSIONS"] == "attention", "processes that are started use the same"
    with using(["rows", "skinny"]):
        assert {"rows", "skinny"} <= chosen() < set(BY_NAME)
    with using("none"):
        assert chosen() == frozenset() and extra_rules("all") == ()
    assert chosen() == set(BY_NAME)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ("row", r"^extensions: there are analysis, .*; 'all' and 'none' stand alone, got 'row'$"),
        ("packed_read", r"^extensions: it is a rule of cpu_kernels; there are .*, got 'packed_read'$"),
        ("none,rows", r"'all' and 'none' stand alone, got 'none'$"),
    ],
)
def test_unknown_names_are_refused_at_once(names: str, sentence: str) -> None:
    with pytest.raises(TeError, match=sentence):
        using(names)


def test_a_rule_of_what_is_not_used_is_refused_by_its_extension() -> None:
    with using("rows"), pytest.raises(ansor.TaskError, match="needs the extension 'skinny', which is not installed or"):
        extra_rules("skinny")


def test_each_comes_after_those_that_it_needs() -> None:
    names = [extension.name for extension in EXTENSIONS]
    for extension in EXTENSIONS:
        assert all(names.index(need) < names.index(extension.name) for need in extension.needs)
    priorities = [offer.priority for extension in EXTENSIONS for offer in extension.sketches]
    assert len(priorities) == len(set(priorities)) > 15, "the order of rules decides the draws of a search"


@pytest.mark.parametrize("target", ["c", "cuda -arch=sm_90"])
@pytest.mark.parametrize("name", sorted(DAGS))
def test_an_offer_that_does_not_apply_has_nothing(name: str, target: str) -> None:
    """So leaving its folder alone changes no search."""
    dag, made = DAGS[name], ansor.Target(target)
    ctx = SketchContext(dag, made, HardwareParams(target=made).completed(made))
    left = [rule for rule in rules_in_use().values() if not rule.offer.applies(dag, made.is_gpu)]
    for rule in nonempty(left):
        assert list(rule(ctx)) == [], rule.offer.name


def test_without_extensions_a_product_has_the_sketches_of_the_paper() -> None:
    dag = te.ComputeDAG(matmul(64, 64, 64))
    assert extra_sketches(dag, "c")
    with using("none"):
        assert extra_sketches(dag, "c") == []


def test_intrinsics_have_one_argument_unless_they_say_so() -> None:
    a = te.placeholder((4,), name="a")
    with pytest.raises(ExprError, match=r"^exp: it is for elements; of a whole tensor write topi.exp"):
        te.exp(a)
    with pytest.raises(ExprError, match=r"^exp: the function takes another number, got 2$"):
        te.call("exp", a[0], a[1])
    with pytest.raises(ExprError, match=r"^intrinsic atan2: a function of your own has one argument, got arguments=2$"):
        register(Intrinsic("atan2", max, arguments=2))
