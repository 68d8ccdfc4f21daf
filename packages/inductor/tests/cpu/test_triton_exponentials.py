"""Sums of exponentials taken while a row's maximum is looked for, through Triton's interpreter, against float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor.codegen.triton import function  # noqa: E402
from tracework_primops import prims  # noqa: E402
from triton_programs import graph_of, rendered, softmax  # noqa: E402

INF, NAN = float("inf"), float("nan")
CUDA = torch.device("cuda", 0)


def log_softmax(x):
    x = prims.convert(x, torch.float32)
    below = prims.sub(x, prims.amax(x, (1,), True))
    return prims.sub(below, prims.log(prims.sum(prims.exp(below), (1,), True)))


def log_sum(x):
    return prims.logsumexp(x, (1,), False)


def scaled(x):
    return softmax(prims.mul(x, 8.0))


PROGRAMS = {
    "softmax": (softmax, lambda x: x.softmax(1)),
    "log softmax": (log_softmax, lambda x: x.log_softmax(1)),
    "log sum": (log_sum, lambda x: x.logsumexp(1)),
    "scaled": (scaled, lambda x: (8 * x.float()).double().softmax(1)),
}


def rows(count, width):
    """Rows of plain numbers, and with what is not: each at the start of a row, where nothing has been seen, and behind."""
    x = torch.randn(count, width)
    x[0, :9] = -INF
    x[1] = -INF
    x[2, width // 2 :] = -INF
    x[3, 11] = INF
    x[4, [5, width - 1]] = INF
    x[5, width // 3] = NAN
    x[6, 0], x[6, 1] = INF, NAN
    x[7] = torch.finfo(torch.float32).min
    x[8] = torch.linspace(-80, 80, width)
    x[9] = torch.linspace(1e30, -1e30, width)
    return x


SHAPES = {"whole": (132, 17001), "whole aligned": (132, 17408), "split": (12, 33001), "one step": (132, 16385)}
CASES = [
    *(("softmax", shape, 64) for shape in SHAPES),
    *((program, "split", 64) for program in PROGRAMS if program != "softmax"),
    ("log sum", "whole", 2),
]


@pytest.mark.parametrize(("program", "shape", "chain"), CASES)
def test_equals_float64(program, shape, chain, tmp_path, monkeypatch):
    monkeypatch.setattr(function, "CHAIN", chain)
    torch.manual_seed(0)
    (ours, eager), x = PROGRAMS[program], rows(*SHAPES[shape])
    host, kernels = rendered(graph_of(ours, x, device=CUDA))
    (kernel,) = kernels.values()
    assert "tl.reshape" in kernel.source
    assert ("split" in dict(kernel.launch)["kind"]) == (shape == "split")
    assert ("rstart" in kernel.source) == (chain == 2)
    found = triton_interpreter.host_call(host, kernels, tmp_path)([x])[0]
    expected = eager(x.double())
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=1e-6, equal_nan=True)


def test_of_half_types(tmp_path):
    torch.manual_seed(0)
    x = rows(132, 17000).to(torch.bfloat16)
    host, kernels = rendered(graph_of(log_softmax, x, device=CUDA))
    found = triton_interpreter.host_call(host, kernels, tmp_path)([x])[0]
    torch.testing.assert_close(found.double(), x.double().log_softmax(1), rtol=2e-5, atol=1e-5, equal_nan=True)


def test_a_row_is_read_once_for_both():
    """In memory-bound programs this is what counts: one loop for maximum and sum, one for the result."""
    x = torch.empty(132, 20000)
    _, kernels = rendered(graph_of(softmax, x, device=CUDA))
    (kernel,) = kernels.values()
    loops = [line for line in kernel.source.splitlines() if "for roff" in line]
    assert len(loops) == 3  # of the first pass, whole steps and the rest


def gradient(grad, y, classes):
    """Of the log-probability of a class of each row."""
    width = y.shape[1]
    here = prims.eq(prims.unsqueeze(prims.iota(width, 0, 1, torch.int64, y.spec.device), 0), prims.unsqueeze(classes, 1))
    grads = prims.where(here, prims.unsqueeze(grad, 1), 0.0)
    grads = prims.convert(prims.convert(grads, torch.bfloat16), torch.float32)
    return prims.sub(grads, prims.mul(prims.exp(y), prims.sum(grads, (1,), True)))


@pytest.mark.parametrize(("count", "width"), ((40, 300), (40, 17000), (3, 9000)))
def test_the_sum_of_a_row_of_one_place_is_looked_up(count, width, tmp_path):
    """Classes outside of the row have none; what is there is rounded as each term is, and -0.0 becomes what a sum gives."""
    torch.manual_seed(0)
    y, grad, classes = torch.randn(count, width).log_softmax(1), torch.randn(count), torch.randint(0, width, (count,))
    classes[:3] = torch.tensor([-1, width, width - 1])
    grad[2] = -0.0
    host, kernels = rendered(graph_of(gradient, grad, y, classes, device=CUDA))
    (kernel,) = kernels.values()
    assert "tl.sum" not in kernel.source
    found = triton_interpreter.host_call(host, kernels, tmp_path)([grad, y, classes])[0]
    expected = graph_of(gradient, grad, y, classes).run(grad, y, classes)[0]
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-6)  # the interpreter cuts halves off
    assert (found[:2] == 0).all()


def counted(m, classes, width=300):
    """How many of a row are there: of bools, whose zero is a word."""
    here = prims.eq(prims.unsqueeze(prims.iota(width, 0, 1, torch.int64, m.spec.device), 0), prims.unsqueeze(classes, 1))
    return prims.sum(prims.convert(prims.where(here, m, False), torch.float32), (1,), False)


def test_bools_of_one_place_are_summed(tmp_path):
    m, classes = torch.rand(20, 1) > 0.5, torch.randint(0, 300, (20,))
    host, kernels = rendered(graph_of(counted, m, classes, device=CUDA))
    found = triton_interpreter.host_call(host, kernels, tmp_path)([m, classes])[0]
    assert torch.equal(found, m[:, 0].float())


def chosen(x, classes):
    return prims.gather(log_softmax(x), 1, prims.unsqueeze(classes, 1))


def test_log_probabilities_that_few_read_are_not_written(tmp_path):
    torch.manual_seed(0)
    for width, written in ((17000, False), (6, True)):
        x, classes = torch.randn(20, width), torch.randint(0, width, (20,))
        host, kernels = rendered(graph_of(chosen, x, classes, device=CUDA))
        assert (f"empty_cuda((20, {width}, )" in host) == written
        found = triton_interpreter.host_call(host, kernels, tmp_path)([x, classes])[0]
        torch.testing.assert_close(found, x.log_softmax(1).gather(1, classes[:, None]))


def exponentials_of_more(x):
    return prims.sum(prims.exp(prims.sub(prims.mul(x, 2.0), prims.amax(x, (1,), True))), (1,), True)


def differences(x):
    return prims.sum(prims.sub(x, prims.amax(x, (1,), True)), (1,), True)


@pytest.mark.parametrize(
    ("program", "eager"),
    (
        (exponentials_of_more, lambda x: (2 * x - x.amax(1, keepdim=True)).exp().sum(1, keepdim=True)),
        (differences, lambda x: (x - x.amax(1, keepdim=True)).sum(1, keepdim=True)),
    ),
)
def test_what_is_no_such_sum_is_as_it_was(program, eager, tmp_path):
    """Of exponentials of something else than the maximum is of, and of no exponentials."""
    torch.manual_seed(0)
    x = torch.randn(20, 17000)
    host, kernels = rendered(graph_of(program, x, device=CUDA))
    assert not any("tl.reshape" in k.source for k in kernels.values())
    found = triton_interpreter.host_call(host, kernels, tmp_path)([x])[0]
    torch.testing.assert_close(found.double(), eager(x.double()), rtol=1e-5, atol=0)
