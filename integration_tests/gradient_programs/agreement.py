"""Runs a program plainly and compiled and compares values, layouts, aliasing, history, gradients, errors."""

from __future__ import annotations

import itertools
import random
import warnings

import torch
import tracework
from random_programs import Disagreement, load

from .generate import SIZES, inputs, namespace
from .uses import USES

__all__ = ["check"]

WRITTEN = "modified by an inplace operation"
DETACHED = "has been detached in-place"
FREED = "second time", "already been freed"


def check(described, text, **options):
    """Raises Disagreement; with open sizes, those become dynamic on the way."""
    plain, compiled = load(text, namespace()), tracework.compile(load(text, namespace()), **options)
    try:
        for number, size in enumerate(SIZES[described["sizes"]]):
            expected, actual = (list(observe(main, described, size)) for main in (plain, compiled))
            for (part, a), (other, b) in itertools.zip_longest(expected, actual, fillvalue=("nothing more", None)):
                if part != other or not same(a, b, torch.float32 if "float()" in text else torch.float64):
                    raise Disagreement(f"call {number}: {part} differ\n  plain:    {a}\n  compiled: {other} {b}")
    finally:
        tracework.reset()


def observe(main, described, size):
    """Pairs of a name and what a call gives and leaves."""
    given = inputs(size)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = main(*given)
            everything = [*given, *results]
            for place, t in enumerate(everything):
                yield f"facts of {place}", facts(t, everything)
                yield f"values of {place}", t.detach().clone()
            use = USES[described["use"]]
            for place, seen in enumerate(use(results, given, random.Random(described["seed"]), main)):
                yield f"{described['use']} {place}", seen
        except Exception as error:
            yield "raised", words(error)


def facts(t, everything):
    """What can be seen of a tensor, by numbers that do not depend on addresses; strides where they say where an element is."""
    try:
        history = t.grad_fn is not None
    except RuntimeError:  # of one of several views, whose base was written to
        history = "refused"
    return {
        "shape": tuple(t.shape),
        "stride": tuple(s for size, s in zip(t.shape, t.stride()) if size > 1) if t.numel() else (),
        "dtype": t.dtype,
        "requires_grad": t.requires_grad,
        "is_leaf": t.is_leaf,
        "version": t._version,
        "is_view": t._is_view(),
        "history": history,
        "retains_grad": t.retains_grad,
        "memory": next(i for i, o in enumerate(everything) if o.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()),
        "object": next(i for i, o in enumerate(everything) if o is t),
    }


def words(error):
    """What an error says: what torch's own errors of autograd are about, and otherwise the type."""
    text = str(error)
    if DETACHED in text:
        return DETACHED
    return WRITTEN if WRITTEN in text else FREED[0] if any(words in text for words in FREED) else type(error).__name__


def same(a, b, precision):
    """Equal; tensors up to what sums in another order differ by, with a factor for what is computed from them."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return type(a) is type(b) and a == b
    if a.dtype is not b.dtype or a.shape != b.shape or a.requires_grad != b.requires_grad:
        return False
    near = 1e4 * torch.finfo(precision).eps
    scale = max(1.0, float(a.detach().abs().nan_to_num(0, 0, 0).max())) if a.numel() else 1.0
    return torch.allclose(a, b, rtol=near, atol=near * scale, equal_nan=True)
