"""mode="reduce-overhead" with programs that wait for the GPU: none of them fails, whether or not a table says so beforehand."""

import pytest
import torch
import tracework

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

PROGRAMS = {
    "to the CPU": lambda x: (x * 2).cpu() + 1,
    "to the CPU and back": lambda x: (x * 2).cpu().cuda() + 1,
    "a number": lambda x: x * x.sum().item(),
    "inverse": lambda x: torch.linalg.inv(x @ x.T + 9 * torch.eye(8, device="cuda")),
    "eigenvalues": lambda x: torch.linalg.eigvalsh(x @ x.T) + 1,
    "singular values": lambda x: torch.linalg.svdvals(x) + 1,
    "any eigenvalues": lambda x: torch.linalg.eigvals(x).abs().sum() + 1,
    "triangular": lambda x: torch.linalg.cholesky(x @ x.T + 9 * torch.eye(8, device="cuda")) * 2,
    "solution": lambda x: torch.linalg.solve(x @ x.T + 9 * torch.eye(8, device="cuda"), x) * 2,
    "least squares": lambda x: torch.linalg.lstsq(x, x).solution * 2,
    "determinant": lambda x: torch.linalg.slogdet(x @ x.T + 9 * torch.eye(8, device="cuda"))[1] * 2,
    "nonzero": lambda x: (x > 0).nonzero() + 1,
    "mask": lambda x: x[x > 0] * 2,
    "write by mask": lambda x: torch.where(x > 0, x, 0).index_put((x > 1,), x.new_zeros(())) + 1,
    "unique": lambda x: (x * 3).int().unique() + 1,
    "bincount": lambda x: (x.abs() * 3).int().flatten().bincount() + 1,
    "repeated": lambda x: (x * 2).repeat_interleave((x[:, 0].abs() * 3).int(), 0) + 1,
    "histogram": lambda x: torch.histc(x * 2, 5) + 1,
    "product": lambda x: (x @ x).relu(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:.*cannot be recorded as a CUDA graph:RuntimeWarning")
def test_calls_one_after_another(name):
    fn = PROGRAMS[name]
    compiled = tracework.compile(fn, mode="reduce-overhead")
    kept = []
    for seed in range(5):
        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(seed)).cuda()
        kept.append((compiled(x), fn(x)))
    for found, expected in kept:
        torch.testing.assert_close(found, expected)
