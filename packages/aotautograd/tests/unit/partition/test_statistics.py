"""Log-probabilities whose backward is given two numbers of a row."""

import pytest
import torch
from torch.nn import functional as F

aten = torch.ops.aten
CPU = frozenset({"cpu"})


def targets(*sizes, classes=12):
    return torch.arange(torch.Size(sizes).numel()).reshape(sizes) % classes


LOSSES = {
    "log-probabilities": (lambda x: (x.sin().log_softmax(1),), (5, 12)),
    "along the first dim": (lambda x: (x.sin().log_softmax(0).exp(),), (5, 12)),
    "of images": (lambda x: (F.log_softmax(x.sin(), 1).sum(3),), (2, 12, 3, 4)),
    "cross entropy": (lambda x: (F.cross_entropy(x.sin(), targets(5)),), (5, 12)),
    "smoothed": (lambda x: (F.cross_entropy(x.sin(), targets(5), label_smoothing=0.1),), (5, 12)),
    "left out": (lambda x: (F.cross_entropy(x.sin(), targets(5), ignore_index=3, reduction="sum"),), (5, 12)),
    "of images, weighted": (
        lambda x: (F.cross_entropy(x.sin(), targets(2, 3, 4), torch.arange(12, dtype=x.dtype)),),
        (2, 12, 3, 4),
    ),
    "probabilities": (lambda x: (F.cross_entropy(x.sin(), x.detach().softmax(1)),), (5, 12)),
    "divergence": (lambda x: (F.kl_div(x.sin().log_softmax(1), x.detach().softmax(1), reduction="batchmean"),), (5, 12)),
    "a hidden class": (lambda x: (F.log_softmax(x.masked_fill(x > 1e9, float("-inf")), 1)[:, 1:],), (5, 12)),
    "turned": (lambda x: (F.log_softmax(x.sin().mT, 1),), (5, 12)),
    "a number": (lambda x: (F.log_softmax(x.sin(), 0),), ()),
    "no classes": (lambda x: (F.log_softmax(x.sin(), 1),), (5, 0)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_results_and_gradients_are_eagers(name, check):
    program, sizes = LOSSES[name]
    x = torch.randn(sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    if name == "a hidden class":
        x[:, 0] = 1e10
    check(program, x.requires_grad_(), second=False, row_statistics=CPU)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_rounded_where_eager_rounds_them(dtype, pair):
    def program(x):
        return F.log_softmax(x * 2, 1), F.cross_entropy(
            x.to(torch.float64 if x.dtype == torch.float64 else torch.float32) * 2, targets(7)
        )

    x = torch.randn(7, 100, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    found = pair(program, x, row_statistics=CPU)
    mine, theirs = found.call()
    torch.testing.assert_close(mine, theirs, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)
    wide = x.detach().double().requires_grad_()
    exact = found.grads(program(wide), [wide])[0]
    errors = [(found.grads(*ends)[0] - exact).norm() for ends in ((mine, found.mine), (theirs, found.theirs))]
    assert errors[0] <= 1.2 * errors[1]


def test_what_is_kept_of_widened_scores_is_two_numbers_of_a_row(pair):
    x, w = torch.randn(16, 8, dtype=torch.bfloat16), torch.randn(300, 8, dtype=torch.bfloat16)
    found = pair(
        lambda x, w: (F.cross_entropy((x @ w.mT).float(), targets(16)),),
        x.requires_grad_(),
        w.requires_grad_(),
        row_statistics=CPU,
        recompute_costly="always",
    )
    (program,) = found.programs
    kept = [n.meta["val"] for n in program.backwards[0].graph.graph.nodes if n.op == "placeholder"]
    assert {v.dtype for v in kept if v.numel() == 16 * 300} == {torch.bfloat16}
    assert [tuple(v.shape) for v in kept].count((16, 1)) == 2
    assert not any(n.target in (aten.amax.default, aten._log_softmax.default) for n in program.backwards[0].graph.graph.nodes)


def test_elsewhere_it_stays_the_operator(pair):
    found = pair(lambda x: (F.cross_entropy(x.sin(), targets(5)),), torch.randn(5, 12, requires_grad=True))
    assert any(n.target is aten._log_softmax.default for n in found.programs[0].forward.graph.nodes)
