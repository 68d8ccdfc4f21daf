"""Six models: outputs, gradients and no graph break, inference and training."""

import copy

import pytest
import torch
import tracework
from models import MODELS, output_tensor
from tracework_inductor.schedule import workspace

# fp32 with sums in another order than eager's: the bounds that the project promises for outputs and gradients.
OUTPUT_BOUND, GRADIENT_BOUND = 1e-5, 1e-4


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    """||got - expected|| / ||expected||, in float64."""
    return ((got.double() - expected.double()).norm() / expected.double().norm()).item()


@pytest.mark.parametrize("name", MODELS)
def test_inference_equals_eager_without_a_break(name):
    model, inputs = MODELS[name]()
    model.eval()
    compiled = tracework.compile(model, fullgraph=True)
    with torch.no_grad():
        expected = output_tensor(model(**inputs))
        for _ in range(2):
            assert relative(output_tensor(compiled(**inputs)), expected) < OUTPUT_BOUND


def exact_gradients(name):
    """The gradients of two steps of training, in float64."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.double().train()
    for _ in range(2):
        output_tensor(
            model(**{k: v.double() if v.is_floating_point() else v for k, v in inputs.items()})
        ).square().mean().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("placed_from", [0, workspace.LEAST], ids=["in_a_workspace", "allocated"])
def test_training_step_equals_eager_without_a_break(name, placed_from, monkeypatch, tmp_path):
    """With values in a workspace, as large models have them, and allocated one by one, as these small ones have them."""
    monkeypatch.setattr(workspace, "LEAST", placed_from)
    options = {"cache_dir": str(tmp_path)}  # where values lie is not part of the keys of the cache
    reference, inputs = MODELS[name]()
    reference.train()
    model = copy.deepcopy(reference)
    compiled = tracework.compile(model, fullgraph=True, options=options)
    for _ in range(2):
        expected, got = output_tensor(reference(**inputs)), output_tensor(compiled(**inputs))
        assert relative(got, expected) < OUTPUT_BOUND
        for out in (expected, got):
            out.square().mean().backward()
    gradients = [(p.grad, q.grad) for p, q in zip(model.parameters(), reference.parameters(), strict=True)]
    assert all((a is None) == (b is None) for a, b in gradients)
    got = torch.cat([a.flatten() for a, _ in gradients if a is not None])
    expected = torch.cat([b.flatten() for _, b in gradients if b is not None])
    if (
        relative(got, expected) >= GRADIENT_BOUND
    ):  # where rounding turns a ReLU over, in eager's kernels or in ours, float64 is the judge
        exact = exact_gradients(name)
        assert relative(got, exact) < max(GRADIENT_BOUND, 4 * relative(expected, exact))
    for (key, a), b in zip(model.named_buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(a, b, msg=key)


def test_dropout_draws_what_eager_draws():
    reference, inputs = MODELS["gpt2"](dropout=0.1)
    model = copy.deepcopy(reference)
    compiled = tracework.compile(model)
    torch.manual_seed(1)
    expected = reference(**inputs).logits
    torch.manual_seed(1)
    assert relative(compiled(**inputs).logits, expected) < OUTPUT_BOUND
