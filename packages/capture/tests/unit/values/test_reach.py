"""What models of the zoo broke on: each runs as one graph now."""

import re
from typing import List  # noqa: UP035

import pytest
import torch
import torch.utils._pytree as pytree
import tracework_capture as capture

X = torch.arange(6.0)


class Cast(torch.nn.Module):
    """Casts a child to the dtype that it has, as routers of expert models do."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 2)

    def forward(self, x):
        self.inner = self.inner.to(x.dtype)
        return self.inner(x)


def annotated_list(x):
    made = torch.jit.annotate(List[torch.Tensor], [])  # noqa: UP006
    made.append(x + 1)
    return made


def classes_as_keys(x):
    table = {int: 1, torch.sin: 2}
    return x + table[int] + table[torch.sin], tuple in pytree.SUPPORTED_NODES, X.__class__ in pytree.SUPPORTED_NODES


def trees(x):
    leaves, _ = pytree.tree_flatten({"a": (x, x + 1), "b": [x * 2]})
    return [leaf.ndim for leaf in leaves], leaves


def vmap_over_nothing(x):
    return torch.vmap(lambda a, b: a * b + 1)(x.view(2, 3)[2:], x.view(2, 3)[:0])


LAYER = re.compile(r"(?P<kind>\w+)\.(\d+)")
TRACED = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(6, 2), torch.nn.ReLU()))


def numbers_in_names(x):
    found = LAYER.match("layer.12")
    also = re.search(r"(\d+)$", "block3")
    return x * int(found[2]) + int(also.group(1)) + len(found["kind"]) + len(re.sub(r"\d", "", "a1b2")) + found.start(2)


def graph_module_inside(x):
    return TRACED(x) * 2


@pytest.mark.parametrize(
    "function",
    [Cast(), annotated_list, classes_as_keys, trees, vmap_over_nothing, numbers_in_names, graph_module_inside],
    ids=lambda f: getattr(f, "__name__", "module"),
)
def test_one_graph(function):
    capture.reset()
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward, fullgraph=True)(function)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), function(X), rtol=0, atol=0)


def test_a_cast_that_changes_something_is_not_skipped():
    capture.reset()
    module = Cast().double()
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(module)
    assert compiled(X).dtype == torch.float32
    assert module.inner.weight.dtype == torch.float32


def test_a_break_in_a_module_breaks_its_callers_once_each():
    """And explain() counts the graphs that optimize() compiles: what is left of Inner, one operation, is not worth one."""

    class Inner(torch.nn.Module):
        def forward(self, x):
            return x * (x + 1).argmax().item()

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x * 2) + 1

    capture.reset()
    found = capture.explain(Outer())(X)
    assert [stop.reason_id for stop in found.breaks] == ["tensor_to_python"] * len(found.breaks)
    assert len(found.graphs) == 3


def test_state_queries_that_pybind11_makes_are_answered_and_other_functions_of_it_break_for_what_they_are():
    def under_transforms(x):
        return x if torch._C._are_functorch_transforms_active() else x + 1

    def unknown(x):
        y = x * 2
        torch._C._jit_get_inline_everything_mode()
        return y + 1

    capture.reset()
    assert capture.explain(under_transforms)(X).breaks == []
    reasons = [stop.reason_id for stop in capture.explain(unknown)(X).breaks]
    assert reasons == ["call_unknown"], reasons


def test_distributions_are_captured_whole(monkeypatch):
    """They read subclasses of property, raise on data, and look for functions by pairs of classes."""
    # torch.compile, where it was used, leaves it off
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    logits, actions = torch.randn(8, 3), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])

    def loss(logits, actions):
        chosen = torch.distributions.Categorical(logits=logits)
        away = torch.distributions.kl_divergence(torch.distributions.Normal(logits, 1.0), torch.distributions.Normal(0.0, 2.0))
        return chosen.log_prob(actions) + away.sum(1)

    expected = loss(logits, actions)
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward, fullgraph=True)(loss)
    torch.testing.assert_close(compiled(logits, actions), expected)
    for run in (loss, compiled):
        with pytest.raises(ValueError, match="within the support"):
            run(logits, actions + 5)


def test_keys_that_are_tuples_of_classes_are_guarded():
    table = {(int, str): 1.0, (int, (str, float)): 2.0}

    def f(x):
        return x + table[int, str] + table.get((float, int), 0.0) + table[int, (str, float)]

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward, fullgraph=True)(f)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), f(X))
        table[float, int] = 5.0
        torch.testing.assert_close(compiled(X), f(X))
        del table[float, int]
        table[int, str] += 1.0
