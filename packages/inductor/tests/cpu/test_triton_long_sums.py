"""Sums, moments and scans of many steps as Triton kernels, through Triton's interpreter."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor.codegen.triton import config, function  # noqa: E402
from tracework_inductor.lowering import reduction  # noqa: E402
from tracework_primops import prims  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

EPS = torch.finfo(torch.float32).eps
BIASED = 1.8791199922561646
"""One of the values whose sums, one after the other, are off by the most: by 63 units in the last place for 512 of them."""
STEPS = 512


def run(program, x, folder):
    """Results, and the text of the kernels."""
    host, kernels = rendered(graph_of(program, x))

    def launcher(one):
        return lambda *args: triton_interpreter.interpret(one, list(args), (), folder)

    namespace = {name: launcher(one) for name, one in kernels.items()}
    exec(host, namespace)
    return namespace["call"]([x]), "".join(k.source for k in kernels.values())


@pytest.fixture
def one_block(monkeypatch):
    """As if the device were full: no reduction is split."""
    monkeypatch.setattr(config, "splits", lambda shape, chosen: 1)


ROWS = {"aligned": 2048 * STEPS, "with a rest": 2048 * STEPS + 37}


@pytest.mark.parametrize("rest", ROWS)
def test_error_of_a_sum_is_bounded(rest, one_block, tmp_path):
    x = torch.full((1, ROWS[rest]), BIASED)
    (found,), source = run(lambda x: prims.sum(x, (1,)), x, tmp_path)
    assert "all_acc" in source
    most = (
        function.CHAIN + STEPS // function.CHAIN + 12
    )  # additions that a term takes part in: two levels, and a tree over 4096 lanes
    assert abs(found.double().item() / (x.numel() * x[0, 0].double().item()) - 1) <= most * EPS / 2


def test_error_of_columns_is_bounded(one_block, tmp_path):
    x = torch.full((64 * STEPS, 32), BIASED)
    (found,), source = run(lambda x: prims.sum(x, (0,)), x, tmp_path)
    assert "all_acc" in source
    most = function.CHAIN + STEPS // function.CHAIN + 12
    assert (found.double() / (x.shape[0] * x[0, 0].double()) - 1).abs().max() <= most * EPS / 2


@pytest.mark.parametrize("sizes", ((2, 9000), (2, 9001), (300, 40)), ids=str)
def test_moments_of_many_blocks(sizes, one_block, tmp_path, monkeypatch):
    monkeypatch.setattr(function, "CHAIN", 2)
    monkeypatch.setattr(reduction, "_in_one_pass", lambda x, dims: True)
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(0)) + 300
    dim = 1 if sizes[0] == 2 else 0
    (var, mean), source = run(lambda x: prims.var_mean(x, (dim,), 1, False), x, tmp_path)
    assert "all_seen" in source
    true_var, true_mean = torch.var_mean(x.double(), dim, correction=1)
    torch.testing.assert_close(var.double(), true_var, rtol=1e-6, atol=0)  # 8 ulp
    torch.testing.assert_close(mean.double(), true_mean, rtol=1e-6, atol=0)


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("mean", [1000.0, 100000.0])
def test_variance_far_from_0_has_no_bias(mean, blocks, one_block, tmp_path, monkeypatch):
    """Elements lie on a grid of 2**-14 or 2**-7, means of few of them often in the middle between two of its points."""
    monkeypatch.setattr(function, "CHAIN", 64 // blocks)
    monkeypatch.setattr(reduction, "_in_one_pass", lambda x, dims: True)
    x = torch.rand(2, 2048 * 48, generator=torch.Generator().manual_seed(0)) + mean
    (var,), source = run(lambda x: (prims.var_mean(x, (1,), 1, False)[0],), x, tmp_path)
    assert ("all_seen" in source) == (blocks > 1)
    torch.testing.assert_close(var.double(), x.double().var(1), rtol=4 * EPS, atol=0)


def test_what_is_no_number_has_no_variance(one_block, tmp_path, monkeypatch):
    monkeypatch.setattr(reduction, "_in_one_pass", lambda x, dims: True)
    x = torch.ones(2, 9000)
    x[1, 5000] = float("nan")
    (var, mean), _ = run(lambda x: prims.var_mean(x, (1,), 1, False), x, tmp_path)
    assert var[0] == 0 and mean[0] == 1 and var[1].isnan() and mean[1].isnan()


def test_short_loops_have_one_level(one_block, tmp_path):
    _, source = run(lambda x: prims.sum(x, (1,)), torch.ones(1, 20000), tmp_path)
    assert "for roff" in source and "all_acc" not in source


def test_scans_keep_what_their_carry_loses(tmp_path):
    """A carry of 2**36 that alone would lose each step of 2048 ones."""
    x = torch.ones(1, 1 << 14)
    x[0, 0] = 2.0**36
    (found,), source = run(lambda x: prims.cumsum(x, 1), x, tmp_path)
    assert "for roff" in source
    torch.testing.assert_close(found.double(), x.double().cumsum(1), rtol=2**-23, atol=0)
    assert found[0, -1] > 2.0**36


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("length", [100, 1 << 12], ids=["one tile", "many"])
def test_products_of_factors_near_1_have_no_bias(length, dim, tmp_path):
    """Those on the floats' own grid: a product of two is rounded to the side of its error's sign, which adds up."""
    sizes = [2, 2]
    sizes[dim] = length
    x = torch.rand(sizes, generator=torch.Generator().manual_seed(0)) * 1e-3 + 0.9995
    (found,), _ = run(lambda x: prims.cumprod(x, dim), x, tmp_path)
    torch.testing.assert_close(found.double(), x.double().cumprod(dim), rtol=EPS, atol=0)


def test_scans_go_on_after_infinity(tmp_path):
    x = torch.ones(1, 5000)
    x[0, 9] = float("inf")
    (found,), _ = run(lambda x: prims.cumsum(x, 1), x, tmp_path)
    torch.testing.assert_close(found, x.cumsum(1))
