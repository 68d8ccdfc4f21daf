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
