"""Every function and method of torch has a policy; torch_policy.txt holds the counts and every name that is no node of the graph.

Written again by: python packages/capture/tests/unit/values/test_torch_policy.py
"""

import types
from pathlib import Path

import pytest
import torch
from tracework_capture.values.torch_policy import BREAK, EVALUATED, GRAPH, MODELLED, TRACED, method_policy, torch_policy

TABLE = Path(__file__).with_name("torch_policy.txt")
POLICIES = (GRAPH, EVALUATED, MODELLED, TRACED, BREAK)
NAMESPACES = {
    "torch": torch,
    "torch.nn.functional": torch.nn.functional,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
}


def policies():
    """Namespace -> name -> policy."""
    found = {}
    for space, module in NAMESPACES.items():
        callables = {n: getattr(module, n, None) for n in sorted(dir(module))}
        found[space] = {n: torch_policy(f) for n, f in callables.items() if callable(f) and not isinstance(f, types.ModuleType)}
    methods = [n for n in sorted(dir(torch.Tensor)) if callable(getattr(torch.Tensor, n, None))]
    return found | {"torch.Tensor": {n: method_policy(n) for n in methods}}


def render():
    """The text of the table."""
    lines = [f"torch {torch.__version__.partition('+')[0]}"]
    for space, names in policies().items():
        lines += ["", f"{space}: {len(names)}"]
        for policy in POLICIES:
            chosen = [n for n, p in names.items() if p == policy]
            shown = "" if policy == GRAPH else ": " + " ".join(chosen)
            lines += [f"  {len(chosen)} {policy}{shown}"] if chosen else []
    return "\n".join(lines) + "\n"


def test_every_function_and_method_has_a_policy():
    for names in policies().values():
        assert names and set(names.values()) <= set(POLICIES)


def test_the_table_is_current():
    if TABLE.read_text().partition("\n")[0] != render().partition("\n")[0]:
        pytest.skip("the table is of another torch")
    assert render() == TABLE.read_text()


@pytest.mark.parametrize(
    ("fn", "policy"),
    [
        (torch.add, MODELLED),
        (torch.sin, GRAPH),
        (torch.linalg.cond, GRAPH),
        (torch.nn.functional.relu, GRAPH),
        (torch.is_grad_enabled, EVALUATED),
        (torch.set_flush_denormal, BREAK),
        (torch.cond, MODELLED),
        (torch.pca_lowrank, TRACED),
    ],
    ids=str,
)
def test_some_policies(fn, policy):
    assert torch_policy(fn) == policy


if __name__ == "__main__":
    TABLE.write_text(render())
