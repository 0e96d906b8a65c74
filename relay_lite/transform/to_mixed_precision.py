"""Products in half precision: their factors are rounded to 16 bits, everything else is computed in float32.

    relu(conv(x, w) + b)   ->   relu(conv(half(x), half(w), out_dtype="float32") + b)

Three lists say what happens to an operator:

    allow    products: factors in 16 bits, sums in float32
    follow   computed in float32, or only moved; the result may be stored in 16 bits where an argument is
    deny     all others (softmax, norms, reductions, functions): computed in float32, and stored so, but for what
             products and their followers alone read

A value that follows from a product is rounded where it is stored for products, for what only moves elements, or for
several readers that do not meet again in its kernel, as those of GELU do; the one reader that computes with it gets it
as it was computed, in the same kernel as a rule. One that computes with several products is in the kernel of the first,
and the others, which have kernels of their own, are rounded. So sums, biases, activations and residual sums are rounded
once, when a tensor is written. What softmax or a pool reads, whose kernels begin with it, is stored in float32; else
what products and such readers alone read is stored in 16 bits, a norm's result, too: a second tensor would be a kernel
of its own. A layer norm for products reads float16 as well, computes in float32, and rounds once. Casts of weights fold
when these are constants; what is widened is there in 16 bits already; a cast of a cast is none (`SimplifyExpr`), and
casts are elementwise operators, which fuse.

Matrix products whose number of terms is no multiple of 8 get zeros behind them, so that the rows of both factors begin
at multiples of 16 bytes, and are loaded so; the zeros of weights fold, those of others are a copy.  Products with what
a softmax gives have none: they are part of attention, in one kernel with that (`fuse_attention.py`).

TVM computes operators that follow in 16 bits, and rounds after each.  As there, batch norms should be gone before, and
weights be constants, so that scales go into them first:
`Sequential([SimplifyInference(), FoldConstant(), FoldScaleAxis(), ToMixedPrecision("float16")])`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from te_lite.errors import require
from te_lite.expr.dtype import STORED

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr, Function, Tuple, children, rebuild
from ..ir.op_registry import OPS, OpPattern
from ..ir.types import TensorType
from ..ir.visit import is_op, post_order, readers, with_body
from .sequential import Pass

MIXED = ("float16", "bfloat16")
FULL = "float32"
ALLOW = frozenset({
    "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.dense", "nn.matmul", "nn.batch_matmul",
})  # fmt: skip
MOVES = frozenset({
    "squeeze", "reshape", "nn.batch_flatten", "transpose", "layout_transform", "nn.depth_to_space", "nn.space_to_depth",
    "strided_slice", "reverse", "concatenate", "stack", "expand_dims", "broadcast_to", "copy", "nn.max_pool1d",
    "nn.max_pool2d", "nn.max_pool3d",
})  # fmt: skip
"""Operators that follow and choose elements, so that they can do it in 16 bits; pools in float16 only, which is
computed with."""
MOST_MET = 32
"""Nodes that a kernel may compute of one before they meet again."""
VECTOR, FEWEST_TERMS = 8, 16
"""Numbers of 16 bits in 16 bytes, and terms of a product with which zeros are worth their while."""
FOLLOW = MOVES | {
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "where", "abs", "negative", "clip", "nn.bias_add",
    "nn.relu", "nn.leaky_relu", "nn.prelu",
}  # fmt: skip


def ToMixedPrecision(  # a class in TVM, and written like one
    mixed_precision_type: str = "float16",
    allow: Collection[str] = ALLOW,
    follow: Collection[str] = FOLLOW,
    deny: Collection[str] = (),
) -> Pass:
    """The pass for "float16" or "bfloat16"; the lists are names of operators, and `deny` wins.

    Only what is float32 changes; parameters and results keep their dtypes.  Raises GraphError for another dtype, an
    operator that is not known, and one of `allow` that has no `out_dtype`.
    """
    law = f"the dtype is one of {', '.join(MIXED)}"
    require(mixed_precision_type in MIXED, GraphError, "ToMixedPrecision", law, got=mixed_precision_type)
    for name in (*allow, *follow, *deny):
        require(name in OPS, GraphError, "ToMixedPrecision", "the operator is unknown", name=name)
    for name in allow:
        law = "only operators with an out_dtype can sum up in float32"
        require("out_dtype" in OPS[name].defaults, GraphError, "ToMixedPrecision", law, name=name)
    lists = _Lists(mixed_precision_type, frozenset(allow) - frozenset(deny), frozenset(follow) - frozenset(deny))
    return Pass("ToMixedPrecision", 0, (), lambda function: _run(function, lists))


@dataclass(frozen=True)
class _Lists:
    dtype: str
    allow: frozenset[str]
    follow: frozenset[str]

    def multiplies(self, node: Expr) -> bool:
        """Whether a node is a product of floats that shall be in 16 bits."""
        named = isinstance(node, Call) and node.op.name in self.allow
        return named and all(_is_full(x) for x in (node, *children(node)))

    def follows(self, node: Expr) -> bool:
        return isinstance(node, Call) and node.op.name in self.follow and _is_full(node)

    def widens(self, cast: Call) -> bool:
        """Whether a cast is of what is in 16 bits already."""
        return _is_full(cast) and cast.args[0].dtype == self.dtype

    def moves(self, node: Expr) -> bool:
        """Whether a node chooses elements, in 16 bits if need be."""
        if not isinstance(node, Call) or node.op.name not in MOVES or not self.follows(node):
            return False
        return node.op.pattern < OpPattern.OUT_ELEMWISE_FUSABLE or self.dtype not in STORED

    def begins(self, node: Expr) -> bool:
        """Whether a kernel begins with a node, which then reads what is stored, and computes with it."""
        if not isinstance(node, Call) or node.op.pattern < OpPattern.OUT_ELEMWISE_FUSABLE:
            return False
        return not self.multiplies(node) and not self.moves(node)


def _whole_vectors(product: Call, args: Sequence[Expr]) -> tuple[Expr, ...]:
    """The factors of a product; of matrices, with zeros behind their terms where these are no whole vectors."""
    turns = {"nn.dense": (False, True)}.get(product.op.name)
    if is_op(product, "nn.batch_matmul") and is_op(product.args[0], "nn.softmax"):
        return tuple(args)
    if product.op.name in ("nn.matmul", "nn.batch_matmul"):
        turns = product.attrs["transpose_a"], product.attrs["transpose_b"]
    if turns is None:
        return tuple(args)
    axes = -2 if turns[0] else -1, -1 if turns[1] else -2
    terms = args[0].shape[axes[0]]
    zeros = -terms % VECTOR
    if not zeros or terms < FEWEST_TERMS:
        return tuple(args)
    return tuple([_with_zeros(x, axis % len(x.shape), zeros) for x, axis in zip(args, axes, strict=True)])


def _with_zeros(x: Expr, axis: int, count: int) -> Expr:
    width = tuple([(0, count if d == axis else 0) for d in range(len(x.shape))])
    return call("nn.pad", x, pad_width=width)


def _is_elementwise(node: Expr) -> bool:
    return isinstance(node, Call) and node.op.pattern <= OpPattern.BROADCAST


def _is_full(node: Expr) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype == FULL


def _run(function: Function, lists: _Lists) -> Function:
    nodes = list(post_order(function.body))
    order = {node: k for k, node in enumerate(nodes)}
    values = _Values(lists, function.body, readers(function.body), order=order)
    for node in nodes:
        values.visit(node)
    return with_body(function, values.read(function.body, None))


@dataclass
class _Values:
    """What has become of the nodes: each in its own dtype, those that were asked for also in 16 bits.

    `stored` are the nodes that are kept in 16 bits; `product` is the number of the product that a node is computed with
    in one kernel.
    """

    lists: _Lists
    body: Expr
    readers: Mapping[Expr, Sequence[Expr]]
    full: dict[Expr, Expr] = field(default_factory=dict)
    half: dict[Expr, Expr] = field(default_factory=dict)
    stored: set[Expr] = field(default_factory=set)
    product: dict[Expr, int] = field(default_factory=dict)
    order: dict[Expr, int] = field(default_factory=dict)

    def visit(self, node: Expr) -> None:
        """Make a node whose arguments are there."""
        args = children(node)
        if self.lists.multiplies(node):
            assert isinstance(node, Call)
            attrs = {**node.attrs, "out_dtype": FULL}
            self.full[node] = Call(node.op, _whole_vectors(node, [self.rounded(x) for x in args]), attrs)
            self.product[node] = len(self.product)
            self._keep(node)
        elif is_op(node, "cast") and self.lists.widens(node):
            self.half[node] = self.full[args[0]]
            self.full[node] = call("cast", self.half[node], dtype=FULL)
            self.stored.add(node)
        elif self._stays_half(node, args):
            self.half[node] = rebuild(node, [self.rounded(x) for x in args])
            self.full[node] = call("cast", self.half[node], dtype=FULL)
            self.stored.add(node)
        else:
            product = self._product(node) if self.lists.follows(node) else None
            self.full[node] = rebuild(node, [self.read(x, node, product) for x in args])
            if product is not None:
                self.product[node] = product
            if (args and self._is_multiplied(node)) or (self.lists.follows(node) and any(self._kept(x) for x in args)):
                self._keep(node)

    def _stays_half(self, node: Expr, args: Sequence[Expr]) -> bool:
        """Whether a node takes 16 bits and gives them."""
        if self._normalises(node):
            return self._kept(args[0])
        return self.lists.moves(node) and len(args) > 0 and all(self._kept(x) for x in args)

    def _normalises(self, node: Expr) -> bool:
        """Whether a node is a norm for products of what may be in 16 bits."""
        computed = self.lists.dtype not in STORED and _is_full(node)
        return computed and is_op(node, "nn.layer_norm") and self._is_multiplied(node)

    def _is_multiplied(self, node: Expr) -> bool:
        """Whether products read a node, and nothing else that does not follow them."""
        readers = [] if node is self.body else self.readers[node]
        multiplied = [self.lists.multiplies(x) for x in readers]
        return any(multiplied) and all(m or self.lists.follows(x) for m, x in zip(multiplied, readers, strict=True))

    def _keep(self, node: Expr) -> None:
        """Store a node in 16 bits, unless a kernel begins with computing on it."""
        if not any(self.lists.begins(x) and not self._normalises(x) for x in self.readers[node]):
            self.stored.add(node)

    def _kept(self, node: Expr) -> bool:
        """Whether a node, or all fields of a tuple, are kept in 16 bits."""
        return all(x in self.stored for x in node.fields) if isinstance(node, Tuple) else node in self.stored

    def rounded(self, node: Expr) -> Expr:
        """A node in 16 bits; the same one for all that ask."""
        if isinstance(node, Tuple):
            return Tuple(tuple([self.rounded(x) for x in node.fields]))
        if node not in self.half:
            self.half[node] = call("cast", self.full[node], dtype=self.lists.dtype)
        return self.half[node]

    def read(self, node: Expr, reader: Expr | None, product: int | None = None) -> Expr:
        """A node as its reader, None outside of the function, computes with it in the kernel of a product."""
        elsewhere = product is not None and node in self.stored and self.product.get(node, product) != product
        if elsewhere or self._reads_stored(node, reader):
            return call("cast", self.rounded(node), dtype=FULL)
        return self.full[node]

    def _product(self, node: Expr) -> int | None:
        """The first of the products that a node computes with as they were computed."""
        args = [x for x in children(node) if x in self.stored and not self._reads_stored(x, node)]
        return min([self.product[x] for x in args if x in self.product], default=None)

    def _meets_again(self, node: Expr) -> bool:
        """Whether all that reads a node, as GELU does three times, comes to one node element by element."""
        ahead = {node}
        for _ in range(MOST_MET):
            first = min(ahead, key=self.order.__getitem__)
            if first is self.body or (first is not node and not _is_elementwise(first)):
                return False
            ahead = ahead - {first} | set(self.readers[first])
            if len(ahead) == 1:
                return _is_elementwise(min(ahead, key=self.order.__getitem__))
        return False

    def _reads_stored(self, node: Expr, reader: Expr | None) -> bool:
        """Whether a reader gets a node as it is stored, in 16 bits."""
        count = len(self.readers[node]) + (node is self.body)
        alone = (count == 1 or self._meets_again(node)) and not (reader is not None and self.lists.moves(reader))
        return node in self.stored and not alone
