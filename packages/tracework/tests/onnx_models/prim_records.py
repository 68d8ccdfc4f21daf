"""RECORDS: for each prim that has a row, calls of it: dtype or name -> (inputs of a size n, the call). Sizes that follow n are symbols."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from tracework_primops import OPS, prims

SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5]
SIZES = (3, 5, 8)


@dataclass(frozen=True)
class Record:
    """A call. `inputs(n)` gives tensors; `call(n, *values)` the results, n being a size or a symbol.

    static: one model for each size, because the row takes numbers. tolerance: of float32, where a formula of ours has more roundings.
    ordinary: places of inputs for which `special` has nothing, because what comes of it is left open.
    """

    inputs: Callable[[int], list[torch.Tensor]]
    call: Callable[..., Any]
    static: bool = False
    tolerance: float = 2e-6
    ordinary: frozenset[int] = frozenset()

    def special(self) -> Record:
        """The same call with NaN, infinities, zeros of both signs, and the least and the largest integer, among the inputs."""
        return replace(
            self, inputs=lambda n: [_special(x, i) if i not in self.ordinary else x for i, x in enumerate(self.inputs(n))]
        )


def _special(x: torch.Tensor, place: int) -> torch.Tensor:
    """Special values in every fifth element, in others for the next input."""
    values: list[Any] = SPECIAL
    if not x.dtype.is_floating_point:
        values = [] if x.dtype is torch.bool else [torch.iinfo(x.dtype).min, torch.iinfo(x.dtype).max]
    x = x.clone()
    for number, value in enumerate(values):
        at = 5 * number + place
        if at < x.numel():
            x.view(-1)[at] = value
    return x


RECORDS: dict[str, list[Record]] = {}
INDEXED = frozenset(
    "gather index_select take index index_put scatter scatter_add scatter_reduce index_copy index_add put max_pool_backward "
    "floor_divide trunc_divide remainder fmod".split()
)
"""Prims for which not all integers will do: out of range, or a quotient that no integer is."""
_OPS = dict(OPS)


def record(prim: str, inputs: Callable[[int], list[torch.Tensor]], call: Callable[..., Any], **facts: Any) -> None:
    indices = {i for i, x in enumerate(inputs(SIZES[0])) if not x.dtype.is_floating_point and prim in INDEXED}
    ordinary = frozenset({*facts.pop("ordinary", ()), *indices})
    RECORDS.setdefault(prim, []).append(Record(inputs, call, ordinary=ordinary, **facts))


def floats(*sizes: int, special: bool = False, dtype: torch.dtype = torch.float32, low: float | None = None) -> torch.Tensor:
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(math.prod(sizes) + len(sizes)))
    if low is not None:
        x = x.abs() + low
    if special:
        flat = x.view(-1)
        flat[: len(SPECIAL)] = torch.tensor(SPECIAL)[: flat.numel()]
    return x.to(dtype)


def ints(*sizes: int, low: int = -9, high: int = 9, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, sizes, generator=torch.Generator().manual_seed(math.prod(sizes))).to(dtype)


def bools(*sizes: int) -> torch.Tensor:
    return ints(*sizes, low=0, high=2).bool()


def shuffled(x: torch.Tensor) -> torch.Tensor:
    """The elements in another order, so that special values meet each other."""
    return x.flatten()[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))].view(x.shape)


def places(n: int, high: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, (n,), generator=torch.Generator().manual_seed(n))


KINDS: dict[str, Callable[..., torch.Tensor]] = {
    "f": lambda *s: floats(*s, special=True),
    "h": lambda *s: floats(*s, special=True, dtype=torch.float16),
    "b": lambda *s: floats(*s, special=True, dtype=torch.bfloat16),
    "i": ints,
    "j": lambda *s: ints(*s, dtype=torch.int32),
    "u": lambda *s: ints(*s, low=0, high=250, dtype=torch.uint8),
    "s": lambda *s: ints(*s, low=-128, high=127, dtype=torch.int8),
    "t": bools,
}
UNARY = {
    "fhb": "sqrt reciprocal exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid frac rsqrt exp2 expm1 log1p log2 log10",
    "fhbi": "floor ceil trunc",
    "fhbijs": "neg square",
    "fhbiju": "abs",
    "fhbijut": "isnan isinf isfinite sign sgn logical_not",
    "fhbi ": "relu angle_f real conj",
    "fi": "signbit",
    "iust": "bitwise_not",
}
BINARY = {
    "fhb": "div atan2_f hypot_f logaddexp_f logaddexp2_f xlogy ldexp_f",
    "f": "copysign",
    "fhbijust": "add mul eq ne lt le gt ge logical_and logical_or logical_xor",
    "fhbijut": "maximum minimum fmax fmin",
    "fhbij": "sub heaviside_f",
    "ijut": "bitwise_and bitwise_or bitwise_xor",
}
_ROUGH = "expm1 exp2 log1p atan2 hypot logaddexp logaddexp2 tan sinh cosh atanh ldexp sigmoid erf log10 log2 xlogy"
LOOSE = dict.fromkeys(_ROUGH.split(), 1e-5) | dict.fromkeys(("asinh", "acosh"), 1e-4)
"""Tolerances of float32 where a formula of ours, or an engine's own function, rounds several times."""
NUMBERS = {"f": 0.75, "h": 0.75, "b": 0.75, "t": True}


def _unary(name: str, kind: str) -> None:
    op = getattr(prims, name)
    record(name, lambda n: [KINDS[kind](n, 4)], lambda n, x: op(x), tolerance=LOOSE.get(name, 2e-6))


def _binary(name: str, kind: str) -> None:
    op, make = getattr(prims, name), KINDS[kind]
    loose = LOOSE.get(name, 2e-6)
    record(name, lambda n: [make(n, 4), shuffled(make(n, 4))], lambda n, a, b: op(a, b), tolerance=loose)
    record(name, lambda n: [make(n, 1), make(4)], lambda n, a, b: op(a, b), tolerance=loose)
    if kind != "t":
        record(name, lambda n: [make(n, 4)], lambda n, a: op(a, NUMBERS.get(kind, 3)), tolerance=loose)


for _kinds, _names in UNARY.items():
    for _name in _names.split():
        _name, _, _only = _name.partition("_f")
        for _kind in "f" if _name == "angle" else _kinds.strip():
            _unary(_name, _kind)
for _kinds, _names in BINARY.items():
    for _name in _names.split():
        for _kind in _kinds:
            _binary(_name.removesuffix("_f"), _kind)
for _kind, _make in KINDS.items():
    for _to in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int8,
        torch.uint8,
        torch.bool,
    ):
        finite = _kind in "fhb" and not _to.is_floating_point and _to is not torch.bool  # what NaN becomes is left open by C
        make = (
            (lambda m: lambda n: [m(n, 4).nan_to_num(0, 5, -5).abs()])(_make)
            if finite
            else (lambda m: lambda n: [m(n, 4)])(_make)
        )
        record("convert", make, (lambda d: lambda n, x: prims.convert(x, d))(_to), ordinary={0} if finite else ())


def nonzero(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda *s: torch.where(make(*s) == 0, torch.ones((), dtype=make(*s).dtype), make(*s))


for _name in ("floor_divide", "trunc_divide", "remainder", "fmod"):
    for _kind in "fhij":
        _op, _make = getattr(prims, _name), KINDS[_kind]
        _other = nonzero(_make) if _kind in "ij" else _make
        _args = (_op, _make, _other)
        record(
            _name,
            (lambda o, m, k: lambda n: [m(n, 4), shuffled(k(n, 4))])(*_args),
            (lambda o: lambda n, a, b: o(a, b))(_op),
        )
        record(
            _name, (lambda m: lambda n: [m(n, 4)])(_make), (lambda o, v: lambda n, a: o(a, v))(_op, -0.3 if _kind in "fh" else -4)
        )
record("fma", lambda n: [floats(n, 4), floats(4), floats(n, 1)], lambda n, a, b, c: prims.fma(a, b, c))
record("pow", lambda n: [floats(n, 4, low=0.1), floats(4)], lambda n, a, b: prims.pow(a, b), tolerance=1e-5)
record("pow", lambda n: [floats(n, 4)], lambda n, a: prims.pow(a, 3.0), tolerance=1e-5)
record("pow", lambda n: [floats(n, 4)], lambda n, a: prims.pow(2.0, a), tolerance=1e-5)
for _decimals in (0, 2, -1):
    record("round", lambda n, d=_decimals: [floats(n, 4) * 20], lambda n, x, d=_decimals: prims.round(x, d))
record("round", lambda n: [ints(n)], lambda n, x: prims.round(x, 0))
for _kind in "fhbijut":
    record(
        "where",
        lambda n, k=_kind: [bools(n, 1), KINDS[k](n, 4), shuffled(KINDS[k](n, 4))],
        lambda n, c, a, b: prims.where(c, a, b),
    )
record("where", lambda n: [bools(n, 4), floats(4)], lambda n, c, a: prims.where(c, a, -math.inf))
record("add", lambda n: [floats(n, 4)], lambda n, x: prims.add(x, n))
record("mul", lambda n: [ints(n, 4)], lambda n, x: prims.mul(x, n))

# reductions ---------------------------------------------------------------------------------------
for _kind in "fhbijut":
    _plain = {"f": floats, "h": lambda *s: floats(*s, dtype=torch.float16), "b": lambda *s: floats(*s, dtype=torch.bfloat16)}.get(
        _kind, KINDS[_kind]
    )
    for _dims, _keep in (((0,), False), ((1, 2), True), ((0, 1, 2), False)):
        _reduce = (lambda m: lambda n: [m(n, 2, 3)])(_plain)
        if _kind != "t":
            _into = {"u": torch.int64}.get(_kind)
            record("sum", _reduce, lambda n, x, d=_dims, k=_keep, t=_into: prims.sum(x, d, k, t), tolerance=1e-5)
        record(
            "sum",
            _reduce,
            lambda n, x, d=_dims, k=_keep: prims.sum(x, d, k, torch.float32 if x.dtype.is_floating_point else torch.int64),
            tolerance=1e-5,
        )
        if _kind in "fi":
            record("prod", _reduce, lambda n, x, d=_dims, k=_keep: prims.prod(x, d, k, None), tolerance=1e-5)
        for _name in ("amax", "amin", "any", "all"):
            record(_name, lambda n, k=_kind: [KINDS[k](n, 2, 3)], lambda n, x, o=_OPS[_name], d=_dims, k=_keep: o(x, d, k))
        if _kind in "fhb":  # NaN in each place
            for _name in ("amax", "amin"):
                record(
                    _name,
                    lambda n, k=_kind: [KINDS[k](n, n).masked_fill(torch.eye(n, dtype=torch.bool), math.nan)[1:]],
                    lambda n, x, o=_OPS[_name]: o(x, (1,), False),
                )
        record("count_nonzero", lambda n, k=_kind: [KINDS[k](n, 2, 3)], lambda n, x, d=_dims: prims.count_nonzero(x, d))
    for _name in ("argmax", "argmin"):
        if _kind != "t":
            record(_name, lambda n, k=_kind: [KINDS[k](n, 4)], lambda n, x, o=_OPS[_name]: o(x, 1, False))
            record(_name, lambda n, k=_kind: [KINDS[k](n, 4)], lambda n, x, o=_OPS[_name]: o(x, 0, True))
for _name, _least in (("amax", -math.inf), ("amin", math.inf), ("logsumexp", -math.inf)):
    record(
        _name,
        lambda n, v=_least: [floats(n, 4).index_fill(0, torch.tensor([1]), v)],
        lambda n, x, o=_OPS[_name]: o(x, (1,), False),
        tolerance=1e-5,
    )
for _dims, _keep in (((0,), False), ((1, 2), True)):
    record("var_mean", lambda n: [floats(n, 2, 3)], lambda n, x, d=_dims, k=_keep: prims.var_mean(x, d, 1, k), tolerance=1e-5)
    record(
        "var_mean", lambda n: [floats(n, 2, 3, dtype=torch.bfloat16)], lambda n, x, d=_dims, k=_keep: prims.var_mean(x, d, 0, k)
    )
    record(
        "logsumexp",
        lambda n: [floats(n, 2, 3, special=True)],
        lambda n, x, d=_dims, k=_keep: prims.logsumexp(x, d, k),
        tolerance=1e-5,
    )
    for _ord in (0, 1, 2, 3, math.inf, -math.inf):
        record("norm", lambda n: [floats(n, 2, 3)], lambda n, x, o=_ord, d=_dims, k=_keep: prims.norm(x, o, d, k), tolerance=1e-5)
for _kind in "fij":
    for _dim in (0, 1):
        record(
            "cumsum",
            lambda n, k=_kind: [floats(n, 4) if k == "f" else KINDS[k](n, 4)],
            lambda n, x, d=_dim: prims.cumsum(x, d),
            tolerance=1e-5,
        )

# views and creation -------------------------------------------------------------------------------
for _kind in "fhbijut":
    _of = KINDS[_kind]
    _rows = (lambda m: lambda n: [m(n, 4)])(_of)
    _three = (lambda m: lambda n: [m(n, 2, 3)])(_of)
    record("expand", (lambda m: lambda n: [m(n, 1)])(_of), lambda n, x: prims.expand(x, (2, n, 3)))
    record("permute", _three, lambda n, x: prims.permute(x, (2, 0, 1)))
    record("reshape", _three, lambda n, x: prims.reshape(x, (2 * n, 3)))
    record("slice", _rows, lambda n, x: prims.slice(x, 0, 1, n, 2))
    record("slice", _rows, lambda n, x: prims.slice(x, 1, 1, 4, 2))
    record("squeeze", (lambda m: lambda n: [m(n, 1, 3, 1)])(_of), lambda n, x: prims.squeeze(x, (1, 3)))
    record("unsqueeze", _rows, lambda n, x: prims.unsqueeze(x, 1))
    record("select", _three, lambda n, x: prims.select(x, 2, 1))
    record("select", _three, lambda n, x: prims.select(x, 0, n - 1))
    record("as_strided", _rows, lambda n, x: prims.as_strided(x, (n, 2), (2, 1), 1))
    record("diagonal", _three, lambda n, x: prims.diagonal(x, 1, 1, 2))
    record("diagonal", _three, lambda n, x: prims.diagonal(x, -1, 1, 2))
    record("flip", _three, lambda n, x: prims.flip(x, (0, 2)))
    record("unfold", _rows, lambda n, x: prims.unfold(x, 1, 2, 1))
    record("unfold", _rows, lambda n, x: prims.unfold(x, 0, 2, 2))
    record("clone", _rows, lambda n, x: prims.clone(x))
    record("contiguous", _three, lambda n, x: prims.contiguous(prims.permute(x, (1, 2, 0)), (3, 1, 6)))
    record("device_put", _rows, lambda n, x: prims.device_put(x, torch.device("cpu")))
    record("cat", (lambda m: lambda n: [m(n, 4), m(2 * n, 4)])(_of), lambda n, x, y: prims.cat((x, y), 0))
    record("pad", _rows, lambda n, x: prims.pad(x, ((1, 2), (0, 1)), 1))
    record("pad", _rows, lambda n, x: prims.pad(x, ((-1, 0), (2, -1)), 0))
    record("roll", _rows, lambda n, x: prims.roll(x, (1, -2), (0, 1)))
    record("roll", _rows, lambda n, x: prims.roll(x, (3,), ()))
    for _name in ("tril", "triu"):
        for _offset in (0, 1, -1):
            record(_name, _three, lambda n, x, o=_OPS[_name], k=_offset: o(x, k))
_CPU = torch.device("cpu")
for _dtype in (torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool):
    record("full", lambda n: [floats(n)], lambda n, x, d=_dtype: prims.full((n, 2), 1, d, _CPU))
    record("scalar_tensor", lambda n: [floats(n)], lambda n, x, d=_dtype: prims.scalar_tensor(1, d, _CPU))
    record("eye", lambda n: [floats(n)], lambda n, x, d=_dtype: prims.eye(n, 4, d, _CPU))
    if _dtype is not torch.bool:
        record("iota", lambda n: [floats(n)], lambda n, x, d=_dtype: prims.iota(n, 2, 3, d, _CPU))
    if _dtype.is_floating_point:
        record("iota", lambda n: [floats(n)], lambda n, x, d=_dtype: prims.iota(n, 0.5, 0.1, d, _CPU))
        record("linspace", lambda n: [floats(n)], lambda n, x, d=_dtype: prims.add(prims.linspace(-1.0, 2.5, 7, d, _CPU), 0))
record("scalar_tensor", lambda n: [floats(n)], lambda n, x: prims.scalar_tensor(n, torch.int64, _CPU))
record(
    "empty",
    lambda n: [floats(n, 4)],
    lambda n, x: prims.mul(prims.convert(prims.empty((n, 4), torch.bool, _CPU), torch.float32), 0),
)
record(
    "empty_strided",
    lambda n: [floats(n, 4)],
    lambda n, x: prims.mul(prims.convert(prims.empty_strided((n, 4), (1, n), torch.bool, _CPU), torch.float32), 0),
)

# indexing -----------------------------------------------------------------------------------------
for _kind in "fhbijut":
    _of = KINDS[_kind]
    record("gather", lambda n, m=_of: [m(n, 4), places(3 * n, 4).view(n, 3)], lambda n, x, i: prims.gather(x, 1, i))
    record("gather", lambda n, m=_of: [m(n, 4), places(6, n).view(2, 3)], lambda n, x, i: prims.gather(x, 0, i))
    record("index_select", lambda n, m=_of: [m(4, n), places(n, 4)], lambda n, x, i: prims.index_select(x, 0, i))
    record("take", lambda n, m=_of: [m(n, 4), places(2 * n, 4 * n, -4 * n).view(n, 2)], lambda n, x, i: prims.take(x, i))
    record("index", lambda n, m=_of: [m(n, 4), places(6, 4, -4).view(2, 3)], lambda n, x, i: prims.index(x, (None, i), True))
    record(
        "index", lambda n, m=_of: [m(n, 4, 3), places(2, n), places(2, 3)], lambda n, x, i, j: prims.index(x, (i, None, j), True)
    )
    record(
        "index",
        lambda n, m=_of: [m(2, n, 4, 3), places(2, n).view(2, 1), places(3, 4)],
        lambda n, x, i, j: prims.index(x, (None, i, j), False),
    )
    record(
        "index_put",
        lambda n, m=_of: [m(n, 4), torch.tensor([1, -1]), m(n, 2)],
        lambda n, x, i, v: prims.index_put(x, (None, i), v, False, True),
    )
    record(
        "index_put",
        lambda n, m=_of: [m(n, 4, 3), torch.tensor([0, 2]), torch.tensor([1]), m(2, 4)],
        lambda n, x, i, j, v: prims.index_put(x, (i, None, j), v, False, True),
    )
    record(
        "scatter",
        lambda n, m=_of: [m(n, 4), torch.stack([torch.randperm(4)[:3] for _ in range(n)]), m(n, 4)],
        lambda n, x, i, v: prims.scatter(x, 1, i, v),
    )
    record("scatter", lambda n, m=_of: [m(n, 4), places(n, 4).view(n, 1)], lambda n, x, i: prims.scatter(x, 1, i, 1))
    record(
        "index_copy",
        lambda n, m=_of: [m(4, n), torch.tensor([2, -4]), m(2, n)],
        lambda n, x, i, v: prims.index_copy(x, 0, i, v, True),
    )
    record("slice_scatter", lambda n, m=_of: [m(n, 5), m(n, 2)], lambda n, x, v: prims.slice_scatter(x, v, 1, 1, 5, 2))
    record("slice_scatter", lambda n, m=_of: [m(n, 5), m(n - 1, 5)], lambda n, x, v: prims.slice_scatter(x, v, 0, 1, n, 1))
    record("select_scatter", lambda n, m=_of: [m(n, 5), m(n)], lambda n, x, v: prims.select_scatter(x, v, 1, 3))
    record(
        "put", lambda n, m=_of: [m(n, 4), torch.tensor([[0, 3], [-1, 5]]), m(2, 2)], lambda n, x, i, v: prims.put(x, i, v, False)
    )
    record(
        "as_strided_scatter",
        lambda n, m=_of: [m(n, 4), m(n, 2)],
        lambda n, x, v: prims.as_strided_scatter(x, v, (n, 2), (4, 1), 1),
    )
    if _kind != "t":
        for _offset in (0, 1, -1):
            for _size in (4, 2):
                _length = torch.empty(_size, 3).diagonal(_offset).shape[0]
                record(
                    "diagonal_scatter",
                    lambda n, m=_of, s=_size, k=_length: [m(s, n, 3), m(n, k)],
                    lambda n, x, v, k=_offset: prims.diagonal_scatter(x, v, k, 0, 2),
                )
    if _kind in "fij":
        _sum = lambda *s, m=_of: m(*s).nan_to_num(0, 1, -1)
        record(
            "index_put",
            lambda n, m=_sum: [m(n, 4), torch.tensor([1, 1, 0]), m(n, 3)],
            lambda n, x, i, v: prims.index_put(x, (None, i), v, True, True),
        )
        record(
            "index_put",
            lambda n, m=_sum: [m(5, 2), places(n, 5), m(n, 2)],
            lambda n, x, i, v: prims.index_put(x, (i,), v, True, False),
        )
        record(
            "scatter_add",
            lambda n, m=_sum: [m(n, 4), places(3 * n, 4).view(n, 3), m(n, 3)],
            lambda n, x, i, v: prims.scatter_add(x, 1, i, v),
        )
        record(
            "index_add",
            lambda n, m=_sum: [m(4, n), torch.tensor([2, 0, 2]), m(3, n)],
            lambda n, x, i, v: prims.index_add(x, 0, i, v, 2),
        )
        record(
            "put",
            lambda n, m=_sum: [m(n, 4), torch.tensor([[0, 0], [-1, 5]]), m(2, 2)],
            lambda n, x, i, v: prims.put(x, i, v, True),
        )
        for _name in ("sum", "prod", "amax", "amin"):
            record(
                "scatter_reduce",
                lambda n, m=_sum: [m(n, 4), places(3 * n, 4).view(n, 3), m(n, 3)],
                lambda n, x, i, v, r=_name: prims.scatter_reduce(x, 1, i, v, r, True),
            )

# products, convolutions, windows ------------------------------------------------------------------
for _dtype in (torch.float32, torch.bfloat16):
    _f = lambda *s, d=_dtype: floats(*s, dtype=d)
    record("mm", lambda n, f=_f: [f(n, 4), f(4, 3)], lambda n, a, b: prims.mm(a, b), tolerance=1e-5)
    record("bmm", lambda n, f=_f: [f(2, n, 4), f(2, 4, n)], lambda n, a, b: prims.bmm(a, b), tolerance=1e-5)
    record("mv", lambda n, f=_f: [f(n, 4), f(4)], lambda n, a, b: prims.mv(a, b), tolerance=1e-5)
    for _name in ("dot", "vdot"):
        record(_name, lambda n, f=_f: [f(n), f(n)], lambda n, a, b, o=_OPS[_name]: o(a, b), tolerance=1e-5)
    for _beta, _alpha in ((1, 1), (0, 2.0), (0.5, 1)):
        record(
            "addmm",
            lambda n, f=_f: [f(3), f(n, 4), f(4, 3)],
            lambda n, c, a, b, k=_beta, m=_alpha: prims.addmm(c, a, b, k, m),
            tolerance=1e-5,
        )
        record(
            "baddbmm",
            lambda n, f=_f: [f(2, 1, 3), f(2, n, 4), f(2, 4, 3)],
            lambda n, c, a, b, k=_beta, m=_alpha: prims.baddbmm(c, a, b, k, m),
            tolerance=1e-5,
        )
record("mm", lambda n: [ints(n, 4), ints(4, 3)], lambda n, a, b: prims.mm(a, b))
record("addmm", lambda n: [ints(3), ints(n, 4), ints(4, 3)], lambda n, c, a, b: prims.addmm(c, a, b, 2, 3))
record("int_mm", lambda n: [ints(n + 17, 8, dtype=torch.int8), ints(8, 16, dtype=torch.int8)], lambda n, a, b: prims.int_mm(a, b))
CONVOLUTIONS = (
    ((4, 2, 3), (2,), (1,), (1,), False, (0,), 1),
    ((4, 2, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1),
    ((4, 1, 3, 2), (2, 3), (0, 1), (2, 1), False, (0, 0), 2),
    ((2, 3, 3, 3), (2, 2), (1, 1), (1, 1), True, (1, 1), 1),
    ((2, 2, 3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1), False, (0, 0, 0), 1),
)  # fmt: skip
for _w, _stride, _padding, _dilation, _transposed, _extra, _groups in CONVOLUTIONS:
    _facts = (_stride, _padding, _dilation, _transposed, _extra, _groups)
    _spatial = (9,) * len(_stride)
    _out = _w[1] * _groups if _transposed else _w[0]
    record(
        "convolution",
        lambda n, w=_w, s=_spatial, o=_out: [floats(n, 2, *s), floats(*w), floats(o)],
        lambda n, x, w, b, f=_facts: prims.convolution(x, w, b, *f),
        tolerance=1e-5,
        ordinary={1},  # whether zeros around an image are multiplied by infinite weights
    )
    record(
        "convolution",
        lambda n, w=_w, s=_spatial: [floats(2, 2, *s[1:], n + 6), floats(*w)],
        lambda n, x, w, f=_facts: prims.convolution(x, w, None, *f),
        tolerance=1e-5,
        ordinary={1},
    )
    if not _transposed:

        def _inputs(n: int, w: Any = _w, s: Any = _spatial, f: Any = _facts, grow: bool = False) -> list[torch.Tensor]:
            x = floats(2, 2, *s[1:], n + 6) if grow else floats(n, 2, *s)
            return [floats(*torch.convolution(x, floats(*w), None, *f).shape), x, floats(*w)]

        for _grow in (False, True):
            record(
                "convolution_backward",
                lambda n, i=_inputs, g=_grow: i(n, grow=g),
                lambda n, g, x, w, f=_facts, o=_out: prims.convolution_backward(g, x, w, (o,), *f, (True, True, True)),
                tolerance=1e-4,  # sums of some 200 products
                static=_grow and max(_stride) > 1,
                ordinary={0, 1, 2},
            )
POOLS = (((3, 3), (2, 2), (1, 1), (1, 1), False), ((2, 2), (2, 2), (0, 0), (1, 1), True), ((2, 3), (1, 2), (0, 1), (2, 1), False))
for _pool in POOLS:
    record("max_pool", lambda n: [floats(n, 2, 7, 7)], lambda n, x, p=_pool: prims.max_pool(x, *p))
    record("max_pool", lambda n: [floats(2, 7, n + 4)], lambda n, x, p=_pool: prims.max_pool(x, *p))

    def _pooled(n: int, p: Any = _pool) -> list[torch.Tensor]:
        x = floats(n, 2, 7, 7)
        values, indices = prims.max_pool(x, *p)
        return [floats(*values.shape), x, indices]

    record("max_pool_backward", _pooled, lambda n, g, x, i, p=_pool: prims.max_pool_backward(g, x, *p, i))
for _include in (True, False):
    record(
        "avg_pool",
        lambda n: [floats(n, 2, 7, 7)],
        lambda n, x, i=_include: prims.avg_pool(x, (3, 2), (2, 1), (1, 0), False, i, None),
    )
    record("avg_pool", lambda n: [floats(2, n + 4)], lambda n, x, i=_include: prims.avg_pool(x, (3,), (2,), (1,), False, i, None))
for _kernel, _stride, _padding, _include in (((3, 2), (2, 1), (1, 0), True), ((2, 2), (2, 2), (0, 0), False)):
    _pool = (_kernel, _stride, _padding, False, _include, None)
    record(
        "avg_pool_backward",
        lambda n, p=_pool: [floats(*prims.avg_pool(floats(n, 2, 7, 7), *p).shape), floats(n, 2, 7, 7)],
        lambda n, g, x, p=_pool: prims.avg_pool_backward(g, x, *p),
    )
for _sizes in ((1, 1), (3, 2), (7, 5)):
    record("adaptive_avg_pool", lambda n: [floats(n, 2, 7, 5)], lambda n, x, s=_sizes: prims.adaptive_avg_pool(x, s))
    record(
        "adaptive_avg_pool_backward",
        lambda n, s=_sizes: [floats(n, 2, *s), floats(n, 2, 7, 5)],
        lambda n, g, x: prims.adaptive_avg_pool_backward(g, x),
    )
for _name in ("reflection_pad", "replication_pad"):
    record(_name, lambda n: [floats(n, 2, 5, 6)], lambda n, x, o=_OPS[_name]: o(x, (1, 2, 0, 3)))
for _exact in (False, True):
    record(
        "upsample_nearest",
        lambda n: [floats(n, 2, 3, 4)],
        lambda n, x, e=_exact: prims.upsample_nearest(x, (6, 12), (None, None), e),
    )
    record(
        "upsample_nearest_backward",
        lambda n: [floats(n, 2, 6, 12)],
        lambda n, g, e=_exact: prims.upsample_nearest_backward(g, (6, 12), (n, 2, 3, 4), (None, None), e),
    )
for _align in (False, True):
    for _sizes in ((6, 9), (2, 4)):
        record(
            "upsample_linear",
            lambda n: [floats(n, 2, 3, 5)],
            lambda n, x, a=_align, s=_sizes: prims.upsample_linear(x, s, a, (None, None)),
            tolerance=1e-5,
        )
        record(
            "upsample_linear_backward",
            lambda n, s=_sizes: [floats(n, 2, *s)],
            lambda n, g, a=_align, s=_sizes: prims.upsample_linear_backward(g, s, (n, 2, 3, 5), a, (None, None)),
            tolerance=1e-5,
        )
record("im2col", lambda n: [floats(n, 2, 6, 7)], lambda n, x: prims.im2col(x, (2, 3), (1, 2), (1, 0), (2, 1)))
record("im2col", lambda n: [floats(2, 2, 6, n + 4)], lambda n, x: prims.im2col(x, (2, 3), (1, 2), (1, 0), (2, 1)))
