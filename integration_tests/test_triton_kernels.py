"""Triton kernels of the user as nodes of the graph, run by Triton's interpreter."""

import pytest
import torch
import tracework
from training import BACKENDS, check, same

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from tracework_capture.graph.kernels import written_parameters  # noqa: E402
from triton.runtime.autotuner import Autotuner  # noqa: E402
from triton.runtime.interpreter import InterpretedFunction  # noqa: E402


def add_function(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)


def scale_function(x, row_step, step, columns, factor, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    address = x + tl.program_id(0) * row_step + places * step
    tl.store(address, tl.load(address, mask=places < columns) * factor, mask=places < columns)


def helper(address, value):
    tl.store(address, value)


def indirect_function(a, b, c, d, n):
    for i in range(n):
        pointer = b + i
        pointer = pointer + tl.load(a + i)
        helper(pointer, tl.load(c))
    tl.atomic_add(d, 1)


def hidden_function(a, n):
    tl.store(tl.load(a).to(tl.pointer_type(tl.float32)), n)


add, scale = InterpretedFunction(add_function), InterpretedFunction(scale_function)


def one_grid(x, y):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 16),)](x * 2, y, out, x.numel(), BLOCK=16)
    return out + 1


def grid_of_the_block(x, y):
    out = torch.empty_like(x)
    add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), 8)
    return out * 2


def through_a_view(x, y):
    a = (x.detach() + 1).reshape(4, 5).t()
    view = a[::2]
    scale[(view.shape[0],)](view, view.stride(0), view.stride(1), view.shape[1], 3.0, BLOCK=8)
    return a * 2, view


def an_input(x, y):
    scale[(4,)](y.view(4, 5), 5, 1, 5, 0.5, BLOCK=8)
    return x + y


def beside_autograd(x, y):
    z = x * y
    out = torch.empty_like(z)
    add[(2,)](z, y, out, 20, 16)
    return z.sum() + out.sum(), out.requires_grad


@torch.library.triton_op("tracework_tests::added", mutates_args={})
def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(add)[(2,)](x, y, out, x.numel(), BLOCK=16)
    return out


def operator_of_kernels(x, y):
    return added(x.detach() * 2, y) + torch.ops.tracework_tests.added(y, y)


PROGRAMS = (one_grid, grid_of_the_block, through_a_view, an_input, beside_autograd, operator_of_kernels)


def wraps_interpreted() -> bool:
    """Whether eager's wrap_triton takes kernels that Triton's interpreter runs."""
    try:
        torch.library.wrap_triton(add)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_in_one_graph(fn, backend):
    if fn is operator_of_kernels and not wraps_interpreted():
        pytest.skip(f"eager's wrap_triton of torch {torch.__version__} takes compiled kernels alone")
    needs_grad = fn in (beside_autograd, operator_of_kernels)
    check(fn, torch.arange(20.0, requires_grad=needs_grad), torch.ones(20), backend=backend)


def test_a_kernel_writes_to_an_input():
    x, y = torch.zeros(20), torch.ones(20)
    tracework.compile(an_input, fullgraph=True)(x, y)
    same(y, torch.full((20,), 0.5))


def test_sizes_that_change():
    graphs = []
    compiled = tracework.compile(one_grid, backend=lambda gm, inputs: graphs.append(gm) or gm, fullgraph=True)
    for size in (20, 33, 40, 50):
        same(compiled(torch.arange(float(size)), torch.ones(size)), torch.arange(float(size)) * 2 + 2)
    assert len(graphs) == 2


def test_an_autotuner_chooses_when_the_graph_runs(monkeypatch):
    configs = [triton.Config({"BLOCK": size}) for size in (4, 16)]
    tuned = Autotuner(add, add.arg_names, configs, ["n"], None, None)
    tuned.base_fn = add_function
    monkeypatch.setattr(Autotuner, "_bench", lambda self, *args, config, **meta: [config.kwargs["BLOCK"]] * 3)

    def fn(x, y):
        out = torch.zeros_like(x)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
        return out

    for backend in BACKENDS[:2]:
        compiled = tracework.compile(fn, backend=backend, fullgraph=True)
        same(compiled(torch.arange(20.0), torch.ones(20)), torch.arange(20.0) + 1)


def test_what_a_kernel_writes_to():
    def written(function, *pointers):
        return written_parameters(function) & set(pointers)  # numbers that steer an address are found, too, and mean nothing

    assert written(add_function, "x", "y", "out") == {"out"}
    assert written(scale_function, "x") == {"x"}
    assert written(indirect_function, "a", "b", "c", "d") == {"b", "d"}
    assert written_parameters(hidden_function) is None
