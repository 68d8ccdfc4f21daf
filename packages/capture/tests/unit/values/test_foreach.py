"""torch._foreach_*: floats that change, in lists too, and what functions that write give back."""

import pytest
import torch
from tracework_capture import optimize

NUMBERS = (0.1, 2.0, 0.75, 3.25, -1.5)
WRITING = [f"_foreach_{name}_" for name in ("add", "sub", "mul", "div", "clamp_min", "clamp_max", "maximum", "minimum", "lerp")]
NAMES = [*(name[:-1] for name in WRITING), *WRITING, "_foreach_pow"]


def tensors():
    return [torch.tensor([1.5, -2.0, float("nan")]), torch.arange(1.0, 4.0, dtype=torch.float64)]


def outcome(program, number):
    given = tensors()
    found = program(given, number)
    return given, found, found is given


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_floats_that_change(fresh, name, listed):
    function = getattr(torch, name)

    def program(given, number):
        others = [given] if "lerp" in name else []
        return function(given, *others, [number, -number] if listed else number)

    graphs = []
    compiled = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=True)(program)
    for number in NUMBERS:
        (given, found, same), (expected, wanted, is_same) = outcome(compiled, number), outcome(program, number)
        torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
        assert type(found) is type(wanted) and same == is_same
        assert [t._version for t in given] == [t._version for t in expected]
    assert len(graphs) == 2


def test_gradients(fresh):
    def program(given, number):
        leaves = [t.detach().requires_grad_() for t in given]
        made = torch._foreach_mul(torch._foreach_clamp_min(leaves, [number, number / 2]), [number, 3.0])
        sum(t.sum() for t in made).backward()
        return [leaf.grad for leaf in leaves]

    compiled = optimize(lambda gm, inputs: gm.forward)(program)
    for number in NUMBERS:
        torch.testing.assert_close(compiled(tensors(), number), program(tensors(), number), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", [list, tuple])
def test_what_writes_gives_its_list(fresh, kind):
    def program(given, others):
        found = [torch._foreach_zero_(given), torch._foreach_copy_(given, others), torch._foreach_addcmul_(given, others, others)]
        packed = torch.ops.aten._foreach_neg_(list(given))
        return [each is given for each in found], type(found[0]), packed

    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)
    given, expected = kind(tensors()), kind(tensors())
    assert compiled(given, tensors()) == program(expected, tensors())
    torch.testing.assert_close(given, expected, equal_nan=True)
