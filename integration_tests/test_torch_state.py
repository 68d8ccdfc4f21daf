"""torch's own state inside a compiled function: inference mode, generators, layouts; as plain Python has it, in the graph or over a break."""

import pytest
import torch
import tracework
from training import BACKENDS, same


def inference(x):
    with torch.inference_mode():
        made = x * 2
        facts = [torch.is_inference_mode_enabled(), torch.is_grad_enabled(), made.is_inference(), x.is_inference()]
        with torch.inference_mode(False):
            other = x * 3
            facts += [torch.is_inference_mode_enabled(), torch.is_grad_enabled(), other.is_inference()]
    with torch.no_grad(), torch.inference_mode(False):
        facts.append(torch.is_grad_enabled())
    return made, other, facts, torch.is_inference_mode_enabled()


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference_mode(backend):
    x = torch.arange(3.0, requires_grad=True)
    same(list(tracework.compile(inference, backend=backend, fullgraph=True)(x)), list(inference(x)))


def test_inference_mode_that_began_outside():
    compiled = tracework.compile(inference, backend="eager")
    with torch.inference_mode():
        x = torch.arange(3.0)
        same(list(compiled(x)), list(inference(x)))


def with_generator(x, generator):
    own = torch.Generator().manual_seed(5)
    return torch.rand(3, generator=generator) + x, torch.randn(3, generator=generator), torch.randint(9, (3,), generator=own)


def test_generators():
    x = torch.ones(3)
    compiled = tracework.compile(with_generator, backend="eager")
    for seed in (4, 4, 5):
        found, expected = (fn(x, torch.Generator().manual_seed(seed)) for fn in (compiled, with_generator))
        same(list(found), list(expected))


def sparse(matrix, x):
    return torch.sparse.mm(matrix, x + 1) * 2


def test_sparse_tensors_are_left_to_plain_python():
    matrix, x = torch.eye(3).to_sparse(), torch.ones(3, 2)
    same(tracework.compile(sparse, backend="eager")(matrix, x), sparse(matrix, x))


def another_dtype(x):
    before = torch.ones(2) * x[0]
    torch.set_default_dtype(torch.float64)
    made = torch.ones(3), torch.zeros_like(x), torch.tensor([1.5]), torch.arange(0, 1, 0.25), torch.Tensor([2]), x * 2
    made[0].add_(1)
    other = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    return before, made, torch.ones(3) + x, other == torch.float64


def left_as_it_is(x):
    y = torch.ones(3)
    torch.set_default_dtype(torch.float64)
    return y * x, torch.ones(3), torch.rand(2).dtype


def another_device(x):
    torch.set_default_device("meta")
    made = torch.ones(2, 3), torch.empty_like(x)
    where = torch.get_default_device().type, torch.device("cpu")
    torch.set_default_device(None)
    return made[0].shape, made[0].device, made[1] * 0 == 0, torch.ones(3) + x, where


def broken_between(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3) * x.sum().item()
    return y, torch.ones(2)


def promoted(x):
    torch.set_default_dtype(torch.float64)
    return x.long() / 2, torch.ones(2)


@pytest.fixture
def defaults():
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [another_dtype, left_as_it_is, another_device, broken_between, promoted], ids=lambda f: f.__name__)
def test_default_dtype_and_device(fn, backend, defaults):
    def run(function):
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(0)
        return [*function(torch.arange(3.0)), torch.get_default_dtype(), torch.get_default_device().type]

    compiled = tracework.compile(fn, backend=backend, fullgraph=fn not in (broken_between, promoted))
    for _ in range(2):
        same(run(compiled), run(fn))


def test_defaults_are_put_back_when_the_frame_runs_again(defaults):
    def fn(x):
        torch.set_default_dtype(torch.float64)
        if (x < 0).any():
            raise ValueError(str(torch.ones(1).dtype))
        return torch.ones(2) + x

    compiled = tracework.compile(fn, backend="eager")
    for x, y in ((torch.ones(2), -torch.ones(2)),):
        torch.set_default_dtype(torch.float32)
        assert compiled(x).dtype is torch.float64
        torch.set_default_dtype(torch.float32)
        with pytest.raises(ValueError, match=r"torch\.float64"):
            compiled(y)
