"""Dims in and out of range, of tensors of no to two dims: what fakes give or raise is eager's, for every operator that takes a dim."""

import pytest
import torch
import torch.nn.functional as F
from tracework_primops import FakeMode

BY_NAME = (
    "sum mean prod amax amin argmax argmin any all nansum nanmean cumsum cumprod logcumsumexp cummax cummin logsumexp count_nonzero "
    "max min var std var_mean std_mean softmax log_softmax sort argsort squeeze unsqueeze unbind flip glu"
).split()
OF_DIM = {name: getattr(torch, name, None) or getattr(F, name, None) for name in BY_NAME} | {
    "aminmax": lambda x, d: torch.aminmax(x, dim=d),
    "sum, twice": lambda x, d: x.sum((d, 0)),
    "amax, twice": lambda x, d: x.amax((d, 0)),
    "vector_norm": lambda x, d: torch.linalg.vector_norm(x, 2, d),
    "transpose": lambda x, d: x.transpose(d, 0),
    "movedim": lambda x, d: x.movedim(d, 0),
    "diagonal": lambda x, d: x.diagonal(0, d, 0),
    "select": lambda x, d: x.select(d, 0),
    "slice": lambda x, d: torch.ops.aten.slice(x, d, 0, 1),
    "narrow": lambda x, d: x.narrow(d, 0, 1),
    "unfold": lambda x, d: x.unfold(d, 1, 1),
    "chunk": lambda x, d: x.chunk(1, d),
    "flatten": lambda x, d: x.flatten(d),
    "unflatten": lambda x, d: x.unflatten(d, (1, -1)),
    "stack": lambda x, d: torch.stack([x, x], d),
    "cat": lambda x, d: torch.cat([x, x], d),
    "roll": lambda x, d: x.roll(1, d),
    "repeat_interleave": lambda x, d: x.repeat_interleave(2, d),
    "gather": lambda x, d: x.gather(d, torch.zeros_like(x, dtype=torch.int64)),
    "scatter": lambda x, d: x.scatter(d, torch.zeros_like(x, dtype=torch.int64), x),
    "index_select": lambda x, d: x.index_select(d, torch.tensor([0])),
    "slice_scatter": lambda x, d: x.slice_scatter(x, d),
    "renorm": lambda x, d: x.renorm(2, d, 1.0),
}
SIZES = [(), (2,), (2, 3), (0, 3), (2, 0)]


def made(program, x, d):
    """Sizes and dtypes, or what is raised."""
    try:
        found = program(x, d)
    except Exception as error:
        told = str(error).splitlines()[0]
        return type(error), told if told.startswith("Dimension out of range") else ""
    return [(tuple(t.shape), t.dtype) for t in (found if isinstance(found, (tuple, list)) else (found,))]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", OF_DIM)
def test_a_dim_is_taken_or_refused_as_in_eager(name, sizes):
    x = torch.rand(sizes)
    # before torch 2.15 these look at a dim only where there is something to compare
    for d in range(-len(sizes), len(sizes)) if name in ("cummax", "cummin") and not x.numel() else range(-4, 5):
        wanted = made(OF_DIM[name], x, d)
        mode = FakeMode()
        with mode:
            found = made(OF_DIM[name], mode.from_real(x), d)
        assert found == wanted, d
