"""torch.Tensor(...), torch.FloatTensor(...), Tensor.new(...), Tensor.new_tensor(...): one graph, and the tensor that eager makes."""

import numpy
import pytest
import torch
from harness import capture, check

PROGRAMS = {
    "sizes": lambda x: torch.Tensor(2, x.shape[0]).zero_(),
    "a torch.Size": lambda x: torch.Tensor(x.shape).fill_(2),
    "nothing": lambda x: torch.Tensor(),
    "a list": lambda x: torch.Tensor([1, 2.5]) * x[0, :2],
    "a tuple is data": lambda x: torch.LongTensor((2, 3)),
    "nested lists": lambda x: torch.DoubleTensor([[1, 2], [3, x.shape[1]]]),
    "another dtype": lambda x: (torch.HalfTensor([1.5]), torch.BoolTensor([0, 2]), torch.IntTensor(2).zero_()),
    "a tensor": lambda x: torch.Tensor(x),
    "an array": lambda x: torch.FloatTensor(numpy.arange(3.0)) + torch.Tensor(numpy.ones(3, numpy.float32)),
    "new sizes": lambda x: x.new(2, 3).fill_(1),
    "new of a size": lambda x: x.new(x.size()).zero_() + x,
    "new data": lambda x: x.double().new([1, 2]),
    "new_tensor": lambda x: (x.long().new_tensor([0, -2]), x.new_tensor([True]), x.double().new_tensor(2) * x),
    "new_tensor with options": lambda x: (
        x.new_tensor([1.5], dtype=torch.int32, device="cpu"),
        x.half().new_tensor([1], dtype=None),
    ),
    "new_tensor of sizes and tensors": lambda x: (x.new_tensor(x.shape), x.double().new_tensor([x[0, 1], 2]), x.new_tensor([])),
    "on the same device": lambda x: x.new(2, device="cpu").zero_(),
    "a Variable": lambda x: (torch.autograd.Variable(x * 2).add_(1) * x, torch.autograd.Variable(x, requires_grad=False)),
    "whether a result is a Variable": lambda x: x + isinstance(x + 1, torch.autograd.Variable),
    "the kind of a result": lambda x: (
        x + isinstance(x + 1, torch.FloatTensor) + 2 * isinstance(x.long(), (int, torch.LongTensor))
    ),
    "a kind of another dtype, or device": lambda x: x + isinstance(x * 2, (torch.LongTensor, torch.cuda.FloatTensor)),
    "a kind of tensor": lambda x: x + isinstance(x, torch.FloatTensor) - 2 * isinstance(x, torch.LongTensor),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_goes_into_the_graph(name):
    check(PROGRAMS[name], torch.arange(6.0).reshape(2, 3))


def test_a_tensor_is_aliased():
    def program(x):
        y = torch.Tensor(x)
        y.add_(1)
        return y, x * 2

    check(program, torch.ones(3))
    x = torch.ones(3, requires_grad=True)
    run, _ = capture(lambda x: torch.Tensor(x * 2), x)
    run().sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_variable_has_no_history_and_shares_memory():
    def fn(x, w):
        v = torch.autograd.Variable(w * 2)
        v += x
        alias = torch.autograd.Variable(w)
        return v * w, v.requires_grad, alias, type(alias) is torch.Tensor

    w = torch.nn.Parameter(torch.ones(3))
    run, _ = capture(fn, torch.ones(3), w)
    product, asks, alias, plain = run()
    assert (asks, plain, alias.requires_grad, alias.data_ptr()) == (False, True, False, w.data_ptr())
    (gradient,) = torch.autograd.grad(product.sum(), w)
    assert gradient.tolist() == [3, 3, 3]


def test_a_variable_that_asks_for_a_gradient_is_a_leaf():
    def fn(x):
        v = torch.autograd.Variable(x.data, requires_grad=True)
        (v * v).sum().backward()
        return v, torch.autograd.Variable(x * 2, True) * x

    x = torch.arange(3.0, requires_grad=True)
    run, _ = capture(fn, x)
    v, product = run()
    assert v.is_leaf and v.grad.tolist() == [0, 2, 4] and x.grad is None
    product.sum().backward()
    assert x.grad.tolist() == [0, 2, 4]


def test_the_default_dtype_counts():
    torch.set_default_dtype(torch.float64)
    try:
        check(lambda x: torch.Tensor([1, 2]), torch.ones(2))
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("fn", [lambda x: torch.LongTensor(x), lambda x: torch.Tensor(2.5), lambda x: x.new(2, device="meta")])
def test_what_eager_refuses_is_refused_by_it(fn):
    check(fn, torch.ones(2), fullgraph=False)
