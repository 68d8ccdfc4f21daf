"""NumPy's numbers in compiled code are constants as Python's are; arrays break the graph; torch.tensor of tensors is stacked."""

import numpy
import pytest
import torch
import tracework
from training import BACKENDS, check, same


def constants(x):
    a = x * numpy.pi * numpy.float32(2.0) + numpy.int64(3) - numpy.float64(0.5) * x
    return a / numpy.sqrt(x.shape[-1]), x.reshape(numpy.prod(x.shape)), numpy.int32(2) ** x, x[:, numpy.int64(1)]


def promotion(x):
    i = x.detach().int()
    return i * numpy.float32(2.5), i + numpy.int64(1), i > numpy.float64(2), torch.where(i > 2, i, numpy.int64(5))


def factories(x):
    limit = numpy.finfo(numpy.float32).min
    made = torch.tensor(numpy.float32(2)), torch.tensor(numpy.float64(2)), torch.as_tensor(numpy.int32(2))
    lists = torch.tensor([numpy.float64(1), 2]), torch.tensor([numpy.float32(1)]), torch.full((2,), numpy.float64(3))
    return *made, *lists, x.detach().masked_fill(x > 2, limit)


def python_side(x):
    numbers = numpy.round(2.6), numpy.maximum(2, 3), numpy.mean([1, 2, 3.5]), numpy.float32(1) + 1, numpy.int64(7) // 2
    facts = 3 == numpy.int64(3), x.shape[0] < numpy.float64(2.5), isinstance(numpy.float64(1), float), int(numpy.floor(2.5))
    return x + 1, [type(n).__name__ for n in numbers], [float(n) for n in numbers], facts, f"{numpy.float64(1.5)}"


def stacked(x):
    x = x.detach()
    mixed = torch.tensor([[x[0, 0], 1.0], [2, True]]), torch.tensor([x[0, 0].double(), 1.0]), torch.as_tensor([x.argmax(), 3])
    return torch.tensor([x.sum(), x.mean()]), *mixed, torch.tensor((x[0, 0].half(), x[0, 1])), torch.tensor([x[0, 0] > 1, False])


PROGRAMS = (constants, promotion, factories, python_side, stacked)


def inputs():
    return [torch.arange(1.0, 7.0).reshape(2, 3).requires_grad_()]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_in_one_graph(fn, backend):
    check(fn, *inputs(), backend=backend)


def test_a_number_of_an_object_is_guarded():
    class Holder:
        pass

    holder, x = Holder(), torch.ones(2)
    compiled = tracework.compile(lambda h, x: (x * h.scale, h.scale > 1, type(h.scale).__name__), backend="eager", fullgraph=True)
    for scale in (numpy.float32(1.5), numpy.float64(1.5), 1.5, numpy.float32(0.5)):
        holder.scale = scale
        same(list(compiled(holder, x)), [x * scale, scale > 1, type(scale).__name__])


def test_sizes_that_change_do_not_fix_the_numbers():
    compiled = tracework.compile(lambda x: (x * numpy.sqrt(x.shape[0]), x.shape[0] > numpy.float64(4.5)), backend="eager")
    for size in (3, 4, 5, 6):
        x = torch.ones(size)
        same(list(compiled(x)), [x * numpy.sqrt(size), size > numpy.float64(4.5)])


def with_arrays(x):
    a = x.detach().numpy()
    b = numpy.sin(a) * 2 + numpy.arange(3.0)
    b[0] = 7
    return torch.from_numpy(b) + x, b, torch.tensor([x.argmax(), 1.5])


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_arrays_are_left_to_numpy(backend):
    compiled = tracework.compile(with_arrays, backend=backend)
    for _ in range(2):
        found, expected = compiled(*inputs()), with_arrays(*inputs())
        same(
            [found[0].detach(), torch.from_numpy(found[1]), found[2]],
            [expected[0].detach(), torch.from_numpy(expected[1]), expected[2]],
        )
