"""Arithmetic of Python numbers with out=, which makes tensors of them."""

import itertools

import pytest
import torch
from tracework_capture import optimize

FUNCTIONS = [torch.add, torch.sub, torch.mul, torch.div, torch.floor_divide, torch.true_divide, torch.ops.aten.mul]
NUMBERS = [(2, 3), (2, 2.5), (0.1, 3), (True, 3), (1j, 0.1)]


def outcome(call):
    """What it gives, or the type of what it raises."""
    try:
        return call()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64], ids=str)
def test_two_numbers(fresh, function, dtype):
    def program(x, out, a, b):
        y = x + 1
        result = function(a, b, out=out)
        return y * out, result is out, function(a, b, out=torch.empty(0, dtype=out.dtype))

    graphs = []
    compiled = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(program)
    for a, b in NUMBERS:
        outs = [torch.zeros((), dtype=dtype) for _ in range(2)]
        expected = outcome(lambda: program(torch.ones(3), outs[0], a, b))
        given = outcome(lambda: compiled(torch.ones(3), outs[1], a, b))
        torch.testing.assert_close(outs[1], outs[0], rtol=0, atol=0)
        assert given == expected if isinstance(expected, type) else all(map(same, given, expected))


def same(a, b):
    return torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, torch.Tensor) else a is b


def test_one_graph(fresh):
    def program(x, out, a, b):
        torch.add(a, b, out=out)
        y = x * out
        torch.sub(input=a, other=b, alpha=2, out=out)
        return y + out

    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)
    for a, b in itertools.chain(NUMBERS[:2], [(4, 7.25), (5, 0.1)]):
        outs = [torch.zeros(()) for _ in range(2)]
        assert torch.equal(compiled(torch.ones(3), outs[1], a, b), program(torch.ones(3), outs[0], a, b))
        assert torch.equal(*outs)


class Plain:
    pass


class Items(list):
    pass


REFUSED = [Plain(), torch.nn.Identity(), Items(), [1], (1,), {}, {1}, int, ValueError("text"), torch.ones(2), None, "text", len]


@pytest.mark.parametrize("operand", REFUSED, ids=lambda operand: type(operand).__name__)
@pytest.mark.parametrize("number", [2, 2.5])
def test_divmod_refuses_in_its_own_words(fresh, operand, number):
    def said(left, right):
        try:
            return divmod(left, right)
        except TypeError as error:
            return str(error)

    def program(x):
        return x + 1, said(operand, number), said(number, operand)

    x = torch.ones(2)
    assert optimize(lambda gm, inputs: gm.forward)(program)(x)[1:] == program(x)[1:]
