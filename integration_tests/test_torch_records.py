"""A sample of the records that torch keeps of autograd.Functions, custom operators and higher-order operators, with gradients of two
orders: as in eager."""

import warnings

import pytest
import torch
import tracework
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.hop_db import hop_db
from torch.utils import _pytree as pytree

RECORDS = {f"{r.name}.{r.variant_test_name}": r for r in (*autograd_function_db, *custom_op_db, *hop_db)}
SAMPLE = (
    "NumpyMulAutogradFunction.",
    "SortGenVmapAutogradFunction.",
    "ZeroGradientsGenVmapAutogradFunction.",
    "ForwardHasDefaultArgsAutogradFunction.",
    "NumpyExpMarkDirtyAutogradFunction.",
    "NumpyMulCustomOp.",
    "NumpySplitCopyCustomOp.",
    "NumpyNonzeroCustomOp.",
    "cond.simple",
    "while_loop.simple",
)


def copies(values):
    """The same values with tensors of their own."""
    return pytree.tree_map(
        lambda t: t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t, values
    )


def gradients(values, at):
    """Of a function of the values, that is not linear in them; None where eager refuses."""
    values = [v for v in values if v is not None and v.requires_grad]
    if not values or not at:
        return []
    try:
        return torch.autograd.grad(sum(v.square().sum() for v in values), at, create_graph=True, allow_unused=True)
    except RuntimeError:
        return None


def outcome(function, args, kwargs):
    torch.manual_seed(0)
    found = [t for t in pytree.tree_leaves(function(*args, **kwargs)) if isinstance(t, torch.Tensor)]
    at = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    first = gradients(found, at)
    facts = [(t.dtype, t.stride(), t.requires_grad) for t in found]
    return facts, [t.detach() for t in found], first, None if first is None else gradients(first, at)


@pytest.mark.parametrize("name", SAMPLE)
def test_as_in_eager(name):
    record = RECORDS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(record.sample_inputs("cpu", torch.float32, requires_grad=record.supports_autograd))
    for sample in samples[:2]:
        function = tracework.compile(lambda *args, **kwargs: record.op(*args, **kwargs), backend="aot_eager")
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        mine, theirs = (outcome(f, *copies((args, kwargs))) for f in (function, record.op))
        for a, b in zip(mine, theirs, strict=True):
            if b is None or name.startswith("cond") and b == []:
                continue  # eager has no gradient of this order
            torch.testing.assert_close(a, b) if b and isinstance(b[0], torch.Tensor) else None
            assert isinstance(b, (list, tuple)) and len(a) == len(b)
        assert mine[0] == theirs[0]
