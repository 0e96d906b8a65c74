"""Linear forms over integer atoms, and the laws of division by a constant.

    form = sum(coefficient * atom) + constant        atom = variable | form // c | form % c | anything else

A form is a dictionary from atoms to integers.  Atoms are shared: two equal atoms of one `LinearSpace` are the same
object, so forms are compared without looking into them.  All laws hold for integers of any size, and are used for
indices only: what reads memory, and may wrap, is an atom.  The ranges of the atoms decide what vanishes.  With
x = c*q + r, 0 <= r < c:

    split      (c*a + x) // c = a + x // c                     (c*a + x) % c = x % c
    partition  (g*a + r) // (g*b) = a // b                     (g*a + r) % (g*b) = g*(a % b) + r       0 <= r < g
    nest       (x // a) // b = x // (a*b)                      (x % (a*b)) % b = x % b
               (x % (a*b)) // b = (x // b) % a
    combine    c*(x // c) + x % c = x                          x - c*(x // c) = x % c
               a*((x // a) % b) + x % a = x % (a*b)            x - x % c = c*(x // c)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from .constant_folding import wrapped
from .expr import INDEX, Binary, Const, Expr
from .interval import INF, Interval

LEAF, DIV, MOD = range(3)
_OPS = {DIV: "//", MOD: "%"}


class Atom:
    """An indivisible integer with range (lo, hi); `data` says that its value is read from memory.

    A DIV or MOD atom is `num // den` or `num % den`; `nums` are the forms known to have this remainder.
    """

    __slots__ = ("data", "den", "expr", "hi", "index", "kind", "lo", "num", "nums")

    def __init__(self, index: int, kind: int, expr: Expr | None, bounds: Interval, data: bool) -> None:
        self.index = index
        self.kind = kind
        self.expr = expr
        self.lo, self.hi = bounds
        self.data = data
        self.den = 1
        self.num: Lin
        self.nums: list[Lin]


class Lin:
    """A linear form (immutable); no coefficient is 0."""

    __slots__ = ("_bounds", "_key", "const", "dtype", "terms")

    def __init__(self, terms: dict[Atom, int], const: int, dtype: str) -> None:
        self.terms = terms
        self.const = const
        self.dtype = dtype
        self._bounds: Interval | None = None
        self._key: tuple[object, ...] | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal forms of one space, and hashable."""
        if self._key is None:
            self._key = (frozenset(self.terms.items()), self.const, self.dtype)
        return self._key

    @property
    def bounds(self) -> Interval:
        if self._bounds is None:
            self._bounds = _range(self.terms, self.const)
        return self._bounds

    @property
    def atom(self) -> Atom | None:
        """The atom that this form consists of, if it is a single one."""
        if self.const == 0 and len(self.terms) == 1:
            ((atom, k),) = self.terms.items()
            return atom if k == 1 else None
        return None

    @property
    def data(self) -> bool:
        """Whether the value depends on what is in memory."""
        return any(a.data for a in self.terms)

    @property
    def sides(self) -> tuple[Lin, Lin]:
        """(p, n) with self = p - n, positive coefficients in both, the constant in n."""
        plus = {a: k for a, k in self.terms.items() if k > 0}
        minus = {a: -k for a, k in self.terms.items() if k < 0}
        return Lin(plus, 0, self.dtype), Lin(minus, -self.const, self.dtype)

    def scaled(self, k: int) -> Lin:
        """`k * self`, k != 0."""
        return Lin({a: k * c for a, c in self.terms.items()}, k * self.const, self.dtype)

    def shifted(self, n: int) -> Lin:
        """`self + n`."""
        return Lin(self.terms, self.const + n, self.dtype) if n else self


def _range(terms: dict[Atom, int], const: int) -> Interval:
    lo: float = const
    hi: float = const
    for a, k in terms.items():
        if k > 0:
            lo += k * a.lo
            hi += k * a.hi
        else:
            lo += k * a.hi
            hi += k * a.lo
    return lo, hi


def _window(bounds: Interval, g: int) -> int | None:
    """The m with m*g <= lo and hi < (m+1)*g, if there is one."""
    lo, hi = bounds
    if lo == -INF or hi == INF:
        return None
    m = int(lo) // g
    return m if int(hi) // g == m else None


def merge(terms: dict[Atom, int], more: dict[Atom, int], k: int) -> None:
    """`terms += k * more`, in place."""
    for a, c in more.items():
        total = terms.get(a, 0) + k * c
        if total:
            terms[a] = total
        else:
            del terms[a]


class LinearSpace:
    """The atoms of one set of variable ranges, and arithmetic on forms over them: a space of index values."""

    def __init__(self) -> None:
        self._atoms: dict[tuple[object, ...], Atom] = {}
        self._exprs: dict[tuple[object, ...], Expr] = {}
        self._quotients: dict[tuple[object, int], Atom | None] = {}
        self._kept: set[Atom] = set()
        self._count = 0

    def keeping(self, forms: Sequence[Lin]) -> AbstractContextManager[None]:
        """Combine none of the remainders that some forms have with anything else."""
        return self._keeping(forms) if forms else nullcontext()

    @contextmanager
    def _keeping(self, forms: Sequence[Lin]) -> Iterator[None]:
        before = self._kept
        self._kept = before | {a for x in forms for a in x.terms if a.kind == MOD}
        try:
            yield
        finally:
            self._kept = before

    # ------------------------------------------------------------------------------------------------ atoms

    def leaf(self, expr: Expr, bounds: Interval, data: bool) -> Atom:
        """A new atom for an expression that the laws do not look into."""
        self._count += 1
        return Atom(self._count, LEAF, expr, bounds, data)

    def _divided(self, kind: int, num: Lin, den: int) -> Atom:
        key = (kind, den, num.key)
        atom = self._atoms.get(key)
        if atom is None:
            lo, hi = num.bounds
            if kind == DIV:
                bounds: Interval = (lo if lo == -INF else int(lo) // den, hi if hi == INF else int(hi) // den)
            else:
                bounds = (0, min(den - 1, hi) if lo >= 0 else den - 1)
            self._count += 1
            atom = self._atoms[key] = Atom(self._count, kind, None, bounds, num.data)
            atom.num, atom.den, atom.nums = num, den, [num]
        return atom

    # ------------------------------------------------------------------------------------------ expressions

    def to_expr(self, x: Lin) -> Expr:
        """The expression of a form; equal forms give the same object."""
        out = self._exprs.get(x.key)
        if out is None:
            out = self._exprs[x.key] = self._write(x)
        return out

    def _write(self, x: Lin) -> Expr:
        """Positive terms first, larger coefficients first, then in order of appearance; the constant last."""
        dtype, const = x.dtype, x.const
        order = sorted(x.terms.items(), key=lambda term: (term[1] < 0, -abs(term[1]), term[0].index))
        out: Expr | None = None
        if order and order[0][1] < 0 < const:
            out, const = Const(const, dtype), 0
        for atom, k in order:
            factor = k if out is None else abs(k)
            term = self.atom_expr(atom)
            if factor != 1:
                term = Binary("*", term, Const(factor, dtype))
            out = term if out is None else Binary("+" if k > 0 else "-", out, term)
        if out is None:
            return Const(const, dtype)
        if const:
            minus = const < 0 and (dtype == INDEX or -const == wrapped(-const, dtype))
            out = Binary("-" if minus else "+", out, Const(-const if minus else const, dtype))
        return out

    def atom_expr(self, atom: Atom) -> Expr:
        if atom.expr is None:
            atom.expr = Binary(_OPS[atom.kind], self.to_expr(atom.num), Const(atom.den, atom.num.dtype))
        return atom.expr

    # ------------------------------------------------------------------------------------------- arithmetic

    def form(self, terms: dict[Atom, int], const: int, dtype: str) -> Lin:
        """The form of `terms` (which it takes over), quotients and remainders combined."""
        while any(a.kind for a in terms):
            step = self._combine(terms)
            if step is None:
                break
            merge(terms, step.terms, 1)
            const += step.const
        return Lin(terms, const, dtype)

    def add(self, x: Lin, y: Lin, k: int = 1) -> Lin:
        """`x + k*y`, k != 0."""
        if not y.terms:
            return x.shifted(k * y.const)
        terms = dict(x.terms)
        merge(terms, y.terms, k)
        return self.form(terms, x.const + k * y.const, x.dtype)

    def div(self, x: Lin, c: int) -> Lin:
        """`x // c`, c > 0."""
        if c == 1:
            return x
        q, r = self._split(x, c)
        d = self._div_rest(r, c)
        return d if q is None else self.add(q, d)

    def mod(self, x: Lin, c: int) -> Lin:
        """`x % c`, c > 0."""
        return Lin({}, 0, x.dtype) if c == 1 else self._mod_rest(self._split(x, c)[1], c)

    def _split(self, x: Lin, c: int) -> tuple[Lin | None, Lin]:
        """x = c*q + r, the coefficients of r smaller than c and its constant in [0, c)."""
        m, const = divmod(x.const, c)
        if all(-c < k < c for k in x.terms.values()):
            return (Lin({}, m, x.dtype), Lin(x.terms, const, x.dtype)) if m else (None, x)
        high: dict[Atom, int] = {}
        low: dict[Atom, int] = {}
        for a, k in x.terms.items():
            q, r = divmod(k, c) if k > 0 else (-(-k // c), -(-k % c))
            if q:
                high[a] = q
            if r:
                low[a] = r
        return self.form(high, m, x.dtype), self.form(low, const, x.dtype)

    def _div_rest(self, r: Lin, c: int) -> Lin:
        m = _window(r.bounds, c)
        if m is not None:
            return Lin({}, m, r.dtype)
        cut = self.partition(r, c)
        if cut is not None:
            return self.div(cut[1], c // cut[0])
        if len(r.terms) == 1:
            ((a, k),) = r.terms.items()
            if k == 1 and a.kind == DIV:
                return self.div(a.num.shifted(r.const * a.den), a.den * c)
            if k == 1 and a.kind == MOD and r.const == 0 and a.den % c == 0:
                return self.mod(self.div(a.num, c), a.den // c)
        return Lin({self._divided(DIV, r, c): 1}, 0, r.dtype)

    def _mod_rest(self, r: Lin, c: int) -> Lin:
        m = _window(r.bounds, c)
        if m is not None:
            return r.shifted(-m * c)
        cut = self.partition(r, c)
        if cut is not None:
            g, high, low = cut
            rest = self.mod(high, c // g)
            return self.add(low, rest, g)
        inner = [(a, k) for a, k in r.terms.items() if a.kind == MOD and k * a.den % c == 0]
        if not inner:
            return Lin({self._divided(MOD, r, c): 1}, 0, r.dtype)
        bare = r
        for a, k in inner:
            bare = self.add(self.add(bare, Lin({a: 1}, 0, r.dtype), -k), a.num, k)
        out = self.mod(bare, c)
        atom = out.atom
        if atom is not None and atom.kind == MOD and atom.den == c:
            known = atom in r.terms or any(r.key == num.key for num in atom.nums)
            atom.nums += [] if known else [r]
        return out

    def partition(self, x: Lin, c: int) -> tuple[int, Lin, Lin] | None:
        """(g, a, r) with x = g*a + r, 0 <= r < g, g > 1 a divisor of c (any g where c is 0), g as large as found."""
        g = c
        sizes = set()
        for k in sorted(x.terms.values(), key=abs, reverse=True):
            g = math.gcd(g, k)
            sizes.add(g)
            sizes.add(math.gcd(c, k))
        for g in sorted(sizes, reverse=True):
            if g == 1:
                break
            low = {a: k for a, k in x.terms.items() if k % g}
            m = _window(_range(low, x.const), g)
            if m is not None:
                high = {a: k // g for a, k in x.terms.items() if k % g == 0}
                return g, self.form(high, m, x.dtype), self.form(low, x.const - m * g, x.dtype)
        return None

    # ------------------------------------------------------------------------------------------ combination

    def _combine(self, terms: dict[Atom, int]) -> Lin | None:
        """What to add to `terms` (a form equal to 0) to make them shorter by a law of the table's last group."""
        for a, k in terms.items():
            if a in self._kept:
                continue
            if a.kind == MOD:
                for b, n in terms.items():
                    if n == k * a.den and b.kind and b not in self._kept:
                        step = self._join(a, b, k)
                        if step is not None:
                            return step
                for r in a.nums:
                    if _contains(terms, r, -k):
                        return _step(self.div(r, a.den), -k * a.den, r, k, {a: -k})
            elif a.kind == DIV and k % a.den == 0 and _contains(terms, a.num, -k // a.den):
                q = -k // a.den
                return _step(self.mod(a.num, a.den), q, a.num, -q, {a: -k})
        return None

    def _join(self, a: Atom, b: Atom, k: int) -> Lin | None:
        """k*r - (k*a + k*c*b) for a remainder a = r % c and its quotient b = r // c, or b = (r // c + rest) % m."""
        c = a.den
        for r in a.nums:
            quotient = self._quotient(r, c)
            if quotient is None:
                continue
            whole: Lin | None = None
            if quotient is b:
                whole = r
            elif b.kind == MOD and b.num.terms.get(quotient) == 1:
                terms = dict(r.terms)
                merge(terms, b.num.terms, c)
                merge(terms, {quotient: 1}, -c)
                whole = self.mod(self.form(terms, r.const + c * b.num.const, r.dtype), c * b.den)
            if whole is not None:
                return _step(whole, k, r, 0, {a: -k, b: -k * c})
        return None

    def _quotient(self, r: Lin, c: int) -> Atom | None:
        key = (r.key, c)
        if key not in self._quotients:
            self._quotients[key] = self.div(r, c).atom
        return self._quotients[key]


def _step(x: Lin, k: int, y: Lin, n: int, more: dict[Atom, int]) -> Lin:
    """`k*x + n*y + more`, term by term."""
    terms = dict(more)
    merge(terms, x.terms, k)
    if n:
        merge(terms, y.terms, n)
    return Lin(terms, k * x.const + n * y.const, x.dtype)


def _contains(terms: dict[Atom, int], x: Lin, k: int) -> bool:
    return all(terms.get(a) == k * n for a, n in x.terms.items())
