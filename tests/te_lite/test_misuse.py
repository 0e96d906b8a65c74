"""What looks like Python or NumPy and is no expression is refused by a sentence that says what to write instead."""

from __future__ import annotations

import copy
import inspect
import math
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from codegen_cuda.emission.emit import emit as emit_cuda
from te_lite import topi
from te_lite.expr import misuse
from te_lite.expr.intrinsics import CALLS
from te_lite.schedule.schedule import Schedule, StageHandle
from tests.nonempty import nonempty

ROOT = Path(__file__).parent.parent.parent
A = te.placeholder((4, 5), name="A")
V = te.placeholder((4,), name="V")
N = te.placeholder((4,), "int32", name="N")
K = te.reduce_axis((0, 5), "k")
OTHER = te.compute((4,), lambda z: A[z, 0], name="O").op.axis[0]


def forgotten(i: Any) -> None:
    A[i, 0]


MISTAKES: list[tuple[Callable[..., Any], str]] = [
    (lambda i: round(A[i, 0]), r"round\(x\) is not for expressions such as A\[i, 0\]; write te.round\(x\)"),
    (lambda i: te.sum(A[i, K]), "sum: reduces over reduction axes only; write k = te.reduce_axis"),
    (lambda i: te.max(A[i, K], axis=1), "max: reduces over .* got axis=1"),
    (lambda i: te.sum(A[i, K], axis="k"), "sum: reduces over .* got axis='k'"),
    (lambda i: te.sum(A[i, K], axis=[]), "sum: reduces over"),
    (lambda i: te.argmax((K, A[i, K])), "argmax: reduces over .*axis=None"),
    (lambda i: te.argmax((K, A[i, K]), axis=1), "argmax: reduces over .*axis=1"),
    (lambda i: te.sum(A[i, 0], 1, axis=K), "sum: two values have no axis"),
    (lambda i: A[i, 5], r"A: an index of dimension 1 must be one of 0 to 4, got index=5 shape=\(4, 5\)"),
    (lambda i: A[-1, i], "A: an index of dimension 0 must be one of 0 to 3, got index=-1"),
    (lambda i: A[i, K], "k is a reduction axis that nothing reduces over"),
    (lambda i: V[OTHER], "z is an axis of another operation; its own are i"),
    (lambda i: te.sum(A[i, K], axis=K) + 1.0, "give it a te.compute of its own"),
    (lambda i: np.exp(A[i, 0]), r"np.exp: works on arrays, and A\[i, 0\] .*write te.exp"),
    (lambda i: np.maximum(A[i, 0], 0), "np.maximum: .*te.maximum"),
    (lambda i: np.sum(A[i, 0]), "np.sum: .*te.sum"),
    (lambda i: np.add.reduce(A[i, 0]), "np.add.reduce: .*te.sum"),
    (lambda i: np.dot(A[i, 0], A[i, 1]), r"np.dot: .*te.sum\(a\[i, k\]"),
    (lambda i: np.where(i > 1, V[i], 0.0), "np.where: .*te.if_then_else"),
    (lambda i: np.linalg.norm(V[i]), "np.linalg.norm: .*a function of te"),
    (lambda i: np.ones(4)[i], "no value in Python.*index a te.placeholder instead of an array"),
    (lambda i: np.array([V[i], V[i]]), "no value in Python.*a list of expressions instead of an array"),
    (lambda i: V[i] * [1, 2, 3], r"an array is neither; make it a te.placeholder .*got value=\[1, 2, 3\]"),
    (lambda i: np.longdouble(2) * V[i], "multiply: a number or an expression is needed"),
    (lambda i: te.max(np.ones(4), V[i]), "an array is neither; make it a te.placeholder"),
    (lambda i: V[i * 0.5], r"constant 0.5: does not fit the other operand, i, of int32; .*astype.*//"),
    (lambda i: np.float32(1.5) * N[i], r"constant 1.5: does not fit the other operand, N\[i\], of int32; .*astype"),
    (lambda i: A[i, 0.5], "A: an index must be an integer; .*got index=0.5"),
    (lambda i: A["x", i], "A: an index must be an integer; .*got index='x'"),
    (lambda i: V[np.arange(3)], r"V: an index must be an integer; .*got index=array\(\[0, 1, 2\]\)"),
    (lambda i: V[V], r"V: an index must be an integer; .*got index=Tensor\(V"),
    (lambda i: np.float32(2) ** A[i, 0], "np.power: .*te.power"),
    (lambda i: math.exp(A[i, 0]), "no value in Python.*te.exp"),
    (lambda i: A[int(i), 0], "no value in Python.*astype"),
    (lambda i: [1.0, 2.0, 3.0, 4.0][i], "no value in Python.*te.placeholder"),
    (lambda i: sum(A[i, j] for j in range(K)), "no value in Python"),
    (lambda i: sum(A[i, 0]), "no value in Python"),
    (lambda i: sum(V), "V: a tensor has no elements in Python"),
    (lambda i: abs(A[i, 0]), r"abs\(x\) is not for expressions.*te.abs"),
    (lambda i: A[i, 0] ** 2, "te.power"),
    (lambda i: 2 ** A[i, 0], "te.power"),
    (lambda i: A[i, 0] @ A[i, 1], "te.sum"),
    (lambda i: te.select((i > 1) & (i < 3), 1.0, 2.0), "te.all"),
    (lambda i: te.select((i > 1) | (i < 3), 1.0, 2.0), "te.any"),
    (lambda i: te.select(~(i > 1), 1.0, 2.0), "te.logical_not"),
    (lambda i: 1.0 if i > 2 else 2.0, "no truth value"),
    (lambda i: 1.0 if A[i, 0] == 0 else 2.0, "no truth value"),
    (lambda i: 1.0 if A[i, 0] != A[i, 1] else 2.0, "no truth value"),
    (lambda i: max(A[i, 0], 0.0), "no truth value"),
    (lambda i: te.if_then_else(1 < i < 3, 1.0, 2.0), "no truth value"),
    (lambda i: operator.setitem(A, (i, 0), 1.0), "A: a tensor is never assigned to"),
    (forgotten, "must give the expression of an element"),
    (lambda i: A[i], r"A: 2 indices are needed, as in A\[i, j\], got indices=1"),
    (lambda i: V[i, 0], r"V: 1 index is needed, as in V\[i\], got indices=2"),
    (lambda i: A[i, :], "no slice"),
    (lambda i: A[..., 0], "no slice"),
    (lambda i: A[i, None], "no slice"),
    (lambda i: V[A[i, 0]], "an index must be an integer.*astype"),
    (lambda i: V[len(A)], r"A: a tensor has no length in Python; write A.shape\[0\]"),
    (lambda i: V[len(A[i, 0])], "no value in Python.*x.shape has the extents"),
    (lambda i: A[i, 0][0], r"no value in Python.*all indices of a tensor are written at once, a\[i, j\]"),
    (lambda i: A, r"of a tensor an element, a\[i, j\]"),
    (lambda i: te.exp(A), r"^exp: it is for elements; of a whole tensor write topi\.exp\(x\), got Tensor"),
    (lambda i: np.ones(3), "a number or an expression is needed, and an array is neither; make it a te.placeholder"),
    (lambda i: te.exp(i), r"a float is needed; write x.astype\('float32'\)"),
]


@pytest.mark.parametrize(("function", "text"), MISTAKES)
def test_a_mistake_is_a_sentence(function: Callable[..., Any], text: str) -> None:
    with pytest.raises(te.ExprError, match=text) as info:
        te.compute((4,), function, name="C")
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(("declare", "text"), [
    (lambda: te.compute((4,), 3), r"^compute: the element is written as a function of its indices, .*got 3$"),
    (lambda: te.compute((4,), lambda i: i, name=5), "^compute: a name is a text, got name=5$"),
    (lambda: te.placeholder((4,), name=5), "^placeholder: a name is a text, got name=5$"),
    (lambda: te.reduce_axis((0, 4), 5), "^reduce_axis: a name is a text, got name=5$"),
    (lambda: te.comm_reducer(5, 6), r"^comm_reducer: two functions are needed, .*got \(5, 6\)$"),
    (lambda: te.topi.nn.conv2d_nchw(A, A, 1, 0, 1), "^conv: the layout NCHW is one of 4 dimensions, got dimensions=2$"),
])  # fmt: skip
def test_a_declaration_says_what_it_lacks(declare: Callable[[], Any], text: str) -> None:
    with pytest.raises(te.ExprError, match=text):
        declare()


@pytest.mark.parametrize("arguments", [5, V, [V, 5], [V.op]])
def test_the_arguments_of_a_program_are_tensors(arguments: Any) -> None:
    program = te.compute((4,), lambda i: V[i], name="C")
    with pytest.raises(te.LowerError, match=r"^f: the arguments are a list of tensors, got "):
        te.lower(te.create_schedule(program), arguments, "f")
    assert bool(V), "as for whatever has no truth of its own"


def test_a_reduction_axis_is_a_pair() -> None:
    for bad in (5, (5,), "k", None):
        with pytest.raises(te.ExprError, match=r"a pair is needed, as in te.reduce_axis\(\(0, n\), 'k'\)"):
            te.reduce_axis(bad)  # type: ignore[arg-type]
    for bad in ((1, 5), ("a", 4), (0.0, 4)):
        with pytest.raises(
            te.ExprError, match=r"k: a reduction axis starts at 0; write .* and read at start \+ k, got"
        ):
            te.reduce_axis(bad, "k")  # type: ignore[arg-type]
    for bad in ((0, 0), (0, -1), (0, 2.5), (0, A), (0, V[0])):
        with pytest.raises(
            te.ExprError, match="k: the extent must be a positive integer, or an expression of one, got"
        ):
            te.reduce_axis(bad, "k")  # type: ignore[arg-type]
    assert te.reduce_axis((np.int64(0), np.int64(4)), "k").extent == 4  # type: ignore[arg-type]


OPERATIONS: list[tuple[str, Callable[[Any, Any], Any], str]] = [
    ("x << n", operator.lshift, r"x \* 2\*\*n"), ("x >> n", operator.rshift, r"x // 2\*\*n"),
    ("x & y", operator.and_, "bit.*_and"),
    ("x | y", operator.or_, "bit.*_or"), ("x ^ y", operator.xor, "bit.*_xor.* for a power"),
    ("x ** y", operator.pow, r"power\(x, y\), or x \* x"), ("x @ y", operator.matmul, r"te.sum\(a\[i, k\]"),
    ("divmod(x, y)", divmod, "x // y and x % y"),
]  # fmt: skip


@pytest.mark.parametrize(("python", "operation", "instead"), OPERATIONS)
@pytest.mark.parametrize("x", [A, V[0], N[0], V[0] > 1.0])
def test_an_operator_that_there_is_not(
    python: str, operation: Callable[[Any, Any], Any], instead: str, x: te.Tensor | te.Expr
) -> None:
    for operands in ((x, 1), (1, x), (x, x)):
        with pytest.raises(te.ExprError, match=rf"^{re.escape(python)} is not for .*; write .*{instead}"):
            operation(*operands)


@pytest.mark.parametrize("x", [A, V[0]])
@pytest.mark.parametrize("function", [operator.pos, operator.invert, round, abs, math.trunc, math.floor, int, math.exp])
def test_a_function_of_python_that_there_is_not(function: Callable[[Any], Any], x: te.Tensor | te.Expr) -> None:
    with pytest.raises(te.ExprError, match=r"; write ") as info:
        function(x)
    assert "\n" not in str(info.value)


def test_an_array_beside_an_expression_or_tensor() -> None:
    functions = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod)
    comparisons = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
    for array in (np.ones(4), np.arange(3), np.ones((4, 5)), np.zeros(0), np.array(["a", "b"])):
        for x, law in ((V[0], "an array is neither"), (A, "make a te.placeholder of an array")):
            for f in (*functions, *(comparisons if x is not A else ())):
                for operands in ((array, x), (x, array)):
                    with pytest.raises(te.ExprError, match=law):
                        f(*operands)
        assert [array.__eq__(A), array.__ne__(A), A in [array]] == [False, True, False]


@pytest.mark.parametrize("number", [np.float32(2), np.float64(2), np.int64(2), np.array(2.0), 2])
def test_numbers_of_numpy_beside_expressions_are_operands(number: Any) -> None:
    functions = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
                 operator.lt, operator.le, operator.gt, operator.ge)  # fmt: skip
    for f in functions:
        left = te.compute((4,), lambda i, f=f: f(number, A[i, 0]), name="C")
        right = te.compute((4,), lambda i, f=f: f(A[i, 0], number), name="C")
        assert str(left.op.body[0]) == str(te.compute((4,), lambda i, f=f: f(2.0, A[i, 0]), name="C").op.body[0])
        assert str(right.op.body[0]) == str(te.compute((4,), lambda i, f=f: f(A[i, 0], 2.0), name="C").op.body[0])


def test_equality_of_expressions_serves_dictionaries_everywhere() -> None:
    def element(i: Any) -> Any:
        known = {A[i, 0] + 1.0: "one", A[i, 1] + 1.0: "other"}
        assert known[A[i, 1] + 1.0] == "other" and A[i, 2] not in known
        return A[i, 0] + 1.0

    te.compute((4,), element, name="C")
    assert A[0, 0] != A[0, 1] and A[0, 0] == A[0, 0]
    with pytest.raises(te.ExprError, match="no truth value"):
        te.compute((4,), lambda i: A[i, 0] if A[i, 1] == 0 else 1.0)
    assert A[0, 0] != A[0, 1], "an element that fails ends the writing"


MATMUL = "topi.nn.matmul(x, y), or a te.compute of te.sum(a[i, k] * b[k, j], axis=k) over a te.reduce_axis k"
ELEMENTS = "te.compute, with the expression of an element, or a function of topi"


@pytest.mark.parametrize(
    ("function", "instead"),
    [
        (lambda: A @ A, MATMUL), (lambda: np.ones((3, 4)) @ A, MATMUL), (lambda: np.dot(A, A), MATMUL),
        (lambda: np.matmul(A, A), MATMUL), (lambda: np.dot(A, np.ones((5, 2))), MATMUL),
        (lambda: np.einsum("ij,jk->ik", A, A), MATMUL), (lambda: A**2, "topi.power(x, y), or x * x"),
        (lambda: abs(A), "topi.abs(x)"), (lambda: A > 0, "topi.greater(x, y)"),
        (lambda: A >= 2, "topi.greater_equal(x, y)"),
        (lambda: np.greater(A, 0), "topi.greater(x, y)"), (lambda: np.exp(A), "topi.exp(x)"),
        (lambda: np.sum(A, axis=0), "topi.sum(x, axis)"), (lambda: np.maximum(A, 0), "topi.maximum(x, y)"),
        (lambda: np.concatenate([A, A]), "topi.concatenate((x, y), axis)"),
        (lambda: np.reshape(A, 20), "topi.reshape(x, shape)"),
        (lambda: np.cumsum(A), ELEMENTS), (lambda: np.add(A, A, out=np.ones(1)), ELEMENTS),
        (lambda: np.asarray(A), ELEMENTS), (lambda: np.array([A, A]), ELEMENTS),
    ],
)  # fmt: skip
def test_a_tensor_is_no_array(function: Callable[[], Any], instead: str) -> None:
    with pytest.raises(te.ExprError, match=rf"Tensor\(A, .*; write {re.escape(instead)}$") as info:
        function()
    assert "\n" not in str(info.value)


def test_what_arrays_have_and_tensors_lack() -> None:
    for name, instead in misuse.OF_ARRAYS.items():
        assert hasattr(np.ndarray, name) and not hasattr(A, name)
        with pytest.raises(AttributeError, match=rf"A, .* is no array and has no .{name}; write {re.escape(instead)}$"):
            getattr(A, name)
        assert callable(operator.attrgetter(instead.partition("(")[0].removeprefix("topi."))(topi))
    with pytest.raises(AttributeError, match=r"'Tensor' object has no attribute 'shap'; did you mean shape\?$"):
        A.shap  # noqa: B018
    assert copy.copy(A) == A


def test_what_is_written_instead_exists() -> None:
    for table in (misuse.INSTEAD, misuse.OF_TENSORS):
        for name in nonempty(table):
            assert callable(getattr(np, name, getattr(np.ndarray, name, None)))
    written = "\n".join([*misuse.INSTEAD.values(), *misuse.OF_TENSORS.values()])
    for word in nonempty(re.findall(r"\bte\.(\w+)", written)):
        assert word in te.__all__
    for word in nonempty(re.findall(r"\btopi\.((?:nn\.)?\w+)", written)):
        assert callable(operator.attrgetter(word)(topi))
    for word in nonempty(re.findall(r"te.call\('(\w+)'", written)):
        assert word in CALLS


def test_the_reference_names_all_of_the_language() -> None:
    text = (ROOT / "docs" / "te_lite.md").read_text()
    words = set(re.findall(r"\w+", text))
    not_written = {"InterpError", "LowerError", "RecordError", "ScheduleError", "TeError", "ComputeOp", "PlaceholderOp",
                   "Expr", "IterVar", "LoweredFunc", "Schedule", "State", "Tensor", "Var"}  # fmt: skip
    assert set(te.__all__) - not_written - words == set()
    headings = " ".join(re.findall(r"^### (.*)$", text, re.MULTILINE))
    for part in (Schedule, StageHandle):
        for name, _ in inspect.getmembers(part, inspect.isfunction):
            if not name.startswith("_") and name not in ("apply", "stage_id", "position", "inside"):
                assert re.search(rf"\b{name}\b", headings), name


C = te.compute((4,), lambda i: A[i, 0] + 1.0, name="C")


@pytest.mark.parametrize(
    ("primitive", "text"),
    [
        (lambda s: s[C].vectorise, "s[C] has no 'vectorise'; did you mean vectorize? it has bind, compute_along, "),
        (lambda s: s[C].spilt, "s[C] has no 'spilt'; did you mean split? "),
        (lambda s: s[C].nothing_alike, "s[C] has no 'nothing_alike'; it has bind, "),
        (lambda s: s.cache_wirte, "s has no 'cache_wirte'; did you mean cache_write? it has apply, "),
        (lambda s: s.split, "s has no 'split'; write s[C].split(...)"),
        (lambda s: s[C].rfactor, "s[C] has no 'rfactor'; write s.rfactor(...)"),
    ],
)
def test_a_misspelt_primitive(primitive: Callable[[Any], object], text: str) -> None:
    s = te.create_schedule(C.op)
    with pytest.raises(AttributeError) as info:
        primitive(s)
    assert str(info.value).startswith(text) and not hasattr(s[C], "vectorise")
    assert copy.copy(s).state is s.state


def test_a_factor_may_be_a_number_of_numpy() -> None:
    s = te.create_schedule(C.op)
    s[C].split(C.op.axis[0], factor=np.int64(2))  # type: ignore[arg-type]
    assert [loop.extent for loop in s.state.stages[s.stage_id(C)].iters] == [2, 2]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: te.lower(C), te.LowerError, "lower: a Schedule or a State is needed; .* got Tensor"),
        (lambda: te.lower([A, C]), te.LowerError, "lower: a Schedule or a State is needed"),
        (lambda: te.ComputeDAG(C), te.ExprError, "ComputeDAG: a list of tensors is needed, .* got Tensor"),
        (lambda: te.ComputeDAG(3), te.ExprError, "ComputeDAG: a list of tensors is needed, .* got 3"),
        (
            lambda: codegen_c.build(te.create_schedule(C.op)),
            te.LowerError,
            "a lowered program is needed, such as te.lo",
        ),
        (lambda: codegen_c.emit(C), te.LowerError, "a lowered program is needed, .* got Tensor"),
        (lambda: emit_cuda(C), te.LowerError, "a lowered program is needed, .* got Tensor"),
    ],
)
def test_each_stage_of_compiling_is_told_what_the_last_one_gives(
    call: Callable[[], object], error: type[te.TeError], text: str
) -> None:
    with pytest.raises(error, match=text) as info:
        call()
    assert "\n" not in str(info.value)
