"""Bodies of attention, for tests of the cores that compute it."""

import math

import torch

SLOPES = torch.linspace(0.1, 0.5, 4)


def everything(s, b, h, i, j, *captured):
    return b.new_ones((), dtype=torch.bool)


def itself(s, b, h, i, j, *captured):
    return s


def causal(s, b, h, i, j, *captured):
    return i >= j


def forms(length, document, prefixes):
    """Functions of (score, b, h, i, j, *captured) for score and mask, and what they capture, for two batches of four heads with up to `length`
    queries and keys: documents of so many, and prefixes of a batch each."""
    documents, table = torch.arange(length) // document, torch.randn(4, 2 * length - 1)
    return {
        "plain": (itself, everything, []),
        "causal": (itself, causal, []),
        "window": (itself, lambda s, b, h, i, j: (i >= j) & (i - j < 40), []),
        "band": (itself, lambda s, b, h, i, j: (i - j).abs() <= 20, []),
        "not a band": (itself, lambda s, b, h, i, j: ~((i - j).abs() <= 20), []),
        "later": (itself, lambda s, b, h, i, j: torch.logical_not(i >= j), []),
        "diagonal": (itself, lambda s, b, h, i, j: i == j, []),
        "rows and keys": (itself, lambda s, b, h, i, j: (i > 40) & (j < 70), []),
        "shifted": (itself, lambda s, b, h, i, j: 2 * i + 30 >= 2 * j, []),
        "alibi": (lambda s, b, h, i, j, x: s + x[h] * (j - i), causal, [SLOPES]),
        "soft-cap": (lambda s, b, h, i, j: 5 * torch.tanh(s / 5), causal, []),
        "documents": (itself, lambda s, b, h, i, j, x: (x[i] == x[j]) & (i >= j), [documents]),
        "prefix": (itself, lambda s, b, h, i, j, x: (j < x[b]) | (i >= j), [torch.tensor(prefixes)]),
        "relative": (lambda s, b, h, i, j, x: s + x[h, i - j + (length - 1)], causal, [table]),
        "masked by scores": (lambda s, b, h, i, j: torch.where(i >= j, s, -math.inf), everything, []),
        "of no score": (lambda s, b, h, i, j: (i - j) * 0.125, everything, []),
    }


def block_mask(mask, rows, columns):
    """The eight tensors of a BlockMask of a mask (queries, keys): counts and places of partial and of full blocks, of keys, then of queries."""
    queries, keys = mask.shape
    parts = mask.reshape(queries // rows, rows, keys // columns, columns).permute(0, 2, 1, 3).flatten(2)
    some, all_ = parts.any(2), parts.all(2)
    found = []
    for kind in (some & ~all_, all_), ((some & ~all_).T, all_.T):
        for shown in kind:
            order = shown.int().argsort(dim=1, descending=True, stable=True).int()
            found += [shown.sum(1).int()[None, None], order[None, None]]
    return found
