"""Gradients of pools, gathered, through Triton's interpreter."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch
from tracework_inductor.lowering import window
from tracework_primops import prims

programs = pytest.importorskip("test_triton_programs")

WINDOWS = {
    "overlapping": ((3, 3), (2, 2), (1, 1), False),
    "ends early": ((2, 2), (2, 2), (0, 0), False),
    "gaps": ((2, 2), (3, 3), (0, 0), False),
    "ceil": ((3, 2), (2, 2), (1, 0), True),
}


@pytest.mark.parametrize("sizes", ((9, 11), (8, 16), (7, 29)), ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_equals_eager(name, sizes, tmp_path, monkeypatch):
    monkeypatch.setattr(window, "GATHERED_ON", {"cpu"})
    kernel, stride, padding, ceil = WINDOWS[name]
    torch.manual_seed(0)
    x = torch.randint(0, 3, (2, 3, *sizes)).float()  # ties
    out, indices = torch.nn.functional.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil, return_indices=True)

    def gradient(g, x, i):
        return prims.max_pool_backward(g, x, kernel, stride, padding, (1, 1), ceil, i)

    case = gradient, lambda: (torch.randn_like(out), x, indices)
    monkeypatch.setitem(programs.PROGRAMS, name, case)
    assert "max_pool" not in programs.rendered(programs.graph_of(gradient, *case[1]()))[0]
    programs.test_equals_eager(name, tmp_path)


@pytest.mark.parametrize("form", (torch.contiguous_format, torch.channels_last), ids=str)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float64), ids=str)
@pytest.mark.parametrize("sizes", ((2, 4, 16, 32), (1, 3, 9, 37)), ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_both_ways_as_on_a_gpu(name, sizes, dtype, form, tmp_path):
    """Rows that fill blocks, and rows that do not, in the kernels of a GPU."""
    kernel, stride, padding, ceil = WINDOWS[name]
    torch.manual_seed(0)
    x = torch.randint(-3, 3, sizes).to(dtype, memory_format=form)  # ties
    out, indices = torch.nn.functional.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil, return_indices=True)
    g = torch.randn_like(out)

    def both(x, g, i):
        gradient = prims.max_pool_backward(g, x, kernel, stride, padding, (1, 1), ceil, i)
        return *prims.max_pool(x, kernel, stride, padding, (1, 1), ceil), gradient

    host, kernels = programs.rendered(programs.graph_of(both, x, g, indices, device=torch.device("cuda", 0)))
    assert "max_pool" not in host
    *found, gradient = programs.triton_interpreter.host_call(host, kernels, tmp_path)([x, g, indices])
    for value, wanted in zip(found, (out, indices), strict=True):
        torch.testing.assert_close(value, wanted, rtol=0, atol=0, check_stride=True)
    leaf = x.double().requires_grad_()
    exact = torch.nn.functional.max_pool2d(leaf, kernel, stride, padding, ceil_mode=ceil)
    (exact,) = torch.autograd.grad(exact, leaf, g.double())
    assert (gradient.dtype, gradient.stride()) == (x.dtype, x.stride())
    torch.testing.assert_close(gradient.double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("form", (torch.contiguous_format, torch.channels_last), ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_indices_of_few_bits_are_converted_by_what_reads_them(name, form, tmp_path):
    kernel, stride, padding, ceil = WINDOWS[name]
    torch.manual_seed(0)
    x = torch.randint(-3, 3, (1, 2, 9, 16)).float().contiguous(memory_format=form)  # ties
    out, indices = torch.nn.functional.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil, return_indices=True)
    g = torch.randn_like(out)

    def both(x, g, i):
        wide = prims.convert(i, torch.int64)
        gradient = prims.max_pool_backward(g, x, kernel, stride, padding, (1, 1), ceil, wide)
        return prims.convert(prims.max_pool(x, kernel, stride, padding, (1, 1), ceil)[1], torch.int16), gradient

    short = indices.short()
    host, kernels = programs.rendered(programs.graph_of(both, x, g, short, device=torch.device("cuda", 0)))
    assert "max_pool" not in host and "int64)" not in host
    found, gradient = programs.triton_interpreter.host_call(host, kernels, tmp_path)([x, g, short])
    torch.testing.assert_close(found, short, rtol=0, atol=0, check_stride=True)
    leaf = x.clone().requires_grad_()
    torch.nn.functional.max_pool2d(leaf, kernel, stride, padding, ceil_mode=ceil).backward(g)
    torch.testing.assert_close(gradient, leaf.grad, check_stride=True)
