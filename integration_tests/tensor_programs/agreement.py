"""Runs a program plainly and compiled and compares values, dtypes, strides, offsets, aliasing, history, versions, gradients, errors."""

from __future__ import annotations

import warnings

import torch
import tracework
from random_programs import Disagreement, load

from .generate import SIZES, inputs, namespace

__all__ = ["check"]

TOLERANCE = {torch.float32: 2e-4, torch.float64: 2e-4, torch.bfloat16: 6e-2, torch.float16: 1e-2, torch.complex64: 2e-4}
INDEX = IndexError, RuntimeError
"""What a position out of range raises depends on the operator in eager; kernels raise IndexError."""


REFUSED = "one of the variables needed for gradient computation"
"""A compiled graph may keep an input for its backward where eager keeps what it computes from it: a write in between is then refused."""


class Raised(str):
    """An error, equal to others of its type."""

    def __new__(cls, error):
        made = super().__new__(cls, f"{type(error).__name__}: {error}")
        made.kind = INDEX if type(error) in INDEX else type(error)
        return made


def check(described, text, **options):
    """Raises Disagreement; each size is called in turn, so that sizes become dynamic on the way."""
    rounds = "bfloat16" in text or ".half()" in text or any(kind == "half" for kind, *_ in described)
    plain, compiled = load(text, namespace()), tracework.compile(load(text, namespace()), **options)
    try:
        for number in range(len(SIZES)):
            expected, actual = observe(plain, described, number), observe(compiled, described, number)
            for part in dict.fromkeys([*actual, *expected]):
                a, b = expected.get(part), actual.get(part)
                if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
                    for place, (p, q) in enumerate(zip(a, b)):
                        if not same(p, q, rounds):
                            raise Disagreement(f"call {number}: {part} {place} differ\n  plain:    {p}\n  compiled: {q}")
                elif b != REFUSED and not same(a, b, rounds):
                    raise Disagreement(f"call {number}: {part} differ\n  plain:    {a}\n  compiled: {b}")
    finally:
        tracework.reset()


def observe(function, described, number):
    """What a call gives and leaves."""
    given = inputs(described, number)
    bases = [t._base if t._is_view() else t for t in given]
    versions = [t._version for t in given]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = list(function(*given))
            facts_seen = facts([*given, *results])  # eager refuses to say them of some views
        except Exception as error:
            return {"raised": Raised(error)}
        everything = [*given, *results]
        seen = {"facts": facts_seen, "data": [t.detach().clone() for t in [*everything, *bases]]}
        seen["written"] = [t._version > version for t, version in zip(given, versions)]
        seen["gradients"] = gradients(given, results)
    return seen


def facts(everything):
    """What can be seen of each tensor, by numbers that do not depend on addresses; strides where they say where an element is."""
    memory, seen = {}, []
    for t in everything:
        first = (len(memory), t.storage_offset())
        place, start = memory.setdefault(t.untyped_storage().data_ptr(), first) if t.numel() else (None, t.storage_offset())
        seen.append(
            {
                "shape": tuple(t.shape),
                "stride": tuple(s for size, s in zip(t.shape, t.stride()) if size > 1) if t.numel() else (),
                "offset": t.storage_offset() - start,  # a result alone may have no memory before it
                "dtype": t.dtype,
                "requires_grad": t.requires_grad,
                "is_leaf": t.is_leaf,
                "version": t._version,
                "is_view": t._is_view(),
                "history": history(t),
                "memory": place,
                "object": next(i for i, o in enumerate(everything) if o is t),
            }
        )
    return seen


def history(t):
    """Whether it has one; eager refuses to say it of one of several views whose base was written to."""
    try:
        return t.grad_fn is not None
    except RuntimeError as error:
        return str(error)[:20]


def gradients(given, results):
    """Of each leaf, from a weighted sum of all results; the first words of the error where backward raises."""
    leaves = [t for t in given if t.requires_grad and t.is_leaf]
    sums = [
        t.double().nan_to_num(0, 0, 0).sum() * (i + 1)
        for i, t in enumerate(results)
        if history(t) is True and t.is_floating_point()
    ]
    if not leaves or not sums:
        return []
    try:
        return list(torch.autograd.grad(sum(sums), leaves, allow_unused=True))
    except RuntimeError as error:
        return REFUSED if str(error).startswith(REFUSED) else str(error)[:40]


def same(a, b, rounds=False):
    """Equal; floats in tensors nearly so: to bfloat16's precision where the program rounds to it, which kernels may leave out in between."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype is not b.dtype or a.shape != b.shape:
            return False
        near = TOLERANCE[torch.bfloat16] if rounds and a.dtype.is_floating_point else TOLERANCE.get(a.dtype)
        if near is None:
            return torch.equal(a, b)
        scale = float(a.detach().abs().double().nan_to_num(0, 0, 0).max()) if a.numel() else 0.0
        return torch.allclose(a, b, rtol=near, atol=near * min(max(scale, 1e-3), 10.0), equal_nan=True)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(p, q, rounds) for p, q in zip(a, b))
    if isinstance(a, Raised) and isinstance(b, Raised):
        return a.kind == b.kind
    return type(a) is type(b) and a == b
