"""Whole programs: breaks, side effects, recompiles, and the modules that must not be imported."""

import contextlib
import io
import subprocess
import sys

import pytest
import torch
import tracework

COUNTER = 0


def awkward(x, seen):
    global COUNTER
    COUNTER += 1
    y = torch.sin(x) * 2
    seen.append(("before", tuple(y.shape)))
    print("sum is positive" if y.sum() > 0 else "sum is not positive")
    if y.sum() > 0:
        seen.append("positive")
        y = y + 1
    else:
        seen.append("negative")
        y = y - 1
    COUNTER += 10
    return y * x, seen


@pytest.mark.parametrize("sign", [1, -1])
def test_branch_print_list_and_global_as_in_plain_python(sign):
    global COUNTER
    x = sign * torch.rand(5)
    runs = []
    for function in (awkward, tracework.compile(awkward)):
        COUNTER, printed, seen = 0, io.StringIO(), []
        with contextlib.redirect_stdout(printed):
            results = [function(x, seen)[0] for _ in range(2)]
        runs.append((results, seen, COUNTER, printed.getvalue()))
    plain, compiled = runs
    for a, b in zip(plain[0], compiled[0], strict=True):
        torch.testing.assert_close(a, b)
    assert plain[1:] == compiled[1:]


def test_three_lengths_take_two_compiles():
    stages = []

    @tracework.compile(observe=lambda stage, _: stages.append(stage))
    def f(x, w):
        return torch.softmax(x @ w, -1).sum(0) + x.size(0)

    w = torch.randn(8, 8)
    for length in (5, 7, 11, 3):
        x = torch.randn(length, 8)
        torch.testing.assert_close(f(x, w), torch.softmax(x @ w, -1).sum(0) + length)
    assert stages.count("captured") == 2


def test_fullgraph_names_the_line_and_the_reason():
    @tracework.compile(fullgraph=True)
    def f(x):
        if x.sum() > 0:  # the line of the break
            return x + 1
        return x[:1]

    with pytest.raises(Exception) as info:
        f(torch.ones(3))
    assert "test_programs.py" in str(info.value)
    assert "if x.sum() > 0" in str(info.value)


def test_off_limits_modules_stay_out():
    program = """
import sys, torch, tracework
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
out = tracework.compile(net)(torch.randn(2, 4))
out.sum().backward()
bad = [m for m in sys.modules if m.startswith(("torch._dynamo", "torch._inductor"))]
print("BAD", bad)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("BAD []")


def test_a_size_symbol_and_a_row_of_scratch_do_not_share_a_name():
    def fn(x, w):
        return torch.softmax(x * 2, -1) * w + x.exp().sum(-1, keepdim=True)

    compiled, w = tracework.compile(fn), torch.randn(16)
    for length in (5, 7, 9):
        x = torch.randn(2, 4, length, 16)
        torch.testing.assert_close(compiled(x, w), fn(x, w))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradients_switched_on_in_a_graph_that_is_entered_without(backend):
    def f(x, w):
        with torch.no_grad():
            y = x * w
            tracework.compiler.graph_break()
            z = y + 1
        kept = w.clone()
        kept[0] = -1
        return z, kept, kept[1:]

    x, w = torch.randn(4, 3), torch.randn(4, 3, requires_grad=True)
    found, expected = tracework.compile(f, backend=backend)(x, w), f(x, w)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.requires_grad == theirs.requires_grad
        torch.testing.assert_close(mine, theirs)
    assert torch.equal(
        torch.autograd.grad(found[2].sum() + found[1].sum(), w)[0], (torch.arange(4)[:, None] > 0) * 2.0 * torch.ones(4, 3)
    )


def test_a_sum_of_no_elements_of_a_repeated_tensor():
    def fn(x):
        return x.repeat(2, 1)[::2].sum(0), x.reshape(3, -1).repeat(2, 1).amax(0)

    x = torch.ones(0, 3)
    for found, expected in zip(tracework.compile(fn)(x), fn(x), strict=True):
        assert torch.equal(found, expected)
