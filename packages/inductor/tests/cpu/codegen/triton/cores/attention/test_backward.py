"""Gradients of attention's operands beyond the table of bodies."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[5]))

import pytest
import torch

pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_forms import everything
from attention_kernels import BF16, F32, SCALE, backward_program, forward_program, operands, run, texts
from tracework_primops import FakeMode, SymbolTable, trace_bodies


def test_gradients_are_the_same_in_each_run(tmp_path):
    """Each is summed up by one program: nothing is added to memory."""
    q, k, v, grad = operands()
    rows = torch.zeros(q.shape[:3])
    _, kernels = run(backward_program(*texts("causal")), [grad, q, k, v, rows, rows, rows], tmp_path)
    assert len(kernels) == 2 and not any("atomic" in kernel.source for kernel in kernels.values())


@pytest.mark.parametrize("lowest", [torch.finfo(F32).min, torch.finfo(BF16).min, -1e30, -1e9])
def test_gradients_of_rows_hidden_by_a_low_number(lowest, tmp_path):
    """A row of which all is hidden, one of which a part is, and one of which all is, but one half as low."""
    n = 60
    mask = torch.zeros(n, n).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), lowest)
    mask[7] = mask[9] = lowest
    mask[9, 20] = lowest / 2
    bodies = trace_bodies(
        lambda s, b, h, i, j, x: s + x[i, j],
        everything,
        [FakeMode(SymbolTable()).from_real(mask)],
        F32,
        torch.device("cpu"),
        None,
    )[:3]
    q, k, v, grad = operands(n, n, key_heads=2)
    (out, logs, highest), _ = run(forward_program(*bodies), [q, k, v, mask], tmp_path)
    given = [grad, q, k, v, logs, highest, (grad * out).sum(-1), mask]
    found, _ = run(backward_program(*bodies), given, tmp_path)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    wanted = (leaves[0] @ leaves[1].mT * SCALE + mask).softmax(-1) @ leaves[2]
    torch.testing.assert_close(out, wanted.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(found, list(torch.autograd.grad(wanted, leaves, grad)), rtol=0, atol=1e-5)
